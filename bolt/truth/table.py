"""The demo judges itself: results on the phantom against its truth.

This is the only module, the simulator apart, that opens the phantom's truth. Nothing that it writes is read by a
model, a registration or an explanation; the oracle's caches and runs lie apart, under the variant `layout.ORACLE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bolt.atlases.image import load_labels
from bolt.config import Config, Dataset, Model, Range, load_model
from bolt.config.layout import ORACLE, Layout, folder_of, prefix_of
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
from bolt.series.cache import EXCLUSION_COLUMNS, build_cache
from bolt.truth.geometry import correlation, normalisation_error, position_errors, sphere_error

PERMUTATIONS = 10_000
TRUTH_COLUMNS = {
    "measure": "What is measured",
    "value": "Its value in this run",
    "unit": "Unit of value, null and oracle",
    "null": "The same measure without any skill, as the row says",
    "null_meaning": "What the null is",
    "oracle": "The same measure where the truth is given to the method",
    "low": "Lower end of the expected range",
    "high": "Upper end of the expected range",
    "passed": "Whether the value lies in the expected range; n/a: no range is set",
}
LANDMARK_COLUMNS = {
    "scan_id": "Scan",
    "volume": "Row of the scan's series (from 0) in which the planted response exceeds half its peak; dropped volumes "
    "are not counted",
}


class Truth:
    """The phantom's truth about one subject and scan, as `derivatives/truth/README.md` there describes it."""

    def __init__(self, folder: Path, scan_id: str) -> None:
        subject = folder_of(scan_id).split("/")[0]
        self._stem = folder / subject / scan_id
        self._subject = folder / subject / subject

    @property
    def series(self) -> Path:
        return Path(f"{self._stem}_roiseries.npy")

    @property
    def landmarks(self) -> np.ndarray:
        """(T,) bool."""
        return read_table(f"{self._stem}_landmarks.tsv").landmark.to_numpy().astype(bool)

    @property
    def places(self) -> nib.Nifti1Image:
        """(X, Y, Z, 3): where the template's tissue lies in the subject, mm."""
        return nib.Nifti1Image.from_filename(f"{self._subject}_from-template_to-T1w_points.nii.gz")

    @property
    def motion(self) -> np.ndarray:
        """(T, 4, 4): first volume to volume."""
        return _matrices(read_table(f"{self._stem}_motion.tsv"))

    @property
    def t1w_to_bold(self) -> np.ndarray:
        """(4, 4): T1w to first volume."""
        return _matrices(read_table(f"{self._stem}_from-T1w_to-bold.tsv"))[0]


class Measure(NamedTuple):
    """One row of the truth table, without its range."""

    value: float
    unit: str
    null: float = np.nan
    null_meaning: str = ""
    oracle: float = np.nan


def build_oracle_cache(config: Config, layout: Layout, dataset: Dataset, atlas: str) -> None:
    """Pack the true ROI series as a cache of their own, so that the same model can be trained on them."""
    scans = read_table(layout.scans, text=TEXT_COLUMNS)
    folder, out = layout.truth(dataset.path), layout.cache(atlas, ORACLE)
    found = read_table(layout.cache(atlas) / "index.tsv", text=TEXT_COLUMNS)  # who moved how much was measured
    excluded = build_cache(
        scans,
        atlas,
        load_labels(config.atlas_places[atlas], atlas_dir=config.paths.atlas_dir),
        lambda scan: Truth(folder, scan.scan_id).series,
        out,
        mean_fd=dict(found.set_index("scan_id")["mean_fd"].dropna()),
    )
    write_table(excluded, out / "exclusions.tsv", EXCLUSION_COLUMNS)


def write_truth_table(config: Config, dataset: Dataset, layout: Layout) -> None:
    """Write ``truth.tsv`` and, for the report's time courses, ``true_landmarks.tsv``.

    The first atlas, model that can be explained and seed of the configuration are judged.

    Raises
    ------
    ConfigError
        The dataset's `expected` names a measure that does not exist.
    """
    atlas, seed = next(iter(config.atlas_places)), config.seeds[0]
    model = next(m for m in map(load_model, config.models) if can_be_explained(m, dataset))
    folds = config.folds.of(model.name)
    scans = pd.read_csv(layout.cache(atlas) / "index.tsv", sep="\t").scan_id
    truths = {scan: Truth(layout.truth(dataset.path), scan) for scan in scans}
    landmarks = {scan: truth.landmarks for scan, truth in truths.items()}
    measures = {
        **_registration(truths, layout),
        **_motion(truths, layout),
        "series correlation": _series(truths, layout, atlas),
        "pooled accuracy": _accuracy(layout, atlas, model, seed),
        **_landmarks(landmarks, layout, atlas, model, seed, folds),
        "planted ROIs, p": _regions(layout, dataset, atlas, model, seed),
    }
    unknown = set(dataset.expected) - set(measures)
    if unknown:
        raise ConfigError(f"'expected' names unknown measures: {', '.join(sorted(unknown))}", where=dataset.name)
    rows = [_row(name, measure, dataset.expected.get(name, Range())) for name, measure in measures.items()]
    write_table(_landmark_rows(landmarks, layout, atlas), layout.tables / "true_landmarks.tsv", LANDMARK_COLUMNS)
    write_table(pd.DataFrame(rows), layout.tables / "truth.tsv", TRUTH_COLUMNS)


