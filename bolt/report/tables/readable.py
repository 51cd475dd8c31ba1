"""Tables for people: numbers rounded, names spelled out, what is missing shown as a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from bolt.cohort.confounding import effect_text
from bolt.evaluate.classes import METRICS
from bolt.evaluate.numbers import NUMBER_METRICS
from bolt.preprocess.quality.measures import MEASURES

DASH = "–"
NAMES = {
    "auc": "AUC",
    "mae": "mean absolute error",
    "r2": "r²",
    "n_test": "test scans",
    "selection_frequency": "selected in folds",
}


def number(value: Any, digits: int = 3) -> str:
    """A number with `digits` significant digits; whole numbers stay whole; missing is a dash."""
    if value is None or (isinstance(value, float) and pd.isna(value)) or value is pd.NA:
        return DASH
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def percent(value: Any) -> str:
    return DASH if value is None or pd.isna(value) else f"{100 * value:.1f}"


def cohort(scans: pd.DataFrame, classes: Sequence[str]) -> pd.DataFrame:
    """One row a class: scans, subjects, age, sex, motion, length, as far as they are known."""
    rows = []
    for name in [*classes, "all"]:
        part = scans if name == "all" else scans[scans["label"].astype(str) == name]
        row = {"class": name, "scans": len(part), "subjects": part["subject"].nunique()}
        if scans["site"].notna().any():
            row["sites"] = part["site"].nunique()
        if scans["age"].notna().any():
            row["age (years)"] = _spread(part["age"])
        if scans["sex"].notna().any():
            row["sex"] = ", ".join(f"{n} {s}" for s, n in part["sex"].value_counts().sort_index().items())
        if scans["mean_fd"].notna().any():
            row["mean FD (mm)"] = _spread(part["mean_fd"])
        row["volumes"] = _range(part["n_volumes"])
        row["TR (s)"] = _range(part["tr"])
        rows.append(row)
    return pd.DataFrame(rows)


def cohort_tests(table: pd.DataFrame) -> pd.DataFrame:
    """The tests of `bolt.cohort.confounding.compare` that could be made."""
    done = table[table["p"].notna()]
    return pd.DataFrame(
        {
            "": done["measure"],
            "persons": done["n"].map(number),
            "test": done["test"],
            "effect": list(map(effect_text, done["effect_name"], done["effect"])),
            "p": done["p"].map(p_value),
            "p, corrected (Holm)": done["p_holm"].map(p_value),
        }
    )


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.2g}"


def _spread(values: pd.Series) -> str:
    return f"{number(values.mean())} ± {number(values.std(ddof=0))}" if values.notna().any() else DASH


def _range(values: pd.Series) -> str:
    values = values.dropna()
    if values.empty:
        return DASH
    low, high = number(values.min()), number(values.max())
    return low if low == high else f"{low} to {high}"


def performance(table: pd.DataFrame, pooled: Mapping[str, Any] | None) -> pd.DataFrame:
    """Metrics (of classes in per cent): a row a fold, mean ± sd, and all test scans with their interval."""
    numeric = NUMBER_METRICS[0] in table
    metrics, shown = (NUMBER_METRICS, number) if numeric else (METRICS, percent)
    rows = []
    for row in table.to_dict("records"):
        if row["fold"] in ("mean", "sd"):
            continue
        note = row["note"] if isinstance(row["note"], str) else ""
        rows.append(
            {
                "": f"fold {row['fold']}",
                **{NAMES.get(m, m): shown(row[m]) for m in metrics},
                "test scans": number(row["n_test"]),
                "state": row["state"],
                "note": note,
            }
        )
    summary = table.set_index("fold")
    spread = {NAMES.get(m, m): f"{shown(summary.loc['mean', m])} ± {shown(summary.loc['sd', m])}" for m in metrics}
    note = summary.loc["mean", "note"]
    rows.append({"": "mean ± sd", **spread, "note": note if isinstance(note, str) else ""})
    if pooled:
        values = {}
        for m in metrics:
            found = pooled[m]
            values[NAMES.get(m, m)] = f"{shown(found['value'])} [{shown(found['low'])}, {shown(found['high'])}]"
        rows.append({"": "all test scans [95 %]", **values, "test scans": number(pooled["n_scans"])})
        if numeric:
            rows.append({"": "always the mean label", NAMES["mae"]: number(pooled["mean_guess_mae"])})
        else:
            rows.append({"": "always the largest class", "accuracy": percent(pooled["majority_accuracy"])})
    return _without_empty(pd.DataFrame(rows).fillna(""))


def comparison(
    runs: Mapping[str, tuple[pd.DataFrame, Mapping[str, Any]]], differences: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Runs side by side, a row each: all test scans with their interval, and mean ± sd over folds.

    Parameters
    ----------
    runs : mapping
        Title to ``metrics.tsv`` and the ``pooled`` of ``summary.json``.
    """
    rows = []
    for title, (table, pooled) in runs.items():
        numeric = NUMBER_METRICS[0] in table
        metrics, shown = (NUMBER_METRICS, number) if numeric else (METRICS, percent)
        spread = table.set_index("fold")
        row = {"": title, "test scans": number(pooled["n_scans"]), "folds": f"{_done(table)} of {len(table) - 2}"}
        for m in metrics:
            found, name = pooled[m], NAMES.get(m, m)
            row[f"{name} [95 %]"] = f"{shown(found['value'])} [{shown(found['low'])}, {shown(found['high'])}]"
        for m in metrics if numeric else ("accuracy", "auc"):
            row[f"{NAMES.get(m, m)} over folds"] = f"{shown(spread.loc['mean', m])} ± {shown(spread.loc['sd', m])}"
        rows.append(row)
    return pd.DataFrame(rows)


