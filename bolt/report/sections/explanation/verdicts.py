"""What a verdict on an explanation is, and where the bars lie.

Bars were set before any result was seen, and are the same for every dataset, but for those of planted truth, which the
dataset's file sets (`expected`). The others are below; that of the sanity checks is
`bolt.explain.trust.similarity.GONE`, and those of tests are intervals and p values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SUPPORTED, NOT_SUPPORTED, NOT_TESTED = "supported", "not supported", "not tested"
MARKS = {SUPPORTED: "✓", NOT_SUPPORTED: "✗", NOT_TESTED: "○"}
"""Seen beside the colour."""

GAIN = 0.02
"""AUC by which important volumes must beat others in the mean over folds."""
MOST = 0.75
"""Share of the folds in which they must be ahead."""
OFTEN = 0.5
"""A region returns where more than this share of the folds selects it; so must half of the regions shown."""
AGREEMENT = 0.5
"""Smallest mean correlation between maps of different folds or seeds."""
ALPHA = 0.05
"""Of tests, corrected for how many there are."""

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Verdict:
    """One question to an explanation.

    Attributes
    ----------
    question, measure, value : str
        What is asked, what is measured and what it must reach, and what was found.
    state : {"supported", "not supported", "not tested"}
    sentence : str
        What the summary says; empty where nothing was tested.
    """

    question: str
    measure: str
    value: str = "–"
    state: str = NOT_TESTED
    sentence: str = ""

    def found(self, value: str, supported: bool, sentence: str) -> Verdict:
        """The same question, answered."""
        state = SUPPORTED if supported else NOT_SUPPORTED
        return Verdict(self.question, self.measure, value, state, sentence)


@dataclass(frozen=True)
class Evidence:
    """Where the files of one run's explanation are.

    Attributes
    ----------
    run, out : Path
        Folders ``runs/…/seed-<s>`` and ``explain/…/seed-<s>``.
    tokens : int
        Landmarks of a scan.
    truth : Path or None
        ``truth.tsv``, of the one run of simulated data that it judges.
    """

    run: Path
    out: Path
    tokens: int
    truth: Path | None = None


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many questions there are, and how they were answered."""
    states = [verdict.state for verdict in verdicts]
    parts = [f"{states.count(state)} {state}" for state in MARKS if state in states]
    return f"Of {len(states)} questions to this explanation: {', '.join(parts)}."


def spelled(n: int) -> str:
    """A small number as a word."""
    return _NUMBERS[n] if n < len(_NUMBERS) else str(n)


def signed(value: float) -> str:
    """With a sign, and a true minus."""
    return f"{value:+.2f}".replace("-", "−")


def plain(value: float) -> str:
    """Two decimals, and a true minus."""
    return f"{value:.2f}".replace("-", "−")
