"""Compare coregistration by mutual information alone with that refined by the boundary of white matter.

    python -m benchmarks.coregistration BIDS_REAL TEMPLATEFLOW_HOME ATLASES --folder /tmp/coregistration [--out FILE]

On phantoms (T1w 2 mm, BOLD 4 mm, and harder scans), by the error against the known transform; on a real scan (one-back
task with pictures of objects), by mutual information, and by how strongly the fusiform gyrus follows the pictures.
Finished parts in the folder are reused.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn.glm.contrasts import compute_contrast
from nilearn.glm.first_level import make_first_level_design_matrix, run_glm

from benchmarks.preprocessing import DIFFICULT, STILL, Evidence
from bolt.atlases.image import load_atlas
from bolt.config import load_denoise, load_registration
from bolt.config.layout import anatomical_names
from bolt.io.files import read_json, read_table, write_table
from bolt.preprocess import images
from bolt.preprocess.anatomical import preprocess_anatomical
from bolt.preprocess.functional import coregistration as boundary
from bolt.preprocess.functional.confounds import MOTION, read_motion
from bolt.preprocess.functional.workflow import functional_names, preprocess_functional
from bolt.preprocess.templates import PHANTOM_SPACE, stage_template
from bolt.series.parcellate import parcellate
from bolt.truth import coregistration_error

HARDER = ("part of the field", "thick slices", "distorted")
BEFORE, AFTER = "mutual information", "boundary"
SUBJECT, SCAN, SPACE, TR = "sub-02", "sub-02_task-oneback_run-01", "MNI152NLin6Asym", 2.0
COLUMNS = {
    "scan": "phantom subject, or the real scan",
    "measure": "what is measured",
    "unit": "its unit",
    BEFORE: "coregistration by mutual information alone",
    AFTER: "refined by the boundary",
}


@contextmanager
def fitted_by(method: str) -> Iterator[None]:
    """Skip the refinement by the boundary within the block, if the method is mutual information."""
    original = boundary.refine
    if method == BEFORE:
        boundary.refine = lambda *images_and_start: (images_and_start[-1], original(*images_and_start)[1])
    try:
        yield
    finally:
        boundary.refine = original


def phantom(folder: Path) -> list[dict[str, object]]:
    """Return each phantom's error against the known transform."""
    rows = []
    variants = {"still": STILL} | {name: STILL.model_copy(update=DIFFICULT[name]) for name in HARDER}
    evidence = Evidence(folder, variants)
    for method, variant in product((BEFORE, AFTER), variants):
        for subject in evidence.subjects:
            anat, out = evidence.anat(subject, "fast"), folder / method / variant / subject
            bold, tr = evidence.bold(subject, variant)
            scan = f"{subject}_task-rest"
            if not (out / f"{scan}_desc-quality.json").is_file():
                with fitted_by(method):
                    preprocess_functional(
                        *(bold, anat, evidence.template, PHANTOM_SPACE, 4.0, load_registration("fast"), out),
                        folder / "work",
                        scan_id=scan,
                        prefix=f"{subject}_",
                        tr=tr,
                    )
            names, truth = functional_names(scan, PHANTOM_SPACE), evidence.truth(subject, variant)
            mask = nib.Nifti1Image.from_filename(anat / anatomical_names(f"{subject}_", PHANTOM_SPACE)["mask"])
            error = coregistration_error(
                images.read_matrix(out / names["bold_to_t1w"]),
                read_motion(out / names["motion"]),
                truth.t1w_to_bold,
                truth.motion,
                images.mask_centre(np.asarray(mask.dataobj), mask.affine),
            )
            place = {"scan": f"phantom {subject}, {variant}", "measure": "error on a 50-mm sphere", "unit": "mm"}
            rows.append(place | {method: error})
    return rows


