"""Landmarks and tasks for people: the paper's values beside ours, the curves, and nothing where there are no events."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from bolt.config import Experiment, OneAtlas, load_experiment, load_model
from bolt.config.study import Entry
from bolt.evaluate.scores import METRICS
from bolt.experiments.explained import write_landmark_experiment
from bolt.experiments.tables import DATASETS
from bolt.explain.landmarks import LANDMARK_COLUMNS, LEVELS, SUBSET_COLUMNS, with_means
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table
from bolt.report.figures.series import draw_tasks
from bolt.report.figures.style import MANY
from bolt.report.tables import landmark_table, paper_of, task_titles
from tests.experiments.test_tables import well_formed
from tests.report.figures.test_plots import has_colour


def landmarks(folder, *, inner=False, offsets=12, shift=0.0):
    """Tables of three folds: important 0.6 (subjects 0.65), random 0.5, controls in between."""
    random, controls = np.random.default_rng(0), ("wrong class", "fixed class", "random direction")
    kinds = [("fitted", "important", 0.6), ("none", "random", 0.5)] + [("inner", "important", 0.58)] * inner
    kinds += [("fitted", name, 0.52 + 0.02 * i) for i, name in enumerate(controls)]
    rows, curve = [], []
    for fold, level in [(fold, level) for fold in "012" for level in LEVELS]:
        place = {"fold": fold, "level": level, "n_test": 9}
        for importance, tokens, value in kinds:
            own = {m: value + shift + 0.05 * (level != "token") + random.normal(0, 0.01) for m in METRICS}
            rows.append(place | {"importance": importance, "tokens": tokens} | own | {"auc": value})
        for offset in range(offsets):
            values = dict.fromkeys(METRICS, 0.5 + 0.15 * np.exp(-offset / 4) + random.normal(0, 0.01))
            curve.append(place | {"offset": offset, "score": 20 / (1 + offset)} | values)
    table = with_means(pd.DataFrame(rows), ["importance", "tokens", "level"])
    write_table(table[list(LANDMARK_COLUMNS)], folder / "landmarks.tsv", LANDMARK_COLUMNS)
    subsets = with_means(pd.DataFrame(curve, columns=list(SUBSET_COLUMNS)), ["offset", "level"])
    write_table(subsets[list(SUBSET_COLUMNS)], folder / "subsets.tsv", SUBSET_COLUMNS)


def entry(dataset, *folders, n_classes=2):
    classes, model = ["a"] * n_classes, load_model("bolt")
    about = {"explanations": list(folders), "outer": 10, "paper_dataset": dataset * (dataset in DATASETS)}
    return Entry(dataset, "schaefer400", "BolT", model, [], [0, 1, 2], classes, **about)


def test_the_papers_values_stand_below_ours_and_one_scan_a_subject_is_not_shown_twice(tmp_path):
    landmarks(tmp_path)
    table = read_table(tmp_path / "landmarks.tsv", text=("fold",))
    shown = landmark_table(table, paper_of("abide1", "schaefer400"), expected=10)
    paper = shown[shown["prediction per"] == "the paper"].set_index("volumes")
    assert paper.at["important", "recall"] == "46.8 ± 4.8" and paper.at["random", "AUC"] == "0.493 ± 0.053"
    same = table[table["level"] == "subject"].assign(level="scan")
    once = landmark_table(pd.concat([table[table["level"] != "scan"], same]), paper_of(None, "schaefer400"), expected=3)
    assert "scan (majority vote)" not in set(once["prediction per"])
    whole = table[table["level"] == "scan"].assign(level="token")  # landmark_samples: scans
    side_by_side = landmark_table(
        pd.concat([table[table["level"] != "token"], whole]), paper_of(None, "schaefer400"), expected=3
    )
    assert "single volume" not in set(side_by_side["prediction per"])


@pytest.mark.usefixtures("pdf")
def test_all_datasets_and_seeds_stand_in_one_table(tmp_path):
    for name, more in (("one", {}), ("two", {"shift": 0.1}), ("rest", {"inner": True, "offsets": 0})):
        landmarks(tmp_path / name, **more)
    experiment = load_experiment("landmarks")
    found = [entry("abide1", tmp_path / "one", tmp_path / "two"), entry("hcp_rest", tmp_path / "rest")]
    write_landmark_experiment(experiment, [*found, entry("later", tmp_path / "none")], tmp_path / "paper")
    table = read_table(tmp_path / "paper/landmarks.tsv")
    own = table[(table["dataset"] == "abide1") & (table["level"] == "token") & (table["metric"] == "accuracy")]
    own = own.set_index("tokens")
    assert own.at["important", "mean"] == pytest.approx(0.65, abs=0.01)  # over both seeds
    assert own.at["important", "n_folds"] == 6 and own.at["important", "expected_folds"] == 20
    assert own.at["important", "paper_mean"] == pytest.approx(0.6044)
    assert own.at["important", "difference"] == pytest.approx(own.at["important", "mean"] - 0.6044)
    extra = table[table["tokens"] == "wrong class"]
    assert len(extra) == 24 and extra["paper_mean"].isna().all() and extra["mean"].notna().all()
    rest = table[(table["dataset"] == "hcp_rest") & (table["importance"] == "inner")]
    assert len(rest) == 12 and rest["paper_mean"].notna().all()
    assert set(read_table(tmp_path / "paper/landmarks_subsets.tsv")["dataset"]) == {"abide1"}
    text = (tmp_path / "paper/landmarks.md").read_text()
    assert "![" in text and "later" not in text and "77.7 ± 6.8" in text
    well_formed((tmp_path / "paper/landmarks.tex").read_text())
    for ending in (".png", ".svg", ".pdf"):
        assert (tmp_path / f"paper/landmarks{ending}").stat().st_size > 1000


def test_without_a_curve_there_is_no_picture_and_without_anything_an_error(tmp_path):
    landmarks(tmp_path / "one", offsets=0)
    write_landmark_experiment(load_experiment("landmarks"), [entry("abide1", tmp_path / "one")], tmp_path / "paper")
    assert not (tmp_path / "paper/landmarks.png").exists()
    assert "![" not in (tmp_path / "paper/landmarks.md").read_text()
    with pytest.raises(DataError, match="Ask for the target 'landmarks'"):
        write_landmark_experiment(load_experiment("landmarks"), [entry("abide1", tmp_path / "x")], tmp_path / "paper")


def test_the_papers_atlas_comes_first():
    chosen = OneAtlas()
    assert chosen.atlas_of(["aal116", "schaefer400"]) == "schaefer400"
    assert chosen.atlas_of(["cc200", "aal116"]) == "cc200"
    assert Experiment(name="x", title="X", landmarks=chosen, rows=[{"model": "bolt"}]).trains


TR = 2.0


def curve(name, n):
    volumes = np.arange(n)
    wave = 1 + 0.5 * np.sin(volumes / 5)
    table = pd.DataFrame({"class": name, "task": name, "run": "LR", "volume": volumes, "time": volumes * TR})
    return table.assign(mean=wave, sd=0.2, low=wave - 0.1, high=wave + 0.1, n_scans=7)


def block(name, kind, first, last, share=1.0):
    volumes = np.arange(first, last)
    table = pd.DataFrame({"class": name, "task": name, "run": "LR", "trial_type": kind, "volume": volumes})
    return table.assign(time=volumes * TR, share=share)


def test_a_panel_a_task_and_blocks_only_where_scans_agree(tmp_path):
    curves = pd.concat([curve("WM", 60), curve("MOTOR", 40)])
    blocks = pd.concat([block("WM", "0bk", 5, 20), block("WM", "2bk", 30, 45), block("MOTOR", "jittered", 3, 9, 0.3)])
    draw_tasks(curves, blocks, tmp_path / "tasks.png")
    assert has_colour(tmp_path / "tasks.png", MANY[0], 300) and has_colour(tmp_path / "tasks.png", MANY[1], 300)
    assert (tmp_path / "tasks.svg").is_file()
    draw_tasks(curves[curves["class"] == "MOTOR"], blocks[blocks["class"] == "MOTOR"], tmp_path / "jitter.png")
    assert not has_colour(tmp_path / "jitter.png", MANY[0], 20)
    assert "1 event type at times" in (tmp_path / "jitter.svg").read_text()


@pytest.mark.parametrize("names", [["WM"], ["WM", "MOTOR"], ["WM", "MOTOR", "SOCIAL"]])
def test_labels_fit_beside_few_panels(tmp_path, monkeypatch, names):
    drawn = []
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


def test_names_of_panels_say_what_tells_them_apart():
    one = ("patient", "nback", "")
    assert task_titles([one]) == {one: "patient"}
    keys = [("patient", "nback", "1"), ("patient", "nback", "2"), ("patient", "rest", "")]
    assert list(task_titles(keys).values()) == ["patient · nback · run 1", "patient · nback · run 2", "patient · rest"]
