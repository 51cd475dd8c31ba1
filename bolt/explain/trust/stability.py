"""Stability: agreement between explanations of models of different folds, and of different random seeds.

Maps of regression weights, selections of top ROIs and importance curves are compared between every two folds, and
between seeds. Folds share most of their training subjects: agreement between them shows stability against excluding
some subjects, which is weaker than replication in new subjects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom, pearsonr, spearmanr

from bolt.config.layout import ModelRun
from bolt.explain.regions import select
from bolt.explain.trust.similarity import correlations, ranked, without_position
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import holds_something, write_table

STABILITY_COLUMNS = {
    "between": "folds: of one run; seeds: runs that differ only in the seed, means over their folds",
    "what": "regions: weights of the landmark regressions; importance: curves of the same scans under two models",
    "class": "regions: class for which positive weights are evidence",
    "one": "fold or seed; or mean, lowest, highest: of all pairs above",
    "other": "fold or seed it is compared with",
    "pearson": "regions: correlation of the weights over ROIs",
    "spearman": "regions: rank correlation over ROIs; importance: mean over scans of the rank correlation over "
    "volumes, after the mean curve of the other scans is removed from both",
    "spearman_raw": "importance: the same without removing the mean curve, so that it includes the effect of position",
    "dice": "regions: Dice coefficient of the two selections of top ROIs",
    "jaccard": "regions: Jaccard index of the two selections",
    "dice_chance": "expected Dice coefficient of random selections of the same sizes",
    "jaccard_chance": "expected Jaccard index of such selections",
    "same_class": "importance: share of scans for which both models predict, and so explain, the same class",
    "n": "regions: ROIs; importance: scans with a rank correlation",
}
KEYS = ["between", "what", "class"]
Explained = tuple[pd.DataFrame, list[NDArray[np.floating]]]


def chance_overlap(size_a: int, size_b: int, total: int) -> tuple[float, float]:
    """Return expected Dice and Jaccard of two random subsets of `total` elements; NaN if both are empty."""
    if size_a + size_b == 0:
        return np.nan, np.nan
    shared = np.arange(min(size_a, size_b) + 1)
    chance = hypergeom(total, size_a, size_b).pmf(shared)
    dice = 2 * size_a * size_b / total / (size_a + size_b)
    return float(dice), float(chance @ (shared / (size_a + size_b - shared)))


def compare_maps(a: NDArray[np.floating], b: NDArray[np.floating], fraction: float) -> dict[str, float]:
    """Return correlations of two maps of weights (rois,), and the overlap of their top ROIs beside chance."""
    top_a, top_b = select(a, fraction), select(b, fraction)
    shared, either = int((top_a & top_b).sum()), int((top_a | top_b).sum())
    dice, jaccard = chance_overlap(int(top_a.sum()), int(top_b.sum()), len(a))
    flat = np.ptp(a) == 0 or np.ptp(b) == 0
    return {
        "pearson": np.nan if flat else float(pearsonr(a, b).statistic),
        "spearman": np.nan if flat else float(spearmanr(a, b).statistic),
        "dice": 2 * shared / (shared + either) if either else np.nan,
        "jaccard": shared / either if either else np.nan,
        "dice_chance": dice,
        "jaccard_chance": jaccard,
        "n": len(a),
    }


def map_pairs(
    maps: Mapping[str, NDArray[np.floating]], classes: Sequence[str], fraction: float
) -> list[dict[str, Any]]:
    """Apply `compare_maps` to every two maps (classes, rois), for each class."""
    return [
        {"what": "regions", "class": name, "one": a, "other": b} | compare_maps(maps[a][c], maps[b][c], fraction)
        for c, name in enumerate(classes)
        for a, b in combinations(maps, 2)
    ]


def curve_pairs(explained: Mapping[str, Explained]) -> list[dict[str, Any]]:
    """Compare the importance of the same scans under every two models.

    Parameters
    ----------
    explained : mapping
        Name of a model to the result of `bolt.explain.weights.read_importance`, all its scans.
    """
    curves = {name: _curves(*importance) for name, importance in explained.items()}
    rows = []
    for a, b in combinations(curves, 2):
        scans = sorted(set(curves[a]) & set(curves[b]))
        pairs = [(curves[a][scan], curves[b][scan]) for scan in scans]
        rho = correlations([x.rest for x, _ in pairs], [y.rest for _, y in pairs])
        raw = correlations([x.raw for x, _ in pairs], [y.raw for _, y in pairs])
        rows.append(
            {
                "what": "importance",
                "one": a,
                "other": b,
                "spearman": _mean(rho),
                "spearman_raw": _mean(raw),
                "same_class": _mean(np.array([float(x.predicted == y.predicted) for x, y in pairs])),
                "n": int(np.isfinite(rho).sum()),
            }
        )
    return rows


class _Curve(NamedTuple):
    """Ranks of one scan's importance, with the effect of position removed and without; and the explained class."""

    rest: NDArray[np.floating]
    raw: NDArray[np.floating]
    predicted: str


