"""Association of the label with site, sex, age and head motion, which a classifier could exploit instead of the brain.

The unit is the family (see `bolt.cohort.association`); age and motion are averaged over scans. p-values are
Holm-corrected for the number of measures tested. "Similar" is said only of effects that are less than small, with an
interval that excludes medium ones: a large p-value alone may mean that there are too few participants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from bolt.cohort.association import Association, compare_families, compare_pairs
from bolt.io.files import columns

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
            table.loc[i, "verdict"] = DIFFERS if row.p_holm < LEVEL else SIMILAR if small else MAY_DIFFER
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
    return compare_families(_array(label), _array(values), family, seed)


def _categories(values: pd.Series, order: Sequence[str] | None = None) -> pd.DataFrame:
    """Return numbers as they are, and of categories a column each."""
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float).to_frame("value")
    occurring = set(values)
    names = sorted(occurring) if order is None else [name for name in order if name in occurring]
    return pd.DataFrame({f"is {name}": (values == name).astype(float) for name in names})


def _array(table: pd.DataFrame) -> NDArray[np.float64]:
    """Return a single column as a vector, more as a matrix."""
    values = table.to_numpy(float)
    return values[:, 0] if values.shape[1] == 1 else values


def _pairs(known: pd.DataFrame, column: str, classes: Sequence[str]) -> NDArray[np.float64] | None:
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
    group = scans["group"].fillna(scans["subject"]) if "group" in scans else scans["subject"]
    table = scans.assign(label=label, group=group).reindex(columns=["subject", "group", "label", *MEASURES])
    numbers = {column: pd.to_numeric(table[column], errors="coerce") for column in ("age", "mean_fd")}
    how = {"group": "first"} | {column: "mean" if column in numbers else "first" for column in MEASURES}
    return table.assign(**numbers).groupby(["subject", "label"], as_index=False).agg(how)


def _nothing_to_compare(name: str, known: pd.DataFrame, column: str, classes: Sequence[str] | None) -> str:
    """Return why a measure cannot be compared, or ""."""
    if known.empty:
        return f"{name} is unknown, so it cannot be compared."
    if known[column].nunique() == 1:
        return f"{name} is the same for all participants: {known[column].iloc[0]}."
    if classes is None:
        return ""
    people = known.groupby("label")["subject"].agg(frozenset)
    if len(people) < 2:
        return f"{name} is known for one class only: {known['label'].iloc[0]}."
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
    means = " against ".join(f"{values.mean():.3g} ({name})" for name, values in parts.items())
    p = ttest_ind(*parts.values(), equal_var=False).pvalue
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
        return _medians(medians.reindex([name for name in classes if name in medians]), f" {UNITS[column]}")
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


def _medians(medians: pd.Series, unit: str, what: str = "median") -> str:
    """List up to three medians; of more, the lowest and the highest."""
    shown = [f"{value:.3g} ({name})" for name, value in medians.items()]
    if len(shown) < 4:
        return f"{what} {', '.join(shown)}{unit}; "
    low, high = (shown[int(i)] for i in (medians.argmin(), medians.argmax()))
    return f"{what} from {low} to {high}{unit}; "
