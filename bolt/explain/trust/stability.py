"""Do models of different folds, or of different random seeds, tell the same story?

Maps of regression weights, selections of top ROIs and importance curves are compared between the models of every two
folds, and between seeds. Folds share most of their training subjects: what agrees between them is stable against
leaving some subjects out, which is less than found again in new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom, pearsonr, spearmanr

from bolt.explain.regions import select
from bolt.explain.trust.similarity import correlations, ranked, without_position
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import holds_something, write_table

STABILITY_COLUMNS = {
    "between": "folds: of one run; seeds: runs that differ in nothing but the seed, means over their folds",
    "what": "regions: weights of the landmark regressions; importance: curves of the same scans under two models",
    "class": "regions: class that the weights speak for",
    "one": "fold or seed; or mean, lowest, highest: of all pairs above",
    "other": "the one that it is compared with",
    "pearson": "regions: correlation of the weights over ROIs",
    "spearman": "regions: rank correlation over ROIs; importance: mean over scans of the rank correlation over "
    "volumes, after the mean curve of the other scans is removed from both",
    "spearman_raw": "importance: the same without removing the mean curve: what position alone makes alike counts",
    "dice": "regions: overlap of the two selections of top ROIs, twice the shared ones over the sum of both",
    "jaccard": "regions: the same as shared ones over all that are in either",
    "dice_chance": "what Dice would be on average, were as many ROIs drawn at random",
    "jaccard_chance": "what Jaccard would be",
    "same_class": "importance: share of scans of which both models predict the same class, which is the one explained",
    "n": "regions: ROIs; importance: scans with a rank correlation",
}
KEYS = ["between", "what", "class"]
Explained = tuple[pd.DataFrame, list[NDArray[np.floating]]]


def chance_overlap(one: int, other: int, total: int) -> tuple[float, float]:
    """Mean Dice and Jaccard of two sets of these sizes, drawn at random from `total`; NaN for two empty ones."""
    if one + other == 0:
        return np.nan, np.nan
    shared = np.arange(min(one, other) + 1)
    chance = hypergeom(total, one, other).pmf(shared)
    return float(2 * one * other / total / (one + other)), float(chance @ (shared / (one + other - shared)))


def compare_maps(one: NDArray[np.floating], other: NDArray[np.floating], fraction: float) -> dict[str, float]:
    """Correlations of two maps of weights (rois,), and overlap of their top ROIs beside what chance gives."""
    first, second = select(one, fraction), select(other, fraction)
    shared, either = int((first & second).sum()), int((first | second).sum())
    dice, jaccard = chance_overlap(int(first.sum()), int(second.sum()), len(one))
    flat = np.ptp(one) == 0 or np.ptp(other) == 0
    return {
        "pearson": np.nan if flat else float(pearsonr(one, other).statistic),
        "spearman": np.nan if flat else float(spearmanr(one, other).statistic),
        "dice": 2 * shared / (shared + either) if either else np.nan,
        "jaccard": shared / either if either else np.nan,
        "dice_chance": dice,
        "jaccard_chance": jaccard,
        "n": len(one),
    }


def map_pairs(
    maps: Mapping[str, NDArray[np.floating]], classes: Sequence[str], fraction: float
) -> list[dict[str, Any]]:
    """`compare_maps` for every two maps (classes, rois) and each class."""
    return [
        {"what": "regions", "class": name, "one": a, "other": b} | compare_maps(maps[a][c], maps[b][c], fraction)
        for c, name in enumerate(classes)
        for a, b in combinations(maps, 2)
    ]


def curve_pairs(explained: Mapping[str, Explained]) -> list[dict[str, Any]]:
    """Importance of the same scans under every two models.

    Parameters
    ----------
    explained : mapping
        A model's name to what `bolt.explain.weights.read_importance` gave: all its scans.
    """
    ready = {name: _ready(*found) for name, found in explained.items()}
    rows = []
    for a, b in combinations(ready, 2):
        scans = sorted(set(ready[a]) & set(ready[b]))
        pairs = [(ready[a][scan], ready[b][scan]) for scan in scans]
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
    """One scan's importance as ranks, without what position says and as it is, and the class that it explains."""

    rest: NDArray[np.floating]
    raw: NDArray[np.floating]
    predicted: str


