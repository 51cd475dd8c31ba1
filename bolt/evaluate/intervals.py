"""95 % intervals of metrics; groups (families, else subjects) are independent, not scans.

- Shares (accuracy, recall, precision, balanced accuracy): Clopper-Pearson with the effective number of scans that the
  variance between groups implies (Korn and Graubard 1998, Survey Methodology 24:193), and the degrees of freedom of the
  groups. If all scans are right, or all wrong, that variance is unknown, and the number of groups counts. Averages over
  classes combine the intervals of the classes (MOVER: Zou and Donner 2008, doi:10.1002/sim.3095).
- AUC: a score interval, that is, all values that are not rejected given the variance which they themselves imply
  (Newcombe 2006, method 5, doi:10.1002/sim.2324), so that it has a width at 0 and 1 as well. That variance is increased
  to the one observed between groups (Obuchowski 1997, doi:10.2307/2533958), if this is larger. Only scans of the same
  fold and seed are compared.
- Brier score, log loss and mean absolute error: bootstrap-t (Hall 1988, doi:10.1214/aos/1176350933). The distribution
  of a loss is skewed: a few confident errors make up most of its mean. Percentiles of bootstrap samples are then too
  low: with 8 groups they miss the mean loss of an overconfident model in up to a quarter of cases
  (``benchmarks/verdicts.tsv``). A bootstrap-t interval takes the skewness from the samples.
- Correlation and explained variance of numbers: expanded percentiles of bootstrap samples of groups.

With several seeds, the variance between them is part of all intervals: percentiles are of samples of seeds as well, and
the others add it. Metrics of fewer than `FEWEST_GROUPS` groups have no interval, nor has an AUC of a class with fewer
than `FEWEST_PER_CLASS` groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtr, stdtrit

from bolt.evaluate.scores import (
    NUMBER_METRICS,
    SMALLEST,
    Floats,
    Positions,
    class_arrays,
    mean_of_finite,
    number_arrays,
    number_scores,
    ranking_of,
    scan_scores,
)

FEWEST_GROUPS = 6
"""With fewer, an interval would span nearly all values."""
FEWEST_PER_CLASS = 5
"""Groups; with fewer, intervals of the AUC miss the truth too often (``benchmarks/verdicts.tsv``)."""
TAIL = 0.025
"""Share of samples beyond either end of an interval."""
Interval = tuple[float, float]
NO_INTERVAL = (float("nan"), float("nan"))


def intervals(
    predictions: pd.DataFrame, classes: Sequence[str] | None, *, over_folds: bool, draws: int = 1000
) -> dict[str, Interval]:
    """Compute the interval (low, high) of each metric, NaN if there are too few groups.

    Parameters
    ----------
    predictions : DataFrame
        Test rows.
    classes : sequence of str or None
        None if labels are numbers.
    over_folds : bool
        Of the mean over folds of metrics averaged over seeds; otherwise of metrics of all rows together.
    draws : int
        Of the bootstrap.
    """
    units, losses = Units.of(predictions), scan_scores(predictions, classes)
    if classes is None:
        found = _of_numbers(*number_arrays(predictions), units, over_folds, draws)
        largest = {"mae": float(losses["mae"].max())}
    else:
        label, called, score = class_arrays(predictions, classes)
        averaged = [1] if len(classes) == 2 else list(range(len(classes)))  # of two classes, the positive one
        found, compared = share_intervals(label, called, averaged, units, over_folds), units
        if (ranking := ranking_of(predictions, classes)) is not None:  # comparable between folds
            score, compared = ranking, Units.of(predictions.assign(fold=0))
        found["auc"] = area_interval(label, score, averaged, compared, over_folds)
        largest = {"brier": 1.0 if len(classes) == 2 else 2.0, "log_loss": -np.log(SMALLEST)}
    for name, limit in largest.items():
        found[name] = loss_interval(losses[name], units, over_folds, limit, draws=draws)
    too_few = units.group.max() + 1 < FEWEST_GROUPS
    return {name: NO_INTERVAL if too_few else ends for name, ends in found.items()}


# ---- what predictions have in common, and how far sums vary between it ---------------------------------------------
@dataclass(frozen=True)
class Units:
    """Positions of each prediction's scan, group, fold and seed, (n,) each."""

    scan: Positions
    group: Positions
    fold: Positions
    seed: Positions

    @classmethod
    def of(cls, predictions: pd.DataFrame) -> Units:
        """Read them from the columns of predictions; without folds or seeds, all are of one."""
        columns = predictions.assign(**{name: 0 for name in ("fold", "seed") if name not in predictions})
        names = ("scan_id", "group", "fold", "seed")
        return cls(*(np.unique(columns[name].astype(str), return_inverse=True)[1] for name in names))

    @property
    def cell(self) -> Positions:
        """Return the position of each combination of fold and seed: one trained model."""
        return np.unique(self.fold * (self.seed.max() + 1) + self.seed, return_inverse=True)[1]