def beyond(table: pd.DataFrame, pooled: Mapping[str, Any]) -> pd.DataFrame:
    """Balanced accuracy, Brier score and calibration error, a row each."""
    spread = table.set_index("fold")
    rows = []
    for metric, name, shown in (
        ("balanced_accuracy", "balanced accuracy", percent),
        ("brier", "Brier score", number),
        ("ece", "expected calibration error", number),
    ):
        found = pooled[metric]
        interval = f"{shown(found['value'])} [{shown(found['low'])}, {shown(found['high'])}]"
        folds = f"{shown(spread.loc['mean', metric])} ± {shown(spread.loc['sd', metric])}"
        rows.append({"": name, "all test scans [95 %]": interval, "over folds": folds})
    return pd.DataFrame(rows)


def sites(found: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row a site of ``summary.json``: accuracy and AUC (of numbers r and mean absolute error) with intervals."""
    rows = []
    for site in found:
        numeric = NUMBER_METRICS[0] in site
        shown = number if numeric else percent
        row = {"site": site["site"], "test scans": number(site["n_scans"])}
        for metric in ("r", "mae") if numeric else ("accuracy", "auc"):
            part = site[metric]
            interval = f" [{shown(part['low'])}, {shown(part['high'])}]" if part["value"] is not None else ""
            row[f"{NAMES.get(metric, metric)} [95 %]"] = shown(part["value"]) + interval
        if not numeric:
            row["always the largest class"] = percent(site["majority_accuracy"])
        rows.append(row)
    return pd.DataFrame(rows)


def _done(table: pd.DataFrame) -> int:
    return int((table["state"] == "ok").sum())


def top_rois(table: pd.DataFrame) -> pd.DataFrame:
    """The selected ROIs of every class."""
    chosen = table[table["selected"].astype(bool)]
    return pd.DataFrame(
        {
            "class": chosen["class"],
            "rank": chosen["rank"].map(number),
            "ROI": chosen["name"],
            "network": chosen["network"].fillna(DASH),
            "hemisphere": chosen["hemisphere"].fillna(DASH),
            "weight (log odds per SD)": [
                f"{w:.2f} ± {s:.2f}" for w, s in zip(chosen["weight"], chosen["weight_sd"], strict=True)
            ],
            "odds ratio − 1": chosen["importance"].map(lambda v: number(v, 2)),
            "in top of folds (%)": chosen["selection_frequency"].map(lambda v: f"{100 * v:.0f}"),
        }
    )


def networks(table: pd.DataFrame) -> pd.DataFrame:
    """Networks with a selected ROI, a class."""
    chosen = table[table["n_selected"] > 0]
    return pd.DataFrame(
        {
            "class": chosen["class"],
            "network": chosen["network"].fillna(DASH),
            "selected ROIs": [f"{s} of {n}" for s, n in zip(chosen["n_selected"], chosen["n_rois"], strict=True)],
        }
    )


def quality(table: pd.DataFrame, cutoffs: Mapping[str, tuple[str, float]]) -> pd.DataFrame:
    """A row a measure: median and range over the scans, the cut-off, and how many scans lie beyond it.

    Parameters
    ----------
    table : DataFrame
        `bolt.cohort.quality.QUALITY_COLUMNS`.
    cutoffs : mapping
        Measure to its bound (``min`` or ``max``) and value.
    """
    rows = []
    for name, measure in MEASURES.items():
        values = table[name].dropna().astype(float)
        if values.empty:
            continue
        bound, cutoff = cutoffs.get(name, ("", None))
        beyond = 0 if cutoff is None else int((values < cutoff if bound == "min" else values > cutoff).sum())
        rows.append(
            {
                "": f"{measure.label} ({measure.unit})" if measure.unit else measure.label,
                "median": number(values.median()),
                "lowest": number(values.min()),
                "highest": number(values.max()),
                "cut-off": DASH if cutoff is None else f"{'≥' if bound == 'min' else '≤'} {cutoff:g}",
                "scans beyond": DASH if cutoff is None else str(beyond),
            }
        )
    return pd.DataFrame(rows)


def truth(table: pd.DataFrame) -> pd.DataFrame:
    """The truth table with its ranges in words; `passed` stays, for the colour of the row."""
    unit = table["unit"].fillna("").astype(str).where(lambda u: u != "1", "")
    return pd.DataFrame(
        {
            "measure": table["measure"],
            "value": [f"{number(v)} {u}".strip() for v, u in zip(table["value"], unit, strict=True)],
            "null": table["null"].map(number),
            "null_meaning": table["null_meaning"].fillna(""),
            "oracle": table["oracle"].map(number),
            "expected": [_expected(low, high) for low, high in zip(table["low"], table["high"], strict=True)],
            "passed": table["passed"].map(lambda p: None if pd.isna(p) else str(p).lower() in ("true", "1", "1.0")),
        }
    )


def _expected(low: Any, high: Any) -> str:
    if pd.isna(low) and pd.isna(high):
        return DASH
    if pd.isna(low):
        return f"≤ {number(high)}"
    return f"≥ {number(low)}" if pd.isna(high) else f"{number(low)} to {number(high)}"


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
    return table[[c for c in table if c == "" or (table[c] != "").any()]]
