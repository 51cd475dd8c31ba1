"""Results on the phantom, compared with its truth.

Apart from the simulator, this is the only module that opens the phantom's truth. Nothing it writes is read by a model,
a registration or an explanation; the oracle's caches and runs are separate, under the variant `layout.ORACLE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bolt.atlases.labels import load_labels
from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.config import Range, load_model
from bolt.config.layout import ORACLE, Layout, ModelRun, folder_of, prefix_of
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.explain.explainable import can_be_explained
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import ConfigError
from bolt.io.files import holds_something, read_json, read_table, write_table
from bolt.io.series_files import kept_volumes
from bolt.preprocess import images
from bolt.preprocess.anatomical.workflow import anatomical_names
from bolt.preprocess.functional.confounds import read_motion
from bolt.preprocess.functional.workflow import functional_names
from bolt.series.gather import build_cache
from bolt.truth.geometry import coregistration_error, correlation, normalisation_error, position_errors, sphere_error

PERMUTATIONS = 10_000
TRUTH_COLUMNS = {
    "measure": "Name of the measure",
    "value": "Its value in this run",
    "unit": "Unit of value, null and oracle",
    "null": "The measure without any skill, as described by null_meaning",
    "null_meaning": "Meaning of the null",
    "oracle": "The measure if the method is given the truth",
    "low": "Lower end of the expected range",
    "high": "Upper end of the expected range",
    "passed": "Whether the value is in the expected range; n/a: no range is set",
}
LANDMARK_COLUMNS = {
    "scan_id": "Scan",
    "volume": "Row of the scan's series (from 0) in which the planted response exceeds half its peak; dropped volumes "
    "do not count",
}


class Truth:
    """The phantom's truth about one subject and scan, as described by its `derivatives/truth/README.md`."""

    def __init__(self, folder: Path, scan_id: str) -> None:
        subject = folder_of(scan_id).split("/")[0]
        self._stem = folder / subject / scan_id
        self._subject = folder / subject / subject

    @property
    def series(self) -> Path:
        """Return the file of the true ROI series."""
        return Path(f"{self._stem}_roiseries.npy")

    @property
    def landmarks(self) -> np.ndarray:
        """Return whether each volume is a planted one, (T,) bool."""
        return read_table(f"{self._stem}_landmarks.tsv").landmark.to_numpy().astype(bool)

    @property
    def places(self) -> nib.Nifti1Image:
        """Return the places of the template's tissue in the subject, (X, Y, Z, 3), mm."""
        return nib.Nifti1Image.from_filename(f"{self._subject}_from-template_to-T1w_points.nii.gz")

    @property
    def motion(self) -> np.ndarray:
        """Return the transform from the first volume to each volume, (T, 4, 4)."""
        return _matrices(read_table(f"{self._stem}_motion.tsv"))

    @property
    def t1w_to_bold(self) -> np.ndarray:
        """Return the transform from T1w to the first volume, (4, 4)."""
        return _matrices(read_table(f"{self._stem}_from-T1w_to-bold.tsv"))[0]


class Measure(NamedTuple):
    """One row of the truth table, without its range."""

    value: float
    unit: str
    null: float = np.nan
    null_meaning: str = ""
    oracle: float = np.nan


def build_oracle_cache(study: Study, atlas: str) -> None:
    """Pack the true ROI series as a separate cache, so that the same model can be trained on them."""
    config, layout = study.config, study.layout
    folder, out = layout.truth(study.dataset.path), layout.cache(atlas, ORACLE)
    index = read_table(layout.cache(atlas) / "index.tsv", text=TEXT_COLUMNS)  # has the measured head motion
    excluded = build_cache(
        read_table(layout.scans, text=TEXT_COLUMNS),
        atlas,
        load_labels(config.atlas_places[atlas], atlas_dir=config.paths.atlas_dir),
        lambda scan: Truth(folder, scan.scan_id).series,
        out,
        mean_fd=dict(index.set_index("scan_id")["mean_fd"].dropna()),
    )
    write_table(excluded, out / "exclusions.tsv", EXCLUSION_COLUMNS)


