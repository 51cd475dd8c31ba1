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
from nilearn.image import resample_img
from scipy.stats import hypergeom
from sklearn.metrics import roc_auc_score

from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.config import Range, load_model
from bolt.config.derivatives import anatomical_names
from bolt.config.layout import ORACLE, Layout, ModelRun, folder_of, prefix_of
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.explain.explainable import can_be_explained
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import ConfigError
from bolt.io.files import columns, holds_something, read_json, read_table, write_table
from bolt.io.series_files import kept_volumes
from bolt.preprocess import images
from bolt.preprocess.functional.confounds import read_motion
from bolt.preprocess.functional.workflow import functional_names
from bolt.preprocess.quality.measures import HEAD_RADIUS
from bolt.series.gather import build_cache

TRUTH_COLUMNS, LANDMARK_COLUMNS = columns("truth", "truth"), columns("truth", "landmarks")


class Truth:
    """The phantom's truth about one subject and scan, as described by its `derivatives/truth/README.md`.

    Attributes
    ----------
    series : path
        Of the true ROI series.
    landmarks : (T,) bool array
        Whether each volume is a planted one.
    places : image, (X, Y, Z, 3)
        Places of the template's tissue in the subject, mm.
    motion : (T, 4, 4) array
        From the first volume to each volume.
    t1w_to_bold : (4, 4) array
        From the T1w to the first volume.
    """

    def __init__(self, folder: Path, scan_id: str) -> None:
        subject = folder_of(scan_id).split("/")[0]
        stem = folder / subject / scan_id
        self.series = Path(f"{stem}_roiseries.npy")
        self.landmarks = read_table(f"{stem}_landmarks.tsv").landmark.to_numpy().astype(bool)
        points = folder / subject / f"{subject}_from-template_to-T1w_points.nii.gz"
        self.places = nib.Nifti1Image.from_filename(points)
        self.motion = _matrices(read_table(f"{stem}_motion.tsv"))
        self.t1w_to_bold = _matrices(read_table(f"{stem}_from-T1w_to-bold.tsv"))[0]


class Measure(NamedTuple):
    """One row of the truth table, without its range."""

    value: float
    unit: str
    null: float = np.nan
    null_meaning: str = ""
    oracle: float = np.nan


def build_oracle_cache(study: Study, atlas: str, rois: pd.DataFrame) -> None:
    """Pack the true ROI series as a separate cache, so that the same model can be trained on them."""
    layout = study.layout
    folder, out = layout.truth(study.dataset.path), layout.cache(atlas, ORACLE)
    index = read_table(layout.cache(atlas) / "index.tsv", text=TEXT_COLUMNS)  # has the measured head motion
    excluded = build_cache(
        read_table(layout.scans, text=TEXT_COLUMNS),
        atlas,
        rois,
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
        **_geometry(truths, layout),
        "series correlation": _series(truths, layout, run.atlas),
        "pooled accuracy": _accuracy(run),
        **_landmarks(landmarks, layout, run, config.folds.of(model.name)),
        "planted ROIs, p": _regions(run, planted),
    }
    unknown = set(dataset.expected) - set(measures)
    if unknown:
        what = f"'expected' names unknown measures: {', '.join(sorted(unknown))}"
        raise ConfigError(what, where=dataset.name, hint=f"Known: {', '.join(measures)}")
    rows = [_row(name, measure, dataset.expected.get(name, Range())) for name, measure in measures.items()]
    write_table(_landmark_rows(landmarks, layout, run.atlas), layout.tables / "true_landmarks.tsv", LANDMARK_COLUMNS)
    write_table(pd.DataFrame(rows), layout.tables / "truth.tsv", TRUTH_COLUMNS)


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


def _geometry(truths: dict[str, Truth], layout: Layout) -> dict[str, Measure]:
    """Measure the errors of registrations and head positions: medians over voxels or volumes, then over scans.

    These are the distance between estimated and true places of grey matter; the displacement of a 50-mm sphere that was
    not corrected, and the errors of the motion parameters; and how far T1w points land from where they are in the BOLD.
    """
    grey = nib.Nifti1Image.from_filename(layout.template / "gm.nii.gz")
    errors: list[list[float]] = []
    nulls: list[list[float]] = []
    for scan, truth in truths.items():
        folder, names = folder_of(scan), functional_names(scan, layout.space)
        anatomical, functional = layout.anatomical(folder), layout.functional(folder)
        anatomy = anatomical_names(prefix_of(folder), layout.space)
        whole, affine, unregistered = normalisation_error(truth.places, grey, anatomical / anatomy["forward"])
        mask = nib.Nifti1Image.from_filename(anatomical / anatomy["mask"])
        centre = images.mask_centre(np.asarray(mask.dataobj), mask.affine)
        moved_centre = images.apply(truth.t1w_to_bold, centre)
        positions = read_motion(functional / names["motion"])
        fit = images.read_matrix(functional / names["bold_to_t1w"])
        still = np.broadcast_to(np.eye(4), positions.shape)
        for found, distances, moved, matrix in (
            (errors, (whole, affine), positions, fit),
            (nulls, (unregistered, unregistered), still, np.eye(4)),
        ):
            lengths = np.linalg.norm(position_errors(moved, truth.motion, moved_centre), axis=2)
            sphere = sphere_error(moved, truth.motion, moved_centre)
            place = coregistration_error(matrix, positions, truth.t1w_to_bold, truth.motion, centre)
            found.append([*distances, sphere, *np.median(lengths, axis=1), place])
    kinds = {
        "registration error": ("mm", "no registration"),
        "registration error, affine part alone": ("mm", "no registration"),
        "motion error": ("mm", "no motion correction"),
        "translation error": ("mm", "no motion correction"),
        "rotation error": ("degrees", "no motion correction"),
        "coregistration error": ("mm", "the header's geometry"),
    }
    medians = zip(np.median(errors, axis=0).tolist(), np.median(nulls, axis=0).tolist(), strict=True)
    return {
        name: Measure(value, unit, null, meaning, 0.0)
        for (name, (unit, meaning)), (value, null) in zip(kinds.items(), medians, strict=True)
    }


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
    oracle = read_json(replace(run, variant=ORACLE).folder / "summary.json")["pooled"]
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
    oracle = _test_importance(replace(run, variant=ORACLE).folder, folds)
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
    """Test whether more of the selected ROIs are planted than expected of as many ROIs drawn at random.

    The measure is the probability that these include at least as many planted ones; NaN if all folds failed.
    """
    found = []
    for file in (one.explanation / "roi_weights.tsv" for one in (run, replace(run, variant=ORACLE))):
        p = np.nan
        if holds_something(file):
            selected = read_table(file).groupby("value").selected.any()
            is_planted = selected.index.isin(planted)
            p = hypergeom.sf((selected & is_planted).sum() - 1, len(selected), is_planted.sum(), selected.sum())
        found.append(float(p))
    return Measure(found[0], "", 0.5, "ROIs drawn at random", found[1])