def variance_of_sum(deviation: Floats, group: Positions, seed: Positions, n_means: int = 1) -> tuple[float, float]:
    """Return the variance of a sum of deviations, between groups and between seeds, and its degrees of freedom.

    Groups and seeds are crossed random effects. The residual variance is part of both and counts twice: without it, the
    variance between two or three seeds would be too small too often. `n_means` is the number of means from which
    deviations were taken. Degrees of freedom follow Satterthwaite (1946, doi:10.2307/3002019).
    """
    group, seed = (np.unique(of, return_inverse=True)[1] for of in (group, seed))
    n_groups, n_seeds = group.max() + 1, seed.max() + 1
    free = n_groups - n_means
    if free < 1:
        return 0.0, 1.0
    groups = n_groups / free * float((np.bincount(group, deviation) ** 2).sum())
    if n_seeds < 2:
        return groups, free
    seeds = n_seeds / (n_seeds - 1) * float((np.bincount(seed, deviation) ** 2).sum())
    if not groups + seeds:
        return 0.0, free
    return groups + seeds, (groups + seeds) ** 2 / (groups**2 / free + seeds**2 / (n_seeds - 1))


def quantile(freedom: float = np.inf) -> float:
    """Return the quantile of the t distribution at the upper end of an interval."""
    return float(stdtrit(freedom, 1 - TAIL))


# ---- shares of correct predictions ------------------------------------------------------------------------------
def share_intervals(
    truth: Positions, predicted: Positions, averaged: Sequence[int], units: Units, over_folds: bool
) -> dict[str, Interval]:
    """Return the intervals of accuracy, recall, precision and balanced accuracy."""
    right = (truth == predicted).astype(float)
    together = np.zeros(len(truth), int)
    cell = units.cell if over_folds else together
    strata = {
        "accuracy": (together, together, [0]),
        "recall": (truth, truth, averaged),
        "precision": (predicted, truth, averaged),
        "balanced_accuracy": (truth, truth, np.unique(truth).tolist()),
    }
    found = {}
    for name, (stratum, occurs, mean_of) in strata.items():
        # weights of the rows in a mean over cells of means over strata of means over rows: a stratum is part of a
        # cell's mean if it occurs there, and a cell is part of the mean if one of its strata does
        weight = np.zeros(len(cell))
        present = {c: [k for k in mean_of if (occurs[cell == c] == k).any()] for c in np.unique(cell)}
        n_cells = sum(bool(classes) for classes in present.values())
        for c, classes in present.items():
            for k in classes:
                rows = (cell == c) & (stratum == k)
                if rows.any():
                    weight[rows] = 1 / (n_cells * len(classes) * rows.sum())
        found[name] = _share_interval(right, weight, stratum, units)
    return found


def _share_interval(right: Floats, weight: Floats, stratum: Positions, units: Units) -> Interval:
    """Return the interval of a weighted share, combined of those of its strata."""
    parts = [np.flatnonzero((stratum == k) & (weight > 0)) for k in np.unique(stratum)]
    parts = [rows for rows in parts if len(rows)]
    if not parts:
        return NO_INTERVAL
    value, below, above, sums = 0.0, [], [], []
    for rows in parts:
        w = weight[rows]
        p = round(float(w @ right[rows] / w.sum()), 12)  # so that 1 is 1
        deviation = np.zeros(len(weight))
        deviation[rows] = w * (right[rows] - p)
        low, high = clopper_pearson(p, effective_n(p, w, deviation[rows], units, rows))
        value += w.sum() * p
        below.append(w.sum() * (p - low))
        above.append(w.sum() * (high - p))
        sums.append(np.concatenate([np.bincount(of, deviation) for of in (units.group, units.seed)]))
    # how sums of the same groups and seeds correlate between strata; negative correlations are 0
    residuals = np.array(sums)
    spread = np.sqrt((residuals**2).sum(axis=1))
    scaled = np.divide(residuals, spread[:, None], out=np.zeros_like(residuals), where=spread[:, None] > 0)
    alike = np.clip(scaled @ scaled.T, 0, 1)
    np.fill_diagonal(alike, 1)
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


