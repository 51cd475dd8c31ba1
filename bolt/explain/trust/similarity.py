"""Similarity of the importance of a scan under two models, after the effect of position is removed.

BolT's windows overlap less at the ends of a scan. So importance has a similar shape there in all scans and models, and
two models that agree about nothing else seem to agree. This shape is estimated as the mean curve of all other scans,
fitted to the scan's own curve and removed; the residuals are compared by rank correlation.

Also the same shape as untrained models show it, by which importance over a task is divided; and the outcome of the
sanity checks: correlations over scans, their intervals, and what they show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from bolt.evaluate.intervals import expanded
from bolt.io.files import columns

Array = NDArray[np.floating]
Curves = Sequence[Array]

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
LEAST = 0.1
"""Volumes with a smaller share of the mean importance under untrained models are ignored: hardly a window has them."""
SANITY_COLUMNS = columns("explain", "sanity", GONE=GONE, FEWEST=FEWEST)
KEYS = ["check", "step", "layer"]
PERMUTED, RETRAINED = "permuted labels", "trained again"


def without_position(weights: Curves) -> list[Array]:
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
    residuals = []
    for curve, position in zip(map(_scaled, weights), position_curves(weights), strict=True):
        curve, position = curve - curve.mean(), position - position.mean()
        energy = position @ position
        rest = curve - position * (curve @ position / energy if energy > 0 else 0)  # NaN if position is unknown
        residuals.append(rest if rest.std() > FLAT else np.full(len(curve), np.nan))
    return residuals


def _scaled(weights: Array) -> Array:
    """Scale to mean 1; all NaN if that is impossible."""
    weights = np.asarray(weights, float)
    mean = weights.mean()
    return weights / mean if np.isfinite(mean) and mean > 0 else np.full(len(weights), np.nan)


def position_curves(weights: Curves) -> list[Array]:
    """Return the mean curve of the other scans' importance, scaled to mean 1, at the length of each scan.

    With fewer than `SAME` scans of a length, those of all lengths are joined, aligned at the nearer end: how many
    windows overlap depends on the distance to it in volumes, not in shares of the scan. In the middle of the longest
    scans, which too few others reach, the curve is continued as a constant.

    Parameters
    ----------
    weights : sequence of (T,) arrays
        Importance of different scans under one model; lengths may differ.

    Returns
    -------
    list of (T,) float64 arrays
        NaN if there are no other scans, or the scan itself has no importance.
    """
    curves = [_scaled(curve) for curve in weights]
    lengths = np.array([len(curve) for curve in curves])
    known = np.array([bool(np.isfinite(curve).all()) for curve in curves])
    halves = [(len(curve) + 1) // 2 for curve in curves]
    ends = np.full((2, len(curves), max(halves, default=0)), np.nan)
    for i, (curve, half) in enumerate(zip(curves, halves, strict=True)):
        if known[i]:
            ends[0, i, :half], ends[1, i, :half] = curve[:half], curve[::-1][:half]
    present = np.isfinite(ends)
    total, count = np.nansum(ends, axis=1), present.sum(axis=1)
    needed = max(min(OTHERS, int(known.sum()) - 1), 1)
    means = []
    for i, (curve, half) in enumerate(zip(curves, halves, strict=True)):
        others = (count - present[:, i])[:, :half]
        reach = int((others >= needed).all(axis=0).sum())
        if not known[i] or reach == 0:
            means.append(np.full(len(curve), np.nan))
            continue
        joined = (total[:, :half] - np.nan_to_num(ends[:, i, :half])) / np.maximum(others, 1)
        joined[:, reach:] = joined[:, reach - 1 : reach]
        means.append(np.concatenate([joined[0], joined[1, : len(curve) - half][::-1]]))
    for length in np.unique(lengths):
        same = np.flatnonzero((lengths == length) & known)
        if len(same) >= SAME:
            stack = np.stack([curves[i] for i in same])
            for i, mean in zip(same, (stack.sum(0) - stack) / (len(same) - 1), strict=True):
                means[i] = mean
    return means


def relative_to_untrained(weights: Sequence[Array], untrained: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Divide the importance of each scan by what untrained models give at the same place of a scan.

    Windows overlap less at both ends of a scan, so that any model gives less importance there; and where a task rests
    at the ends, importance seems higher during its blocks. Untrained models of the same architecture show this effect
    alone.

    Parameters
    ----------
    weights : sequence of (T,) arrays
        Importance of different scans under trained models; lengths may differ.
    untrained : sequence of (T,) arrays
        Importance of the same scans under untrained models. The mean curve of the other scans is used, see
        `position_curves`; for a single scan its own.

    Returns
    -------
    relative : list of (T,) arrays
        With mean 1; NaN for volumes below `LEAST`.
    expected : list of (T,) arrays
        The curves that weights were divided by, with mean 1.
    """
    others = zip(position_curves(untrained), map(_scaled, untrained), strict=True)
    expected = [mean if np.isfinite(mean).all() else own for mean, own in others]
    relative = []
    for curve, usual in zip(weights, expected, strict=True):
        divided = np.divide(curve, usual, out=np.full(len(curve), np.nan), where=usual >= LEAST)
        relative.append(divided / np.nanmean(divided))
    return relative, expected


def ranked(curves: Curves) -> list[Array]:
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


def correlations(first: Curves, second: Curves) -> Array:
    """Return Spearman's correlation of each scan's two curves, from `ranked`, (scans,); NaN if undefined."""
    return np.array([float(a @ b) for a, b in zip(first, second, strict=True)])


