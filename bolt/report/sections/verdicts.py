"""Questions about an explanation (``templates/questions.yaml``), the measures that answer them, and the verdicts.

Each measure takes the table that the question names and the question's thresholds, and returns None if the table is no
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bolt.cohort.confounding import holm
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.tasks import TRANSITIONS
from bolt.explain.trust.faithfulness import CONTROLS, difference_columns
from bolt.explain.trust.similarity import GONE, RETRAINED
from bolt.io.files import holds_something, read_json, read_table, read_yaml
from bolt.report.html import TEMPLATES
from bolt.report.sections.trust import correlation, no_control, truth_file
from bolt.report.tables.explanation import CONTROL_NAMES, REPLACED_BY
from bolt.report.tables.numbers import decimal, interval, number, number_range, p_value, signed

SUPPORTED, NOT_SUPPORTED, NOT_TESTED = "supported", "not supported", "not tested"
MARKS = {SUPPORTED: "✓", NOT_SUPPORTED: "✗", NOT_TESTED: "○"}
"""Shown beside the colour."""
TEXT = (
    *("fold", "importance", "tokens", "level", "class", "task", "run", "trial_type", "name", "network", "hemisphere"),
    *("between", "what", "one", "other", "measure", "unit", "passed", "check", "layer", "verdict", "note"),
    *("question", "first", "second"),
    *("replacement", "direction", "order", *(f"better_than_{control}" for control in CONTROLS)),
)
"""Columns of text in the files that answer questions."""

SANITY_OUTCOMES = {
    "passed": SUPPORTED,
    "not passed": NOT_SUPPORTED,
    "not shown": "not shown",
    "not reproducible": "not reproducible",
    "no control": NOT_TESTED,
}
"""Outcomes by the verdicts of ``sanity.tsv``."""
CIRCULAR = {
    "random direction": "volumes chosen for the predicted class along random directions",
    "wrong class": "volumes chosen to support the wrong class",
}
"""Controls of landmarks that are chosen by the predicted class, too, in words. The choice for a fixed class is not: if
its volumes predict the class, the moments themselves differ. So it is reported, but need not be surpassed."""


class Answer(NamedTuple):
    """What was measured: the outcome, the value as text, and facts for sentences.

    Only `SUPPORTED` is positive; all other outcomes but `NOT_TESTED` count as not supported. With `NOT_TESTED` value or
    sentence state why.
    """

    outcome: str
    value: str
    facts: dict[str, str]


def averaged(found: dict[str, Any]) -> str:
    """Describe over how many folds a value of ``chance`` is averaged, and of how many if not all."""
    n, outer = found["n_folds"], found.get("outer_folds", found["n_folds"])
    of_all = "" if n == outer else f" of {outer}"
    return f"mean over {n}{of_all} folds" if n > 1 else f"one{of_all} fold{'s' if of_all else ''}"


def prediction(summary: dict[str, Any], level: float) -> Answer | None:
    """Compare the AUC, mean over folds, with that of permuted labels (`bolt.evaluate.chance`)."""
    found = summary["chance"]
    if not found or found["value"] is None:
        return None
    facts = {"auc": decimal(found["value"]), "bar": decimal(found["bar"]), "p": p_value(found["p"])}
    facts["folds"] = averaged(found)
    value = f"{facts['auc']} ({facts['folds']}), p {facts['p']}"
    return Answer(_outcome(found["p"] < level), value, facts)


def moments(table: pd.DataFrame, gain: float, alpha: float) -> Answer | None:
    """Compare the regression on important volumes with those on all controls."""
    rows = table[table["question"] == "moments"]
    kind = "inner" if "inner" in set(rows["importance"]) else "fitted"
    rows = rows[rows["importance"] == kind]
    if "random" not in set(rows["second"]):
        return None
    against = "; ".join(f"{row.second} {decimal(row.auc_second)} ({_change(row)})" for row in rows.itertuples())
    value = f"{decimal(rows['auc_first'].mean())} against {against}"
    if kind == "inner":
        value += "; training scans explained by models that did not see them"
    rows = rows.set_index("second")
    bars = rows[rows.index != "fixed class"]
    if reason := _untested(bars):
        return Answer(NOT_TESTED, f"{reason}: {value}", {})
    facts = {"first": decimal(rows["auc_first"].mean()), "random": decimal(rows["auc_second"].get("random"))}
    facts["fixed"] = decimal(rows["auc_second"].get("fixed class"))
    equal = bars[~_is_better(bars, gain, alpha)]
    if equal.empty or "random" in equal.index:
        return Answer(_outcome(equal.empty), value, facts)
    control = equal["auc_second"].idxmax()
    how = "as well" if equal.at[control, "difference"] < gain else "almost as well"
    facts |= {"control": CIRCULAR[str(control)], "auc": decimal(equal.at[control, "auc_second"]), "how": how}
    return Answer("choice", value, facts)


def order(table: pd.DataFrame, gain: float, alpha: float, regained: float) -> Answer | None:
    """Compare regressions on the first and on the last quarter of the volumes ordered by importance.

    A curve that rises again by `regained` of its fall, or more, does not fall as a whole.
    """
    rows = table[table["question"] == "order"].set_index("second")
    if "last quarter" not in rows.index:
        return None
    last = rows.loc[["last quarter"]]
    first, second = last["auc_first"].iloc[0], last["auc_second"].iloc[0]
    lowest = rows["auc_second"].min()
    course = " → ".join(map(decimal, [first, *rows["auc_second"]]))
    value = f"{course} (last quarter {_change(next(last.itertuples()))})"
    if reason := _untested(last):
        return Answer(NOT_TESTED, f"{reason}: {value}", {})
    facts = {"first": decimal(first), "second": decimal(second), "lowest": decimal(lowest), "course": course}
    falls = bool(_is_better(last, gain, alpha).all())
    if falls and second - lowest >= regained * (first - lowest):
        return Answer("rises again", value, facts)
    circular = table[(table["importance"] == "fitted") & table["second"].isin(CIRCULAR)]
    if falls and not _is_better(circular, gain, alpha).all():
        return Answer("choice", value, facts)
    return Answer(_outcome(falls), value, facts)


def _change(row: Any) -> str:
    """Return a difference in AUC and its p where it was tested."""
    p = "" if pd.isna(row.p) else f", p {p_value(row.p)}"
    return f"{signed(row.difference)}{p}"


def _untested(rows: pd.DataFrame) -> str:
    """Return why differences were not tested; empty if they were."""
    return "" if rows["p"].notna().all() else str(rows.loc[rows["p"].isna(), "note"].iloc[0])


def _is_better(rows: pd.DataFrame, gain: float, alpha: float) -> pd.Series:
    """Return for which rows the difference is large enough and significant."""
    return (rows["difference"] >= gain) & (rows["p"] < alpha)


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


def agreement(table: pd.DataFrame, correlation: float, alpha: float, *, between: str) -> Answer | None:
    """Compare the correlation of maps of different folds or seeds with permuted labels, also over halves of people."""
    means = table[(table["between"] == between) & (table["one"] == "mean")].set_index("what")
    if not {"regions", "halves"} <= set(means.index) or means.loc[["regions", "halves"], "p"].isna().any():
        return None
    average = means.groupby(level="what")[["pearson", "pearson_null", "spearman", "p"]].mean()
    maps, halves = average.loc["regions"], average.loc["halves"]
    curves = average["spearman"].get("importance")
    of_curves = "" if pd.isna(curves) else f"importance curves of the same scans {decimal(curves)}"
    facts = {
        **{"maps": decimal(maps["pearson"]), "null": decimal(maps["pearson_null"]), "p": p_value(maps["p"])},
        **{"halves": decimal(halves["pearson"]), "p_halves": p_value(halves["p"])},
        "curves": of_curves and f", {of_curves}",
    }
    value = "{maps} (permuted labels {null}, p {p}); halves of people {halves} (p {p_halves})".format(**facts)
    value += of_curves and f"; {of_curves}"
    if maps["pearson"] < correlation:
        return Answer(NOT_SUPPORTED, value, facts)
    # seeds share all scans: equal volumes make maps equal with any labels
    if between == "folds" and maps["p"] >= alpha:
        return Answer("as permuted", value, facts)
    return Answer(SUPPORTED if halves["p"] < alpha else "not in others", value, facts)


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
    """Compare important volumes with the controls, for each replacement."""
    rows = table[(table["direction"] == direction) & (table["order"] == "importance")]
    rows = rows[rows["better_than_random"].notna()].set_index("replacement").rename(index=REPLACED_BY)
    if rows.empty:
        return None
    better = rows[[f"better_than_{control}" for control in CONTROLS]].set_axis(list(CONTROLS), axis=1) == "yes"
    value = "; ".join(f"{name}: {_differences(row)}" for name, row in rows.iterrows())
    unbeaten = []
    for control in better.columns[~better.all()]:
        failed = better.index[~better[control]]
        unbeaten.append(CONTROL_NAMES[control] + ("" if len(failed) == len(better) else f" ({', '.join(failed)})"))
    faithful = better.all(axis=1)
    facts = {"better": ", ".join(better.index[faithful]), "unbeaten": " and ".join(unbeaten)}
    worse = bool((rows["better_than_random"] == "worse").all())
    outcome = "partly" if faithful.any() else "worse" if worse else NOT_SUPPORTED
    return Answer(SUPPORTED if faithful.all() else outcome, value, facts)


def _differences(row: pd.Series) -> str:
    """Return the differences in area from the controls."""
    ends = {control: [row[name] for name in difference_columns(control)] for control in CONTROLS}
    return ", ".join(f"{c} {interval(value, low, high, signed)}" for c, (value, low, high) in ends.items())


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


@dataclass(frozen=True)
class Question:
    """A question about an explanation; the fields are described in ``templates/questions.yaml``."""

    short: str
    question: str
    file: str
    criterion: str
    finding: str
    outcomes: dict[str, str]
    thresholds: dict[str, float] = field(default_factory=dict)
    optional: bool = False


@dataclass(frozen=True)
class Verdict:
    """The answer to one question; `state` is a key of `MARKS`.

    If the question was not tested, the value or the sentence states why, if its file exists.
    """

    short: str
    question: str
    criterion: str
    value: str = "–"
    state: str = NOT_TESTED
    sentence: str = ""


@dataclass(frozen=True)
class Evidence:
    """The files of one run's explanation; `tokens` are landmarks per scan, `disabled` the files of disabled checks."""

    run: Path
    explanation: Path
    tokens: int
    truth: Path | None = None
    disabled: frozenset[str] = frozenset()

    def file(self, name: str) -> Path | None:
        """Return the path of a file; None if it is missing, empty or disabled."""
        path = {"summary.json": self.run / name, "truth.tsv": self.truth}.get(name, self.explanation / name)
        return path if path and holds_something(path) and name not in self.disabled else None


