"""Statements on the paper name their place in it, and the places exist."""

from __future__ import annotations

import re

import pytest

from bolt.config import ROOT
from tests.shared import shared_file

SECTIONS = {
    "Theory",
    "BolT",
    "Explanatory technique",
    "Datasets",
    "Experimental procedures",
    "Implementation details",
    "Competing methods",
    "Ablation studies",
    "Cross-window regularization",
}
"""Sections and named paragraphs of the paper to which `docs/bolt.md` refers."""
PLACE = re.compile(r"\((?:[^()]*\s)?(\*[A-Z][^*]+\*|Table \d|Figures? \d|equations? \d+)")
DIFFERENCES = ["of the model", "of training", "of the run"]
PAPER = "paper/000_f6da99573bc86f12.txt"


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of `docs/bolt.md`."""
    text = (ROOT / "docs/bolt.md").read_text().split(f"### {heading}\n")[1].split("\n### ")[0]
    table = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert table[0][:2] == ["aspect", "paper"]
    return table[2:]


@pytest.mark.parametrize("heading", [*(f"Differences {part}" for part in DIFFERENCES), "Not reproduced from the code"])
def test_every_difference_has_its_place_in_the_paper(heading: str) -> None:
    found = rows(heading)
    assert len(found) >= 6
    for aspect, paper, code, *_ in found:
        assert PLACE.search(paper) or paper in ("not stated", "–"), (aspect, paper)
        assert ".py` " in code or aspect == "Adam's β1", (aspect, code)


def test_the_places_exist() -> None:
    text = (ROOT / "docs/bolt.md").read_text().split("## Two recipes")[1].split("### Published checkpoints")[0]
    named = set(re.findall(r"\*([A-Z][^*]+)\*", text)) - {"SVM, published code", "SVM, crops"}
    assert named == SECTIONS
    assert max(map(int, re.findall(r"equations? (\d+)", text))) <= 13
    latex = shared_file(PAPER).read_text()
    titles = {*re.findall(r"\\(?:sub)*section\{([^}]*)\}", latex), *re.findall(r"\\textbf\{([^}]*):\}", latex)}
    assert named <= titles