def write_truth_table(study: Study) -> None:
    """Write ``truth.tsv`` and, for the report's time courses, ``true_landmarks.tsv``.

    The first atlas, explainable model and seed of the configuration are evaluated.

    Raises
    ------
    ConfigError
        The dataset's `expected` names a measure that does not exist.
    """
    config, dataset, layout = study.config, study.dataset, study.layout
    model = next(model for model in map(load_model, config.models) if can_be_explained(model, dataset))
    run = layout.run(next(iter(config.atlas_places)), model, config.seeds[0])
    scans = pd.read_csv(run.cache / "index.tsv", sep="\t").scan_id
    truths = {scan: Truth(layout.truth(dataset.path), scan) for scan in scans}
    landmarks = {scan: truth.landmarks for scan, truth in truths.items()}
    planted = set(read_table(layout.truth(dataset.path) / "informative_rois.tsv").value)
    measures = {
        **_registration(truths, layout),
        **_motion(truths, layout),
        "coregistration error": _coregistration(truths, layout),
        "series correlation": _series(truths, layout, run.atlas),
        "pooled accuracy": _accuracy(run),
        **_landmarks(landmarks, layout, run, config.folds.of(model.name)),
        "planted ROIs, p": _regions(run, planted),
    }
    unknown = set(dataset.expected) - set(measures)
    if unknown:
        raise ConfigError(
            f"'expected' names unknown measures: {', '.join(sorted(unknown))}",
            where=dataset.name,
            hint=f"Known: {', '.join(measures)}",
        )
    rows = [_row(name, measure, dataset.expected.get(name, Range())) for name, measure in measures.items()]
    write_table(_landmark_rows(landmarks, layout, run.atlas), layout.tables / "true_landmarks.tsv", LANDMARK_COLUMNS)
    write_table(pd.DataFrame(rows), layout.tables / "truth.tsv", TRUTH_COLUMNS)


def _oracle(run: ModelRun) -> ModelRun:
    """Return the same run on the true series."""
    return replace(run, variant=ORACLE)


def _landmark_rows(landmarks: dict[str, np.ndarray], layout: Layout, atlas: str) -> pd.DataFrame:
    """Return `LANDMARK_COLUMNS`; volumes are rows of the series, as in the importance weights."""
    kept = {scan: marks[_kept(layout, scan, atlas)] for scan, marks in landmarks.items()}
    rows = [(scan, row) for scan, marks in kept.items() for row in np.flatnonzero(marks)]
    return pd.DataFrame(rows, columns=list(LANDMARK_COLUMNS))


def _row(name: str, measure: Measure, expected: Range) -> dict[str, Any]:
    """Return a row of `TRUTH_COLUMNS`; a value of NaN has not passed."""
    low = -np.inf if expected.low is None else expected.low
    high = np.inf if expected.high is None else expected.high
    has_range = expected.low is not None or expected.high is not None
    passed = str(bool(low <= measure.value <= high)).lower() if has_range else None
    return {"measure": name, **measure._asdict(), "low": expected.low, "high": expected.high, "passed": passed}


def _registration(truths: dict[str, Truth], layout: Layout) -> dict[str, Measure]:
    """Measure the distance between estimated and true places of grey matter: median over voxels, then over subjects."""
    grey = nib.Nifti1Image.from_filename(layout.template / "gm.nii.gz")
    errors = []
    for scan, truth in truths.items():
        folder = folder_of(scan)
        transform = layout.anatomical(folder) / anatomical_names(prefix_of(folder), layout.space)["forward"]
        errors.append(normalisation_error(truth.places, grey, transform))
    whole, affine, unregistered = np.median(errors, axis=0).tolist()
    return {
        "registration error": Measure(whole, "mm", unregistered, "no registration", 0.0),
        "registration error, affine part alone": Measure(affine, "mm", unregistered, "no registration", 0.0),
    }


