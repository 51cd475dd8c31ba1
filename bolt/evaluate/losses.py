"""Intervals of mean losses: Brier score, log loss, absolute error.

The distribution of a loss is skewed: a few confident errors make up most of its mean. Percentiles of bootstrap samples
are then too low: with 8 groups they miss the mean loss of an overconfident model in up to a quarter of cases
(``benchmarks/verdicts.tsv``). A bootstrap-t interval takes the skewness from the samples (Hall 1988,
doi:10.1214/aos/1176350933).
"""

from __future__ import annotations

import numpy as np

from bolt.evaluate.units import NO_INTERVAL, TAIL, Floats, Interval, Positions, Units, quantile, variance_of_sum


def loss_interval(
    loss: Floats, units: Units, over_folds: bool, largest: float, *, draws: int = 1000, seed: int = 0
) -> Interval:
    """Return the bootstrap-t interval of a mean loss; groups are drawn with replacement, once for all folds.

    Several seeds are not drawn, as they are few: the distance of both ends from the mean grows by what the variance
    between seeds adds to that between groups (`variance_of_sum`).

    Parameters
    ----------
    loss : float array (n,)
        Of each prediction.
    units : Units
        Of the predictions.
    over_folds : bool
        Of the mean over folds (and seeds) of their mean losses; otherwise of the mean of all.
    largest : float
        Largest possible loss; the smallest is 0.
    draws, seed : int
        Of the bootstrap.
    """
    cell, fold = (units.cell, units.fold) if over_folds else np.zeros((2, len(loss)), int)
    n_groups = int(units.group.max()) + 1
    if n_groups < 2:
        return NO_INTERVAL
    n = np.bincount(cell)
    weight = 1 / (len(n) * n[cell])
    value = float(weight @ loss)
    of_fold = np.bincount(fold, weight * loss) / np.bincount(fold, weight)
    variance, freedom = variance_of_sum(weight * (loss - of_fold[fold]), units.group, units.seed)
    samples = _studentised(loss, cell, units.group, draws, seed)
    of_t = quantile(n_groups - 1)
    low, high = -of_t, of_t
    if len(samples):  # groups differ
        low, high = np.quantile(samples, [TAIL, 1 - TAIL], method="closest_observation")
    error = np.sqrt(variance) * quantile(freedom) / of_t
    return max(0.0, float(value - high * error)), min(largest, float(value - low * error))


def _studentised(loss: Floats, cell: Positions, group: Positions, draws: int, seed: int) -> Floats:
    """Return how far bootstrap means of the cells' mean losses are from their own, in standard errors of the sample.

    A sample of equal losses is infinitely far, unless all groups are equal. A cell without a drawn group is not part of
    its sample's mean.
    """
    n_groups, n_cells = group.max() + 1, cell.max() + 1
    counts = (
        np.random.default_rng(seed).multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=draws).astype(float)
    )
    sums, sizes = np.zeros((2, n_cells, n_groups))
    np.add.at(sums, (cell, group), loss)
    np.add.at(sizes, (cell, group), 1)
    totals, drawn = counts @ sums.T, counts @ sizes.T  # (draws, cells)
    means = np.divide(totals, drawn, out=np.zeros_like(totals), where=drawn > 0)
    n_drawn = (drawn > 0).sum(axis=1)
    deviation = np.zeros((draws, n_groups))
    for c in range(n_cells):
        share = np.divide(1, n_drawn * drawn[:, c], out=np.zeros(draws), where=drawn[:, c] > 0)
        deviation += share[:, None] * (sums[c] - means[:, c, None] * sizes[c])
    variance = n_groups / (n_groups - 1) * (counts * deviation**2).sum(axis=1)
    difference = means.sum(axis=1) / n_drawn - (sums.sum(axis=1) / sizes.sum(axis=1)).mean()
    nothing = 1e-9 * loss.max()  # rounding errors are smaller
    variance = np.where(variance > nothing**2, variance, 0)
    difference = np.where(abs(difference) > nothing, difference, 0)
    defined = (variance > 0) | (difference != 0)
    with np.errstate(divide="ignore"):
        return difference[defined] / np.sqrt(variance[defined])
