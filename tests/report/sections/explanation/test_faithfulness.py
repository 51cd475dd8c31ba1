"""Curves of deletion and insertion in the report: what is said, and that the picture holds all of it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from bolt.explain.trust.faithfulness import AREA_COLUMNS, CURVE_COLUMNS, ORDERS, summarise
from bolt.io.files import write_table
from bolt.report.figures import trust
from bolt.report.html import Picture, Table, Text
from bolt.report.sections.explanation.trust import faithfulness_blocks, outcome
from bolt.report.tables.explanation import area_table
from tests.explain.trust.test_faithfulness import made_up
from tests.report.results import first_run, settings, words_only


def tables(gain: float, n: int = 12, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    lines, areas = summarise([f"s{i}" for i in range(n)], made_up(n, gain, seed))
    about = {"folds": "4, 5", "missing_folds": "0"}
    return lines.assign(**about), areas.assign(**about)


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (
            0.2,
            "important volumes more than on the controls (random orders, position alone, shifted importance): deletion "
            "(mean volume), insertion (mean volume), deletion (scrambled time), insertion (scrambled time).",
        ),
        (0.0, "Importance is not shown to be better than a random order: deletion"),
        (-0.2, "Importance is worse than a random order: deletion"),
    ],
)
def test_the_verdict_is_plain(gain: float, words: str) -> None:
    assert words in outcome(tables(gain)[1])


def test_controls_that_are_not_beaten_are_named() -> None:
    areas = tables(0.2)[1]
    areas.loc[areas["direction"] == "insertion", "better_than_position"] = "no"
    said = outcome(areas)
    assert "(random orders, position alone, shifted importance): deletion (mean volume), deletion (scrambled" in said
    assert "better than a random order, but not shown to be better than position alone: insertion (mean vol" in said
    areas.loc[areas["direction"] == "insertion", "better_than_shifted"] = "worse"
    assert "better than position alone or shifted importance: insertion (mean volume), insertion" in outcome(areas)


def test_too_few_subjects_are_no_verdict() -> None:
    assert "Too few subjects" in outcome(tables(0.2, n=4)[1])


def test_blocks_of_a_run(tmp_path: Path) -> None:
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


@words_only()
def test_every_order_is_a_line_of_every_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    canvas = trust.canvas

    class Kept:
        def __init__(self, *args: object, **more: object) -> None:
            self.inner = canvas(*args, **more)

        def __enter__(self) -> Figure:
            drawn.append(self.inner.__enter__())
            return drawn[-1]

        def __exit__(self, *error: object) -> None:
            self.inner.__exit__(*error)

    monkeypatch.setattr(trust, "canvas", Kept)
    trust.draw_faithfulness(tables(0.1)[0], tmp_path / "curves.png")
    assert [len(axis.lines) for axis in drawn[0].axes] == [len(ORDERS)] * 4
    assert [axis.get_title("left") for axis in drawn[0].axes] == list(trust.CURVE_TITLES.values())
    assert len({line.get_color() for line in drawn[0].axes[0].lines}) == len(ORDERS)
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[0].lines}) == len(ORDERS)


def test_missing_numbers_are_dashes() -> None:
    table = area_table(tables(0.2)[1])
    random = table[table["order"] == "random order"]
    assert (random["minus random [95 %]"] == "–").all() and (random["better than"] == "–").all()
    position = table[table["order"] == "position alone"]
    assert (position["minus shifted [95 %]"] == "–").all() and (position["minus random [95 %]"] != "–").all()
    assert "nan" not in table.to_string()


@words_only()
def test_the_legend_is_inside_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[tuple[float, float, float]] = []
    canvas = trust.canvas

    class Measured:
        def __init__(self, *args: object, **more: object) -> None:
            self.inner = canvas(*args, **more)

        def __enter__(self) -> Figure:
            self.figure = self.inner.__enter__()
            return self.figure

        def __exit__(self, *error: object) -> None:
            self.figure.draw_without_rendering()
            box = self.figure.legends[0].get_window_extent()
            boxes.append((box.x0, box.y0, self.figure.bbox.width - box.x1))
            self.inner.__exit__(*error)

    monkeypatch.setattr(trust, "canvas", Measured)
    trust.draw_faithfulness(tables(0.1)[0], tmp_path / "curves.png")
    assert min(boxes[0]) >= 0
