"""Sanity checks, stability, and curves of deletion and insertion in words, tables and pictures."""

import numpy as np
import pandas as pd
import pytest

from bolt.explain.trust.faithfulness import AREA_COLUMNS, CURVE_COLUMNS, ORDERS, summarise
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
from bolt.report.figures import style, trust
from bolt.report.html import Picture, Table, Text
from bolt.report.sections.explanation.trust import faithfulness_blocks, outcome, sanity_blocks, stability_blocks
from tests.explain.trust.test_faithfulness import made_up
from tests.report.results import first_run, settings, words_only

RANDOM = np.random.default_rng(3)
LAYERS = ("none", "classifier", "block 1", "input")


def checked(end, *, independent=True, again=0.5):
    """A ``sanity.tsv`` of two folds whose correlation falls from 1 to `end`, beside a model trained again."""
    rows = []
    for fold, i in [(f, i) for f in "12" for i in range(6)]:
        about = {"scan_id": f"s{fold}{i}", "group": f"p{fold}{i}", "fold": fold, "step": np.nan, "rho_raw": 0.5}
        for step, layer in enumerate(LAYERS):
            rho = 1 + (end - 1) * step / 3 + 0.01 * i
            row = about | {"check": "cascade", "layer": layer, "rho": rho, "rho_raw": (1 + rho) / 2}
            rows.append(row | {"step": step})
            if step and independent:
                rows.append(row | {"check": "independent"})
        if fold == "1":
            rows.append(about | {"check": "permuted labels", "rho": end / 2})
        if fold == "1" and again is not None:
            rows.append(about | {"check": "trained again", "rho": again + 0.01 * i})
    return summary(pd.DataFrame(rows))


def words(blocks):
    return " ".join(block.text for block in blocks if isinstance(block, Text))


def show(blocks, folder, table=None):
    """The blocks of a run, whose explanation holds nothing but `table`."""
    study = settings(folder)
    run = first_run(study)
    if table is not None:
        name = "sanity" if blocks is sanity_blocks else "stability"
        write_table(table, run.explanation / f"{name}.tsv", dict.fromkeys(table, ""))
    return blocks(study, run)


def test_what_is_gone_has_passed_and_is_drawn(tmp_path):
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
def test_what_stays_is_a_warning_with_its_number(tmp_path):
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
def test_what_vanishes_without_being_reproducible_has_not_passed(tmp_path, change, sentence):
    blocks = show(sanity_blocks, tmp_path, checked(0.052, **change))
    assert sentence in words(blocks) and "Passed:" not in words(blocks)
    assert all(block.warning for block in blocks[1:-2] if isinstance(block, Text))


def folds_table(n, classes):
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


def test_ten_folds_and_three_classes_are_drawn_and_told(tmp_path):
    blocks = show(stability_blocks, tmp_path, folds_table(11, ["a", "b", "c"]))
    (picture,) = (block for block in blocks if isinstance(block, Picture))
    assert picture.file.is_file() and "mean over classes" in picture.caption and "8 scans" in picture.caption
    assert "maps correlate even on noise" in words(blocks) and "disjoint halves" in words(blocks)


def test_halves_of_a_single_fold_are_shown_and_one_fold_says_that_it_is_one(tmp_path):
    assert show(sanity_blocks, tmp_path) == show(stability_blocks, tmp_path) == []
    table = folds_table(2, ["a", "b"])
    empty = show(stability_blocks, tmp_path, table.iloc[:0])
    blocks = show(stability_blocks, tmp_path, table[table["what"] == "halves"])
    assert "train more folds" in words(empty) and "train more folds" in words(blocks)
    assert [block.frame["between"].tolist() for block in blocks if isinstance(block, Table)] == [["4 splits"] * 2]


def tables(gain, n=12, seed=1):
    lines, areas = summarise([f"s{i}" for i in range(n)], made_up(n, gain, seed))
    about = {"folds": "4, 5", "missing_folds": "0"}
    return lines.assign(**about), areas.assign(**about)


CONTROLS = "controls (random orders, position alone, shifted importance): deletion (mean volume), "


@pytest.mark.parametrize(
    ("gain", "n", "words"),
    [
        (0.2, 12, CONTROLS + "insertion (mean volume), deletion (scrambled time), insertion (scrambled time)."),
        (0.0, 12, "Importance is not shown to be better than a random order: deletion"),
        (-0.2, 12, "Importance is worse than a random order: deletion"),
        (0.2, 4, "Too few subjects"),
    ],
)
def test_the_verdict_is_plain(gain, n, words):
    assert words in outcome(tables(gain, n)[1])


def test_controls_that_are_not_beaten_are_named():
    areas = tables(0.2)[1]
    areas.loc[areas["direction"] == "insertion", "better_than_position"] = "no"
    said = outcome(areas)
    assert CONTROLS + "deletion (scrambled" in said
    assert "better than a random order, but not shown to be better than position alone: insertion (mean vol" in said
    areas.loc[areas["direction"] == "insertion", "better_than_shifted"] = "worse"
    assert "better than position alone or shifted importance: insertion (mean volume), insertion" in outcome(areas)


def test_blocks_of_a_run(tmp_path):
    study = settings(tmp_path)
    run = first_run(study)
    assert faithfulness_blocks(study, run) == []
    out = run.explanation
    lines, areas = tables(0.2)
    write_table(lines[list(CURVE_COLUMNS)], out / "faithfulness.tsv", CURVE_COLUMNS)
    write_table(areas[list(AREA_COLUMNS)], out / "faithfulness_areas.tsv", AREA_COLUMNS)
    text, picture, table = faithfulness_blocks(study, run)
    assert isinstance(text, Text) and isinstance(picture, Picture) and isinstance(table, Table)
    assert picture.file.is_file() and picture.file.with_suffix(".svg").is_file()
    assert "12 test scans of fold 4, 5; without fold 0" in picture.caption
    assert len(table.frame) == 24
    assert table.frame["better than"].tolist()[::6] == ["random, position, shifted"] * 4


def test_every_order_is_a_line_of_every_panel_and_the_legend_is_inside_the_picture(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "_save", lambda figure, out: drawn.append(figure))
    trust.draw_faithfulness(tables(0.1)[0], tmp_path / "curves.png")
    (figure,) = drawn
    assert [len(axis.lines) for axis in figure.axes] == [len(ORDERS)] * 4
    assert [axis.get_title("left") for axis in figure.axes] == list(trust.CURVE_TITLES.values())
    assert len({line.get_color() for line in figure.axes[0].lines}) == len(ORDERS)
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert min(box.x0, box.y0, figure.bbox.width - box.x1) >= 0
