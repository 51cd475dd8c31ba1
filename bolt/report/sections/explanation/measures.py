"""Measures that answer the questions about an explanation (``templates/questions.yaml``).

Each takes the table that the question names and the question's thresholds, and returns None if the table is no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from bolt.cohort.confounding import holm
from bolt.explain.events import TRANSITIONS
from bolt.explain.trust.sanity_outcome import RETRAINED
from bolt.report.sections.explanation.sanity import correlation, no_control
from bolt.report.tables.explanation import REPLACED_BY
from bolt.report.tables.numbers import decimal, interval, number, number_range, p_value, signed

SUPPORTED, NOT_SUPPORTED, NOT_TESTED = "supported", "not supported", "not tested"


SANITY_OUTCOMES = {
    "passed": SUPPORTED,
    "not passed": NOT_SUPPORTED,
    "not shown": "not shown",
    "not reproducible": "not reproducible",
    "no control": NOT_TESTED,
}
"""Outcomes by the verdicts of ``sanity.tsv``."""


class Answer(NamedTuple):
    """What was measured: the outcome, the value as text, and facts for sentences.

    Only `SUPPORTED` is positive; all other outcomes but `NOT_TESTED` count as not supported.
    """

    outcome: str
    value: str
    facts: dict[str, str]


def prediction(summary: dict[str, Any], chance: float) -> Answer | None:
    """Compare the AUC over all test scans with chance."""
    auc = (summary["pooled"] or {}).get("auc", {"value": None})
    if auc["value"] is None:
        return None
    facts = {"auc": decimal(auc["value"]), "low": decimal(auc["low"]), "high": decimal(auc["high"])}
    return Answer(_outcome(auc["low"] > chance), f"{facts['auc']} [{facts['low']}, {facts['high']}]", facts)


def moments(table: pd.DataFrame, gain: float, share: float) -> Answer | None:
    """Compare regressions on important and on random volumes."""
    auc = _auc_by_fold(table, "importance").dropna(axis=1, how="all")
    kind = "inner" if "inner" in auc else "fitted"
    if not {kind, "none"} <= set(auc):
        return None
    answer = _compare(auc[kind], auc["none"], gain, share)
    if answer and kind == "inner":
        return answer._replace(value=f"{answer.value}, training scans explained by models that did not see them")
    return answer


def order(table: pd.DataFrame, gain: float, share: float) -> Answer | None:
    """Compare regressions on the first and on the last quarter of the volumes ordered by importance."""
    auc = _auc_by_fold(table, "offset")
    quarter = auc.shape[1] // 4
    if not quarter:
        return None
    return _compare(auc.iloc[:, :quarter].mean(axis=1), auc.iloc[:, -quarter:].mean(axis=1), gain, share)


def _auc_by_fold(table: pd.DataFrame, columns: str) -> pd.DataFrame:
    table = table[(table["level"] == "scan") & ~table["fold"].isin(["mean", "sd"])]
    return table.pivot_table(index="fold", columns=columns, values="auc")


def _compare(first: pd.Series, second: pd.Series, gain: float, share: float) -> Answer | None:
    """Compare two regressions in the folds that have both."""
    both = pd.DataFrame({"first": first, "second": second}).dropna()
    if both.empty:
        return None
    gains = both["first"] - both["second"]
    n_better = int((gains > 0).sum())
    facts = {name: decimal(both[name].mean()) for name in both} | {"folds": f"{n_better} of {len(gains)} folds"}
    value = f"{facts['first']} against {facts['second']} ({signed(gains.mean())}), better in {facts['folds']}"
    return Answer(_outcome(gains.mean() >= gain and n_better >= share * len(gains)), value, facts)


def events(table: pd.DataFrame, alpha: float) -> Answer | None:
    """Test whether importance is higher during some type of event, corrected over all tasks.

    It must be raised by more than position in the scan alone would raise or lower it, because trained models may differ
    from the untrained ones by which position is divided out.
    """
    table = table[table["trial_type"] != TRANSITIONS]  # no type of event
    if table.empty or "ratio_untrained" not in table:  # a table of an earlier version
        return None
    table = table.assign(p=holm(table["p"]))
    raised = table["ratio"] - 1 > (table["ratio_untrained"] - 1).abs()
    higher = table[(table["p"] < alpha) & raised].sort_values("ratio", ascending=False)
    value = f"{len(higher)} of {len(table)} event types"
    if higher.empty:
        return Answer(NOT_SUPPORTED, value, {})
    best = higher.iloc[0]
    facts = {"best": f"{best['trial_type']} of {best['class']}", "ratio": decimal(best["ratio"])}
    return Answer(SUPPORTED, value, {"events": value, "p": p_value(best["p"]), **facts})


def regions(table: pd.DataFrame, share: float) -> Answer | None:
    """Count the selected regions that most folds select."""
    shown = table[table["selected"].astype(bool)]
    if shown.empty or shown["n_folds"].iloc[0] < 2:
        return None
    shown = shown.sort_values("selection_frequency", ascending=False, kind="stable")
    often = shown[shown["selection_frequency"] > share]
    names = ", ".join(dict.fromkeys(often["name"].astype(str).head(4)))
    counts = {"often": str(len(often)), "shown": str(len(shown)), "folds": f"{shown['n_folds'].iloc[0]:.0f}"}
    outcome = _outcome(2 * len(often) >= len(shown)) if names else "none"
    return Answer(outcome, f"{len(often)} of {len(shown)}", {"names": names, **counts})


def agreement(table: pd.DataFrame, correlation: float, *, between: str) -> Answer | None:
    """Correlate the maps of different folds or seeds."""
    means = table[(table["between"] == between) & (table["one"] == "mean")].set_index("what")
    maps = means.loc[means.index == "regions", "pearson"].mean()
    curves = means.loc[means.index == "importance", "spearman"].mean()
    if pd.isna(maps):
        return None
    of_curves = "" if pd.isna(curves) else f"importance curves of the same scans {decimal(curves)}"
    facts = {"maps": decimal(maps), "curves": of_curves and f", {of_curves}"}
    return Answer(_outcome(maps >= correlation), decimal(maps) + (of_curves and f"; {of_curves}"), facts)


def planted(table: pd.DataFrame, *, measures: list[str]) -> Answer | None:
    """Compare measures of planted truth with their expected ranges."""
    table = table.set_index("measure")
    if not set(measures) <= set(table.index):
        return None
    rows = table.loc[measures]
    ranges = "; ".join(f"{row.Index} {number_range(row.low, row.high)}" for row in rows.itertuples())
    values = [number(value) for value in rows["value"]]
    passed = bool((rows["passed"].astype(str).str.lower() == "true").all())
    return Answer(_outcome(passed), "; ".join(values), {"ranges": ranges, "first": values[0], "last": values[-1]})


def sanity(table: pd.DataFrame, *, check: str) -> Answer | None:
    """Read the end of a sanity check, beside its positive control."""
    ends = table[(table["fold"] == "all") & table["verdict"].notna()].set_index("check")
    if check not in ends.index or ends.at[check, "verdict"] == "not done":
        return None
    row, control = ends.loc[check], ends.loc[RETRAINED].to_dict() if RETRAINED in ends.index else None
    if pd.isna(row["rho"]):
        return Answer("undefined", "undefined", {})
    facts = {"rho": correlation(row.to_dict()), "again": "", "reason": no_control(control)}
    if control is not None and control["verdict"] != "not done":
        facts["again"] = correlation(control)
    parts = [facts["rho"], facts["again"] and f"trained again {facts['again']}", row["note"]]
    value = "; ".join(part for part in parts if isinstance(part, str) and part)
    outcome = SANITY_OUTCOMES[row["verdict"]]
    if outcome == SUPPORTED and not facts["again"]:  # a table of an earlier version
        outcome = NOT_TESTED
    return Answer(outcome, value, facts)


def faithfulness(table: pd.DataFrame, *, direction: str) -> Answer | None:
    """Compare important volumes with random ones, for each replacement."""
    rows = table[(table["direction"] == direction) & (table["order"] == "importance")]
    rows = rows[rows["better_than_random"].notna()]
    if rows.empty:
        return None
    replaced_by, judged = rows["replacement"].map(REPLACED_BY), rows["better_than_random"]
    differences = [
        interval(row.difference, row.difference_low, row.difference_high, signed) for row in rows.itertuples()
    ]
    value = "; ".join(f"{name} {difference}" for name, difference in zip(replaced_by, differences, strict=True))
    better, worse = judged == "yes", judged == "worse"
    outcome = "partly" if better.any() else "worse" if worse.all() else NOT_SUPPORTED
    return Answer(SUPPORTED if better.all() else outcome, value, {"better": ", ".join(replaced_by[better])})


def _outcome(passed: bool) -> str:
    return SUPPORTED if passed else NOT_SUPPORTED


MEASURES: dict[str, Callable[..., Answer | None]] = {
    "prediction": prediction,
    "events": events,
    "moments": moments,
    "order": order,
    "regions": regions,
    "folds": partial(agreement, between="folds"),
    "seeds": partial(agreement, between="seeds"),
    "planted moments": partial(planted, measures=["landmark AUC", "landmark AUC of position alone"]),
    "planted regions": partial(planted, measures=["planted ROIs, p"]),
    "random weights": partial(sanity, check="cascade"),
    "permuted labels": partial(sanity, check="permuted labels"),
    "deletion": partial(faithfulness, direction="deletion"),
    "insertion": partial(faithfulness, direction="insertion"),
}
"""By the names of the questions."""