def _landmark_rows(landmarks: dict[str, np.ndarray], layout: Layout, atlas: str) -> pd.DataFrame:
    """`LANDMARK_COLUMNS`: in the rows of the series, as importance has them."""
    seen = {scan: marks[_kept(layout, scan, atlas)] for scan, marks in landmarks.items()}
    rows = [(scan, row) for scan, marks in seen.items() for row in np.flatnonzero(marks)]
    return pd.DataFrame(rows, columns=list(LANDMARK_COLUMNS))


def _row(name: str, measure: Measure, expected: Range) -> dict[str, Any]:
    low = -np.inf if expected.low is None else expected.low
    high = np.inf if expected.high is None else expected.high
    ranged = expected.low is not None or expected.high is not None
    passed = str(bool(low <= measure.value <= high)).lower() if ranged else None  # a value that is NaN has not passed
    return {"measure": name, **measure._asdict(), "low": expected.low, "high": expected.high, "passed": passed}


def _registration(truths: dict[str, Truth], layout: Layout) -> dict[str, Measure]:
    """Distance between where grey matter was found and where it is; median over voxels, then over subjects."""
    grey = nib.Nifti1Image.from_filename(layout.template / "gm.nii.gz")
    errors = []
    for scan, truth in truths.items():
        folder = folder_of(scan)
        transform = layout.anatomical(folder) / anatomical_names(prefix_of(folder), layout.space)["forward"]
        errors.append(normalisation_error(truth.places, grey, transform))
    found, affine, nothing = np.median(errors, axis=0).tolist()
    return {
        "registration error": Measure(found, "mm", nothing, "no registration", 0.0),
        "registration error, affine part alone": Measure(affine, "mm", nothing, "no registration", 0.0),
    }


def _motion(truths: dict[str, Truth], layout: Layout) -> dict[str, Measure]:
    """Head positions: displacement of a 50-mm sphere that was not found, and the parameters' own errors; median over
    volumes, then over scans."""
    errors: list[list[float]] = []
    nulls: list[list[float]] = []
    for scan, truth in truths.items():
        folder = folder_of(scan)
        mask = nib.Nifti1Image.from_filename(
            layout.anatomical(folder) / anatomical_names(prefix_of(folder), layout.space)["mask"]
        )
        centre = images.apply(truth.t1w_to_bold, images.mask_centre(np.asarray(mask.dataobj), mask.affine))
        found = read_motion(layout.functional(folder) / functional_names(scan, layout.space)["motion"])
        for kept, guess in ((errors, found), (nulls, np.broadcast_to(np.eye(4), found.shape))):
            parts = position_errors(guess, truth.motion, centre)
            lengths = np.linalg.norm(parts, axis=2)
            kept.append([sphere_error(guess, truth.motion, centre), *np.median(lengths, axis=1)])
    rows = zip(np.median(errors, axis=0).tolist(), np.median(nulls, axis=0).tolist(), strict=True)
    names = {"motion error": "mm", "translation error": "mm", "rotation error": "degrees"}
    return {
        name: Measure(value, unit, null, "no motion correction", 0.0)
        for (name, unit), (value, null) in zip(names.items(), rows, strict=True)
    }


def _series(truths: dict[str, Truth], layout: Layout, atlas: str) -> Measure:
    """Correlation of recovered with true ROI series: median over ROIs and scans; null: another scan's truth."""
    found, other = [], []
    names = list(truths)
    true = {scan: np.load(truths[scan].series) for scan in names}
    for i, scan in enumerate(names):
        recovered, kept = np.load(layout.series_file(scan, atlas)), _kept(layout, scan, atlas)
        found.append(correlation(recovered, true[scan][kept]))
        strangers = [true[s] for s in names[i + 1 :] + names[:i] if len(true[s]) == len(true[scan])]
        other += [correlation(recovered, stranger[kept]) for stranger in strangers[:1]]
    value, null = float(np.nanmedian(found)), float(np.nanmedian(other))
    return Measure(value, "", null, "true series of another scan", 1.0)