def _motion(truths: dict[str, Truth], layout: Layout) -> dict[str, Measure]:
    """Measure errors of head positions: median over volumes, then over scans.

    These are the uncorrected displacement of a 50-mm sphere, and the errors of the motion parameters.
    """
    errors: list[list[float]] = []
    nulls: list[list[float]] = []
    for scan, truth in truths.items():
        folder = folder_of(scan)
        centre = images.apply(truth.t1w_to_bold, _centre(scan, layout))
        estimate = read_motion(layout.functional(folder) / functional_names(scan, layout.space)["motion"])
        for scan_errors, positions in ((errors, estimate), (nulls, np.broadcast_to(np.eye(4), estimate.shape))):
            lengths = np.linalg.norm(position_errors(positions, truth.motion, centre), axis=2)
            scan_errors.append([sphere_error(positions, truth.motion, centre), *np.median(lengths, axis=1)])
    rows = zip(np.median(errors, axis=0).tolist(), np.median(nulls, axis=0).tolist(), strict=True)
    names = {"motion error": "mm", "translation error": "mm", "rotation error": "degrees"}
    return {
        name: Measure(value, unit, null, "no motion correction", 0.0)
        for (name, unit), (value, null) in zip(names.items(), rows, strict=True)
    }


def _coregistration(truths: dict[str, Truth], layout: Layout) -> Measure:
    """Measure how far T1w points land from where they are in the BOLD: median over scans; null: the header's place."""
    errors: list[float] = []
    nulls: list[float] = []
    for scan, truth in truths.items():
        folder, names = layout.functional(folder_of(scan)), functional_names(scan, layout.space)
        fit, positions = images.read_matrix(folder / names["bold_to_t1w"]), read_motion(folder / names["motion"])
        for found, matrix in ((errors, fit), (nulls, np.eye(4))):
            place = (matrix, positions, truth.t1w_to_bold, truth.motion, _centre(scan, layout))
            found.append(coregistration_error(*place))
    return Measure(float(np.median(errors)), "mm", float(np.median(nulls)), "the header's geometry", 0.0)


def _centre(scan: str, layout: Layout) -> np.ndarray:
    """Return the centre of a subject's brain in the T1w, RAS mm."""
    folder = folder_of(scan)
    place = layout.anatomical(folder) / anatomical_names(prefix_of(folder), layout.space)["mask"]
    mask = nib.Nifti1Image.from_filename(place)
    return images.mask_centre(np.asarray(mask.dataobj), mask.affine)


def _series(truths: dict[str, Truth], layout: Layout, atlas: str) -> Measure:
    """Measure the correlation of recovered with true ROI series: median over ROIs and scans; null: another scan."""
    same, other = [], []
    names = list(truths)
    true = {scan: np.load(truths[scan].series) for scan in names}
    for i, scan in enumerate(names):
        recovered, kept = np.load(layout.series_file(scan, atlas)), _kept(layout, scan, atlas)
        same.append(correlation(recovered, true[scan][kept]))
        others = [true[s] for s in names[i + 1 :] + names[:i] if len(true[s]) == len(true[scan])]
        other += [correlation(recovered, series[kept]) for series in others[:1]]
    value, null = float(np.nanmedian(same)), float(np.nanmedian(other))
    return Measure(value, "", null, "true series of another scan", 1.0)


def _kept(layout: Layout, scan: str, atlas: str) -> np.ndarray:
    """Return the volumes of a scan that are in its series: not those before the steady state, nor scrubbed ones."""
    path = layout.series_file(scan, atlas)
    about = read_json(path.with_suffix(".json"))
    return kept_volumes(path, about.get("NumberOfVolumesKept", about["NumberOfVolumes"]))


