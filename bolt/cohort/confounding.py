"""Association of the label with site, sex, age and head motion, which a classifier could exploit instead of the brain.

Each participant is counted once per label (repeated scans add little; age and motion are averaged). Tests of ranks and
counts need no distributional assumptions; p-values are Holm-corrected for the number of measures tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

MEASURES = {"site": "Site", "sex": "Sex", "age": "Age", "mean_fd": "Head motion"}
UNITS = {"age": "years", "mean_fd": "mm mean FD"}
TEST_COLUMNS = {
    "measure": "Measure compared with the label",
    "n": "Participants with known values; each is counted once per label",
    "test": "Statistical test",
    "statistic": "Test statistic",
    "effect": "Effect size; 0: no effect",
    "effect_name": "Name of the effect size",
    "p": "p-value",
    "p_holm": "p-value after Holm's correction for the measures tested",
    "words": "Result in words",
}
LEVEL = 0.05
N_PERMUTATIONS = 9999
MIN_EXPECTED = 5  # smallest expected count for the chi-square approximation (Cochran)


class Association(NamedTuple):
    """Result of a test of association between two columns."""

    test: str
    statistic: float
    effect: float
    effect_name: str
    p: float


def compare(scans: pd.DataFrame, classes: Sequence[str] | None, *, seed: int = 0) -> pd.DataFrame:
    """Test the label against each of `MEASURES`.

    Parameters
    ----------
    scans : DataFrame
        subject, label, site, sex, age (years), mean_fd (mm).
    classes : sequence of str or None
        In the dataset's order; None if the label is a number.
    seed : int
        Seed of permutation tests.

    Returns
    -------
    DataFrame
        `TEST_COLUMNS`, one row per measure. If nothing can be compared, `words` states why and the numbers are missing.
    """
    participants = _participants(scans, classes)
    rows = []
    for column, name in MEASURES.items():
        known = participants.dropna(subset=[column])
        row = {"measure": name, "n": len(known), "words": _nothing_to_compare(name, known, column, classes)}
        if not row["words"]:
            row |= associate(known["label"], known[column], classes, seed)._asdict()
        rows.append(row)
    table = pd.DataFrame(rows, columns=[*TEST_COLUMNS]).astype({"p": float})
    table["p_holm"] = holm(table["p"])
    for i, (column, name) in enumerate(MEASURES.items()):
        if not table.loc[i, "words"]:
            table.loc[i, "words"] = _words(name, column, participants.dropna(subset=[column]), classes, table.loc[i])
    return table


def associate(label: pd.Series, values: pd.Series, classes: Sequence[str] | None, seed: int = 0) -> Association:
    """Test the association of one column with the label; the test depends on which of the two are numbers."""
    if pd.api.types.is_numeric_dtype(values):
        if classes is None:
            rho, p = stats.spearmanr(label, values)
            return Association("Spearman correlation", float(rho), float(rho), "rank correlation", float(p))
        return _ranks([values[label == name].to_numpy(float) for name in classes if (label == name).any()])
    if classes is None:
        return _ranks([part.to_numpy(float) for _, part in label.groupby(values)])
    return _counts(pd.crosstab(label, values).to_numpy(), seed)


def holm(p: pd.Series) -> pd.Series:
    """Correct p-values by Holm's method (1979, Scandinavian Journal of Statistics 6:65); missing ones stay missing."""
    known = p.dropna().sort_values()
    steps = known * np.arange(len(known), 0, -1)
    return steps.cummax().clip(upper=1).reindex(p.index)


def _participants(scans: pd.DataFrame, classes: Sequence[str] | None) -> pd.DataFrame:
    label = scans["label"].astype(str) if classes is not None else scans["label"].astype(float)
    table = scans.assign(label=label).reindex(columns=["subject", "label", *MEASURES])
    numbers = {column: pd.to_numeric(table[column], errors="coerce") for column in ("age", "mean_fd")}
    how = {column: "mean" if column in numbers else "first" for column in MEASURES}
    return table.assign(**numbers).groupby(["subject", "label"], as_index=False).agg(how)


