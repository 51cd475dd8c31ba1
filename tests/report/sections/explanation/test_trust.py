"""Sanity checks and stability in words, tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bolt.explain.trust.sanity_outcome import summary
from bolt.explain.trust.stability import (
    NULL_COLUMNS,
    STABILITY_COLUMNS,
    curve_pairs,
    half_pairs,
    map_pairs,
    with_summaries,
)
from bolt.io.files import write_table
from bolt.report.html import Block, Picture, Table, Text
from bolt.report.sections.explanation.trust import sanity_blocks, stability_blocks
from bolt.report.tables.explanation import sanity_table, stability_table
from tests.report.results import first_run, settings, words_only

RANDOM = np.random.default_rng(3)
LAYERS = ("none", "classifier", "block 1", "input")


def checked(end: float, *, independent: bool = True, again: float | None = 0.5) -> pd.DataFrame:
    """A ``sanity.tsv`` of two folds whose correlation falls from 1 to `end`, beside a model trained again."""
    rows = []
    for fold, i in [(f, i) for f in "12" for i in range(6)]:
        about = {"scan_id": f"s{fold}{i}", "group": f"p{fold}{i}", "fold": fold}
        for step, layer in enumerate(LAYERS):
            rho = 1 + (end - 1) * step / 3 + 0.01 * i
            values = {"rho": rho, "rho_raw": (1 + rho) / 2}
            rows.append({**about, "check": "cascade", "step": step, "layer": layer, **values})
            if step and independent:
                rows.append({**about, "check": "independent", "step": np.nan, "layer": layer, **values})
        if fold == "1":
            values = {"rho": end / 2, "rho_raw": 0.5}
            rows.append({**about, "check": "permuted labels", "step": np.nan, "layer": np.nan, **values})
        if fold == "1" and again is not None:
            values = {"rho": again + 0.01 * i, "rho_raw": 0.5}
            rows.append({**about, "check": "trained again", "step": np.nan, "layer": np.nan, **values})
    return summary(pd.DataFrame(rows))


def words(blocks: list[Block]) -> str:
    return " ".join(block.text for block in blocks if isinstance(block, Text))


def show(blocks: Any, folder: Path, table: pd.DataFrame | None = None) -> list[Block]:
    """The blocks of a run, whose explanation holds nothing but `table`."""
    study = settings(folder)
    run = first_run(study)
    if table is not None:
        name = "sanity" if blocks is sanity_blocks else "stability"
        write_table(table, run.explanation / f"{name}.tsv", dict.fromkeys(table, ""))
    return blocks(study, run)


def test_what_is_gone_has_passed_and_is_drawn(tmp_path: Path) -> None:
    blocks = show(sanity_blocks, tmp_path, checked(0.052))
    assert words(blocks).count("Passed:") == 2 and "Not passed" not in words(blocks)
    assert "agrees with the original (ρ = 0.53 [0.5" in words(blocks)
    assert "Trained again with another seed, ρ = 0.53 [0.5" in words(blocks)
    assert not any(block.warning for block in blocks if isinstance(block, Text))
    (picture,) = (block for block in blocks if isinstance(block, Picture))
    assert picture.file.stat().st_size > 10_000 and picture.file.with_suffix(".svg").is_file()
    (table,) = (block.frame for block in blocks if isinstance(block, Table))
    assert table[""].tolist() == [
        "all layers random", "fold 1", "fold 2", "model trained on permuted labels", "fold 1",
        "model trained again with another seed", "fold 1",
    ]  # fmt: skip
    assert table["ρ [95 %]"].iloc[0].startswith("0.08 [0.")
    assert table["beyond what remains"].iloc[0].startswith("+0.45 [+0.4") and table["beyond what remains"].iloc[1] == ""
    assert table["importance"].iloc[5] == "reproducible"
    assert ">trained again<" in picture.file.with_suffix(".svg").read_text()


@words_only()
def test_what_stays_is_a_warning_with_its_number(tmp_path: Path) -> None:
    blocks = show(sanity_blocks, tmp_path, checked(-0.603, independent=False))
    found = [block for block in blocks if isinstance(block, Text) and block.warning]
    assert [f"ρ = {value}" in block.text for value, block in zip(("−0.58", "−0.30"), found, strict=True)] == [True] * 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"again": None}, "is not known, because no model was trained again (explain: sanity: retrained)."),
        ({"again": -0.1}, "Not passed: with all layers random, little of the importance remains (ρ = 0.08"),
    ],
)
@words_only()
def test_what_vanishes_without_being_reproducible_has_not_passed(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    blocks = show(sanity_blocks, tmp_path, checked(0.052, **change))
    assert sentence in words(blocks) and "Passed:" not in words(blocks)
    assert all(block.warning for block in blocks[1:-2] if isinstance(block, Text))


def test_what_cannot_be_compared_or_was_not_done_is_said() -> None:
    table = checked(0.1)
    table.loc[table["check"] == "cascade", ["rho", "low", "high"]] = np.nan
    table.loc[table["verdict"].notna(), "verdict"] = ["not passed", "not done", "reproducible"]
    table["note"] = np.where(table["check"] == "permuted labels", "the loss is not finite", None)
    shown = sanity_table(table)
    assert shown["ρ [95 %]"].iloc[0] == "–" and shown["importance"].iloc[0] == "does not vanish: not passed"
    assert shown["note"].iloc[3] == "the loss is not finite"


def folds_table(n: int, classes: list[str]) -> pd.DataFrame:
    base = RANDOM.standard_normal((len(classes), 60))
    maps = {str(k): base + RANDOM.standard_normal(base.shape) for k in range(n)}
    scans = pd.DataFrame({"scan_id": [f"s{i}" for i in range(8)], "predicted": "a"})
    own = [RANDOM.random(30) for _ in range(8)]
    curves = {str(k): (scans, [x + RANDOM.random(30) for x in own]) for k in range(n)}
    halves = [(base[None] + RANDOM.standard_normal((1, *base.shape)), base[None]) for _ in range(4)]
    pairs = [*map_pairs(maps, classes, 0.05), *half_pairs(halves, classes, 0.05), *curve_pairs(curves)]
    rows = [{"between": "folds", **row} for row in pairs]
    rows += [{**row, "between": "seeds"} for row in rows if (row["one"], row["other"]) == ("0", "1")]
    table = with_summaries(pd.DataFrame(rows, columns=list(STABILITY_COLUMNS)))
    tested = (table["one"] == "mean") & (table["what"] != "importance")
    table.loc[tested, list(NULL_COLUMNS)] = 0.2, 0.3, 0.1, 0.4, 0.02
    return table


def test_ten_folds_and_three_classes_are_drawn_and_told(tmp_path: Path) -> None:
    blocks = show(stability_blocks, tmp_path, folds_table(11, ["a", "b", "c"]))
    (picture,) = (block for block in blocks if isinstance(block, Picture))
    assert picture.file.is_file() and "mean over classes" in picture.caption and "8 scans" in picture.caption
    assert "maps correlate even on noise" in words(blocks) and "disjoint halves" in words(blocks)


def test_a_row_a_class_and_what_is_compared() -> None:
    table = stability_table(folds_table(3, ["a", "b"]))
    regions = ["regions, a", "regions, b"]
    halves = ["regions, halves of people, a", "regions, halves of people, b"]
    assert table[""].tolist() == [*regions, *halves, "importance over time", *regions, "importance over time"]
    pairs = ["3 pairs of folds"] * 2 + ["4 splits"] * 2 + ["3 pairs of folds"] + ["1 pair of seeds"] * 3
    assert table["between"].tolist() == pairs
    assert "[" in table["correlation"].iloc[0] and "[" not in table["correlation"].iloc[5]
    assert table["permuted labels [95 % below]"].iloc[0] == "0.20 [0.30]" and table["p"].iloc[0] == "0.02"
    assert table["p"].iloc[4] == table["Dice, permuted [95 % below]"].iloc[4] == "–"


@pytest.mark.parametrize("blocks", [sanity_blocks, stability_blocks])
def test_nothing_is_shown_of_what_is_not_there(blocks: Any, tmp_path: Path) -> None:
    assert show(blocks, tmp_path) == []


def test_one_fold_says_that_it_is_one(tmp_path: Path) -> None:
    table = pd.DataFrame(columns=list(STABILITY_COLUMNS))
    assert "train more folds" in words(show(stability_blocks, tmp_path, table))


def test_halves_of_a_single_fold_are_shown(tmp_path: Path) -> None:
    table = folds_table(2, ["a", "b"])
    blocks = show(stability_blocks, tmp_path, table[table["what"] == "halves"])
    assert "train more folds" in words(blocks)
    assert [len(block.frame) for block in blocks if isinstance(block, Table)] == [2]
