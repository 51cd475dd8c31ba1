"""Association of the label with site, sex, age and head motion, which a classifier could exploit instead of the brain.

Age and motion are averaged over scans. p-values are Holm-corrected for the number of measures tested. "Similar" is said
only of effects that are less than small, with an interval that excludes medium ones: a large p-value alone may mean
that there are too few participants.

The unit is the family. Relatives and repeated scans of one person are alike, so tests that take them as independent
raise false alarms, and miss differences within persons. Three cases:

- Every family has one label: one value per family, and the usual tests of ranks and counts.
- Families have several labels, or the label is a number: labels are permuted between families with equally many rows,
  and within families (`bolt.cohort.units.exchange`).
- The same persons have all labels, as in task data: paired tests, on one value per family and label.

Intervals of effect sizes come from a bootstrap over families: percentiles, shifted by its estimate of the bias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from bolt.cohort.units import exchange
from bolt.io.files import columns
from bolt.io.people import people

MEASURES = {"site": "Site", "sex": "Sex", "age": "Age", "mean_fd": "Head motion"}
UNITS = {"age": "years", "mean_fd": "mm mean FD"}
TEST_COLUMNS = columns("cohort", "tests")
LEVEL = 0.05
DIFFERS, MAY_DIFFER, SIMILAR = "differs", "may differ", "similar"
VERBS = {
    DIFFERS: ("differs between classes", "is associated with the label"),
    MAY_DIFFER: ("may differ between classes", "may be associated with the label"),
    SIMILAR: ("is similar in all classes", "is at most weakly associated with the label"),
}
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


def compare(scans: pd.DataFrame, classes: Sequence[str] | None, *, seed: int = 0) -> pd.DataFrame:
    """Test the label against each of `MEASURES`.

    Parameters
    ----------
    scans : DataFrame
        subject, label, site, sex, age (years), mean_fd (mm); group (the family), if known.
    classes : sequence of str or None
        In the dataset's order; None if the label is a number.
    seed : int
        Seed of permutations and bootstrap.

    Returns
    -------
    DataFrame
        `TEST_COLUMNS`, one row per measure. If nothing can be compared, `words` states why and the numbers are missing.
    """
    participants = _participants(scans, classes)
    rows = []
    for column, name in MEASURES.items():
        known = participants.dropna(subset=[column])
        row = {"measure": name, "n": known["subject"].nunique()}
        row["words"] = _nothing_to_compare(name, known, column, classes)
        if not row["words"]:
            row |= associate(known, column, classes, seed)._asdict()
        rows.append(row)
    table = pd.DataFrame(rows, columns=[*TEST_COLUMNS]).astype({"p": float, "verdict": object, "groups": object})
    table["p_holm"] = holm(table["p"])
    for i, (column, name) in enumerate(MEASURES.items()):
        if not table.loc[i, "words"]:
            row = table.loc[i]
            small = abs(row.effect) < row.small and -row.medium < row.low and row.high < row.medium
            similar = small and row.p_holm >= LEVEL  # not if p is missing
            table.loc[i, "verdict"] = DIFFERS if row.p_holm < LEVEL else SIMILAR if similar else MAY_DIFFER
            known = participants.dropna(subset=[column])
            table.loc[i, "groups"] = _groups(column, known, classes)
            table.loc[i, "words"] = _words(name, column, known, classes, table.loc[i])
    return table


def associate(known: pd.DataFrame, column: str, classes: Sequence[str] | None, seed: int = 0) -> Association:
    """Test the association of the label with one column.

    Parameters
    ----------
    known : DataFrame
        One row per participant and label: subject, group, label, and the column without missing values.
    column : str
    classes : sequence of str or None
        None if the label is a number.
    seed : int

    Returns
    -------
    Association
    """
    pairs = None if classes is None else _pairs(known, column, classes)
    if pairs is not None:
        return compare_pairs(pairs, seed)
    rows = known[["group", "label"]].join(_categories(known[column]))
    if classes is not None:  # relatives with the same label are one row
        rows = rows.groupby(["group", "label"], as_index=False).mean()
    label, values = _categories(rows["label"], classes), rows.drop(columns=["group", "label"])
    family = rows["group"].astype("category").cat.codes.to_numpy(int)
    label, values = (table.squeeze("columns").to_numpy(float) for table in (label, values))
    return compare_families(label, values, family, seed)


def _categories(values: pd.Series, order: Sequence[str] | None = None) -> pd.DataFrame:
    """Return numbers as they are, and of categories a column each."""
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float).to_frame("value")
    occurring = set(values)
    names = sorted(occurring) if order is None else [name for name in order if name in occurring]
    return pd.DataFrame({f"is {name}": (values == name).astype(float) for name in names})


def _pairs(known: pd.DataFrame, column: str, classes: Sequence[str]) -> Array | None:
    """Return a value per family and class, if most participants have all labels and the number varies with them."""
    if column not in UNITS:
        return None
    wide = known.pivot(index=["group", "subject"], columns="label", values=column)
    complete = wide.reindex(columns=[name for name in classes if name in wide]).dropna()
    if len(complete) < max(2, len(wide) / 2) or np.allclose(np.ptp(complete.to_numpy(), axis=1), 0):
        return None
    return complete.groupby("group").mean().to_numpy()


def holm(p: pd.Series) -> pd.Series:
    """Correct p-values by Holm's method (1979, Scandinavian Journal of Statistics 6:65); missing ones stay missing."""
    known = p.dropna().sort_values()
    steps = known * np.arange(len(known), 0, -1)
    return steps.cummax().clip(upper=1).reindex(p.index)