def _matrices(table: pd.DataFrame) -> np.ndarray:
    """Return the matrices (T, 4, 4) in the columns m00 to m23."""
    matrices = np.tile(np.eye(4), (len(table), 1, 1))
    names = [f"m{row}{column}" for row in range(3) for column in range(4)]
    matrices[:, :3] = table[names].to_numpy().reshape(-1, 3, 4)
    return matrices


# ---- errors of registrations and head positions, in mm and degrees ------------------------------
def normalisation_error(true: nib.Nifti1Image, grey: nib.Nifti1Image, transform: Path) -> tuple[float, float, float]:
    """Compare a transform from T1w to template with the truth.

    Parameters
    ----------
    true : image, (X, Y, Z, 3)
        True place of the template's tissue in the subject, RAS mm.
    grey : image
        Probability of grey matter in the template.
    transform : path
        ITK transform, T1w to template.

    Returns
    -------
    three floats
        Median over grey matter of the distance between estimated and true places of the tissue, mm: of the transform,
        of the affine map that fits it best, and of no registration.
    """
    shape = (true.shape[0], true.shape[1], true.shape[2])
    resampled = resample_img(grey, true.affine, shape, interpolation="linear", copy_header=True, force_resample=True)
    inside = np.asarray(resampled.dataobj) > 0.5
    places = true.get_fdata()[inside]
    estimated = images.places_of_grid(shape, true.affine, [transform])[inside]
    unregistered = images.apply(true.affine, np.argwhere(inside).astype(float))
    design = np.column_stack([unregistered, np.ones(len(unregistered))])
    linear = design @ np.linalg.lstsq(design, estimated, rcond=None)[0]
    whole, affine, none = (
        float(np.median(np.linalg.norm(guess - places, axis=1))) for guess in (estimated, linear, unregistered)
    )
    return whole, affine, none


def position_errors(estimated: np.ndarray, true: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors of head positions, volume by volume.

    The estimate may have another reference than the truth: the median difference over volumes is subtracted.

    Parameters
    ----------
    estimated, true : (T, 4, 4) arrays
        Reference to volume, RAS mm.
    centre : (3,) array
        Centre of the head, about which rotations are expressed.

    Returns
    -------
    translation : (T, 3) array
        Errors along x, y and z, mm.
    rotation : (T, 3) array
        Errors of the three angles, degrees.
    """
    wrong = [images.rigid_parameters(np.linalg.inv(t) @ e, centre) for e, t in zip(estimated, true, strict=True)]
    errors = np.stack(wrong) - np.median(wrong, axis=0)
    return errors[:, :3], np.degrees(errors[:, 3:])


def sphere_error(estimated: np.ndarray, true: np.ndarray, centre: np.ndarray) -> float:
    """Return the displacement (mm) of a 50-mm sphere about `centre` that was not corrected, median over volumes.

    `estimated` and `true` as in `position_errors`; here too the median over volumes is subtracted.
    """
    sphere = _sphere(centre)
    places = np.stack([images.apply(m, sphere) for m in estimated @ np.linalg.inv(estimated[0])])
    difference = places - np.stack([images.apply(m, sphere) for m in true])
    return float(np.median(np.linalg.norm(difference - np.median(difference, axis=0), axis=2).mean(axis=1)))


def coregistration_error(
    t1w_to_bold: np.ndarray, positions: np.ndarray, true: np.ndarray, true_motion: np.ndarray, centre: np.ndarray
) -> float:
    """Return the displacement (mm) of a 50-mm sphere in the BOLD volumes, mean over the sphere, median over volumes.

    Parameters
    ----------
    t1w_to_bold, true : (4, 4) array
        T1w points to points of the BOLD reference, and of the first volume; RAS mm.
    positions, true_motion : (T, 4, 4) array
        From the reference, and from the first volume, to each volume.
    centre : (3,) array
        Centre of the brain in the T1w.
    """
    sphere = _sphere(centre)
    places = np.stack([images.apply(m, sphere) for m in positions @ t1w_to_bold])
    expected = np.stack([images.apply(m, sphere) for m in true_motion @ true])
    return float(np.median(np.linalg.norm(places - expected, axis=2).mean(axis=1)))


def _sphere(centre: np.ndarray) -> np.ndarray:
    directions = np.random.default_rng(0).standard_normal((200, 3))
    return centre + HEAD_RADIUS * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation of the columns of two (T, R) arrays; NaN if one is constant or not covered."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.mean((a - a.mean(0)) / a.std(0) * ((b - b.mean(0)) / b.std(0)), axis=0)
