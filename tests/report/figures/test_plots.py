"""Pictures exist, are not empty, and show what they are given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from fontTools import subset
from matplotlib.figure import Figure
from PIL import Image

from bolt.report.figures import performance, series, style
from bolt.report.figures.style import LANDMARK, MANY, class_colours

ROIS = pd.DataFrame({"network": ["visual"] * 6 + ["default"] * 5 + [None]})


def has_colour(path: Path, colour: str, at_least: int = 20) -> bool:
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"), np.int16)
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(pixels - wanted).max(axis=-1) < 0.02 * 255).sum()) >= at_least


def metrics() -> tuple[pd.DataFrame, dict]:
    table = pd.DataFrame({"fold": ["0", "1"], "state": ["ok", "failed"]})
    for name in ("accuracy", "recall", "precision", "auc"):
        table[name] = [0.9, np.nan]
    value = {"value": 0.9, "low": 0.7, "high": 1.0}
    pooled = dict.fromkeys(["accuracy", "recall", "precision"], value)
    pooled |= {"auc": {"value": None, "low": None, "high": None}, "majority_accuracy": 0.5}
    return table, {**pooled, "classes": ["a", "b"], "confusion": [[5, 1], [0, 6]]}


@pytest.mark.usefixtures("pdf")
def test_a_canvas_saves_what_matplotlib_would(tmp_path: Path) -> None:
    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        left.imshow(np.arange(12).reshape(3, 4), aspect="equal")
        right.plot([1, 2000, 3], label="a line")
        right.set(xlabel="a long label below", title="Title")
        figure.legend(loc="outside lower center")

    with style.canvas(tmp_path / "ours.png", height=2.5) as figure:
        draw(figure)
    with matplotlib.rc_context(style.RC):
        figure = Figure(figsize=(style.WIDTH, 2.5), layout="constrained")
        draw(figure)
        figure.savefig(tmp_path / "theirs.png", dpi=style.DPI)
        figure.set_layout_engine("none")
        figure.savefig(tmp_path / "theirs.svg", dpi=style.DPI, metadata={"Date": None})
        figure.savefig(tmp_path / "theirs.pdf", dpi=style.DPI, metadata={"CreationDate": None})
    for suffix in (".png", ".svg"):
        assert (tmp_path / f"ours{suffix}").read_bytes() == (tmp_path / f"theirs{suffix}").read_bytes()
    ours, theirs = ((tmp_path / f"{name}.pdf").read_bytes() for name in ("ours", "theirs"))
    assert b"/FontFile2" in ours and b"/Type3" not in ours  # TrueType fonts, embedded
    assert 0.7 * len(theirs) < len(ours) < len(theirs)  # without tables of ligatures and kerning
    assert not set(style.NOT_EMBEDDED) & set(subset.Options().drop_tables)  # elsewhere as before


def test_time_course_marks_tokens_and_truth(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights, values = random.uniform(size=40), random.standard_normal((40, 12))
    plain, marked = tmp_path / "plain.png", tmp_path / "marked.png"
    series.time_course(weights, values, ROIS, np.array([3]), 2.0, plain)
    series.time_course(weights, values, ROIS, np.array([3, 20, 30]), 2.0, marked, landmarks=np.array([4, 5]), title="s")
    assert has_colour(marked, MANY[2]) and not has_colour(plain, MANY[2])
    assert has_colour(plain, LANDMARK, 1000) and not has_colour(plain, LANDMARK, 9000)
    assert has_colour(marked, LANDMARK, 9000)  # three bars of a fortieth of the axis each
    assert marked.with_suffix(".svg").is_file()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes of every picture that is drawn, and not saved."""
    made: list[Any] = []

    @contextmanager
    def canvas(out: Path, height: float) -> Iterator[Any]:
        with style.canvas(out, height=height) as figure:
            yield figure
            made.append(figure.axes)

    monkeypatch.setattr(style, "_save", lambda *_: None)
    for module in (performance, series):
        monkeypatch.setattr(module, "canvas", canvas)
    return made


def test_bins_of_probabilities_are_fixed_and_end_at_one(tmp_path: Path, drawn: list[Any]) -> None:
    pooled = {"probability": [0.51, 0.9993, 1.0], "accuracy": [0.5, 1, 1], "n_scans": [8, 4, 3]}
    performance.reliability(pooled, tmp_path / "a.png")
    bars = [(bar.get_x() * 15, bar.get_width() * 15, bar.get_height()) for bar in drawn[0][1].patches]
    assert np.allclose(bars, [(7, 1, 8), (14, 1, 4), (14, 1, 3)])
    performance.reliability({"probability": [0.2], "accuracy": [0.5], "n_scans": [8]}, tmp_path / "a.png")
    low, high = zip(*(axes[1].get_xlim() for axes in drawn), strict=True)
    assert np.allclose(low, (7 / 15, 0), atol=0.03) and np.allclose(high, 1, atol=0.03)


