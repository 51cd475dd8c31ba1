"""Stability: agreement between explanations of models of different folds, and of different random seeds.

Maps of regression weights, selections of top ROIs and importance curves are compared between every two folds, and
between seeds. Folds share most of their training subjects, and seeds all of them, so maps are compared with those of
permuted labels, and between disjoint halves of the people (`bolt.explain.trust.agreement`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from bolt.config.layout import ModelRun
from bolt.explain.regions import select
from bolt.explain.trust.agreement import Maps, Refits, null_columns
from bolt.explain.trust.similarity import correlations, ranked, without_position
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import holds_something, write_table

NULL_COLUMNS = {
    "pearson_null": "rows mean of regions and halves: mean of `pearson` with permuted labels",
    "pearson_null_high": "its 95th percentile over permutations",
    "dice_null": "the same of `dice`: mean",
    "dice_null_high": "95th percentile",
    "p": "share of permutations whose correlation, mean over pairs and classes, is at least as high",
}
STABILITY_COLUMNS = {
    "between": "folds: of one run; seeds: runs that differ only in the seed, means over their folds",
    "what": "regions: weights of the landmark regressions; halves: the same, fitted on test scans of two disjoint "
    "halves of the people (between seeds, one half under each); importance: curves of the same scans under two models",
    "class": "regions and halves: class for which positive weights are evidence",
    "one": "fold, seed or half (number of the split, a or b); or mean, lowest, highest: of all pairs above",
    "other": "fold, seed or half it is compared with",
    "pearson": "regions and halves: correlation of the weights over ROIs",
    "spearman": "regions and halves: rank correlation over ROIs; importance: mean over scans of the rank correlation "
    "over volumes, after the mean curve of the other scans is removed from both",
    "spearman_raw": "importance: the same without removing the mean curve, so that it includes the effect of position",
    "dice": "regions and halves: Dice coefficient of the two selections of top ROIs",
    "jaccard": "regions and halves: Jaccard index of the two selections",
    **NULL_COLUMNS,
    "same_class": "importance: share of scans for which both models predict, and so explain, the same class",
    "n": "regions and halves: ROIs; importance: scans with a rank correlation",
}
KEYS = ["between", "what", "class"]
Compared = dict[tuple[str, str], list[tuple[Maps, Maps]]]
"""The pairs of maps, with true and with permuted labels, by `between` and `what`."""
Explained = tuple[pd.DataFrame, list[NDArray[np.floating]]]


def compare_maps(a: NDArray[np.floating], b: NDArray[np.floating], fraction: float) -> dict[str, float]:
    """Return correlations of two maps of weights (rois,), and the overlap of their top ROIs."""
    top_a, top_b = select(a, fraction), select(b, fraction)
    shared, either = int((top_a & top_b).sum()), int((top_a | top_b).sum())
    flat = np.ptp(a) == 0 or np.ptp(b) == 0
    return {
        "pearson": np.nan if flat else float(pearsonr(a, b).statistic),
        "spearman": np.nan if flat else float(spearmanr(a, b).statistic),
        "dice": 2 * shared / (shared + either) if either else np.nan,
        "jaccard": shared / either if either else np.nan,
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


def half_pairs(
    halves: Sequence[tuple[Maps, Maps]], classes: Sequence[str], fraction: float, one: str = "", other: str = ""
) -> list[dict[str, Any]]:
    """Apply `compare_maps` to the maps of the two halves of each split; `one` and `other` are their seeds, if two."""
    rows = []
    for split, (a, b) in enumerate(halves, start=1):
        names = f"{one} {split}a".strip(), f"{other} {split}b".strip()
        rows += map_pairs(dict(zip(names, (a[0], b[0]), strict=True)), classes, fraction)
    return [row | {"what": "halves"} for row in rows]


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
    numbers = [name for name in STABILITY_COLUMNS if name not in (*KEYS, "one", "other", *NULL_COLUMNS)]
    parts = []
    for keys, part in pairs.groupby(KEYS, sort=False, dropna=False):
        values = part[numbers].astype(float)
        ends = pd.DataFrame({"mean": values.mean(), "lowest": values.min(), "highest": values.max()}).T
        ends = ends.rename_axis("one").reset_index().assign(**dict(zip(KEYS, keys, strict=True)))
        parts += [part, ends]
    return pd.concat(parts, ignore_index=True) if parts else pairs


def with_nulls(table: pd.DataFrame, compared: Compared, classes: Sequence[str], fraction: float) -> pd.DataFrame:
    """Fill `NULL_COLUMNS` of the rows "mean" of regions and halves."""
    for (between, what), pairs in compared.items():
        for name, values in zip(classes, null_columns(pairs, fraction) if pairs else [], strict=False):
            row = (table["between"] == between) & (table["what"] == what) & (table["class"] == name)
            table.loc[row & (table["one"] == "mean"), list(values)] = list(values.values())
    return table


def write_stability(
    cache: Any,
    run: ModelRun,
    seeds: Collection[int],
    folds: Sequence[int],
    classes: Sequence[str],
    *,
    fraction: float,
    tokens: int,
    permutations: int,
) -> None:
    """Write ``stability.tsv`` (`STABILITY_COLUMNS`): every two folds of a run, and the run beside other seeds.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : ModelRun
        Its explanation gets the table.
    seeds : collection of int
        Seeds to compare with; those without ``coefficients.npy`` are skipped.
    folds : sequence of int
    classes : sequence of str
    fraction : float
        Share of ROIs that are selected.
    tokens : int
        Landmarks per scan.
    permutations : int
        Permutations of the labels.

    Raises
    ------
    DataError
        This run has no regression weights, or they do not belong to the folds that have finished.
    """
    weights = _weights(run, folds)
    done = list(weights)
    explained = {str(fold): read_importance(run.fold(fold)) for fold in done}
    scans = [scan for table, _ in explained.values() for scan in table["scan_id"]]
    refits = Refits(cache, scans, classes, tokens=tokens, permutations=permutations)
    by_fold, halves = refits.fold_maps(run.folder, done), refits.half_maps(run.folder, done)
    rows = map_pairs({str(fold): fold_weights for fold, fold_weights in weights.items()}, classes, fraction)
    rows += half_pairs(halves, classes, fraction) + curve_pairs(explained)
    compared: Compared = {("folds", "regions"): list(combinations(by_fold.values(), 2)), ("folds", "halves"): halves}
    rows = [{"between": "folds", **row} for row in rows]
    for other in (run.with_seed(seed) for seed in sorted(seeds) if seed != run.seed):
        if holds_something(other.explanation / "coefficients.npy"):
            seed_rows, maps, halves = _seed_pairs(run, other, folds, classes, fraction, refits, by_fold)
            rows += [{"between": "seeds", **row} for row in seed_rows]
            compared.setdefault(("seeds", "regions"), []).extend(maps)
            compared.setdefault(("seeds", "halves"), []).extend(halves)
    table = with_summaries(pd.DataFrame(rows, columns=list(STABILITY_COLUMNS)))
    table = with_nulls(table, compared, classes, fraction)
    write_table(table[list(STABILITY_COLUMNS)], run.explanation / "stability.tsv", STABILITY_COLUMNS)


def _seed_pairs(
    run: ModelRun,
    other: ModelRun,
    folds: Sequence[int],
    classes: Sequence[str],
    fraction: float,
    refits: Refits,
    by_fold: Mapping[int, Maps],
) -> tuple[list[dict[str, Any]], list[tuple[Maps, Maps]], list[tuple[Maps, Maps]]]:
    """Compare two seeds, in the mean over the folds that both have; also return the pairs of refitted maps.

    Half of the people are explained by models of one seed, the other half by models of the other.
    """
    runs = {str(run.seed): run, str(other.seed): other}
    weights = {seed: _weights(its_run, folds) for seed, its_run in runs.items()}
    shared = [fold for fold in weights[str(run.seed)] if fold in weights[str(other.seed)]]
    if not shared:
        return [], [], []
    maps = {seed: np.mean([its[fold] for fold in shared], axis=0) for seed, its in weights.items()}
    curves = []
    for fold in shared:
        curves += curve_pairs({seed: read_importance(its_run.fold(fold)) for seed, its_run in runs.items()})
    mean = pd.DataFrame(curves).mean(numeric_only=True).to_dict()
    importance = {"what": "importance", "one": str(run.seed), "other": str(other.seed), **mean}
    own, others = (refits.half_maps(its_run.folder, shared) for its_run in runs.values())
    halves = [(a, b) for (a, _), (_, b) in zip(own, others, strict=True)]
    theirs = refits.fold_maps(other.folder, shared)
    refitted = np.mean([by_fold[fold] for fold in shared], axis=0), np.mean(list(theirs.values()), axis=0)
    named = half_pairs(halves, classes, fraction, *runs)
    return [*map_pairs(maps, classes, fraction), *named, importance], [refitted], halves


def _weights(run: ModelRun, folds: Sequence[int]) -> dict[int, NDArray[np.floating]]:
    """Return the regression weights (classes, rois) of each fold."""
    path, done = run.explanation / "coefficients.npy", explained_folds(run.folder, folds)
    if not path.is_file():
        raise DataError("file not found", where=path, hint="Run again")
    coefficients = np.load(path, allow_pickle=False).astype(float)
    if len(coefficients) != len(done):
        raise DataError(
            f"regression weights of {len(coefficients)} folds, but {len(done)} are explained",
            where=path,
            hint="Delete the file and run again",
        )
    return dict(zip(done, coefficients, strict=True))
