"""Intervals of shares of correct predictions: accuracy, recall, precision, balanced accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betaincinv

from bolt.evaluate.units import NO_INTERVAL, TAIL, Floats, Interval, Positions, Units, quantile, variance_of_sum


def share_intervals(
    truth: Positions,
    predicted: Positions,
    averaged: Sequence[int],
    units: Units,
    over_folds: bool,
) -> dict[str, Interval]:
    """Return the intervals of accuracy, recall, precision and balanced accuracy."""
    right = (truth == predicted).astype(float)
    cell = units.cell if over_folds else np.zeros(len(truth), int)
    together = np.zeros(len(truth), int)
    everyone = np.unique(truth).tolist()
    strata = {
        "accuracy": (together, together, [0]),
        "recall": (truth, truth, averaged),
        "precision": (predicted, truth, averaged),
        "balanced_accuracy": (truth, truth, everyone),
    }
    return {
        name: _share(right, _weights(cell, of, occurs, averaged_here), of, units)
        for name, (of, occurs, averaged_here) in strata.items()
    }


def _weights(cell: Positions, stratum: Positions, occurs: Positions, averaged: Sequence[int]) -> Floats:
    """Return the weight of each row in a mean over cells of means over strata of means over rows.

    A stratum is part of a cell's mean if it occurs there, and a cell is part of the mean if one of its strata does.
    """
    weight = np.zeros(len(cell))
    present = {c: [k for k in averaged if (occurs[cell == c] == k).any()] for c in np.unique(cell)}
    n_cells = sum(bool(strata) for strata in present.values())
    for c, strata in present.items():
        for k in strata:
            rows = (cell == c) & (stratum == k)
            if rows.any():
                weight[rows] = 1 / (n_cells * len(strata) * rows.sum())
    return weight


def _share(right: Floats, weight: Floats, stratum: Positions, units: Units) -> Interval:
    """Return the interval of a weighted share, combined of those of its strata."""
    parts = [np.flatnonzero((stratum == k) & (weight > 0)) for k in np.unique(stratum)]
    parts = [rows for rows in parts if len(rows)]
    if not parts:
        return NO_INTERVAL
    value, below, above, residuals = 0.0, [], [], []
    for rows in parts:
        w = weight[rows]
        p = round(float(w @ right[rows] / w.sum()), 12)  # so that 1 is 1
        deviation = np.zeros(len(weight))
        deviation[rows] = w * (right[rows] - p)
        low, high = clopper_pearson(p, effective_n(p, w, deviation[rows], units, rows))
        value += w.sum() * p
        below.append(w.sum() * (p - low))
        above.append(w.sum() * (high - p))
        residuals.append(np.concatenate([np.bincount(of, deviation) for of in (units.group, units.seed)]))
    alike = _correlation(np.array(residuals))
    low, high = (np.sqrt(distance @ alike @ distance) for distance in (np.array(below), np.array(above)))
    return max(0.0, value - low), min(1.0, value + high)


def clopper_pearson(share: float, n: float) -> Interval:
    """Return the interval of a share of n independent scans; n need not be whole."""
    x = share * n
    low = betaincinv(x, n - x + 1, TAIL) if share > 0 else 0.0
    return float(low), float(betaincinv(x + 1, n - x, 1 - TAIL)) if share < 1 else 1.0


def effective_n(share: float, weight: Floats, deviation: Floats, units: Units, rows: Positions) -> float:
    """Return how many independent scans would determine a share as precisely as these.

    Parameters
    ----------
    share : float
    weight, deviation : float array (rows,)
        Weights, and weighted distances from the share.
    units : Units
    rows : int array (rows,)
        Their positions in `units`.
    """
    total = weight.sum()
    n = total**2 / (np.bincount(units.scan[rows], weight) ** 2).sum()
    if not 0 < share < 1:
        return float(total**2 / (np.bincount(units.group[rows], weight) ** 2).sum())
    variance, freedom = variance_of_sum(deviation, units.group[rows], units.seed[rows])
    alone = total**2 * share * (1 - share) / max(n - 1, 1)
    effective = n * alone / variance if variance > 0 else np.inf
    return float(min(n, effective * (quantile(max(n - 1, 1)) / quantile(freedom)) ** 2))


def _correlation(residuals: Floats) -> Floats:
    """Return how sums of the same groups and seeds correlate between strata, (strata, strata); negative ones are 0."""
    spread = np.sqrt((residuals**2).sum(axis=1))
    scaled = np.divide(residuals, spread[:, None], out=np.zeros_like(residuals), where=spread[:, None] > 0)
    alike = np.clip(scaled @ scaled.T, 0, 1)
    np.fill_diagonal(alike, 1)
    return alike
