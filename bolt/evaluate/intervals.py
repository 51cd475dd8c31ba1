"""95 % intervals of metrics; groups (families, else subjects) are independent, not scans.

- Shares (accuracy, recall, precision, balanced accuracy): Clopper-Pearson with the effective number of scans that the
  variance between groups implies (Korn and Graubard 1998, Survey Methodology 24:193), and the degrees of freedom of the
  groups. If all scans are right, or all wrong, that variance is unknown, and the number of groups counts. Averages over
  classes combine the intervals of the classes (MOVER: Zou and Donner 2008, doi:10.1002/sim.3095).
- AUC: a score interval, that is, all values that are not rejected given the variance which they themselves imply
  (Newcombe 2006, method 5, doi:10.1002/sim.2324), so that it has a width at 0 and 1 as well. That variance is increased
  to the one observed between groups (Obuchowski 1997, doi:10.2307/2533958), if this is larger. Only scans of the same
  fold and seed are compared.
- Brier score, log loss and mean absolute error: bootstrap-t (`bolt.evaluate.losses`).
- Correlation and explained variance of numbers: expanded percentiles of bootstrap samples of groups.

With several seeds, the variance between them is part of all intervals: percentiles are of samples of seeds as well, and
the others add it. Metrics of fewer than `FEWEST_GROUPS` groups have no interval, nor has an AUC of a class with fewer
than `bolt.evaluate.areas.FEWEST_PER_CLASS` groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtr

from bolt.evaluate.areas import area_interval
from bolt.evaluate.calibration import SMALLEST, log_losses, squared_errors
from bolt.evaluate.classes import class_arrays, mean_of_finite, ranking_of
from bolt.evaluate.losses import loss_interval
from bolt.evaluate.numbers import number_arrays, number_scores
from bolt.evaluate.shares import share_intervals
from bolt.evaluate.units import NO_INTERVAL, Floats, Interval, Positions, Units, quantile

FEWEST_GROUPS = 6
"""With fewer, an interval would span nearly all values."""
Scores = Mapping[str, Floats]


def intervals(
    predictions: pd.DataFrame, classes: Sequence[str] | None, *, over_folds: bool, draws: int = 1000, seed: int = 0
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
    draws, seed : int
        Of the bootstrap.
    """
    units = Units.of(predictions)
    if classes is None:
        truth, predicted = number_arrays(predictions)
        found = _bootstrap(
            lambda rows, weight: number_scores(truth[rows], predicted[rows], weight), units, over_folds, draws, seed
        )
        errors = np.abs(truth - predicted)
        found["mae"] = loss_interval(errors, units, over_folds, float(errors.max()), draws=draws, seed=seed)
    else:
        found = _of_classes(*class_arrays(predictions, classes), units, over_folds, draws, seed)
        if (ranking := ranking_of(predictions, classes)) is not None:  # comparable between folds
            averaged, (label, _, _) = _averaged(len(classes)), class_arrays(predictions, classes)
            whole = Units.of(predictions.assign(fold=0))
            found["auc"] = area_interval(label, ranking, averaged, whole, over_folds)
    too_few = units.group.max() + 1 < FEWEST_GROUPS
    return {name: NO_INTERVAL if too_few else ends for name, ends in found.items()}


def _of_classes(
    truth: Positions,
    predicted: Positions,
    probability: Floats,
    units: Units,
    over_folds: bool,
    draws: int,
    seed: int,
) -> dict[str, Interval]:
    """Return the intervals of the metrics of classes."""
    averaged = _averaged(probability.shape[1])

    losses = {
        "brier": (squared_errors(truth, probability), 1.0 if len(averaged) == 1 else 2.0),
        "log_loss": (log_losses(truth, probability), -np.log(SMALLEST)),
    }
    return {
        **share_intervals(truth, predicted, averaged, units, over_folds),
        "auc": area_interval(truth, probability, averaged, units, over_folds),
        **{
            name: loss_interval(loss, units, over_folds, largest, draws=draws, seed=seed)
            for name, (loss, largest) in losses.items()
        },
    }


def _averaged(n_classes: int) -> list[int]:
    """Return the classes whose metrics are averaged: the positive one of two, otherwise all."""
    return [1] if n_classes == 2 else list(range(n_classes))


def _bootstrap(
    score: Callable[[Positions, Floats], Scores], units: Units, over_folds: bool, draws: int, seed: int
) -> dict[str, Interval]:
    """Return the percentile interval of each metric.

    Groups are drawn with replacement, once for all folds. Of S > 1 seeds, S - 1 are drawn with replacement, which makes
    the variance between seeds unbiased (Rao and Wu 1988, doi:10.2307/2288945).

    Parameters
    ----------
    score : callable
        Takes rows, and weights of them (draws, rows); returns metrics, (draws,) each.
    """
    random = np.random.default_rng(seed)
    groups = _counts(random, units.group.max() + 1, units.group.max() + 1, draws)
    n_seeds = units.seed.max() + 1
    seeds = _counts(random, n_seeds, n_seeds - 1, draws) if n_seeds > 1 else np.ones((draws, 1))
    if not over_folds:
        everything = score(np.arange(len(units.group)), groups[:, units.group] * seeds[:, units.seed])
        return {name: _percentiles(sample, groups.shape[1]) for name, sample in everything.items()}
    samples: dict[str, list[Floats]] = {}
    for fold in np.unique(units.fold):
        total: dict[str, Floats] = {}
        counted = np.zeros(draws)
        for one in np.unique(units.seed[units.fold == fold]):
            rows = np.flatnonzero((units.fold == fold) & (units.seed == one))
            with np.errstate(invalid="ignore", divide="ignore"):  # a draw may contain no scan of a fold
                for name, sample in score(rows, groups[:, units.group[rows]]).items():
                    total[name] = total.get(name, 0) + np.where(seeds[:, one] > 0, seeds[:, one] * sample, 0)
            counted += seeds[:, one]
        for name, sums in total.items():
            mean = np.divide(sums, counted, out=np.full(draws, np.nan), where=counted > 0)
            samples.setdefault(name, []).append(mean)
    return {
        name: _percentiles(mean_of_finite(np.stack(folds, axis=1)), groups.shape[1]) for name, folds in samples.items()
    }


def _counts(random: np.random.Generator, n: int, drawn: int, draws: int) -> Floats:
    """Draw with replacement from n; return how often each is drawn, (draws, n)."""
    return random.multinomial(drawn, np.full(n, 1 / n), size=draws).astype(float)


def _percentiles(sample: Floats, n_groups: int) -> Interval:
    """Return the expanded percentile interval of a bootstrap sample, ignoring NaN.

    The percentiles are further out than 2.5 and 97.5, as far as a t interval is wider than a normal one without degrees
    of freedom (Hesterberg 2015, doi:10.1080/00031305.2015.1089789): those of few groups would be too narrow.
    """
    sample = sample[np.isfinite(sample)]
    if not len(sample) or n_groups < 2:
        return NO_INTERVAL
    tail = float(ndtr(-np.sqrt(n_groups / (n_groups - 1)) * quantile(n_groups - 1)))
    low, high = np.quantile(sample, [tail, 1 - tail])
    return float(low), float(high)