def test_time_starts_at_the_first_kept_volume_and_dropped_ones_are_gaps(tmp_path: Path, drawn: list[Any]) -> None:
    """Volumes 0 to 4 were before the steady state; 10 and 12 were scrubbed, so 11 stands alone."""
    random = np.random.default_rng(0)
    volumes = np.setdiff1d(np.arange(5, 40), [10, 12])
    weights, values = random.uniform(size=len(volumes)), random.standard_normal((len(volumes), 12))
    tokens, events = np.array([6]), np.array([0])
    out = tmp_path / "a.png"
    series.time_course(weights, values, ROIS, tokens, 2.0, out, volumes=volumes, landmarks=events)
    series.example_series(values, ROIS, 2.0, tmp_path / "b.png", volumes=volumes)
    upper, lower = drawn[0][:2]
    line, alone = (artist.get_xydata() for artist in upper.lines)
    assert line[:, 0].tolist() == (2.0 * np.arange(5, 40)).tolist()
    assert line[np.isnan(line[:, 1]), 0].tolist() == [20.0, 24.0]
    assert alone.tolist() == [[22.0, weights[5]]]
    assert upper.get_xlim() == (9.0, 79.0)
    assert upper.patches[0].get_x() == 25.0  # the seventh row is volume 13
    assert upper.collections[0].get_paths()[0].vertices[:, 0].min() == 9.0  # the event is in the first volume kept
    for axis in (lower, drawn[1][0]):
        assert axis.images[0].get_extent()[:2] == [9.0, 79.0]
        blank = np.ma.getmaskarray(axis.images[0].get_array()).all(axis=0)
        assert np.flatnonzero(blank).tolist() == [5, 7]


def test_without_a_repetition_time_the_axis_counts_volumes(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((40, 12))
    for name, tr in (("seconds", 2.0), ("volumes", np.nan)):
        series.example_series(values, ROIS, tr, tmp_path / f"{name}.png")
    assert (tmp_path / "seconds.png").read_bytes() != (tmp_path / "volumes.png").read_bytes()
    assert (tmp_path / "volumes.png").stat().st_size > 10_000


@pytest.mark.parametrize("columns", [["site", "sex", "age", "mean_fd"], ["age"], []])
def test_cohort_draws_what_is_known(tmp_path: Path, columns: list[str]) -> None:
    scans = pd.DataFrame(
        {"label": ["a", "b"] * 4, "task": "rest", "site": "x", "sex": "F", "age": 30.0, "mean_fd": 0.2}
    )
    unknown = [c for c in ("site", "sex", "age", "mean_fd") if c not in columns]
    performance.cohort(scans.assign(**dict.fromkeys(unknown, np.nan)), ["a", "b"], tmp_path / "cohort.png")
    colours = class_colours(["a", "b"])
    assert has_colour(tmp_path / "cohort.png", colours["a"]) and has_colour(tmp_path / "cohort.png", colours["b"])


def test_performance_with_and_without_roc_and_with_a_missing_value(tmp_path: Path) -> None:
    table, pooled = metrics()
    performance.performance(table, pooled, tmp_path / "plain.png")
    curve = {"false_positive_rate": [0, 0, 1], "true_positive_rate": [0, 1, 1]}
    performance.performance(table, {**pooled, "roc": curve}, tmp_path / "roc.png")
    assert has_colour(tmp_path / "roc.png", MANY[0], 200) and has_colour(tmp_path / "plain.png", MANY[1])


def test_seven_classes_have_seven_colours() -> None:
    assert len(set(class_colours(list("abcdefg")).values())) == 7


def test_the_others(tmp_path: Path) -> None:
    history = pd.DataFrame({"epoch": [1, 2], "train_loss": [1, 0.5], "train_accuracy": [0.5, 0.9]})
    performance.training_curves({0: history}, tmp_path / "training.png")
    series.example_series(np.random.default_rng(0).standard_normal((30, 12)), ROIS, 2.0, tmp_path / "series.png")
    spread = pd.DataFrame({"median": [0.9, 0.4], "minimum": [0.8, 0.1], "maximum": [1.0, 0.6]})
    series.coverage(spread, 0.5, tmp_path / "coverage.png")
    assert all(has_colour(tmp_path / f"{n}.png", MANY[0]) for n in ("training", "coverage"))


def test_equal_pictures_are_equal_files(tmp_path: Path) -> None:
    spread = pd.DataFrame({"median": [0.9, 0.4], "minimum": [0.8, 0.1], "maximum": [1.0, 0.6]})
    for name in ("one", "two"):
        series.coverage(spread, 0.5, tmp_path / name / "coverage.png")
    assert (tmp_path / "one/coverage.svg").read_bytes() == (tmp_path / "two/coverage.svg").read_bytes()