@cache
def questions() -> dict[str, Question]:
    """Read the questions by name, in reading order."""
    return {name: Question(**entry) for name, entry in read_yaml(TEMPLATES / "questions.yaml").items()}


def ask(name: str, evidence: Evidence) -> Verdict | None:
    """Return the verdict on one question; None if it is optional and nothing answers it."""
    question, file = questions()[name], evidence.file(questions()[name].file)
    answer = None
    if file:
        data = read_json(file) if file.suffix == ".json" else read_table(file, text=TEXT)
        answer = MEASURES[name](data, **question.thresholds)
    facts = {"tokens": evidence.tokens, "gone": GONE, **question.thresholds, **(answer.facts if answer else {})}
    if answer is None and question.optional:
        return None
    about = question.short, question.question, question.criterion.format(**facts)
    if answer is None:
        return Verdict(*about)
    state = answer.outcome if answer.outcome in (SUPPORTED, NOT_TESTED) else NOT_SUPPORTED
    if answer.outcome == NOT_TESTED and NOT_TESTED not in question.outcomes:
        return Verdict(*about, answer.value)
    sentence = (question.finding + question.outcomes[answer.outcome]).format(**facts)
    return Verdict(*about, answer.value, state, sentence)


def verdicts(evidence: Evidence) -> list[Verdict]:
    """Return the verdicts on all questions that apply."""
    return [verdict for name in questions() if (verdict := ask(name, evidence))]


