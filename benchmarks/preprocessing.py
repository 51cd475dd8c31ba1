"""Evaluate preprocessing on a dedicated phantom with known truth.

    python -m benchmarks.preprocessing --folder /tmp/evidence --out benchmarks/preprocessing.tsv

Three subjects (T1w 2 mm, BOLD 4 mm × 60 volumes) are scanned twice: lying still, and moving, with spin history from
motion and slow white matter and CSF fluctuations that reach grey matter. Heads, T1w images and ROI means are the same
in both. A third scan repeats the second with 300 volumes, because 34 regressors leave little of 60 volumes. The scans
of `DIFFICULT` differ from the first by one difficulty each. Finished parts in the folder are reused. `--registration`
names the settings of the functional half and of the rows with a requirement; normalisation is measured with all of
`--normalisations`.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shlex
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from scipy.ndimage import map_coordinates

from benchmarks.registration import AFFINE, SETTINGS, affine_alone, normalised
from bolt.atlases.image import load_atlas
from bolt.config import Simulate, load_denoise, load_registration
from bolt.config.layout import anatomical_names
from bolt.datasets.phantom import simulate
from bolt.io.files import read_json, write_json, write_table
from bolt.io.streams import iter_volumes
from bolt.io.volumes import check_bold
from bolt.preprocess import images
from bolt.preprocess.functional.confounds import read_motion
from bolt.preprocess.functional.motion import resample
from bolt.preprocess.functional.timing import read_slice_times, slice_timed
from bolt.preprocess.functional.workflow import Output, functional_names, preprocess_functional
from bolt.preprocess.templates import PHANTOM_SPACE, stage_template
from bolt.series.denoise import choose_confounds, clean
from bolt.series.native_space import Transforms, parcellate_native
from bolt.series.parcellate import Parcellated, parcellate
from bolt.truth import Truth, coregistration_error, correlation, normalisation_error, position_errors

ATLAS = "dosenbach160"
SERIES = "ROI series, r"
EVENTS = {"n_events": 4, "event_amplitude": 3.0}  # weaker than the demo's, which make short scans alike
STILL = Simulate(n_subjects=3, bold_resolution=[4.0, 4.0], n_volumes=[60, 60], physiology_percent=0.5, **EVENTS)
MOVING = {"motion_fd": 0.5, "jerks": 6, "spin_history_percent": 6.0, "physiology_percent": 4.0}
VARIANTS = {
    "still": STILL,
    "moving": STILL.model_copy(update=MOVING),
    "moving, long": STILL.model_copy(update=MOVING | {"n_volumes": [300, 300], "jerks": 30}),
}
DIFFICULT: dict[str, dict[str, Any]] = {
    "part of the field": {"field_height": 90.0},
    "thick slices": {"bold_resolution": [3.0, 3.0], "slice_thickness": 6.0},
    "distorted": {"distortion_mm": 8.0},
    "single-band reference": {"sbref": True},
    "strong motion": {"motion_fd": 1.0, "jerks": 20, "spin_history_percent": 6.0},
    "2 mm": {"bold_resolution": [2.0, 2.0]},
    "TR 0.72 s, 1200 volumes": {"tr": [0.72, 0.72], "n_volumes": [1200, 1200]},
}
DENOISE = ("24p", "24p_acompcor")
POSITIONS = (
    ("translation error, a parameter", "mm", 0.1),
    ("rotation error, a parameter", "degrees", 0.1),
    ("translation error, length", "mm", None),
    ("rotation error, length", "degrees", None),
)
"""Measures of head position, their units, and upper limits."""
COST, COST_UNITS = "cost.json", {"processor time, functional": "s", "peak memory, functional": "MB"}
OUTPUTS: tuple[Output, ...] = ("template", "native")
VERSIONS = ("antspyx", "nilearn", "nipype", "numpy", "scipy")
COLUMNS = {
    "measure": "Measure; median over voxels, volumes or ROIs, then over subjects",
    "scan": "still: mean FD about 0.2 mm; moving: about 0.5 mm, with spin history and slow physiology; others: "
    "as still, with one difficulty",
    "registration": "Settings of config/registration",
    "output": "Space in which ROI means were taken",
    "denoise": "Strategy of config/denoise",
    "value": "Median over subjects",
    "unit": "Unit of the value",
    "subjects": "Values of the subjects",
    "null": "Value without any skill",
    "ceiling": "Value with known geometry: what the noise leaves",
    "required": "Requirement for the value",
    "passed": "Whether the requirement is met; n/a: none",
}


@dataclass
class Row:
    """One row of the table; `values` has one entry per subject."""

    measure: str
    values: Sequence[float]
    unit: str = ""
    scan: str = ""
    registration: str = ""
    output: str = ""
    denoise: str = ""
    null: float = np.nan
    ceiling: float = np.nan
    low: float | None = None
    high: float | None = None
    value: float = field(init=False)

    def __post_init__(self) -> None:
        """Set the median over subjects."""
        self.value = float(np.median(self.values))

    @property
    def passed(self) -> bool | None:
        """Return whether the requirement is met; None if there is none."""
        if self.low is None and self.high is None:
            return None
        return bool((self.low is None or self.value >= self.low) and (self.high is None or self.value <= self.high))

    def cells(self) -> dict[str, object]:
        """Return the cells of the row, by `COLUMNS`."""
        bound = next((f"{sign} {limit:.3g}" for sign, limit in (("≥", self.low), ("≤", self.high)) if limit), None)
        passed = None if self.passed is None else str(self.passed).lower()
        subjects = " ".join(f"{value:.3f}" for value in self.values)
        return {k: v for k, v in asdict(self).items() if k in COLUMNS} | {
            "subjects": subjects,
            "required": bound,
            "passed": passed,
        }


class Evidence:
    """The phantom's folder and the measures taken there.

    Parameters
    ----------
    folder : path
    variants : mapping of str to Simulate
        Scans of the same subjects; T1w images are those of the first.
    """

    def __init__(self, folder: Path, variants: dict[str, Simulate]) -> None:
        self.folder, self.template = folder, folder / "template"
        if not (self.template / "T1w.nii.gz").is_file():
            stage_template(PHANTOM_SPACE, 2.0, self.template)
        for name, settings in variants.items():
            if not (folder / name).is_dir():
                simulate(folder / name, settings)
        self.first = next(iter(variants))
        self.everyone = sorted(path.name for path in (folder / self.first).glob("sub-*"))
        self.subjects = list(self.everyone)

    def truth(self, subject: str, scan: str) -> Truth:
        """Return the truth of a scan."""
        return Truth(self.folder / scan / "derivatives" / "truth", f"{subject}_task-rest")

    def anat(self, subject: str, registration: str) -> Path:
        """Return the folder of the anatomical half, run if needed."""
        t1w = self.folder / self.first / subject / "anat" / f"{subject}_T1w.nii.gz"
        return normalised(t1w, self.template, PHANTOM_SPACE, registration, self.folder, f"{subject}_")

    def bold(self, subject: str, scan: str) -> tuple[Path, float]:
        """Return the raw image and its repetition time in seconds."""
        path = self.folder / scan / subject / "func" / f"{subject}_task-rest_bold.nii.gz"
        return path, float(nib.Nifti1Image.from_filename(path).header.get_zooms()[3])

    def func(self, subject: str, scan: str, registration: str, output: Output = "template") -> dict[str, Path]:
        """Return the files of the functional half, run if needed."""
        out = self.folder / registration / subject / scan / output
        if not (out / COST).is_file():
            bold, tr = self.bold(subject, scan)
            anat = self.anat(subject, registration)
            settings = load_registration(registration)
            arguments = bold, anat, self.template, PHANTOM_SPACE, 2.0, settings, out, self.folder / "work"
            sbref = bold.with_name(bold.name.replace("_bold", "_sbref"))
            keys = {"scan_id": f"{subject}_task-rest", "prefix": f"{subject}_", "tr": tr, "output": output}
            keys["sbref"] = sbref if sbref.is_file() else None
            with ProcessPoolExecutor(1, get_context("spawn")) as process:  # so that its memory is its own
                write_json(process.submit(_preprocessed, arguments, keys).result(), out / COST)
        names = functional_names(f"{subject}_task-rest", PHANTOM_SPACE, output)
        return {port: out / name for port, name in names.items()}

    def coregistration(self, scan: str, registration: str) -> Row:
        """Return the error of the T1w's place in the volumes; null: the header's place."""
        values, nulls = [], []
        for subject in self.subjects:
            truth, made = self.truth(subject, scan), self.func(subject, scan, registration)
            mask, affine = images.load(
                self.anat(subject, registration) / anatomical_names(f"{subject}_", PHANTOM_SPACE)["mask"]
            )
            known = truth.t1w_to_bold, truth.motion, images.mask_centre(mask, affine)
            found = images.read_matrix(made["bold_to_t1w"]), read_motion(made["motion"])
            values.append(coregistration_error(*found, *known))
            nulls.append(coregistration_error(np.eye(4), truth.motion, *known))
        null = float(np.median(nulls))
        return Row("coregistration error, 50-mm sphere", values, "mm", scan, registration, null=null)

    def costs(self, scan: str, registration: str) -> list[Row]:
        """Return processor time and peak memory of the functional half."""
        made = [read_json(self.func(s, scan, registration)["mask"].with_name(COST)) for s in self.subjects]
        where = (scan, registration, "template")
        return [Row(name, [cost[name] for cost in made], unit, *where) for name, unit in COST_UNITS.items()]

    def rois(self, subject: str, scan: str, registration: str, output: Output, denoise: str) -> Parcellated:
        """Return the ROI series as the pipeline recovers them."""
        made = self.func(subject, scan, registration, output)
        bold, tr = self.bold(subject, scan)
        atlases, strategy = [load_atlas(ATLAS)], load_denoise(denoise)
        if output == "template":
            inputs = {port: made[port] for port in ("mask", "confounds")}
            return parcellate(made["bold"], atlases, **inputs, denoise=strategy, tr=tr)[ATLAS]
        anat = self.anat(subject, registration)
        names = anatomical_names(f"{subject}_", PHANTOM_SPACE)
        transforms = Transforms(
            **{port: anat / names[port] for port in ("forward", "inverse")},
            **{port: made[port] for port in ("bold_to_t1w", "motion", "mask", "confounds")},
        )
        keys = {"space": PHANTOM_SPACE, "denoise": strategy, "tr": tr, "threshold": 0.5, "slice_timing": True}
        return parcellate_native(bold, atlases, transforms, **keys)[ATLAS]

    # ---- measures ----------------------------------------------------------------------------
    def normalisation(self, registration: str) -> Row:
        """Return the normalisation error over grey matter, median, mm."""
        grey = nib.Nifti1Image.from_filename(self.template / "gm.nii.gz")
        errors = []
        for subject in self.subjects:
            prefix = f"{subject}_"
            if registration == AFFINE:
                anat = self.anat(subject, "fast")
                transform = affine_alone(anat, self.template, PHANTOM_SPACE, prefix, self.folder / "affine" / subject)
            else:
                names = anatomical_names(prefix, PHANTOM_SPACE)
                transform = self.anat(subject, registration) / names["forward"]
            errors.append(normalisation_error(self.truth(subject, self.first).places, grey, transform))
        null = float(np.median([nothing for _, _, nothing in errors]))
        values = [found for found, _, _ in errors]
        return Row("normalisation error over grey matter", values, "mm", registration=registration, null=null)

    def motion(self, scan: str, registration: str) -> list[Row]:
        """Return the errors of head position: per parameter (three each), and their length."""
        errors, nulls = [], []
        for subject in self.subjects:
            truth = self.truth(subject, scan)
            positions = read_motion(self.func(subject, scan, registration)["motion"])
            mask, affine = images.load(
                self.anat(subject, registration) / anatomical_names(f"{subject}_", PHANTOM_SPACE)["mask"]
            )
            centre = images.apply(truth.t1w_to_bold, images.mask_centre(mask, affine))
            still = np.broadcast_to(np.eye(4), positions.shape)
            errors.append(_sizes(position_errors(positions, truth.motion, centre)))
            nulls.append(_sizes(position_errors(still, truth.motion, centre)))
        null = np.median(nulls, axis=0)
        return [
            Row(measure, np.stack(errors)[:, i].tolist(), unit, scan, registration, null=null[i], high=high)
            for i, (measure, unit, high) in enumerate(POSITIONS)
        ]

    def series(self, scan: str, registration: str, output: Output, denoise: str) -> list[Row]:
        """Correlate recovered with true ROI series, median over ROIs; null: another subject's truth.

        Regression removes signal along with noise, more so in short scans. Regressed series are therefore compared with
        the original truth and with the truth after the same regression.
        """
        correlations, regressed_truth, nulls = [], [], []
        truths = [np.load(self.truth(subject, scan).series).astype(float) for subject in self.everyone]
        strategy = load_denoise(denoise)
        for i, subject in enumerate(self.subjects):
            made = self.rois(subject, scan, registration, output, denoise)
            bold, tr = self.bold(subject, scan)
            confounds = self.func(subject, scan, registration, output)["confounds"]
            chosen = choose_confounds(confounds, strategy, len(truths[i]), bold)
            kept = slice(None) if chosen.kept is None else chosen.kept
            regressed = clean(truths[i], chosen, strategy, tr, bold)
            comparisons = (correlations, truths[i][kept]), (regressed_truth, regressed), (nulls, truths[i - 1][kept])
            for values, truth in comparisons:
                values.append(float(np.nanmedian(correlation(made.series, truth))))
        where = (scan, registration, output, denoise, float(np.median(nulls)))
        if denoise != "none":
            return [
                Row(SERIES, correlations, "", *where),
                Row(f"{SERIES}, truth regressed alike", regressed_truth, "", *where),
            ]
        ceiling = float(np.median([self.ceiling(subject, scan) for subject in self.subjects]))
        return [Row(SERIES, correlations, "", *where, ceiling)]

    def ceiling(self, subject: str, scan: str) -> float:
        """Return the correlation (`series`) of means over the true positions of the ROIs in every volume."""
        truth, atlas = self.truth(subject, scan), load_atlas(ATLAS).image
        label = np.asarray(atlas.dataobj).astype(int)
        points = images.apply(atlas.affine, np.argwhere(label).astype(float))
        places = truth.places
        voxels = images.apply(np.linalg.inv(places.affine), points).T
        coordinates = [map_coordinates(axis, voxels, order=1) for axis in np.moveaxis(places.get_fdata(), -1, 0)]
        points, values = np.stack(coordinates, axis=-1), label[label > 0]
        bold, tr = self.bold(subject, scan)
        info = check_bold(bold, tr)
        volumes = slice_timed(iter_volumes(bold), read_slice_times(bold, info.shape, tr), tr, 0)
        sampled = resample(volumes, info.affine, truth.motion @ truth.t1w_to_bold, points)
        means = [np.bincount(values, volume)[np.unique(values)] for volume in sampled]  # sums, which correlate equally
        return float(np.nanmedian(correlation(np.stack(means), np.load(truth.series))))


def _preprocessed(arguments: tuple[Any, ...], keys: dict[str, Any]) -> dict[str, float]:
    """Run the functional half in this process; return what it cost."""
    preprocess_functional(*arguments, **keys)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return dict(zip(COST_UNITS, (used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), strict=True))


def _sizes(errors: tuple[np.ndarray, np.ndarray]) -> list[float]:
    """Return medians over volumes, in the order of `POSITIONS`."""
    parameters = [float(np.median(np.abs(error))) for error in errors]
    return parameters + [float(np.median(np.linalg.norm(error, axis=1))) for error in errors]


def measure(evidence: Evidence, registration: str, normalisations: Iterable[str], denoise: Iterable[str]) -> list[Row]:
    """Return all rows of the table with their requirements."""
    rows = {name: evidence.normalisation(name) for name in dict.fromkeys((AFFINE, *normalisations, registration))}
    rows[registration].high = rows[AFFINE].value / 2
    table = list(rows.values())
    for scan in VARIANTS:
        table += evidence.motion(scan, registration)
        for output in OUTPUTS:
            plain = evidence.series(scan, registration, output, "none")[0]
            plain.low = 0.95 if (scan, output) == ("still", "template") else None
            table.append(plain)
            for name in denoise:
                original_truth, regressed_truth = evidence.series(scan, registration, output, name)
                if name == "24p_acompcor":
                    original_truth.low = plain.value if scan == "moving, long" else None
                    regressed_truth.low = plain.value if scan != "still" else None
                table += [original_truth, regressed_truth]
    for scan in ("still", *DIFFICULT):
        table += evidence.motion(scan, registration)[2:] if scan in DIFFICULT else []
        table.append(evidence.coregistration(scan, registration))
        table += evidence.series(scan, registration, "template", "none") if scan in DIFFICULT else []
        table += evidence.costs(scan, registration)
    return table


def main() -> None:
    """Measure, print the table, and exit with 1 if a requirement is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--registration", default="fast")
    parser.add_argument("--normalisations", nargs="*", default=SETTINGS)
    parser.add_argument("--denoise", nargs="*", default=DENOISE)
    parser.add_argument("--subjects", type=int, default=3, help="number of subjects; fewer for a quick look")
    parser.add_argument("--out", type=Path, help="table (TSV, with its sidecar)")
    options = parser.parse_args()
    difficult = {name: STILL.model_copy(update=keys) for name, keys in DIFFICULT.items()}
    evidence = Evidence(options.folder, VARIANTS | difficult)
    evidence.subjects = evidence.subjects[: options.subjects]
    rows = measure(evidence, options.registration, options.normalisations, options.denoise)
    table = pd.DataFrame([row.cells() for row in rows])[list(COLUMNS)]
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    threads = os.environ.get("ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "all")
    print(f"# {date.today()}: {shlex.join(sys.argv)}; {threads} threads; {platform.machine()}, {os.cpu_count()} cores")
    print(f"# Python {platform.python_version()}, {versions}")
    print(table.to_string(index=False, na_rep="", float_format="%.3f"))
    if options.out:
        write_table(table, options.out, COLUMNS)
    sys.exit(int(any(row.passed is False for row in rows)))


if __name__ == "__main__":
    main()
