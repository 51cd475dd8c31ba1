"""Tests and effect sizes of association between a label and a measure, where the family is the unit.

Relatives and repeated scans of one person are alike, so tests that take them as independent raise false alarms, and
miss differences within persons. Three cases:

- Every family has one label: one value per family, and the usual tests of ranks and counts.
- Families have several labels, or the label is a number: labels are permuted between families with equally many rows,
  and within families (whole-block and within-block exchangeability, Winkler et al. 2015, NeuroImage 123:253).
- The same persons have all labels, as in task data: paired tests, on one value per family and label.

Intervals of effect sizes come from a bootstrap over families: percentiles, shifted by its estimate of the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
N_PERMUTATIONS = 9999
N_BOOTSTRAPS = 999
BATCH = 200
BY_PERMUTATION = "chi-square by permutation"
MIN_EXPECTED = 5  # smallest expected count for the chi-square approximation (Cochran)
SIZES = {
    "rank-biserial r": (0.11, 0.28),
    "matched rank-biserial r": (0.22, 0.52),
    "rank correlation": (0.1, 0.3),
    "η²": (0.01, 0.06),
    "Cramér's V": (0.1, 0.3),
}
"""Small and medium effects by convention (Cohen 1988). Those of rank-biserial correlations belong to d = 0.2 and 0.5 of
normal values: 2Φ(d/√2) − 1 between classes, 2Φ(d√2) − 1 for pairs. Kendall's W: in `compare_pairs`."""


class Association(NamedTuple):
    """Result of a test of association between the label and a measure."""

    units: int
    test: str
    statistic: float
    effect: float
    effect_name: str
    low: float
    high: float
    small: float
    medium: float
    p: float


class Effect(NamedTuple):
    """An effect size: how it is estimated without bias, and how it is reported."""

    name: str
    estimate: Callable[..., float]
    report: Callable[[float], float] = lambda raw: float(np.clip(raw, -1, 1))


def compare_families(label: Array, values: Array, family: NDArray[np.int_], seed: int = 0) -> Association:
    """Test a label against a measure in independent families.

    Parameters
    ----------
    label, values : (rows,) or (rows, categories) array
        Numbers, or the share of each category in a row (0 and 1, unless a row stands for several relatives).
    family : (rows,) array of int
    seed : int
        Seed of permutations and bootstrap.
    """
    order = np.argsort(family, kind="stable")
    label, values, family = label[order], values[order], family[order]
    rows_of = np.split(np.arange(len(family)), np.flatnonzero(np.diff(family)) + 1)
    independent = len(rows_of) == len(family)
    random = np.random.default_rng(seed)
    test, statistic, p = _usual_test(label, values)
    mixed_rows = values.ndim == 2 and not np.isin(values, (0, 1)).all()
    if mixed_rows or not independent:
        test, p = f"{test}, permuted between families", _permuted_p(label, values, family, random)
    elif test == BY_PERMUTATION:
        p = _permuted_p(label, values, family, random)
    effect = _effect_between(label, values)

    def resample(chosen: NDArray[np.int_]) -> float:
        rows = chosen if independent else np.concatenate([rows_of[i] for i in chosen])
        return effect.estimate(label[rows], values[rows])

    sizes, scale = SIZES[effect.name], 1.0
    if effect.name == "Cramér's V":  # of more categories than two it means more (Cohen's w)
        scale = float(np.sqrt(min(label.shape[1], values.shape[1]) - 1))
    sizes = sizes[0] / scale, sizes[1] / scale
    return _with_interval(len(rows_of), test, statistic, effect, resample, p, sizes, random)


def compare_pairs(values: Array, seed: int = 0) -> Association:
    """Test classes that consist of the same persons.

    Parameters
    ----------
    values : (families, classes) array
        One value per family and class.
    seed : int
        Seed of the bootstrap.
    """
    if values.shape[1] == 2:
        difference = values[:, 1] - values[:, 0]
        test = stats.wilcoxon(difference)
        name, effect = "Wilcoxon signed-rank", Effect("matched rank-biserial r", _matched_rank_biserial)
        data, sizes = difference, SIZES[effect.name]
    else:
        test = stats.friedmanchisquare(*values.T)
        name, effect = "Friedman", Effect("Kendall's W", _concordance, _share)
        data = stats.rankdata(values, axis=1)
        # Kendall's W if one class differs from all others by d = 0.2 or 0.5 of the paired differences
        small, medium = (float(12 * (stats.norm.cdf(d) - 0.5) ** 2 / (values.shape[1] + 1)) for d in (0.2, 0.5))
        sizes = small, medium
    statistic, p = float(test.statistic), float(test.pvalue)
    random = np.random.default_rng(seed)

    def resample(chosen: NDArray[np.int_]) -> float:
        return effect.estimate(data[chosen])

    return _with_interval(len(values), name, statistic, effect, resample, p, sizes, random)