def _kept(layout: Layout, scan: str, atlas: str) -> np.ndarray:
    """Volumes of the scan that its series hold: not those before the steady state, nor scrubbed ones."""
    path = layout.series_file(scan, atlas)
    about = read_json(path.with_suffix(".json"))
    return kept_volumes(path, about.get("NumberOfVolumesKept", about["NumberOfVolumes"]))


def _accuracy(layout: Layout, atlas: str, model: Model, seed: int) -> Measure:
    """Pooled test accuracy, as the run's own summary has it."""
    pooled = read_json(layout.run(atlas, model, seed).folder / "summary.json")["pooled"]
    oracle = read_json(layout.run(atlas, model, seed, ORACLE).folder / "summary.json")["pooled"]
    if pooled is None:  # every fold failed
        return Measure(np.nan, "", np.nan, "always the larger class")
    best = oracle["accuracy"]["value"] if oracle else np.nan
    return Measure(pooled["accuracy"]["value"], "", pooled["majority_accuracy"], "always the larger class", best)


def _landmarks(
    landmarks: dict[str, np.ndarray], layout: Layout, atlas: str, model: Model, seed: int, folds: Sequence[int]
) -> dict[str, Measure]:
    """How well importance ranks planted volumes of test scans: mean over scans of the area under the ROC curve.

    The null is the mean importance of all other test scans at the same position: what position alone says.
    """
    weights = _test_importance(layout.run(atlas, model, seed).folder, folds)
    if not weights:  # every fold failed
        return {name: Measure(np.nan, "", np.nan, "") for name in ("landmark AUC", "landmark AUC of position alone")}
    oracle = _test_importance(layout.run(atlas, model, seed, ORACLE).folder, folds)
    scaled = {scan: w / (w.sum() or 1) for scan, w in weights.items()}  # a scan without any weight adds nothing
    curves = {scan: np.interp(np.linspace(0, 1, 200), np.linspace(0, 1, len(w)), w) for scan, w in scaled.items()}
    total = np.sum(list(curves.values()), axis=0)
    position = {
        scan: np.interp(np.linspace(0, 1, len(w)), np.linspace(0, 1, 200), total - curves[scan])
        for scan, w in weights.items()
    }
    seen = {scan: landmarks[scan][_kept(layout, scan, atlas)] for scan in weights}
    value, null, best = _mean_auc(seen, weights), _mean_auc(seen, position), _mean_auc(landmarks, oracle)
    meaning = "mean importance of the other scans: position alone"
    return {
        "landmark AUC": Measure(value, "", null, meaning, best),
        "landmark AUC of position alone": Measure(null, "", 0.5, "chance"),
    }


def _test_importance(run: Path, folds: Sequence[int]) -> dict[str, np.ndarray]:
    """Scan to importance weights (T,), each from the fold in which the scan was tested."""
    found: dict[str, np.ndarray] = {}
    for fold in explained_folds(run, folds):
        table, weights = read_importance(run / f"fold-{fold}")
        found |= {scan: w for scan, role, w in zip(table.scan_id, table.role, weights, strict=True) if role == "test"}
    return found


def _mean_auc(landmarks: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> float:
    return float(np.mean([roc_auc_score(landmarks[scan], w) for scan, w in weights.items()])) if weights else np.nan


def _regions(layout: Layout, dataset: Dataset, atlas: str, model: Model, seed: int) -> Measure:
    """Chance that so many of the selected ROIs are planted ones, were they drawn at random (permutation test)."""
    planted = set(read_table(layout.truth(dataset.path) / "informative_rois.tsv").value)

    def p_value(variant: str | None) -> float:
        file = layout.run(atlas, model, seed, variant).explanation / "roi_weights.tsv"
        if not holds_something(file):  # every fold failed
            return np.nan
        table = read_table(file)
        rois = table.groupby("value").selected.any()
        hits = np.isin(rois.index, list(planted))
        observed = int(hits[rois.to_numpy()].sum())
        rng = np.random.default_rng(0)
        drawn = [rng.choice(hits, int(rois.sum()), replace=False).sum() for _ in range(PERMUTATIONS)]
        return float((1 + np.sum(np.array(drawn) >= observed)) / (1 + PERMUTATIONS))

    return Measure(p_value(None), "", 0.5, "ROIs drawn at random", p_value(ORACLE))


def _matrices(table: pd.DataFrame) -> np.ndarray:
    """(T, 4, 4) from the columns m00 to m23."""
    matrices = np.tile(np.eye(4), (len(table), 1, 1))
    names = [f"m{row}{column}" for row in range(3) for column in range(4)]
    matrices[:, :3] = table[names].to_numpy().reshape(-1, 3, 4)
    return matrices
