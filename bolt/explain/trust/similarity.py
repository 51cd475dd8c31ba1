"""Similarity of the importance of a scan under two models, after the effect of position is removed.

BolT's windows overlap less at the ends of a scan. So importance has a similar shape there in all scans and models, and
two models that agree about nothing else seem to agree. This shape is estimated as the mean curve of all other scans,
fitted to the scan's own curve and removed; the residuals are compared by rank correlation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from scipy.stats import t as student

Curves = Sequence[NDArray[np.floating]]

SAME = 5
"""Smallest number of scans of one length that have a mean curve of their own; with fewer, scans of all lengths are
joined."""
OTHERS = 3
"""Smallest number of other scans behind each point of a joined curve."""
FLAT = 1e-5
"""A curve that varies by less than this share of its mean has no ranks, because they would reflect rounding."""
GONE = 0.2
"""Threshold of the sanity checks: a mean rank correlation counts as none if its interval lies closer to 0."""
FEWEST = 6
"""Smallest number of groups with an interval: all of fewer lie on one side of their true median in more than 5 % of
samples."""
DRAWS = 4000
"""Bootstrap samples of an interval."""


def without_position(weights: Curves) -> list[NDArray[np.floating]]:
    """Remove the effect of position from each scan's importance.

    Each curve is scaled to mean 1 and regressed on the mean curve of the other scans (with an intercept), so that the
    effect of position may be larger or smaller in a scan; residuals are returned.

    Parameters
    ----------
    weights : sequence of (T,) arrays
        Importance of different scans under one model; lengths may differ.

    Returns
    -------
    list of (T,) float64 arrays
        With mean 0; all NaN if there are no other scans to estimate position from, or if nothing is left.
    """
    curves = [scaled(curve) for curve in weights]
    residuals = []
    for curve, position in zip(curves, mean_of_others(curves), strict=True):
        curve, position = curve - curve.mean(), position - position.mean()
        energy = position @ position
        rest = curve - position * (curve @ position / energy if energy > 0 else 0)  # NaN if position is unknown
        residuals.append(rest if rest.std() > FLAT else np.full(len(curve), np.nan))
    return residuals


def position_curves(weights: Curves) -> list[NDArray[np.floating]]:
    """Return the mean curve of the other scans' importance, scaled to mean 1, at the length of each scan.

    Parameters
    ----------
    weights : sequence of (T,) arrays
        Importance of different scans under one model; lengths may differ.

    Returns
    -------
    list of (T,) float64 arrays
        NaN if there are no other scans, or the scan itself has no importance.
    """
    return mean_of_others([scaled(curve) for curve in weights])


def ranked(curves: Curves) -> list[NDArray[np.floating]]:
    """Return the ranks of each curve, with mean 0 and norm 1, float64; NaN for a curve that is flat or unknown.

    The dot product of two is Spearman's correlation.
    """
    normalised = []
    for curve in curves:
        ranks = rankdata(curve) - (len(curve) + 1) / 2
        size = np.linalg.norm(ranks)
        known = np.isfinite(curve).all() and np.std(curve) > FLAT * abs(np.mean(curve)) and size > 0
        normalised.append(ranks / size if known else np.full(len(curve), np.nan))
    return normalised


def correlations(first: Curves, second: Curves) -> NDArray[np.floating]:
    """Return Spearman's correlation of each scan's two curves, from `ranked`, (scans,); NaN if undefined."""
    return np.array([float(a @ b) for a, b in zip(first, second, strict=True)])


def mean_and_interval(values: NDArray[np.floating], groups: Sequence[str]) -> tuple[float, float, float]:
    """Return the mean over scans with its 95 % bootstrap interval over groups.

    Parameters
    ----------
    values : (scans,) array
        NaN is excluded; if more than half is NaN, so is the mean.
    groups : sequence of str
        Family, else subject, of each scan; all scans of a group are drawn together.

    Returns
    -------
    mean, low, high : float
        The ends are NaN with fewer than `FEWEST` groups.
    """
    return _estimate(values[:, None], groups, lambda means: means[..., 0])


def contrast_and_interval(
    control: NDArray[np.floating], check: NDArray[np.floating], groups: Sequence[str]
) -> tuple[float, float, float]:
    """Return by how much a mean exceeds the size of another mean of the same scans, as `mean_and_interval`.

    Parameters
    ----------
    control, check : (scans,) array
        The result is the mean of `control` minus the absolute value of the mean of `check`.
    groups : sequence of str
    """
    return _estimate(np.column_stack([control, check]), groups, lambda means: means[..., 0] - abs(means[..., 1]))


def _estimate(
    values: NDArray[np.floating], groups: Sequence[str], statistic: Callable[[NDArray[Any]], Any]
) -> tuple[float, float, float]:
    """Return a statistic of the column means of `values` (scans, columns), with its interval.

    Percentiles are expanded for small samples, in which they are too narrow (Hesterberg 2015,
    doi 10.1080/00031305.2015.1089789).
    """
    known = np.isfinite(values).all(axis=1)
    if 2 * known.sum() < max(1, len(values)):
        return np.nan, np.nan, np.nan
    values = values[known]
    names, member = np.unique(np.asarray(groups, dtype=str)[known], return_inverse=True)
    estimate, n = float(statistic(values.mean(axis=0))), len(names)
    if n < FEWEST:
        return estimate, np.nan, np.nan
    total = np.stack([np.bincount(member, column) for column in values.T], axis=1)
    times = _times_drawn(n)
    means = (times @ total) / (times @ np.bincount(member))[:, None]
    tail = 100 * norm.cdf(-np.sqrt(n / (n - 1)) * student.ppf(0.975, n - 1))
    low, high = np.percentile(statistic(means), [tail, 100 - tail])
    return estimate, float(low), float(high)


@lru_cache(maxsize=1)  # one table has many intervals over the same groups
def _times_drawn(n: int) -> NDArray[np.integer]:
    """Return how often each of `n` groups is in each bootstrap sample, (draws, n)."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS)


