"""Pictures exist, are not empty, and show what they are given."""

from contextlib import contextmanager

import matplotlib
import numpy as np
import pandas as pd
import pytest
from fontTools import subset
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from bolt.experiments.figures import MEASURES, draw_cost
from bolt.report.figures import performance, series, style
from bolt.report.figures.performance import MOST, _panel, draw_sites, has_sites
from bolt.report.figures.style import LANDMARK, MANY, class_colours

ROIS = pd.DataFrame({"network": ["visual"] * 6 + ["default"] * 5 + [None]})


def has_colour(path, colour, at_least=20):
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"), np.int16)
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(pixels - wanted).max(axis=-1) < 0.02 * 255).sum()) >= at_least


def test_signs_of_dollar_are_no_formulae_and_no_tick_is_one(tmp_path):
    trials = {0: pd.DataFrame({"trial": [0, 1], "validation_loss": [1.0, 0.5], "a$b$_{": [1e-5, 1e-2]})}
    best = {0: {"configured": {"a$b$_{": 1e-3}, "values": {"a$b$_{": 1e-2}}}
    performance.search(best, trials, tmp_path / "search.png")
    costs = {measure: [1e3, 1e5] for measure in MEASURES}
    table = pd.DataFrame({"atlas": "x$", "length": [100, 200], "model": "svm", "row": "$\\x$", "n_rois": 9} | costs)
    draw_cost(table, tmp_path / "cost.png")
    drawn = {name: (tmp_path / f"{name}.svg").read_text() for name in ("search", "cost")}
    assert "a$b$ {" in drawn["search"] and "0.001<" in drawn["search"] and "$\\x$" in drawn["cost"]
    assert not any("mathdefault" in text for text in drawn.values())


@pytest.mark.usefixtures("pdf")
def test_a_canvas_saves_what_matplotlib_would(tmp_path):
    def draw(figure):
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


@pytest.fixture
def drawn(monkeypatch):
    """The axes of every picture that is drawn, and not saved."""
    made = []

    @contextmanager
    def canvas(out, height):
        with style.canvas(out, height=height) as figure:
            yield figure
            made.append(figure.axes)

    monkeypatch.setattr(style, "_save", lambda *_: None)
    for module in (performance, series):
        monkeypatch.setattr(module, "canvas", canvas)
    return made


def test_bins_of_probabilities_are_fixed_and_end_at_one(tmp_path, drawn):
    pooled = {"probability": [0.51, 0.9993, 1.0], "accuracy": [0.5, 1, 1], "n_scans": [8, 4, 3]}
    performance.reliability(pooled, tmp_path / "a.png")
    bars = [(bar.get_x() * 15, bar.get_width() * 15, bar.get_height()) for bar in drawn[0][1].patches]
    assert np.allclose(bars, [(7, 1, 8), (14, 1, 4), (14, 1, 3)])
    performance.reliability({"probability": [0.2], "accuracy": [0.5], "n_scans": [8]}, tmp_path / "a.png")
    low, high = zip(*(axes[1].get_xlim() for axes in drawn), strict=True)
    assert np.allclose(low, (7 / 15, 0), atol=0.03) and np.allclose(high, 1, atol=0.03)


def test_time_starts_at_the_first_kept_volume_and_dropped_ones_are_gaps(tmp_path, drawn):
    """Volumes 0 to 4 were before the steady state; 10 and 12 were scrubbed, so 11 stands alone."""
    random = np.random.default_rng(0)
    volumes = np.setdiff1d(np.arange(5, 40), [10, 12])
    weights, values = random.uniform(size=len(volumes)), random.standard_normal((len(volumes), 12))
    course = series.TimeCourse(weights, np.array([6, 9]), 2.0, volumes)
    series.time_course(course, values, ROIS, tmp_path / "a.png", landmarks=np.array([0]))
    series.example_series(values, ROIS, 2.0, volumes, tmp_path / "b.png", "")
    upper, lower = drawn[0][:2]
    line, alone = (artist.get_xydata() for artist in upper.lines)
    assert line[:, 0].tolist() == (2.0 * np.arange(5, 40)).tolist()
    assert line[np.isnan(line[:, 1]), 0].tolist() == [20.0, 24.0]
    assert alone.tolist() == [[22.0, weights[5]]]
    assert upper.get_xlim() == (9.0, 79.0)
    assert [patch.get_x() for patch in upper.patches] == [25.0, 31.0]  # the seventh row is volume 13, the tenth 16
    (event,) = upper.collections
    assert event.get_paths()[0].vertices[:, 0].min() == 9.0  # in the first volume kept
    assert [to_hex(artist.get_facecolor()) for artist in (*upper.patches, event)] == [LANDMARK, LANDMARK, MANY[2]]
    for axis in (lower, drawn[1][0]):
        assert axis.images[0].get_extent()[:2] == [9.0, 79.0]
        blank = np.ma.getmaskarray(axis.images[0].get_array()).all(axis=0)
        assert np.flatnonzero(blank).tolist() == [5, 7]