def _participants(scans: pd.DataFrame, classes: Sequence[str] | None) -> pd.DataFrame:
    """Return one row per participant and label: numbers averaged over scans, and the family."""
    label = scans["label"].astype(str) if classes is not None else scans["label"].astype(float)
    group = people(scans) if "group" in scans else scans["subject"]
    table = scans.assign(label=label, group=group).reindex(columns=["subject", "group", "label", *MEASURES])
    numbers = {column: pd.to_numeric(table[column], errors="coerce") for column in ("age", "mean_fd")}
    how = {"group": "first"} | {column: "mean" if column in numbers else "first" for column in MEASURES}
    rows = table.assign(**numbers).groupby(["subject", "label"], as_index=False).agg(how)
    return rows.round({"age": 9, "mean_fd": 9})  # equal numbers have equal means, however many they are


def _nothing_to_compare(name: str, known: pd.DataFrame, column: str, classes: Sequence[str] | None) -> str:
    """Return why a measure cannot be compared, or ""."""
    if known.empty:
        return f"{name} is unknown, so it cannot be compared."
    if known[column].nunique() == 1:
        return f"{name} is the same for all participants: {known[column].iloc[0]}."
    if known["label"].nunique() < 2:
        return f"{name} is known for one {'label' if classes is None else 'class'} only: {known['label'].iloc[0]}."
    if known["subject"].nunique() < 3:
        return f"{name} is known for two participants only."
    if classes is None:
        return ""
    people = known.groupby("label")["subject"].agg(frozenset)
    if people.nunique() == 1 and known.groupby("subject")[column].nunique().eq(1).all():
        return f"{name} is the same in all classes, because these are the same participants."
    return ""


def effect_text(name: str, value: float) -> str:
    """Format an effect size, such as ``Cramér's V 0.07``."""
    return f"{name} {_number(value)}"


def interval_text(low: float, high: float) -> str:
    """Format the 95 % interval of an effect size, such as ``[−0.07, 0.20]``; "" if there is none."""
    return "" if np.isnan(low) else f" [{_number(low)}, {_number(high)}]"


def _number(value: float) -> str:
    """Round to two decimals; no minus sign before a zero."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _groups(column: str, known: pd.DataFrame, classes: Sequence[str] | None) -> str | None:
    """Return the means of two classes and Welch's p, if the classes are different people and hold a number."""
    if classes is None or column not in UNITS or known["subject"].duplicated().any():
        return None
    parts = {name: known.loc[known["label"] == name, column] for name in reversed(classes)}
    if len(parts) != 2 or min(map(len, parts.values())) < 2:
        return None
    means = " against ".join(f"{values.mean():.3g} ({_class(name)})" for name, values in parts.items())
    p = stats.ttest_ind(*parts.values(), equal_var=False).pvalue
    return f"mean {means} {UNITS[column].split()[0]}, Welch p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}"


def _words(name: str, column: str, known: pd.DataFrame, classes: Sequence[str] | None, row: pd.Series) -> str:
    """Describe a result in one sentence."""
    verb = VERBS[row.verdict][classes is None]
    effect = effect_text(row.effect_name, row.effect) + interval_text(row.low, row.high)
    summary = f"{row.groups}; " if row.groups else _summary(column, known, classes)
    p = "< 0.001" if row.p_holm < 0.001 else f"= {row.p_holm:.2g}"
    doubt, units = "", f"{row.units:.0f} {'participants' if row.units == row.n else 'families'}"
    if row.verdict == MAY_DIFFER and abs(row.effect) < row.small:
        doubt = f"; {units} are too few to exclude a medium effect"
    elif row.verdict == MAY_DIFFER:
        doubt = f"; the effect is not small, but {units} are too few to tell"
    return f"{name} {verb}: {summary}{effect}, corrected p {p}{doubt}."