# ---- areas under ROC curves -------------------------------------------------------------------------------------
def area_interval(
    truth: Positions, probability: Floats, averaged: Sequence[int], units: Units, over_folds: bool
) -> Interval:
    """Return the interval of the AUC, or of the mean of the AUCs of one class against the rest.

    The positive scans of each fold and seed are compared with its negative ones. The area is the mean of those of the
    folds and seeds with all classes (`over_folds`), or the share of all their pairs in order.
    """
    cells = [np.flatnonzero(units.cell == c) for c in np.unique(units.cell)]
    if over_folds:  # the others have no area
        cells = [rows for rows in cells if len(np.unique(truth[rows])) == probability.shape[1]]
    areas, deviations, folds = [], [], []
    for k in averaged:
        positive, score = truth == k, probability[:, k]
        compared = [rows for rows in cells if 0 < positive[rows].sum() < len(rows)]
        if not compared:
            return NO_INTERVAL
        among = np.isin(np.arange(len(truth)), np.concatenate(compared))
        n_groups = min(len(np.unique(units.group[among & side])) for side in (positive, ~positive))
        if n_groups < FEWEST_PER_CLASS:
            return NO_INTERVAL
        counts = np.array([(positive[rows].sum(), (~positive[rows]).sum()) for rows in compared], float)
        weight = np.ones(len(compared)) if over_folds else counts.prod(axis=1)
        weight /= weight.sum()
        placement, share = np.zeros((2, len(score)))  # part of the other class beyond each row; the row's weight
        for rows, part in zip(compared, weight, strict=True):
            first, second = rows[positive[rows]], rows[~positive[rows]]
            placement[first] = _share_below(score[first], score[second])
            placement[second] = 1 - _share_below(score[second], score[first])
            share[first], share[second] = part / len(first), part / len(second)
        areas.append(float(share[positive] @ placement[positive]))
        deviations.append(share * (placement - areas[-1]))  # influence of each row on the area
        fold = np.unique([units.fold[rows[0]] for rows in compared], return_inverse=True)[1]
        n_positive, n_negative = (np.bincount(fold, count) / np.bincount(fold) for count in counts.T)
        folds.append((np.bincount(fold, weight).astype(float), n_positive, n_negative))
    value = round(float(np.mean(areas)), 12)  # so that 1 is 1
    deviation = np.mean(deviations, axis=0)

    def implied(area: float) -> float:
        """Return the variance of the mean area, if those of several classes err together."""
        variances = [weight**2 @ area_variance(area, *n_of_classes) for weight, *n_of_classes in folds]
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


def _share_below(score: Floats, others: Floats) -> Floats:
    """Return the share of others that each score exceeds; equal ones count half."""
    others = np.sort(others)
    return (np.searchsorted(others, score, "left") + np.searchsorted(others, score, "right")) / 2 / len(others)


def area_variance(area: float, m: Floats, n: Floats) -> Floats:
    """Return the variance of the AUC of m against n scans, if scores are exponentially distributed (Newcombe 2006)."""
    other = (m + n) / 2 - 1
    return area * (1 - area) / (m * n) * (1 + other * ((1 - area) / (2 - area) + area / (1 + area)))


def _score_interval(value: float, variance: Callable[[float], float]) -> Interval:
    """Return the smallest and the largest parameter that the value does not reject, by bisection."""

    def rejects(parameter: float) -> bool:
        return abs(value - parameter) - quantile() * float(np.sqrt(variance(parameter))) > 0

    ends = []
    for outside in (0.0, 1.0):
        inside = value if rejects(outside) else outside
        for _ in range(50 if rejects(outside) else 0):
            middle = (outside + inside) / 2
            outside, inside = (middle, inside) if rejects(middle) else (outside, middle)
        ends.append(inside)
    return ends[0], ends[1]


