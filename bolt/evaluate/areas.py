"""Interval of the area under the ROC curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bolt.evaluate.units import NO_INTERVAL, Floats, Interval, Positions, Units, quantile, variance_of_sum

FEWEST_PER_CLASS = 5
"""Groups; with fewer, intervals miss the truth too often (``benchmarks/verdicts.tsv``)."""


def area_interval(
    truth: Positions, probability: Floats, averaged: Sequence[int], units: Units, over_folds: bool
) -> Interval:
    """Return the interval of the AUC, or of the mean of the AUCs of one class against the rest."""
    comparisons = []
    for k in averaged:
        positive = truth == k
        n_groups = min(len(np.unique(units.group[rows])) for rows in (positive, ~positive))
        compared = _compare(positive, probability[:, k], units, over_folds) if n_groups >= FEWEST_PER_CLASS else None
        if compared is None:
            return NO_INTERVAL
        comparisons.append(compared)
    value = round(float(np.mean([c.area for c in comparisons])), 12)  # so that 1 is 1
    deviation = np.mean([c.deviation for c in comparisons], axis=0)

    def implied(area: float) -> float:
        """Return the variance of the mean area, if those of several classes err together."""
        variances = [c.weight**2 @ area_variance(area, c.n_positive, c.n_negative) for c in comparisons]
        return float(np.sqrt(variances).mean() ** 2)

    variance, freedom = variance_of_sum(deviation, units.group, units.seed, n_means=2)
    sizes = np.bincount(np.unique(np.stack([units.group, units.scan]), axis=1)[0])
    if 0 < value < 1 and variance > 0:
        design = max(variance / implied(value), 1 / len(averaged))
        if sizes.max() > 1 or units.seed.max() > 0:  # then the variance implied says little of the one between groups
            design *= (quantile(freedom) / quantile()) ** 2
    else:
        design = (sizes**2).sum() / sizes.sum()
    return _score_interval(value, lambda area: design * implied(area))


class Comparison(NamedTuple):
    """The AUC of one class against the rest, from comparisons within folds and seeds."""

    area: float
    deviation: Floats
    """Influence of each row on the area, (n,)."""
    weight: Floats
    """Of each fold, (folds,); so are the next two."""
    n_positive: Floats
    n_negative: Floats


def _compare(positive: NDArray[np.bool_], score: Floats, units: Units, over_folds: bool) -> Comparison | None:
    """Compare the positive with the negative scans of each fold and seed; None if none has both.

    The area is the mean of those of the folds and seeds (`over_folds`), or the share of all their pairs in order.
    """
    cells = [np.flatnonzero(units.cell == c) for c in np.unique(units.cell)]
    cells = [rows for rows in cells if 0 < positive[rows].sum() < len(rows)]
    if not cells:
        return None
    counts = np.array([(positive[rows].sum(), (~positive[rows]).sum()) for rows in cells], float)
    weight = np.ones(len(cells)) if over_folds else counts.prod(axis=1)
    weight /= weight.sum()
    placement, share = np.zeros((2, len(score)))  # part of the other class that is beyond each row; the row's weight
    for rows, part in zip(cells, weight, strict=True):
        first, second = rows[positive[rows]], rows[~positive[rows]]
        placement[first] = _share_below(score[first], score[second])
        placement[second] = 1 - _share_below(score[second], score[first])
        share[first], share[second] = part / len(first), part / len(second)
    area = float(share[positive] @ placement[positive])
    fold = np.unique([units.fold[rows[0]] for rows in cells], return_inverse=True)[1]
    n_positive, n_negative = (np.bincount(fold, count) / np.bincount(fold) for count in counts.T)
    return Comparison(area, share * (placement - area), np.bincount(fold, weight).astype(float), n_positive, n_negative)


def _share_below(score: Floats, others: Floats) -> Floats:
    """Return the share of others that each score exceeds; equal ones count half."""
    others = np.sort(others)
    return (np.searchsorted(others, score, "left") + np.searchsorted(others, score, "right")) / 2 / len(others)


def area_variance(area: float, m: Floats, n: Floats) -> Floats:
    """Return the variance of the AUC of m against n scans, if scores are exponentially distributed (Newcombe 2006)."""
    other = (m + n) / 2 - 1
    return area * (1 - area) / (m * n) * (1 + other * ((1 - area) / (2 - area) + area / (1 + area)))


def _score_interval(value: float, variance: Callable[[float], float]) -> Interval:
    """Return the smallest and the largest parameter that the value does not reject."""
    limit = quantile()

    def rejected(parameter: float) -> float:
        return abs(value - parameter) - limit * float(np.sqrt(variance(parameter)))

    return _bisect(rejected, 0.0, value), _bisect(rejected, 1.0, value)


def _bisect(rejected: Callable[[float], float], outside: float, inside: float) -> float:
    """Return where parameters between a rejected and an accepted one begin to be accepted."""
    if rejected(outside) <= 0:
        return outside
    for _ in range(50):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if rejected(middle) > 0 else (outside, middle)
    return inside