def _with_interval(
    units: int,
    test: str,
    statistic: float,
    effect: Effect,
    resample: Callable[[NDArray[np.int_]], float],
    p: float,
    sizes: tuple[float, float],
    random: np.random.Generator,
) -> Association:
    """Estimate the effect and its 95 % interval from resampled families."""
    raw = resample(np.arange(units))
    draws = np.array([resample(chosen) for chosen in random.integers(0, units, (N_BOOTSTRAPS, units))])
    draws = draws[np.isfinite(draws)]
    low = high = np.nan
    if len(draws) > N_BOOTSTRAPS // 2:
        low, high = np.quantile(draws, [0.025, 0.975]) - (draws.mean() - raw)
        low, high = (effect.report(float(end)) for end in (low, high))
    return Association(units, test, statistic, effect.report(raw), effect.name, low, high, *sizes, p)


# ---- tests -----------------------------------------------------------------------------------------
def _usual_test(label: Array, values: Array) -> tuple[str, float, float]:
    """Return name, statistic and p-value for independent rows; the p-value is NaN if counts are too few."""
    if label.ndim == values.ndim == 1:
        rho, p = stats.spearmanr(label, values)
        return "Spearman correlation", float(rho), float(p)
    if label.ndim == values.ndim == 2:
        table = label.T @ values  # counts: tested exactly, or by permutation, where expected ones are small
        test = stats.chi2_contingency(table, correction=False)
        if test.expected_freq.min() >= MIN_EXPECTED:
            return "chi-square", float(test.statistic), float(test.pvalue)
        if table.shape == (2, 2) and (table == table.round()).all():
            return "Fisher's exact test", float(test.statistic), float(stats.fisher_exact(table.astype(int)).pvalue)
        return BY_PERMUTATION, float(test.statistic), np.nan
    groups, numbers = (label, values) if label.ndim == 2 else (values, label)
    parts = [numbers[column > 0] for column in groups.T]
    if len(parts) == 2:
        test = stats.mannwhitneyu(parts[1], parts[0], alternative="two-sided")
        return "Mann–Whitney", float(test.statistic), float(test.pvalue)
    test = stats.kruskal(*parts)
    return "Kruskal–Wallis", float(test.statistic), float(test.pvalue)


def _permuted_p(label: Array, values: Array, family: NDArray[np.int_], random: np.random.Generator) -> float:
    """Return the share of permutations whose association is as strong as the observed one."""
    left, right = _columns(label), _columns(values)
    observed = np.sum((left.T @ right) ** 2)
    n_stronger = 0
    for start in range(0, N_PERMUTATIONS, BATCH):
        rows = _exchange(family, min(BATCH, N_PERMUTATIONS - start), random)
        permuted = np.sum((left[rows].transpose(0, 2, 1) @ right) ** 2, axis=(1, 2))
        n_stronger += int((permuted >= observed * (1 - 1e-9) - 1e-12).sum())
    return (1 + n_stronger) / (1 + N_PERMUTATIONS)


def _exchange(family: NDArray[np.int_], n: int, random: np.random.Generator) -> NDArray[np.int_]:
    """Exchange families with equally many rows, and the rows within each; returns (n, rows) positions."""
    _, code, size = np.unique(family, return_inverse=True, return_counts=True)
    order = np.argsort(code, kind="stable")
    result = np.empty((n, len(family)), int)
    for rows_each in np.unique(size):
        blocks = order[size[code[order]] == rows_each].reshape(-1, rows_each)
        moved = blocks[random.random((n, len(blocks))).argsort(axis=1)]
        within = random.random(moved.shape).argsort(axis=2)
        result[:, blocks] = np.take_along_axis(moved, within, axis=2)
    return result