# ---- mean losses ------------------------------------------------------------------------------------------------
def loss_interval(loss: Floats, units: Units, over_folds: bool, largest: float, *, draws: int = 1000) -> Interval:
    """Return the bootstrap-t interval of a mean loss; groups are drawn with replacement, once for all folds.

    If cells (of one fold and seed) have fewer than `FEWEST_GROUPS` groups, a draw leaves some without any, or with
    copies of one; the spread is then that of all losses together, also between folds.

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
    draws : int
        Of the bootstrap.
    """
    cell, fold = (units.cell, units.fold) if over_folds else np.zeros((2, len(loss)), int)
    n_groups = int(units.group.max()) + 1
    if n_groups < 2:
        return NO_INTERVAL
    n = np.bincount(cell)
    weight = 1 / (len(n) * n[cell])
    value = float(weight @ loss)
    if np.median(np.bincount(np.unique(np.stack([cell, units.group]), axis=1)[0])) < FEWEST_GROUPS:
        cell, fold = np.zeros((2, len(loss)), int)
    of_fold = np.bincount(fold, weight * loss) / np.bincount(fold, weight)
    variance, freedom = variance_of_sum(weight * (loss - of_fold[fold]), units.group, units.seed)
    samples = _studentised(loss, cell, units.group, draws)
    of_t = quantile(n_groups - 1)
    low, high = -of_t, of_t
    if len(samples):  # groups differ
        low, high = np.quantile(samples, [TAIL, 1 - TAIL], method="closest_observation")
    error = np.sqrt(variance) * quantile(freedom) / of_t
    return max(0.0, float(value - high * error)), min(largest, float(value - low * error))


def _studentised(loss: Floats, cell: Positions, group: Positions, draws: int) -> Floats:
    """Return how far bootstrap means of the cells' mean losses are from their own, in standard errors of the sample.

    A sample of equal losses is infinitely far, unless all groups are equal. A cell without a drawn group is not part of
    its sample's mean.
    """
    n_groups, n_cells = group.max() + 1, cell.max() + 1
    counts = _counts(np.random.default_rng(0), n_groups, n_groups, draws)
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


def _counts(random: np.random.Generator, n: int, drawn: int, draws: int) -> Floats:
    """Draw with replacement from n; return how often each is drawn, (draws, n)."""
    return random.multinomial(drawn, np.full(n, 1 / n), size=draws).astype(float)


# ---- numbers ----------------------------------------------------------------------------------------------------
def _of_numbers(truth: Floats, predicted: Floats, units: Units, over_folds: bool, draws: int) -> dict[str, Interval]:
    """Return the percentile interval of each metric of numbers.

    Groups are drawn with replacement, once for all folds. Of S > 1 seeds, S - 1 are drawn with replacement, which makes
    the variance between seeds unbiased (Rao and Wu 1988, doi:10.2307/2288945).
    """
    random, n_groups, n_seeds = np.random.default_rng(0), units.group.max() + 1, units.seed.max() + 1
    groups = _counts(random, n_groups, n_groups, draws)
    seeds = _counts(random, n_seeds, n_seeds - 1, draws) if n_seeds > 1 else np.ones((draws, 1))

    def sampled(rows: Positions, weight: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):  # a draw may contain no scan of a fold
            return np.stack(list(number_scores(truth[rows], predicted[rows], weight).values()))

    if not over_folds:
        samples = sampled(np.arange(len(truth)), groups[:, units.group] * seeds[:, units.seed])
    else:
        folds = []
        for fold in np.unique(units.fold):
            total, counted = np.zeros((len(NUMBER_METRICS), draws)), np.zeros(draws)
            for one in np.unique(units.seed[units.fold == fold]):
                rows = np.flatnonzero((units.fold == fold) & (units.seed == one))
                values = sampled(rows, groups[:, units.group[rows]])
                total += np.where(seeds[:, one] > 0, seeds[:, one] * values, 0)
                counted += seeds[:, one]
            folds.append(np.divide(total, counted, out=np.full(total.shape, np.nan), where=counted > 0))
        samples = mean_of_finite(np.stack(folds, axis=-1))
    return {name: _percentiles(sample, n_groups) for name, sample in zip(NUMBER_METRICS, samples, strict=True)}


def _percentiles(sample: Floats, n_groups: int) -> Interval:
    """Return the expanded percentile interval of a bootstrap sample, ignoring NaN."""
    sample = sample[np.isfinite(sample)]
    if not len(sample) or n_groups < 2:
        return NO_INTERVAL
    low, high = np.quantile(sample, expanded(n_groups))
    return float(low), float(high)


def expanded(n_groups: int) -> Interval:
    """Return the quantiles of a bootstrap sample that are the ends of an interval.

    They are further out than 2.5 and 97.5 %, as far as a t interval is wider than a normal one without degrees of
    freedom (Hesterberg 2015, doi:10.1080/00031305.2015.1089789): those of few groups would be too narrow.
    """
    tail = float(ndtr(-np.sqrt(n_groups / (n_groups - 1)) * quantile(n_groups - 1)))
    return tail, 1 - tail