def _summary(column: str, known: pd.DataFrame, classes: Sequence[str] | None) -> str:
    """Describe the classes by medians or shares, the sites by their range of shares, or categories by median labels."""
    if classes is None:
        return "" if column in UNITS else _medians(known.groupby(column)["label"].median(), "", "median label")
    parts = known.groupby("label")[column]
    if column in UNITS:
        medians = parts.median()
        return _medians(
            medians.reindex([name for name in classes if name in medians]).rename(_class), f" {UNITS[column]}"
        )
    if len(classes) > 2:
        return ""
    if column == "sex":
        value = sorted(known[column].unique())[-1]
        shares = parts.agg(lambda values: (values == value).mean())
        return (
            ", ".join(f"{100 * shares[name]:.0f} % {value} ({_class(name)})" for name in classes if name in shares)
            + "; "
        )
    sites = known.groupby(column)["label"].agg(lambda labels: (labels == classes[-1]).mean())
    low, high = (f"{100 * share:.0f}" for share in (sites.min(), sites.max()))
    shares = low if low == high else f"{low} to {high}"
    return f"{shares} % of participants at each site are labelled {classes[-1]}; "


def _class(name: str) -> str:
    """Return the name of a class, told from a measure if it is a number."""
    return f"class {name}" if name[:1].isdigit() else name


def _medians(medians: pd.Series, unit: str, what: str = "median") -> str:
    """List up to three medians; of more, the lowest and the highest."""
    shown = [f"{value:.3g} ({name})" for name, value in medians.items()]
    if len(shown) < 4:
        return f"{what} {', '.join(shown)}{unit}; "
    low, high = (shown[int(i)] for i in (medians.argmin(), medians.argmax()))
    return f"{what} from {low} to {high}{unit}; "


# ---- tests and effect sizes ----------------------------------------------------------------------
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
    small, medium = (size / scale for size in sizes)
    value, low, high = _with_interval(effect, resample, len(rows_of), random)
    return Association(len(rows_of), test, statistic, value, effect.name, low, high, small, medium, p)


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
        data, (small, medium) = difference, SIZES[effect.name]
    else:
        test = stats.friedmanchisquare(*values.T)
        name, effect = "Friedman", Effect("Kendall's W", _concordance, _share)
        data = stats.rankdata(values, axis=1)
        # Kendall's W if one class differs from all others by d = 0.2 or 0.5 of the paired differences
        small, medium = (float(12 * (stats.norm.cdf(d) - 0.5) ** 2 / (values.shape[1] + 1)) for d in (0.2, 0.5))

    def resample(chosen: NDArray[np.int_]) -> float:
        return effect.estimate(data[chosen])

    value, low, high = _with_interval(effect, resample, len(values), np.random.default_rng(seed))
    statistic, p = float(test.statistic), float(test.pvalue)
    return Association(len(values), name, statistic, value, effect.name, low, high, small, medium, p)


def _with_interval(
    effect: Effect, resample: Callable[[NDArray[np.int_]], float], units: int, random: np.random.Generator
) -> tuple[float, float, float]:
    """Estimate the effect and its 95 % interval from resampled families."""
    raw = resample(np.arange(units))
    draws = np.array([resample(chosen) for chosen in random.integers(0, units, (N_BOOTSTRAPS, units))])
    draws = draws[np.isfinite(draws)]
    low = high = np.nan
    if len(draws) > N_BOOTSTRAPS // 2:
        low, high = np.quantile(draws, [0.025, 0.975]) - (draws.mean() - raw)
        low, high = (effect.report(float(end)) for end in (low, high))
    return effect.report(raw), low, high


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
        rows = exchange(family, min(BATCH, N_PERMUTATIONS - start), random)
        permuted = np.sum((left[rows].transpose(0, 2, 1) @ right) ** 2, axis=(1, 2))
        n_stronger += int((permuted >= observed * (1 - 1e-9) - 1e-12).sum())
    return (1 + n_stronger) / (1 + N_PERMUTATIONS)


def _columns(x: Array) -> Array:
    """Return columns of which the squared products of two variables add up to the share of variance explained.

    That is χ²/n for two tables of categories, the share of variance of ranks between categories, or the square of
    Spearman's correlation.
    """
    if x.ndim == 1:
        ranks = stats.rankdata(x)
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
    two = (values if numbers_first else label).shape[1] == 2
    estimate = _rank_biserial if two else _eta_squared

    def oriented(a: Array, b: Array) -> float:
        return estimate(b, a) if numbers_first else estimate(a, b)

    return Effect("rank-biserial r", oriented) if two else Effect("η²", oriented, _share)


def _rank_biserial(groups: Array, numbers: Array) -> float:
    """Return the probability that a value of the last group is larger, minus that it is smaller."""
    n = groups.sum(axis=0)
    if not n.all():
        return np.nan
    first, last = stats.rankdata(numbers) @ groups / n
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
    ranks = stats.rankdata(np.abs(changed))
    return float(np.sum(ranks * np.sign(changed)) / ranks.sum())


def _concordance(ranks: Array) -> float:
    """Return Kendall's W of ranks within families, corrected for its mean 1/n by chance: their mean correlation."""
    n, middle = len(ranks), (ranks.shape[1] + 1) / 2
    total = np.sum((ranks - middle) ** 2)
    if n < 2 or total == 0:
        return np.nan
    w = n * np.sum((ranks.mean(axis=0) - middle) ** 2) / total
    return float((n * w - 1) / (n - 1))