def _ready(table: pd.DataFrame, weights: list[NDArray[np.floating]]) -> dict[str, _Curve]:
    curves = map(_Curve, ranked(without_position(weights)), ranked(weights), table["predicted"])
    return dict(zip(table["scan_id"], curves, strict=True))


def _mean(values: NDArray[np.floating]) -> float:
    """Of what is defined; NaN where that is less than half."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if 2 * len(known) >= max(1, len(values)) else np.nan


def with_summaries(pairs: pd.DataFrame) -> pd.DataFrame:
    """Add mean, lowest and highest of each kind of pairs below them."""
    numbers = [name for name in STABILITY_COLUMNS if name not in (*KEYS, "one", "other")]
    parts = []
    for keys, part in pairs.groupby(KEYS, sort=False, dropna=False):
        values = part[numbers].astype(float)
        ends = pd.DataFrame({"mean": values.mean(), "lowest": values.min(), "highest": values.max()}).T
        ends = ends.rename_axis("one").reset_index().assign(**dict(zip(KEYS, keys, strict=True)))
        parts += [part, ends]
    return pd.concat(parts, ignore_index=True) if parts else pairs


def write_stability(
    seeds: Mapping[int, tuple[Path, Path]],
    seed: int,
    folds: Sequence[int],
    classes: Sequence[str],
    *,
    fraction: float,
) -> None:
    """Write ``stability.tsv`` (`STABILITY_COLUMNS`): every two folds of one seed, and this seed beside each other.

    Parameters
    ----------
    seeds : mapping
        Seed to the folder of its run, and that of its explanation with ``coefficients.npy``; those that are not there
        yet are passed over.
    seed : int
        The one whose explanation gets the table.
    folds : sequence of int
    classes : sequence of str
    fraction : float
        Share of ROIs that are selected.

    Raises
    ------
    DataError
        Where this seed has no regression weights, or they are of other folds than have finished.
    """
    run, out = seeds[seed]
    own = _weights(run, out, folds)
    explained = {fold: read_importance(run / f"fold-{fold}") for fold in own}
    named = {str(fold): one for fold, one in own.items()}
    rows = map_pairs(named, classes, fraction) + curve_pairs({str(k): one for k, one in explained.items()})
    rows = [{"between": "folds", **row} for row in rows]
    for other, (its_run, its_out) in sorted(seeds.items()):
        if other == seed or not holds_something(its_out / "coefficients.npy"):
            continue
        theirs = _weights(its_run, its_out, folds)
        shared = [fold for fold in own if fold in theirs]
        if shared:
            maps = {str(s): np.mean([one[k] for k in shared], axis=0) for s, one in ((seed, own), (other, theirs))}
            single = []
            for fold in shared:
                two = {str(seed): explained[fold], str(other): read_importance(its_run / f"fold-{fold}")}
                single += curve_pairs(two)
            mean = pd.DataFrame(single).mean(numeric_only=True).to_dict()
            row = {"what": "importance", "one": str(seed), "other": str(other), **mean}
            rows += [{"between": "seeds", **one} for one in (*map_pairs(maps, classes, fraction), row)]
    table = with_summaries(pd.DataFrame(rows, columns=list(STABILITY_COLUMNS)))
    write_table(table[list(STABILITY_COLUMNS)], out / "stability.tsv", STABILITY_COLUMNS)


def _weights(run: Path, out: Path, folds: Sequence[int]) -> dict[int, NDArray[np.floating]]:
    """Fold to its regression weights (classes, rois)."""
    path, done = out / "coefficients.npy", explained_folds(run, folds)
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
