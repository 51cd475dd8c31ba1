"""How alike the importance of one scan is under two models, once what position alone says is taken away.

The windows of BolT overlap less at the ends of a scan, so every model gives all its scans a curve of one shape there,
and two models that agree about nothing else seem to agree. That shape is the mean curve over scans. It is taken from
all other scans, fitted to the scan's own curve, and removed; what is left is compared by ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Curves = Sequence[NDArray[np.floating]]

SAME = 5
"""Scans of one length from which their own mean curve is taken; of fewer, all scans are joined."""
OTHERS = 3
"""Scans of other lengths, at least, behind each point of a joined curve."""
FLAT = 1e-5
"""A curve that varies less than this share of its mean has no ranks: it would be rounding that is compared."""
GONE = 0.2
"""A mean rank correlation nearer to 0 than this counts as none: the bar of the sanity checks."""


def without_position(weights: Curves) -> list[NDArray[np.floating]]:
    """Remove from each scan's importance what position alone says.

    Every curve is scaled to mean 1, and the part that is proportional to the mean curve of the other scans is
    subtracted (with an intercept), so that scans on which position weighs more or less are treated alike.

    Parameters
    ----------
    weights : sequence of (T,) arrays
        Importance of different scans under one model; lengths may differ.

    Returns
    -------
    list of (T,) float64 arrays
        Means are 0; NaN where there is no other scan to tell position by, and where nothing is left.
    """
    curves = [_scaled(one) for one in weights]
    found = []
    for own, position in zip(curves, _position(curves), strict=True):
        own, position = own - own.mean(), position - position.mean()
        energy = position @ position
        rest = own - position * (own @ position / energy if energy > 0 else 0)  # NaN where position is not known
        found.append(rest if rest.std() > FLAT else np.full(len(own), np.nan))
    return found


def ranked(curves: Curves) -> list[NDArray[np.floating]]:
    """Ranks of each curve, with mean 0 and length 1, so that the dot product of two is Spearman's correlation; NaN for
    a curve that is flat or not known. Float64."""
    found = []
    for one in curves:
        ranks = rankdata(one) - (len(one) + 1) / 2
        size = np.linalg.norm(ranks)
        known = np.isfinite(one).all() and np.std(one) > FLAT * abs(np.mean(one)) and size > 0
        found.append(ranks / size if known else np.full(len(one), np.nan))
    return found


def correlations(one: Curves, other: Curves) -> NDArray[np.floating]:
    """Spearman's correlation of each scan's two curves, as `ranked` gave them, (scans,); NaN where undefined."""
    return np.array([float(a @ b) for a, b in zip(one, other, strict=True)])


def mean_and_interval(
    values: NDArray[np.floating], groups: Sequence[str], draws: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean over scans with its 95 % bootstrap interval over groups.

    Parameters
    ----------
    values : (scans,) array
        NaN is left out; where more than half is NaN, so is the mean.
    groups : sequence of str
        Family, else subject, of each scan; all scans of a group are drawn together.
    draws, seed : int

    Returns
    -------
    mean, low, high : float
    """
    known = np.isfinite(values)
    if 2 * known.sum() < max(1, len(values)):
        return np.nan, np.nan, np.nan
    values = values[known]
    names, member = np.unique(np.asarray(groups, dtype=str)[known], return_inverse=True)
    total, count = np.bincount(member, values), np.bincount(member)
    times = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    low, high = np.percentile((times @ total) / (times @ count), [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def _scaled(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """To mean 1; all NaN where that cannot be done."""
    weights = np.asarray(weights, float)
    mean = weights.mean()
    return weights / mean if np.isfinite(mean) and mean > 0 else np.full(len(weights), np.nan)


def _position(curves: list[NDArray[np.floating]]) -> list[NDArray[np.floating]]:
    """The mean curve of the other scans, for each scan at its own length."""
    lengths = np.array([len(one) for one in curves])
    known = np.array([bool(np.isfinite(one).all()) for one in curves])
    found = _joined(curves, known)
    for length in np.unique(lengths):
        same = np.flatnonzero((lengths == length) & known)
        if len(same) >= SAME:
            stack = np.stack([curves[i] for i in same])
            for i, mean in zip(same, (stack.sum(0) - stack) / (len(same) - 1), strict=True):
                found[i] = mean
    return found


def _joined(curves: list[NDArray[np.floating]], known: NDArray[np.bool_]) -> list[NDArray[np.floating]]:
    """Mean curves of scans of all lengths, aligned at the nearer end: overlap of windows depends on how many volumes
    away that is, not on the share of the scan. In the middle of the longest scans, where too few others reach, the
    curve goes on flat."""
    halves = [(len(one) + 1) // 2 for one in curves]
    ends = np.full((2, len(curves), max(halves, default=0)), np.nan)
    for i, (one, half) in enumerate(zip(curves, halves, strict=True)):
        if known[i]:
            ends[0, i, :half], ends[1, i, :half] = one[:half], one[::-1][:half]
    there = np.isfinite(ends)
    total, count = np.nansum(ends, axis=1), there.sum(axis=1)
    needed = min(OTHERS, int(known.sum()) - 1)
    found = []
    for i, (one, half) in enumerate(zip(curves, halves, strict=True)):
        others = (count - there[:, i])[:, :half]
        reach = int((others >= max(needed, 1)).all(axis=0).sum())
        if not known[i] or reach == 0:
            found.append(np.full(len(one), np.nan))
            continue
        means = (total[:, :half] - np.nan_to_num(ends[:, i, :half])) / np.maximum(others, 1)
        means[:, reach:] = means[:, reach - 1 : reach]
        found.append(np.concatenate([means[0], means[1, : len(one) - half][::-1]]))
    return found