def _ranks(parts: list[np.ndarray]) -> Association:
    """Test two groups by Mann-Whitney, more by Kruskal-Wallis."""
    if len(parts) == 2:
        first, last = parts
        u, p = stats.mannwhitneyu(last, first, alternative="two-sided")
        return Association("Mann–Whitney", float(u), 2 * u / (len(first) * len(last)) - 1, "rank-biserial r", float(p))
    h, p = stats.kruskal(*parts)
    n = sum(map(len, parts))
    effect = max(0.0, (h - len(parts) + 1) / (n - len(parts))) if n > len(parts) else np.nan
    return Association("Kruskal–Wallis", float(h), effect, "η²", float(p))


def _counts(table: np.ndarray, seed: int) -> Association:
    """Test a table of counts by chi-square, or by Fisher's exact test or permutations if expected counts are small."""
    test = stats.chi2_contingency(table, correction=False)
    name, p = "chi-square", float(test.pvalue)
    if test.expected_freq.min() < MIN_EXPECTED:
        if table.shape == (2, 2):
            name, p = "Fisher's exact test", float(stats.fisher_exact(table).pvalue)
        else:
            method = stats.PermutationMethod(n_resamples=N_PERMUTATIONS, batch=200, rng=np.random.default_rng(seed))
            p = float(stats.chi2_contingency(table, correction=False, method=method).pvalue)
            name = "chi-square by permutation"
    return Association(name, float(test.statistic), _cramer(float(test.statistic), table), "Cramér's V", p)


def _cramer(chi2: float, table: np.ndarray) -> float:
    """Return Cramér's V corrected for the bias of many categories (Bergsma 2013, J Korean Stat Soc 42:323)."""
    n, (rows, columns) = table.sum(), table.shape
    excess = max(0.0, chi2 / n - (rows - 1) * (columns - 1) / (n - 1))
    smaller = min(rows - (rows - 1) ** 2 / (n - 1), columns - (columns - 1) ** 2 / (n - 1))
    return float(np.sqrt(excess / (smaller - 1))) if smaller > 1 else 0.0


def _nothing_to_compare(name: str, known: pd.DataFrame, column: str, classes: Sequence[str] | None) -> str:
    if known.empty:
        return f"{name} is unknown, so it cannot be compared."
    if known[column].nunique() == 1:
        return f"{name} is the same for all participants: {known[column].iloc[0]}."
    if classes is not None and known["label"].nunique() < 2:
        return f"{name} is known for one class only: {known['label'].iloc[0]}."
    return ""


def effect_text(name: str, value: float) -> str:
    """Format an effect size, such as ``Cramér's V 0.07``."""
    return f"{name} {round(value, 2) + 0.0:.2f}"  # no minus sign before a zero


def _words(name: str, column: str, known: pd.DataFrame, classes: Sequence[str] | None, row: pd.Series) -> str:
    """Describe a result in one sentence."""
    verb = "is associated with the label" if classes is None else "differs between classes"
    verdict = f"{name} {verb}" if row.p_holm < LEVEL else f"No evidence that {name.lower()} {verb}"
    summary = "" if classes is None else _summary(column, known, classes)
    return f"{verdict}: {summary}{effect_text(row.effect_name, row.effect)}, {_p(row.p_holm)}."


def _summary(column: str, known: pd.DataFrame, classes: Sequence[str]) -> str:
    """Describe the classes by medians or shares, or the sites by their range of shares."""
    parts = known.groupby("label")[column]
    if column in UNITS:
        shown = [f"{parts.get_group(name).median():.3g} ({name})" for name in classes if name in parts.groups]
        return f"median {', '.join(shown)} {UNITS[column]}; " if len(shown) < 4 else ""
    if len(classes) > 2:
        return ""
    if column == "sex":
        value = sorted(known[column].unique())[-1]
        shares = parts.agg(lambda values: (values == value).mean())
        return ", ".join(f"{100 * shares[name]:.0f} % {value} ({name})" for name in classes if name in shares) + "; "
    sites = known.groupby(column)["label"].agg(lambda labels: (labels == classes[-1]).mean())
    low, high = (f"{100 * share:.0f}" for share in (sites.min(), sites.max()))
    shares = low if low == high else f"{low} to {high}"
    return f"{shares} % of participants at each site are labelled {classes[-1]}; "


def _p(value: float) -> str:
    return "corrected p < 0.001" if value < 0.001 else f"corrected p = {value:.2g}"