def test_without_a_repetition_time_the_axis_counts_volumes(tmp_path, drawn):
    values = np.random.default_rng(0).standard_normal((40, 12))
    for tr in (2.0, np.nan):
        series.example_series(values, ROIS, tr, np.arange(40), tmp_path / "a.png", "")
    seconds, volumes = (axes[0] for axes in drawn)
    assert [axis.images[0].get_extent()[:2] for axis in (seconds, volumes)] == [[-1.0, 79.0], [-0.5, 39.5]]
    assert seconds.get_xlabel() != volumes.get_xlabel()


@pytest.mark.parametrize("known", [["site", "sex", "age", "mean_fd"], ["age"], []])
def test_cohort_draws_what_is_known(tmp_path, known):
    about = {"site": "x", "sex": "F", "age": 30.0, "mean_fd": 0.2}
    about = {name: value if name in known else np.nan for name, value in about.items()}
    scans = pd.DataFrame({"label": ["a", "b"] * 4, "task": "rest"} | about)
    performance.cohort(scans, ["a", "b"], tmp_path / "cohort.png")
    assert all(has_colour(tmp_path / "cohort.png", colour) for colour in class_colours(["a", "b"]).values())
    assert len(set(class_colours(list("abcdefg")).values())) == 7


def test_performance_with_and_without_roc_and_with_a_missing_value(tmp_path):
    names = ("accuracy", "recall", "precision", "auc")
    of_folds, of_all = [0.9, np.nan], {"value": 0.9, "low": 0.7, "high": 1.0}
    table = pd.DataFrame({"fold": ["0", "1"], "state": ["ok", "failed"]} | dict.fromkeys(names, of_folds))
    pooled = dict.fromkeys(names, of_all)
    pooled |= {"auc": dict.fromkeys(("value", "low", "high")), "majority_accuracy": 0.5}
    pooled |= {"classes": ["a", "b"], "confusion": [[5, 1], [0, 6]]}
    performance.performance(table, pooled, tmp_path / "plain.png")
    curve = {"false_positive_rate": [0, 0, 1], "true_positive_rate": [0, 1, 1]}
    performance.performance(table, {**pooled, "roc": curve}, tmp_path / "roc.png")
    assert has_colour(tmp_path / "roc.png", MANY[0], 200) and has_colour(tmp_path / "plain.png", MANY[1])


def test_the_others(tmp_path):
    history = pd.DataFrame({"epoch": [1, 2], "train_loss": [1, 0.5], "train_accuracy": [0.5, 0.9]})
    performance.training_curves({0: history}, tmp_path / "training.png")
    spread = pd.DataFrame({"median": [0.9, 0.4], "minimum": [0.8, 0.1], "maximum": [1.0, 0.6]})
    series.coverage(spread, 0.5, tmp_path / "coverage.png")
    assert all(has_colour(tmp_path / f"{n}.png", MANY[0]) for n in ("training", "coverage"))


SIZES = {"york": 12, "london": 80, "leeds": 3}


def table(rows=("BolT", "SVM"), metric="auc"):
    lines = []
    for r, row in enumerate(rows):
        for s, (site, n) in enumerate(SIZES.items()):
            value, end = 0.5 + 0.1 * s - 0.05 * r, 0.1 if n > 5 else np.nan
            about = {"dataset": "toy", "atlas": "cc200", "row": row, "site": site, "n_scans": n, "metric": metric}
            lines.append(about | {"pooled": value, "low": value - end, "high": value + end})
    return pd.DataFrame(lines)


def test_each_value_is_drawn_once_beside_its_site_and_too_few_scans_are_hollow():
    part, axis = table(), Figure().subplots()
    _panel(axis, part, ["BolT", "SVM"])
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["london (80 scans)", "york (12 scans)", "leeds (3 scans)"]
    drawn = [line for line in axis.lines if line.get_marker() == "D"]
    place = {"london": 0, "york": 1, "leeds": 2}
    for value, line in zip(part.itertuples(), drawn, strict=True):
        assert line.get_xdata()[0] == value.pooled and round(line.get_ydata()[0]) == place[value.site]
        assert (line.get_markerfacecolor() == "white") == np.isnan(value.low)
    assert part["low"].isna().any() and len({line.get_ydata()[0] for line in drawn}) == len(part)


@pytest.mark.parametrize(("metric", "label"), [("auc", "AUC"), ("r", "r")])
def test_the_reference_and_as_many_others_as_can_be_told_apart_are_drawn_and_reconstructed_ones_marked(
    tmp_path, metric, label
):
    others = [f"model {i}" for i in range(MOST + 1)]
    draw_sites(table([*others, "BolT"], metric), tmp_path / "sites.png", reference="BolT", unknown=others[1:2])
    text = (tmp_path / "sites.svg").read_text()
    assert all((f">{name}" in text) == (i < MOST - 1) for i, name in enumerate(others)) and ">BolT<" in text
    assert ">model 1 †<" in text and ">model 0<" in text and "† reconstructed" in text and f">{label}<" in text


def test_a_table_without_sites_or_values_is_not_drawn():
    assert has_sites(table()) and not has_sites(table().iloc[:0])
    assert not has_sites(table().assign(pooled=np.nan)) and not has_sites(table(metric="accuracy"))