def real_scan(raw: Path, home: Path, atlases: Path, folder: Path) -> list[dict[str, object]]:
    """Return what the two coregistrations of the real scan differ in."""
    template, anat = folder / "real" / "template", folder / "real" / SUBJECT / "anat"
    settings = load_registration("fast")
    stage_template(SPACE, 2.0, template, home)
    if not (anat / f"{SUBJECT}_desc-quality.json").is_file():
        t1w = raw / SUBJECT / "anat" / f"{SUBJECT}_T1w.nii.gz"
        preprocess_anatomical(t1w, template, SPACE, settings, anat, folder / "work", prefix=f"{SUBJECT}_")
    schaefer, aal = (load_atlas(name, atlas_dir=atlases) for name in ("schaefer400", "aal116"))
    bold = raw / SUBJECT / "func" / f"{SCAN}_bold.nii.gz"
    events = pd.read_csv(bold.with_name(f"{SCAN}_events.tsv"), sep="\t")[["onset", "duration"]]
    rows, series, names = [], {}, functional_names(SCAN, SPACE)
    for method in (BEFORE, AFTER):
        out = folder / "real" / method / "func"
        if not (out / f"{SCAN}_desc-quality.json").is_file():
            with fitted_by(method):
                preprocess_functional(
                    *(bold, anat, template, SPACE, 2.0, settings, out, folder / "work"),
                    scan_id=SCAN,
                    prefix=f"{SUBJECT}_",
                    tr=TR,
                )
        made = {port: out / name for port, name in names.items()}
        image = nib.Nifti1Image.from_filename(made["bold"])
        t = t_of_pictures(image, np.asarray(aal.image.dataobj), aal.labels, read_table(made["confounds"]), events)
        for name, value in t.items():
            rows.append({"scan": "real", "measure": f"t of pictures in {name}, 90th percentile", method: value})
        found = parcellate(made["bold"], [schaefer], mask=made["mask"], denoise=load_denoise("none"), tr=TR)
        series[method] = found["schaefer400"].series
    numbers = read_json(folder / "real" / AFTER / "func" / f"{SCAN}_desc-quality.json")
    pairs = {"normalised mutual information": ("boundary_nmi_before", "coregistration_nmi")}
    pairs |= {"boundary cost": ("boundary_cost_before", "boundary_cost")}
    for measure, (before, after) in pairs.items():
        rows.append({"scan": "real", "measure": measure, BEFORE: numbers[before], AFTER: numbers[after]})
    rows.append({"scan": "real", "measure": "shift of the boundary", "unit": "mm", AFTER: numbers["boundary_shift"]})
    r = [np.corrcoef(one, other)[0, 1] for one, other in zip(series[BEFORE].T, series[AFTER].T, strict=True)]
    covered = np.array(r)[np.isfinite(r)]
    for name, share in {"median": 0.5, "5th percentile": 0.05, "least": 0.0}.items():
        value = np.quantile(covered, share)
        rows.append({"scan": "real", "measure": f"r of ROI series with those before, {name}", AFTER: value})
    return rows


def t_of_pictures(
    bold: nib.Nifti1Image, labels: np.ndarray, rois: pd.DataFrame, confounds: pd.DataFrame, events: pd.DataFrame
) -> dict[str, float]:
    """Return the 90th percentile of t, pictures against rest, over the voxels of both fusiform gyri."""
    motion = confounds[list(MOTION)].to_numpy()
    frames = np.arange(len(motion)) * TR
    picture = events.assign(trial_type="picture")
    design = make_first_level_design_matrix(frames, picture, add_regs=motion, high_pass=1 / 128)
    weights = np.array([column == "picture" for column in design.columns], dtype=float)
    found = {}
    for roi in rois[rois["name"].str.startswith("Fusiform")].itertuples():
        voxels = np.asarray(bold.dataobj)[labels == roi.value].T.astype(float)
        noise, results = run_glm(voxels[:, voxels.std(axis=0) > 0], design.to_numpy(), noise_model="ar1")
        t = compute_contrast(noise, results, weights, stat_type="t").stat()
        found[str(roi.name)] = float(np.quantile(t, 0.9))
    return found


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("raw", "home", "atlases"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".tsv"))
    options = parser.parse_args()
    rows = phantom(options.folder) + real_scan(options.raw, options.home, options.atlases, options.folder)
    table = pd.DataFrame(rows).groupby(["scan", "measure"], sort=False).first().reset_index()
    print(table.to_string())
    write_table(table[list(COLUMNS)], options.out, COLUMNS)


if __name__ == "__main__":
    main()