class Interval(NamedTuple):
    """An estimate and its 95 % interval; NaN where undefined."""

    value: float
    low: float
    high: float


def mean_and_interval(values: Array, groups: Sequence[str]) -> Interval:
    """Return the mean over scans with its 95 % bootstrap interval over groups.

    Parameters
    ----------
    values : (scans,) array
        NaN is excluded; if more than half is NaN, so is the mean.
    groups : sequence of str
        Family, else subject, of each scan; all scans of a group are drawn together.

    Returns
    -------
    Interval
        The ends are NaN with fewer than `FEWEST` groups.
    """
    return _estimate(values[:, None], groups, lambda means: means[..., 0])


def contrast_and_interval(control: Array, check: Array, groups: Sequence[str]) -> Interval:
    """Return by how much a mean exceeds the size of another mean of the same scans, as `mean_and_interval`.

    Parameters
    ----------
    control, check : (scans,) array
        The result is the mean of `control` minus the absolute value of the mean of `check`.
    groups : sequence of str
    """
    return _estimate(np.column_stack([control, check]), groups, lambda means: means[..., 0] - abs(means[..., 1]))


def _estimate(values: Array, groups: Sequence[str], statistic: Callable[[NDArray[Any]], Any]) -> Interval:
    """Return a statistic of the column means of `values` (scans, columns), with its interval."""
    known = np.isfinite(values).all(axis=1)
    if 2 * known.sum() < max(1, len(values)):
        return Interval(np.nan, np.nan, np.nan)
    values = values[known]
    names, member = np.unique(np.asarray(groups, dtype=str)[known], return_inverse=True)
    estimate, n = float(statistic(values.mean(axis=0))), len(names)
    if n < FEWEST:
        return Interval(estimate, np.nan, np.nan)
    total = np.stack([np.bincount(member, column) for column in values.T], axis=1)
    times = _times_drawn(n)
    means = (times @ total) / (times @ np.bincount(member))[:, None]
    low, high = np.quantile(statistic(means), expanded(n))
    return Interval(estimate, float(low), float(high))


@lru_cache(maxsize=1)  # one table has many intervals over the same groups
def _times_drawn(n: int) -> NDArray[np.integer]:
    """Return how often each of `n` groups is in each bootstrap sample, (draws, n)."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS)


def summary(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return mean and interval of each check and layer, for all folds together and for each fold.

    Parameters
    ----------
    comparisons : DataFrame
        One row per scan, check, layer and draw: scan_id, group, fold, `KEYS`, rho, rho_raw.

    Returns
    -------
    DataFrame
        Columns of `SANITY_COLUMNS`.
    """
    single = comparisons.groupby([*KEYS, "fold", "scan_id", "group"], sort=False, dropna=False, as_index=False)
    scans = single[["rho", "rho_raw"]].mean()
    retrained = scans.loc[scans["check"] == RETRAINED, ["fold", "scan_id", "group", "rho"]]
    control = mean_and_interval(retrained["rho"].to_numpy(), retrained["group"]) if len(retrained) else None
    last = {"cascade": scans.loc[scans["check"] == "cascade", "step"].max(), PERMUTED: np.nan}
    rows = []
    for whole in (True, False):
        for _, part in scans.groupby(KEYS if whole else ["fold", *KEYS], sort=False, dropna=False):
            keys = part.iloc[0][KEYS].to_dict()
            check, rho = keys["check"], mean_and_interval(part["rho"].to_numpy(), part["group"])
            contrast, outcome = None, None
            if whole and check == RETRAINED:
                agrees = "reproducible" if rho.low > 0 else "not reproducible"
                outcome = "not shown" if np.isnan(rho.low) else agrees  # too few scans have an interval
            elif whole and check in last and (check == PERMUTED or keys["step"] == last[check]):
                both = part.merge(retrained, on=["fold", "scan_id", "group"], suffixes=("", "_control"))
                values = both["rho_control"].to_numpy(), both["rho"].to_numpy()
                contrast = contrast_and_interval(*values, both["group"]) if control else None
                outcome = verdict(rho, control, contrast)
            raw = mean_and_interval(part["rho_raw"].to_numpy(), part["group"])
            row = keys | {"fold": "all" if whole else part["fold"].iloc[0], "n_scans": len(part), "verdict": outcome}
            row |= dict(zip(("rho", "low", "high"), rho, strict=True))
            row |= dict(zip(("rho_raw", "raw_low", "raw_high"), raw, strict=True))
            row |= dict(zip(("contrast", "contrast_low", "contrast_high"), contrast or (), strict=False))
            rows.append(row | {"n_undefined": int(part["rho"].isna().sum()), "note": None})
    return pd.DataFrame(rows, columns=list(SANITY_COLUMNS))


def verdict(rho: Interval, control: Interval | None, contrast: Interval | None) -> str:
    """Return the outcome of a check, see `SANITY_COLUMNS`.

    Parameters
    ----------
    rho : Interval
        Correlation that remains.
    control : Interval or None
        Correlation of the model trained again.
    contrast : Interval or None
        By how much the control exceeds the size of what remains, on the same scans.
    """
    if np.isnan(rho.value) or (abs(rho.value) >= GONE and (rho.low > 0 or rho.high < 0)):
        return "not passed"
    if not (rho.low > -GONE and rho.high < GONE):  # an equivalence test, of two one-sided ones
        return "not shown"
    if control is None or contrast is None or np.isnan(control.low) or np.isnan(contrast.low):
        return "no control"
    return "passed" if control.low > 0 and contrast.low > 0 else "not reproducible"
