"""Texts as they were when someone last read them: the files of ``tests/report/golden``."""

import html
import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("golden")
MARKED = "warning|good|check|bad|excluded|failed|supported|not-supported|not-tested"
"""Classes that readers see as colours."""


def as_before(name, text):
    """Compare a text with the file of that name. To accept a change, delete the file, and read what a test writes."""
    file = GOLDEN / name
    if not file.exists():
        file.write_text(text, encoding="utf-8")
        pytest.fail(f"{file} is new: read it")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()


def words_on(page):
    """Return what a reader sees of a page, a line a block, without numbers and what tells of this day."""
    for hidden in ("style", "script", "svg", "pre"):
        page = re.sub(rf"<{hidden}\b.*?</{hidden}>", "", page, flags=re.S)
    page = re.sub(r'<section id="provenance">.*?</section>', "", page, flags=re.S)
    page = re.sub(r'<span class="file">(?:[^<]*/)?([^</]*)</span>', r"(\1)", page)
    page = re.sub(rf'<\w+(?: class="?(?:state |light )?({MARKED})\b)', r"[\1] \g<0>", page)
    page = re.sub(r"</(p|tr|h\d|li|dd|figcaption|summary)>", "\n", " ".join(page.split()))
    lines = html.unescape(re.sub(r"<[^>]+>", " ", page)).splitlines()
    shown = (" ".join(re.sub(r"\d+(?:\.\d+)*(?:\+\w+)?", "#", line).split()) for line in lines)
    return "".join(f"{line}\n" for line in shown if line)


def changes_of(usual, text):
    """Return the sentences that a text lacks (-) and has (+) beside the usual one."""
    before, now = (re.sub(r"([.:;]) (?=[A-Z])", r"\1\n", words).splitlines() for words in (usual, text))
    return [*(f"- {line}" for line in before if line not in now), *(f"+ {line}" for line in now if line not in before)]