def _ranks(x: Array) -> Array:
    """Return ranks, averaged over ties: `scipy.stats.rankdata` without its checks, which take most of its time."""
    _, code, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[code]


def _columns(x: Array) -> Array:
    """Return columns of which the squared products of two variables add up to the share of variance explained.

    That is χ²/n for two tables of categories, the share of variance of ranks between categories, or the square of
    Spearman's correlation.
    """
    if x.ndim == 1:
        ranks = _ranks(x)
        centred = (ranks - ranks.mean())[:, None]
        return centred / max(np.sqrt(np.sum(centred**2)), 1e-12)
    x = x[:, x.any(axis=0)]
    return (x - x.mean(axis=0)) / np.sqrt(x.sum(axis=0))


# ---- effect sizes ----------------------------------------------------------------------------------
def _effect_between(label: Array, values: Array) -> Effect:
    if label.ndim == values.ndim == 1:
        return Effect("rank correlation", lambda a, b: float((_columns(a).T @ _columns(b)).item()))
    if label.ndim == values.ndim == 2:
        n, rows, columns = len(label), label.shape[1], values.shape[1]
        return Effect("Cramér's V", _phi_squared, lambda raw: _cramer(raw, n, rows, columns))
    numbers_first = label.ndim == 1
    n_groups = (values if numbers_first else label).shape[1]
    estimate = _rank_biserial if n_groups == 2 else _eta_squared

    def oriented(a: Array, b: Array) -> float:
        return estimate(b, a) if numbers_first else estimate(a, b)

    if n_groups == 2:
        return Effect("rank-biserial r", oriented)
    return Effect("η²", oriented, _share)


def _rank_biserial(groups: Array, numbers: Array) -> float:
    """Return the probability that a value of the last group is larger, minus that it is smaller."""
    n = groups.sum(axis=0)
    if not n.all():
        return np.nan
    first, last = _ranks(numbers) @ groups / n
    return float(2 * (last - first) / len(numbers))


def _eta_squared(groups: Array, numbers: Array) -> float:
    """Return the share of the variance of ranks between groups, less what is expected by chance."""
    n, n_groups = len(numbers), int(groups.any(axis=0).sum())
    if n <= n_groups:
        return np.nan
    h = (n - 1) * np.sum((_columns(groups).T @ _columns(numbers)) ** 2)
    return float((h - n_groups + 1) / (n - n_groups))


def _phi_squared(label: Array, values: Array) -> float:
    """Return χ²/n, less what is expected by chance."""
    rows, columns = (int(x.any(axis=0).sum()) for x in (label, values))
    explained = np.sum((_columns(label).T @ _columns(values)) ** 2)
    return float(explained - (rows - 1) * (columns - 1) / (len(label) - 1))


def _cramer(phi_squared: float, n: int, rows: int, columns: int) -> float:
    """Return Cramér's V corrected for the bias of many categories (Bergsma 2013, J Korean Stat Soc 42:323)."""
    smaller = min(rows - (rows - 1) ** 2 / (n - 1), columns - (columns - 1) ** 2 / (n - 1))
    return min(1.0, float(np.sqrt(max(0.0, phi_squared) / (smaller - 1)))) if smaller > 1 else 0.0


def _share(raw: float) -> float:
    """Report a share whose unbiased estimate may be negative."""
    return float(np.clip(raw, 0, 1))


def _matched_rank_biserial(difference: Array) -> float:
    """Return the rank sum of positive differences less that of negative ones, as a share of both (Kerby 2014)."""
    changed = difference[difference != 0]
    if not len(changed):
        return 0.0
    ranks = _ranks(np.abs(changed))
    return float(np.sum(ranks * np.sign(changed)) / ranks.sum())


def _concordance(ranks: Array) -> float:
    """Return Kendall's W of ranks within families, corrected for its mean 1/n by chance: their mean correlation."""
    n, middle = len(ranks), (ranks.shape[1] + 1) / 2
    total = np.sum((ranks - middle) ** 2)
    if n < 2 or total == 0:
        return np.nan
    w = n * np.sum((ranks.mean(axis=0) - middle) ** 2) / total
    return float((n * w - 1) / (n - 1))
