"""Questions about an explanation, and the verdicts on them (``templates/questions.yaml``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.trust.faithfulness import CONTROLS
from bolt.explain.trust.similarity import GONE
from bolt.io.files import holds_something, read_json, read_table, read_yaml
from bolt.report.sections.explanation.measures import MEASURES, NOT_SUPPORTED, NOT_TESTED, SUPPORTED
from bolt.report.sections.explanation.moments import truth_file

QUESTIONS = Path(__file__).parents[2] / "templates" / "questions.yaml"
MARKS = {SUPPORTED: "✓", NOT_SUPPORTED: "✗", NOT_TESTED: "○"}
"""Shown beside the colour."""
TEXT = (
    *("fold", "importance", "tokens", "level", "class", "task", "run", "trial_type", "name", "network", "hemisphere"),
    *("between", "what", "one", "other", "measure", "unit", "passed", "check", "layer", "verdict", "note"),
    *("question", "first", "second"),
    *("replacement", "direction", "order", *(f"better_than_{control}" for control in CONTROLS)),
)
"""Columns of text in the files that answer questions."""


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
    return {name: Question(**entry) for name, entry in read_yaml(QUESTIONS).items()}


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