def _curves(table: pd.DataFrame, weights: list[NDArray[np.floating]]) -> dict[str, _Curve]:
    """Return the curve of each scan."""
    curves = map(_Curve, ranked(without_position(weights)), ranked(weights), table["predicted"])
    return dict(zip(table["scan_id"], curves, strict=True))


def _mean(values: NDArray[np.floating]) -> float:
    """Return the mean of defined values; NaN if they are less than half."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if 2 * len(known) >= max(1, len(values)) else np.nan


def with_summaries(pairs: pd.DataFrame) -> pd.DataFrame:
    """Append mean, lowest and highest of each kind of pairs."""
    numbers = [name for name in STABILITY_COLUMNS if name not in (*KEYS, "one", "other")]
    parts = []
    for keys, part in pairs.groupby(KEYS, sort=False, dropna=False):
        values = part[numbers].astype(float)
        ends = pd.DataFrame({"mean": values.mean(), "lowest": values.min(), "highest": values.max()}).T
        ends = ends.rename_axis("one").reset_index().assign(**dict(zip(KEYS, keys, strict=True)))
        parts += [part, ends]
    return pd.concat(parts, ignore_index=True) if parts else pairs


def write_stability(
    run: ModelRun, seeds: Collection[int], folds: Sequence[int], classes: Sequence[str], *, fraction: float
) -> None:
    """Write ``stability.tsv`` (`STABILITY_COLUMNS`): every two folds of a run, and the run beside other seeds.

    Parameters
    ----------
    run : ModelRun
        Its explanation gets the table.
    seeds : collection of int
        Seeds to compare with; those without ``coefficients.npy`` are skipped.
    folds : sequence of int
    classes : sequence of str
    fraction : float
        Share of ROIs that are selected.

    Raises
    ------
    DataError
        This run has no regression weights, or they do not belong to the folds that have finished.
    """
    weights = _weights(run, folds)
    maps = {str(fold): fold_weights for fold, fold_weights in weights.items()}
    explained = {str(fold): read_importance(run.fold(fold)) for fold in weights}
    pairs = map_pairs(maps, classes, fraction) + curve_pairs(explained)
    rows = [{"between": "folds", **pair} for pair in pairs]
    for other in (run.with_seed(seed) for seed in sorted(seeds) if seed != run.seed):
        if holds_something(other.explanation / "coefficients.npy"):
            pairs = _seed_pairs(run, other, folds, classes, fraction)
            rows += [{"between": "seeds", **pair} for pair in pairs]
    table = with_summaries(pd.DataFrame(rows, columns=list(STABILITY_COLUMNS)))
    write_table(table[list(STABILITY_COLUMNS)], run.explanation / "stability.tsv", STABILITY_COLUMNS)


def _seed_pairs(
    run: ModelRun, other: ModelRun, folds: Sequence[int], classes: Sequence[str], fraction: float
) -> list[dict[str, Any]]:
    """Compare two seeds, in the mean over the folds that both have."""
    runs = {str(run.seed): run, str(other.seed): other}
    weights = {seed: _weights(its_run, folds) for seed, its_run in runs.items()}
    shared = [fold for fold in weights[str(run.seed)] if fold in weights[str(other.seed)]]
    if not shared:
        return []
    maps = {seed: np.mean([by_fold[fold] for fold in shared], axis=0) for seed, by_fold in weights.items()}
    curves = []
    for fold in shared:
        curves += curve_pairs({seed: read_importance(its_run.fold(fold)) for seed, its_run in runs.items()})
    mean = pd.DataFrame(curves).mean(numeric_only=True).to_dict()
    importance = {"what": "importance", "one": str(run.seed), "other": str(other.seed), **mean}
    return [*map_pairs(maps, classes, fraction), importance]


def _weights(run: ModelRun, folds: Sequence[int]) -> dict[int, NDArray[np.floating]]:
    """Return the regression weights (classes, rois) of each fold."""
    path, done = run.explanation / "coefficients.npy", explained_folds(run.folder, folds)
    if not path.is_file():
        raise DataError("file not found", where=path, hint="Make the regions first: bolt regions")
    coefficients = np.load(path, allow_pickle=False).astype(float)
    if len(coefficients) != len(done):
        raise DataError(
            f"regression weights of {len(coefficients)} folds, but {len(done)} are explained",
            where=path,
            hint="Make the regions again: bolt regions",
        )
    return dict(zip(done, coefficients, strict=True))