def verdicts_of(study: Study, run: ModelRun) -> list[Verdict]:
    """Return the verdicts on the explanation of a run; [] if it was not explained."""
    explain = study.config.explain
    switched_on = {"sanity.tsv": explain.sanity.asked, "faithfulness_areas.tsv": explain.faithfulness.scans > 0}
    disabled = frozenset(file for file, on in switched_on.items() if not on)
    evidence = Evidence(run.folder, run.explanation, explain.tokens, truth_file(study, run), disabled)
    return verdicts(evidence) if evidence.file("landmarks.tsv") else []


def counted(verdicts: Sequence[Verdict]) -> str:
    """Count the questions by verdict."""
    states = [verdict.state for verdict in verdicts]
    counts = [f"{states.count(state)} {state}" for state in MARKS if state in states]
    return f"Of {len(states)} questions about this explanation: {', '.join(counts)}."


def believed(verdicts: Sequence[Verdict]) -> str:
    """State whether an explanation may be believed: yes only if nothing that was asked failed or was left out."""
    states = {state: [v.short for v in verdicts if v.state == state] for state in MARKS}
    n, passed, failed = len(verdicts), states[SUPPORTED], states[NOT_SUPPORTED]
    untested = [v.short for v in verdicts if v.state not in (SUPPORTED, NOT_SUPPORTED)]
    first = verdicts[0]
    if first.state == NOT_SUPPORTED:
        return "No: the model is not shown to predict better than chance, so there may be nothing to explain."
    if len(passed) == n:
        return f"Yes, as far as it was tested: all {n} tests are passed."
    named = {"failed": failed, "not tested": untested}
    counts = [f"{state} {len(tests)} ({', '.join(tests)})" for state, tests in named.items() if tests]
    return f"{'With care' if failed else 'In part'}: passed {len(passed)} of {n} tests; {'; '.join(counts)}."