def _accuracy(run: ModelRun) -> Measure:
    """Return pooled test accuracy, from the summary of the run."""
    pooled = read_json(run.folder / "summary.json")["pooled"]
    oracle = read_json(_oracle(run).folder / "summary.json")["pooled"]
    if pooled is None:  # every fold failed
        return Measure(np.nan, "", np.nan, "always the larger class")
    best = oracle["accuracy"]["value"] if oracle else np.nan
    return Measure(pooled["accuracy"]["value"], "", pooled["majority_accuracy"], "always the larger class", best)


def _landmarks(
    landmarks: dict[str, np.ndarray], layout: Layout, run: ModelRun, folds: Sequence[int]
) -> dict[str, Measure]:
    """Measure how well importance ranks planted volumes of test scans: area under the ROC curve, mean over scans.

    The null is the mean importance of all other test scans at the same position: the effect of position alone.
    """
    weights = _test_importance(run.folder, folds)
    if not weights:  # every fold failed
        return {name: Measure(np.nan, "", np.nan, "") for name in ("landmark AUC", "landmark AUC of position alone")}
    oracle = _test_importance(_oracle(run).folder, folds)
    scaled = {scan: w / (w.sum() or 1) for scan, w in weights.items()}  # a scan without any weight adds nothing
    curves = {scan: np.interp(np.linspace(0, 1, 200), np.linspace(0, 1, len(w)), w) for scan, w in scaled.items()}
    total = np.sum(list(curves.values()), axis=0)
    position = {
        scan: np.interp(np.linspace(0, 1, len(w)), np.linspace(0, 1, 200), total - curves[scan])
        for scan, w in weights.items()
    }
    kept = {scan: landmarks[scan][_kept(layout, scan, run.atlas)] for scan in weights}
    value, null, best = _mean_auc(kept, weights), _mean_auc(kept, position), _mean_auc(landmarks, oracle)
    meaning = "mean importance of the other scans: position alone"
    return {
        "landmark AUC": Measure(value, "", null, meaning, best),
        "landmark AUC of position alone": Measure(null, "", 0.5, "chance"),
    }


def _test_importance(run: Path, folds: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the importance weights (T,) of each scan, from the fold in which it was tested."""
    tested: dict[str, np.ndarray] = {}
    for fold in explained_folds(run, folds):
        table, weights = read_importance(run / f"fold-{fold}")
        tested |= {scan: w for scan, role, w in zip(table.scan_id, table.role, weights, strict=True) if role == "test"}
    return tested


def _mean_auc(landmarks: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> float:
    """Return the mean over scans of the area under the ROC curve."""
    return float(np.mean([roc_auc_score(landmarks[scan], w) for scan, w in weights.items()])) if weights else np.nan


def _regions(run: ModelRun, planted: set[int]) -> Measure:
    """Test whether more of the selected ROIs are planted than expected of random ROIs (permutation test)."""
    return Measure(_p_value(run, planted), "", 0.5, "ROIs drawn at random", _p_value(_oracle(run), planted))


def _p_value(run: ModelRun, planted: set[int]) -> float:
    """Return the probability that random ROIs include at least as many planted ones; NaN if all folds failed."""
    file = run.explanation / "roi_weights.tsv"
    if not holds_something(file):
        return np.nan
    rois = read_table(file).groupby("value").selected.any()
    is_planted = np.isin(rois.index, list(planted))
    observed = int(is_planted[rois.to_numpy()].sum())
    rng = np.random.default_rng(0)
    random = [rng.choice(is_planted, int(rois.sum()), replace=False).sum() for _ in range(PERMUTATIONS)]
    return float((1 + np.sum(np.array(random) >= observed)) / (1 + PERMUTATIONS))


def _matrices(table: pd.DataFrame) -> np.ndarray:
    """Return the matrices (T, 4, 4) in the columns m00 to m23."""
    matrices = np.tile(np.eye(4), (len(table), 1, 1))
    names = [f"m{row}{column}" for row in range(3) for column in range(4)]
    matrices[:, :3] = table[names].to_numpy().reshape(-1, 3, 4)
    return matrices
