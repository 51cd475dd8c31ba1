"""Questions about an explanation (``templates/questions.yaml``), the measures that answer them, and the verdicts.

Each measure takes the table that the question names and the question's thresholds, and returns None if the table is no
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bolt.cohort.confounding import holm
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.tasks import TRANSITIONS
from bolt.explain.trust.faithfulness import CONTROLS
from bolt.explain.trust.similarity import GONE, RETRAINED
from bolt.io.files import holds_something, read_json, read_yaml
from bolt.report.html import TEMPLATES, fill, say
from bolt.report.numbers import decimal, p_value, signed
from bolt.report.pages.trust import correlation, truth_file
from bolt.report.tables import CONTROL_NAMES, REPLACED_BY, read_result

SUPPORTED, NOT_SUPPORTED, NOT_TESTED = "supported", "not supported", "not tested"
MARKS = {SUPPORTED: "✓", NOT_SUPPORTED: "✗", NOT_TESTED: "○"}
"""Shown beside the colour."""
SANITY_OUTCOMES = {"passed": SUPPORTED, "not passed": NOT_SUPPORTED, "no control": NOT_TESTED}
"""Outcomes by those verdicts of ``sanity.tsv`` that are called otherwise."""
CIRCULAR = ("random direction", "wrong class")
"""Controls of landmarks that are chosen by the predicted class, too. The choice for a fixed class is not: if its
volumes predict the class, the moments themselves differ. So it is reported, but need not be surpassed."""


class Answer(NamedTuple):
    """What was measured: the outcome, and facts that ``templates/questions.yaml`` fills in.

    Only `SUPPORTED` is positive; all other outcomes but `NOT_TESTED` count as not supported.
    """

    outcome: str
    facts: dict[str, Any]


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
    return Answer(_outcome(found["p"] <= level), found | {"folds": averaged(found)})


def moments(table: pd.DataFrame, gain: float, alpha: float) -> Answer | None:
    """Compare the regression on important volumes with those on all controls."""
    rows = table[table["question"] == "moments"]
    inner = "inner" in set(rows["importance"])
    rows = rows[rows["importance"] == ("inner" if inner else "fitted")].set_index("second", drop=False)
    if "random" not in rows.index:
        return None
    facts = {"first": rows["auc_first"].mean(), "controls": rows.to_dict("records"), "inner": inner}
    facts["auc"] = {"fixed class": None, **rows["auc_second"]}
    bars = rows[rows.index != "fixed class"]
    if untested := _untested(bars):
        return Answer(NOT_TESTED, facts | {"untested": untested})
    equal = bars[~_is_better(bars, gain, alpha)]
    if equal.empty or "random" in equal.index:
        return Answer(_outcome(equal.empty), facts)
    control = equal["auc_second"].idxmax()
    return Answer("choice", facts | {"control": control, "equal": equal.loc[control].to_dict()})


def order(table: pd.DataFrame, gain: float, alpha: float, regained: float) -> Answer | None:
    """Compare regressions on the first and on the last quarter of the volumes ordered by importance.

    A curve that rises again by `regained` of its fall, or more, does not fall as a whole.
    """
    rows = table[table["question"] == "order"].set_index("second")
    if "last quarter" not in rows.index:
        return None
    last = rows.loc[["last quarter"]]
    first, second, lowest = last["auc_first"].iloc[0], last["auc_second"].iloc[0], rows["auc_second"].min()
    facts = {"first": first, "second": second, "lowest": lowest, "last": last.iloc[0].to_dict()}
    facts["course"] = " → ".join(map(decimal, [first, *rows["auc_second"]]))
    if untested := _untested(last):
        return Answer(NOT_TESTED, facts | {"untested": untested})
    falls = bool(_is_better(last, gain, alpha).all())
    if falls and second - lowest >= regained * (first - lowest):
        return Answer("rises again", facts)
    circular = table[(table["importance"] == "fitted") & table["second"].isin(CIRCULAR)]
    if falls and not _is_better(circular, gain, alpha).all():
        return Answer("choice", facts)
    return Answer(_outcome(falls), facts)


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
    higher = table[(table["p"] < alpha) & raised].sort_values("ratio", ascending=False).to_dict("records")
    return Answer(_outcome(bool(higher)), {"higher": len(higher), "n": len(table), "best": next(iter(higher), None)})


def regions(table: pd.DataFrame, share: float) -> Answer | None:
    """Count the selected regions that most folds select."""
    shown = table[table["selected"].astype(bool)]
    if shown.empty or shown["n_folds"].iloc[0] < 2:
        return None
    shown = shown.sort_values("selection_frequency", ascending=False, kind="stable")
    often = shown[shown["selection_frequency"] > share]
    names = ", ".join(dict.fromkeys(often["name"].astype(str).head(4)))
    facts = {"names": names, "often": len(often), "shown": len(shown), "folds": int(shown["n_folds"].iloc[0])}
    return Answer(_outcome(2 * len(often) >= len(shown)) if names else "none", facts)


def agreement(table: pd.DataFrame, correlation: float, alpha: float, *, between: str) -> Answer | None:
    """Compare the correlation of maps of different folds or seeds with permuted labels, also over halves of people."""
    means = table[(table["between"] == between) & (table["one"] == "mean")].set_index("what")
    if not {"regions", "halves"} <= set(means.index) or means.loc[["regions", "halves"], "p"].isna().any():
        return None
    average = means.groupby(level="what")[["pearson", "pearson_null", "spearman", "p"]].mean()
    maps, halves = average.loc["regions"], average.loc["halves"]
    facts = {"maps": maps.to_dict(), "halves": halves.to_dict(), "curves": average["spearman"].get("importance")}
    if maps["pearson"] < correlation:
        return Answer(NOT_SUPPORTED, facts)
    # seeds share all scans: equal volumes make maps equal with any labels
    if between == "folds" and maps["p"] >= alpha:
        return Answer("as permuted", facts)
    return Answer(SUPPORTED if halves["p"] < alpha else "not in others", facts)


def connected(table: pd.DataFrame, correlation: float, alpha: float) -> Answer | None:
    """Compare maps of connections of different folds, that is, of different people, with shuffled predictions.

    A fold has few test scans, so that its map is noisy. The correlation that the mean map of all k folds would have
    with that of as many other people is k r / (1 + (k - 1) r) (Spearman 1910, Brown 1910), r that between two folds.
    """
    means = table[table["one"] == "mean"]
    if means.empty or means["p"].isna().any():
        return None
    facts = means[["pearson", "pearson_null", "p"]].mean().to_dict()
    pairs = table[table["other"].notna() & table["pearson"].notna()]  # of folds that have a map
    k, r = pairs[["one", "other"]].astype(float).stack().nunique(), max(facts["pearson"], 0)
    facts["all_folds"] = k * r / (1 + (k - 1) * r)
    return Answer(_outcome(facts["all_folds"] >= correlation and facts["p"] < alpha), {"maps": facts})


def planted(table: pd.DataFrame, *, measures: list[str]) -> Answer | None:
    """Compare measures of planted truth with their expected ranges."""
    if not set(measures) <= set(table["measure"]):
        return None
    rows = table.set_index("measure", drop=False).loc[measures]
    passed = bool((rows["passed"].astype(str).str.lower() == "true").all())
    return Answer(_outcome(passed), {"rows": rows.to_dict("records")})


def sanity(table: pd.DataFrame, *, check: str) -> Answer | None:
    """Read the end of a sanity check, beside its positive control."""
    ends = table[(table["fold"] == "all") & table["verdict"].notna()].set_index("check").to_dict("index")
    row, control = ends.get(check), ends.get(RETRAINED)
    if row is None or row["verdict"] == "not done":
        return None
    again = correlation(control) if control and control["verdict"] != "not done" else ""
    reason = say("sanity.no_control", control=control)
    facts = {"rho": correlation(row), "again": again, "reason": reason, "note": row["note"]}
    outcome = SANITY_OUTCOMES.get(row["verdict"], row["verdict"])
    if outcome == SUPPORTED and not again:  # a table of an earlier version
        outcome = NOT_TESTED
    return Answer("undefined" if pd.isna(row["rho"]) else outcome, facts)


def faithfulness(table: pd.DataFrame, *, direction: str) -> Answer | None:
    """Compare important volumes with the controls, for each replacement."""
    rows = table[(table["direction"] == direction) & (table["order"] == "importance")]
    rows = rows[rows["better_than_random"].notna()]
    if rows.empty:
        return None
    rows = rows.assign(replaced_by=rows["replacement"].map(REPLACED_BY)).set_index("replaced_by", drop=False)
    better = rows[[f"better_than_{control}" for control in CONTROLS]].set_axis(list(CONTROLS), axis=1) == "yes"
    unbeaten = []
    for control in better.columns[~better.all()]:
        failed = better.index[~better[control]]
        unbeaten.append(CONTROL_NAMES[control] + ("" if len(failed) == len(better) else f" ({', '.join(failed)})"))
    faithful = better.all(axis=1)
    facts = {"rows": rows.to_dict("records"), "better": list(better.index[faithful]), "unbeaten": unbeaten}
    worse = bool((rows["better_than_random"] == "worse").all())
    outcome = "partly" if faithful.any() else "worse" if worse else NOT_SUPPORTED
    return Answer(SUPPORTED if faithful.all() else outcome, facts)


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
    "connections": connected,
    "planted moments": partial(planted, measures=["landmark AUC", "landmark AUC of position alone"]),
    "planted regions": partial(planted, measures=["planted ROIs, p"]),
    "random weights": partial(sanity, check="cascade"),
    "permuted labels": partial(sanity, check="permuted labels"),
    "deletion": partial(faithfulness, direction="deletion"),
    "insertion": partial(faithfulness, direction="insertion"),
}
"""By the names of the questions."""
OF_CONNECTIONS = ("prediction", "connections")
"""Questions about a model of which only connections are known."""


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
def questions() -> dict[str, dict[str, Any]]:
    """Read the questions by name, in reading order."""
    return read_yaml(TEMPLATES / "questions.yaml")


def ask(name: str, evidence: Evidence) -> Verdict | None:
    """Return the verdict on one question; None if it is optional and nothing answers it."""
    question, file, answer = questions()[name], evidence.file(questions()[name]["file"]), None
    thresholds = question.get("thresholds", {})
    if file:
        data = read_json(file) if file.suffix == ".json" else read_result(file)
        answer = MEASURES[name](data, **thresholds)
    if answer is None and question.get("optional"):
        return None
    facts = {"tokens": evidence.tokens, "gone": GONE, "untested": "", "change": _change, **thresholds}
    facts |= answer.facts if answer else {}
    about = question["short"], question["question"], fill(question["criterion"], **facts)
    if answer is None:
        return Verdict(*about)
    state = answer.outcome if answer.outcome in (SUPPORTED, NOT_TESTED) else NOT_SUPPORTED
    ending = question["outcomes"].get(answer.outcome)
    sentence = "" if ending is None else fill(question["finding"] + ending, **facts)
    return Verdict(*about, fill(question["value"], **facts), state, sentence)


def _change(row: dict[str, Any]) -> str:
    """Return a difference in AUC and its p where it was tested."""
    return signed(row["difference"]) + ("" if pd.isna(row["p"]) else f", p {p_value(row['p'])}")


def verdicts(evidence: Evidence, names: Iterable[str] | None = None) -> list[Verdict]:
    """Return the verdicts on all questions that apply, or on those of the given names."""
    return [verdict for name in names or questions() if (verdict := ask(name, evidence))]


def verdicts_of(study: Study, run: ModelRun) -> list[Verdict]:
    """Return the verdicts on the explanation of a run; [] if it was not explained."""
    explain = study.config.explain
    switched_on = {"sanity.tsv": explain.sanity.asked, "faithfulness_areas.tsv": explain.faithfulness.scans > 0}
    disabled = frozenset(file for file, on in switched_on.items() if not on)
    evidence = Evidence(run.folder, run.explanation, explain.tokens, truth_file(study, run), disabled)
    if evidence.file("landmarks.tsv"):
        return verdicts(evidence)
    return verdicts(evidence, OF_CONNECTIONS) if evidence.file("connections.tsv") else []


def counted(verdicts: Sequence[Verdict]) -> str:
    """Count the questions by verdict."""
    states = [verdict.state for verdict in verdicts]
    counts = [f"{states.count(state)} {state}" for state in MARKS if state in states]
    return f"Of {len(states)} questions about this explanation: {', '.join(counts)}."


def believed(verdicts: Sequence[Verdict]) -> str:
    """State whether an explanation may be believed: yes only if nothing that was asked failed or was left out."""
    short = {state: [verdict.short for verdict in verdicts if verdict.state == state] for state in MARKS}
    failed, untested = short[NOT_SUPPORTED], short[NOT_TESTED]
    nothing = verdicts[0].state == NOT_SUPPORTED
    return say("trust.believed", n=len(verdicts), nothing=nothing, failed=failed, untested=untested)
