"""What becomes of bad input: the lists that tests go through, and of which `docs/bad_input.md` is made.

`python -m tests.bad_inputs` writes the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from bolt.config import ROOT
from bolt.files import write_text

PAGE = ROOT / "docs/bad_input.md"
START = """# Bad input

What becomes of input that cannot be used, and what is then said. Each line below is tested; `…` stands for what
depends on the case.

- **excluded**: the scan is left out, and stands with stage, reason and remedy in `results/<dataset>/exclusions.tsv`; the
  others go on. With `bad_scans: refuse` in the configuration the run stops instead, and `results/<dataset>/bad_scans.tsv`
  lists all of them. To go on without some, name them in the dataset's file: `exclude: {scan_id: [sub-01_task-rest]}`.
- **warned**: the scan is used, and named in `results/<dataset>/warnings.tsv` and in the report.
- **refused**: the run stops, before any work where the input can be seen before work.
"""


class Case(NamedTuple):
    """One kind of bad input.

    `outcome` is excluded, warned or refused; `message` is what is said, with ``…`` for what depends on the case.
    """

    input: str
    outcome: str
    message: str

    def is_said(self, text: str) -> bool:
        """Whether a text has the message in it."""
        return re.search(".*".join(map(re.escape, self.message.split("…"))), text, re.DOTALL) is not None


DATA_CASES: list[Case] = []
PREPROCESSING_CASES: list[Case] = []


def render() -> str:
    """The page."""
    sections = (("Data", DATA_CASES), ("Preprocessing", PREPROCESSING_CASES))
    return START + "".join(f"\n## {title}\n\n{_table(cases)}" for title, cases in sections)


def _table(cases: Iterable[Case]) -> str:
    rows = [f"| {case.input} | {case.outcome} | {case.message.replace('|', chr(92) + '|')} |" for case in cases]
    return "\n".join(["| input | outcome | message |", "| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    write_text(render(), PAGE)
