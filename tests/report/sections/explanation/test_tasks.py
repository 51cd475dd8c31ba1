"""The figure of tasks: panels, blocks where scans agree, and nothing where there are no events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from bolt.config import Config
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.explain.tasks import ALIGNMENT_COLUMNS, BLOCK_COLUMNS, TASK_COLUMNS
from bolt.io.files import write_json, write_table
from bolt.report.figures.style import MANY
from bolt.report.figures.tasks import draw_tasks
from bolt.report.html import Picture, Table
from bolt.report.sections.explanation.moments import tasks_blocks
from bolt.report.tables.explanation import alignment_table, task_titles
from tests.report.figures.test_plots import has_colour
from tests.report.results import words_only

TR = 2.0


def curve(name: str, n: int) -> pd.DataFrame:
    volumes = np.arange(n)
    wave = 1 + 0.5 * np.sin(volumes / 5)
    table = pd.DataFrame({"class": name, "task": name, "run": "LR", "volume": volumes, "time": volumes * TR})
    return table.assign(mean=wave, sd=0.2, low=wave - 0.1, high=wave + 0.1, n_scans=7)


def block(name: str, kind: str, first: int, last: int, share: float = 1.0) -> pd.DataFrame:
    volumes = np.arange(first, last)
    table = pd.DataFrame({"class": name, "task": name, "run": "LR", "trial_type": kind, "volume": volumes})
    return table.assign(time=volumes * TR, share=share)


def test_a_panel_a_task_and_blocks_only_where_scans_agree(tmp_path: Path) -> None:
    curves = pd.concat([curve("WM", 60), curve("MOTOR", 40)])
    blocks = pd.concat([block("WM", "0bk", 5, 20), block("WM", "2bk", 30, 45), block("MOTOR", "jittered", 3, 9, 0.3)])
    draw_tasks(curves, blocks, tmp_path / "tasks.png")
    assert has_colour(tmp_path / "tasks.png", MANY[0], 300) and has_colour(tmp_path / "tasks.png", MANY[1], 300)
    assert (tmp_path / "tasks.svg").is_file()
    draw_tasks(curves[curves["class"] == "MOTOR"], blocks[blocks["class"] == "MOTOR"], tmp_path / "jitter.png")
    assert not has_colour(tmp_path / "jitter.png", MANY[0], 20)
    assert "1 event type at times" in (tmp_path / "jitter.svg").read_text()


@pytest.mark.parametrize("names", [["WM"], ["WM", "MOTOR"], ["WM", "MOTOR", "SOCIAL"]])
def test_labels_fit_beside_few_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr("bolt.report.figures.style._save", lambda figure, out: drawn.append(figure))
    curves, blocks = pd.concat([curve(name, 60) for name in names]), block("WM", "0bk", 5, 20)
    draw_tasks(curves, blocks, tmp_path / "tasks.png", strips=True)
    (figure,) = drawn
    figure.draw_without_rendering()
    labels = [text for text in figure.findobj(Text) if "importance" in text.get_text()]
    assert len(labels) == 2
    for label in labels:
        box = label.get_window_extent()
        assert box.y0 >= 0 and box.y1 <= figure.bbox.height and box.x0 >= 0 and box.x1 <= figure.bbox.width, label


def test_names_of_panels_say_what_tells_them_apart() -> None:
    one = ("patient", "nback", "")
    assert task_titles([one]) == {one: "patient"}
    keys = [("patient", "nback", "1"), ("patient", "nback", "2"), ("patient", "rest", "")]
    assert list(task_titles(keys).values()) == ["patient · nback · run 1", "patient · nback · run 2", "patient · rest"]


@pytest.fixture
def place(tmp_path: Path) -> tuple[Study, ModelRun]:
    places = {"paths": {"results": tmp_path}, "explain": {"hrf_shift": 5}}
    config = Config(dataset="hcp_task", atlases=["aal116"], models=["bolt"], **places)
    study = Study.of(config)
    return study, study.runs[0]


@words_only()
def test_blocks_of_the_page(place: tuple[Study, ModelRun]) -> None:
    assert tasks_blocks(*place) == []
    out = place[1].explanation
    write_table(pd.DataFrame(columns=list(TASK_COLUMNS)), out / "tasks.tsv", TASK_COLUMNS)
    assert tasks_blocks(*place) == []  # resting state
    write_table(curve("WM", 60), out / "tasks.tsv", TASK_COLUMNS)
    write_table(block("WM", "0bk", 5, 20), out / "tasks_blocks.tsv", BLOCK_COLUMNS)
    row = {"class": "WM", "task": "WM", "run": "LR", "trial_type": "0bk", "share_of_time": 0.25}
    row |= {
        "share_of_importance": 0.5,
        "ratio": 2.0,
        "ratio_untrained": 1.1,
        "p": 0.0002,
        "p_holm": 0.0004,
        "n_scans": 7,
    }
    write_table(pd.DataFrame([row]), out / "tasks_alignment.tsv", ALIGNMENT_COLUMNS)
    np.save(out / "tasks_series.npy", np.random.default_rng(0).standard_normal((2, 60, 4)).astype(np.float32))
    write_json({"class": "WM", "task": "WM", "run": "LR", "RepetitionTime": TR}, out / "tasks_series.json")
    cache = place[1].cache
    rois = pd.DataFrame(
        {"value": range(1, 5), "name": list("abcd"), "network": ["x", "x", "y", "y"], "hemisphere": "L"}
    )
    write_table(rois, cache / "rois.tsv", dict.fromkeys(rois, ""))
    first, table, masked = tasks_blocks(*place)
    assert isinstance(first, Picture) and first.file.is_file() and "5 s after they were shown" in first.caption
    assert isinstance(table, Table) and table.frame.iloc[0].tolist() == [
        "WM",
        "0bk",
        "25",
        "50",
        "2.00",
        "1.10",
        "< 0.001",
        "7",
    ]
    assert isinstance(masked, Picture) and masked.file.is_file() and masked.caption.startswith("WM: importance")


def test_a_table_without_rows() -> None:
    assert alignment_table(pd.DataFrame(columns=list(ALIGNMENT_COLUMNS))).empty