def scaled(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Scale to mean 1; all NaN if that is impossible."""
    weights = np.asarray(weights, float)
    mean = weights.mean()
    return weights / mean if np.isfinite(mean) and mean > 0 else np.full(len(weights), np.nan)


def mean_of_others(curves: list[NDArray[np.floating]]) -> list[NDArray[np.floating]]:
    """Return the mean curve of the other scans, for each scan at its own length."""
    lengths = np.array([len(curve) for curve in curves])
    known = np.array([bool(np.isfinite(curve).all()) for curve in curves])
    means = _joined(curves, known)
    for length in np.unique(lengths):
        same = np.flatnonzero((lengths == length) & known)
        if len(same) >= SAME:
            stack = np.stack([curves[i] for i in same])
            for i, mean in zip(same, (stack.sum(0) - stack) / (len(same) - 1), strict=True):
                means[i] = mean
    return means


def _joined(curves: list[NDArray[np.floating]], known: NDArray[np.bool_]) -> list[NDArray[np.floating]]:
    """Return the mean curve of the other scans of all lengths, aligned at the nearer end.

    How many windows overlap depends on the distance to the nearer end in volumes, not in shares of the scan. In the
    middle of the longest scans, which too few others reach, the curve is continued as a constant.
    """
    halves = [(len(curve) + 1) // 2 for curve in curves]
    ends = np.full((2, len(curves), max(halves, default=0)), np.nan)
    for i, (curve, half) in enumerate(zip(curves, halves, strict=True)):
        if known[i]:
            ends[0, i, :half], ends[1, i, :half] = curve[:half], curve[::-1][:half]
    present = np.isfinite(ends)
    total, count = np.nansum(ends, axis=1), present.sum(axis=1)
    needed = min(OTHERS, int(known.sum()) - 1)
    joined = []
    for i, (curve, half) in enumerate(zip(curves, halves, strict=True)):
        others = (count - present[:, i])[:, :half]
        reach = int((others >= max(needed, 1)).all(axis=0).sum())
        if not known[i] or reach == 0:
            joined.append(np.full(len(curve), np.nan))
            continue
        means = (total[:, :half] - np.nan_to_num(ends[:, i, :half])) / np.maximum(others, 1)
        means[:, reach:] = means[:, reach - 1 : reach]
        joined.append(np.concatenate([means[0], means[1, : len(curve) - half][::-1]]))
    return joined
