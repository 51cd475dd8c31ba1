"""List what happens to bad input: `bad_inputs.yaml` has the cases that tests run; `docs/bad_input.md` is made of them.

`python -m tests.bad_inputs` writes the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from bolt.config import ROOT
from bolt.io.files import read_yaml, write_text

PAGE = ROOT / "docs/bad_input.md"
LIST = read_yaml(Path(__file__).with_suffix(".yaml"))


class Case(NamedTuple):
    """One kind of bad input.

    `outcome` is excluded, warned, used or refused; `message` is the message, with ``…`` for parts that vary, or, for
    input that is used, what is done.
    """

    input: str
    outcome: str
    message: str

    @property
    def problem(self) -> str:
        """Return the message without the name of the file at its start and the remedy at its end."""
        said = re.sub(r"^…[\w.]*: |\. [A-Z].*| \(counted from 0\)", "", self.message)
        return said.removesuffix(" (…)")

    def is_said(self, text: str) -> bool:
        """Return whether a text contains the message."""
        return re.search(".*".join(map(re.escape, self.message.split("…"))), text, re.DOTALL) is not None


CASES = {title: [Case(**case) for case in cases] for title, cases in LIST["sections"].items()}
DATA_CASES, PREPROCESSING_CASES, TRAINING_CASES, SCAN_CASES = CASES.values()


def render() -> str:
    """Return the page: lists by outcome, without names of files and remedies, which every message has."""
    text = LIST["start"]
    for title, cases in CASES.items():
        text += f"\n## {title}\n"
        for outcome in ("refused", "excluded", "warned", "used"):
            items = [f"- *{case.input}*: {case.problem}" for case in cases if case.outcome == outcome]
            text += "\n".join(["", f"**{outcome.capitalize()}**", "", *items, ""]) if items else ""
    return text


if __name__ == "__main__":
    write_text(render(), PAGE)
