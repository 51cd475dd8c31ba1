"""Statements on the paper name their place in it, and the places exist."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from bolt.config import ROOT, load_config
from tests.shared import shared_file

SECTIONS = {
    *("Theory", "BolT", "Explanatory technique", "Datasets", "Experimental procedures", "Implementation details"),
    *("Competing methods", "Ablation studies", "Cross-window regularization"),
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
    named = set(re.findall(r"\*([A-Z][^*]+)\*", text)) - {"SVM, crops"}
    assert named == SECTIONS
    assert max(map(int, re.findall(r"equations? (\d+)", text))) <= 13
    latex = shared_file(PAPER).read_text()
    titles = {*re.findall(r"\\(?:sub)*section\{([^}]*)\}", latex), *re.findall(r"\\textbf\{([^}]*):\}", latex)}
    assert named <= titles


def test_the_atlas_of_explanations_is_named_for_the_regressions_alone() -> None:
    text = " ".join((ROOT / "docs/paper.md").read_text().split())
    assert (
        "names Schaefer's for the regressions on landmarks (Table 3, Figure 4), and none for Figures 3 and 5 to 7"
        in text
    )
    latex = shared_file(PAPER).read_text()
    assert "ROI definitions based on the Schaefer atlas were used for this analysis" in latex
    for label in ("relevancyFigure", "brainMapp", "taskBrainMapping", "autismBrainMapping"):
        caption = latex.split(f"\\label{{fig:{label}}}")[0].split("\\caption{")[-1]
        assert "atlas" not in caption and "Schaefer" not in caption
    explained = latex.split("\\subsection{Explanability of BolT}")[1].split("\\section{Discussion}")[0]
    assert "Schaefer" not in explained and "AAL" not in explained


def test_the_default_gradient_is_a_listed_difference() -> None:
    assert load_config(ROOT / "config/config.yaml").explain.gradient == "logit"
    text = (ROOT / "docs/paper.md").read_text().split("What differs everywhere")[1].split("\n## ")[0]
    [line] = [line for line in text.split("\n- ") if "`explain: gradient`" in line]
    assert "loss" in line and "Table 3 and Figures 3 to 7" in line


def test_the_example_of_the_published_code_has_its_folds_seeds_and_exclusions() -> None:
    """`datasetDetails.py` 32, `tester.py` 63-64 and `abide1Loader.py` 18, 40 of the published code."""
    config = load_config(ROOT / "config/examples/abide1_published.yaml")
    assert config.dataset_name == "abide1" and {"bolt", "bolt_published"} <= set(config.models)
    assert config.folds.outer == 10 and config.folds.of("bolt_published") == list(range(10))
    assert config.seeds == [0, 1, 2, 3, 4]
    assert config.parcellate.uncovered == "drop-dead-scan"
    usual = load_config(ROOT / "config/examples/abide1.yaml")
    assert usual.parcellate.uncovered != "drop-dead-scan"  # so the example must say so


def test_which_model_first_states_the_seeds_of_its_numbers() -> None:
    text = (ROOT / "docs/models.md").read_text().split("## Which model first")[1].split("\n## ")[0]
    joined = " ".join(text.split())
    table = pd.read_csv(ROOT / "benchmarks/abide_tuned.tsv", sep="\t")
    seeds = table.set_index(["scheme", "row"])["seeds"]
    names = ["BolT + linear models", "Linear models combined", "BolT (tuned)", "Ridge", "Tangent"]
    assert {seeds["folds", name] for name in names} == {3}
    assert {seeds["folds", name] for name in ("BolT", "meanMLP")} == {1} and set(seeds["sites"]) == {1}
    assert "Numbers over ten folds are means over three seeds (the paper's BolT and meanMLP: one seed)" in joined
    assert "those of left-out institutions have one seed" in joined
    tuned = table.set_index(["scheme", "row"]).loc[("sites", "BolT (tuned)"), "auc"]
    assert f"`bolt_tuned` alone falls to {tuned:.3f}" in joined
