"""Landmarks for people: the paper's values beside ours, the curve, and all datasets together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config import Experiment, OneAtlas, load_experiment, load_model
from bolt.evaluate.classes import METRICS
from bolt.experiments.entries import Entry
from bolt.explain.landmarks import LANDMARK_COLUMNS, SUBSET_COLUMNS, with_means
from bolt.explain.token_regression import LEVELS
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table
from bolt.report.experiments.landmarks import write_landmark_experiment
from bolt.report.experiments.paper_layout import DATASETS
from bolt.report.tables.explanation import landmark_table, paper_of
from tests.report.latex import well_formed


def landmarks(folder: Path, *, inner: bool = False, offsets: int = 12, shift: float = 0.0) -> None:
    """Tables of three folds: important 0.6 (subjects 0.65), random 0.5, controls in between."""
    random = np.random.default_rng(0)
    kinds = [("fitted", "important", 0.6), ("none", "random", 0.5)] + [("inner", "important", 0.58)] * inner
    kinds += [
        ("fitted", name, 0.52 + 0.02 * i) for i, name in enumerate(["wrong class", "fixed class", "random direction"])
    ]
    rows, curve = [], []
    for fold in ("0", "1", "2"):
        for importance, tokens, value in kinds:
            for level in LEVELS:
                own = {m: value + shift + 0.05 * (level != "token") + random.normal(0, 0.01) for m in METRICS}
                own["auc"] = value
                place = {"fold": fold, "importance": importance, "tokens": tokens, "level": level, "n_test": 9}
                rows.append(place | own)
        for offset in range(offsets):
            for level in LEVELS:
                values = dict.fromkeys(METRICS, 0.5 + 0.15 * np.exp(-offset / 4) + random.normal(0, 0.01))
                place = {"fold": fold, "offset": offset, "score": 20 / (1 + offset), "level": level, "n_test": 9}
                curve.append(place | values)
    table = with_means(pd.DataFrame(rows), ["importance", "tokens", "level"])
    write_table(table[list(LANDMARK_COLUMNS)], folder / "landmarks.tsv", LANDMARK_COLUMNS)
    subsets = with_means(pd.DataFrame(curve, columns=list(SUBSET_COLUMNS)), ["offset", "level"])
    write_table(subsets[list(SUBSET_COLUMNS)], folder / "subsets.tsv", SUBSET_COLUMNS)


def entry(dataset: str, *folders: Path, n_classes: int = 2) -> Entry:
    classes, model = ["a"] * n_classes, load_model("bolt")
    about = {"explanations": list(folders), "outer": 10, "paper_dataset": dataset * (dataset in DATASETS)}
    return Entry(dataset, "schaefer400", "BolT", model, [], [0, 1, 2], classes, **about)


def test_the_papers_values_stand_below_ours(tmp_path: Path) -> None:
    landmarks(tmp_path, inner=True)
    table = read_table(tmp_path / "landmarks.tsv", text=("fold",))
    shown = landmark_table(table, paper_of("abide1", "schaefer400"), expected=10)
    judged = ["subject (majority vote)", "scan (majority vote)", "single volume", "the paper"]
    assert shown["prediction per"].drop_duplicates().tolist() == judged
    paper = shown[shown["prediction per"] == "the paper"].set_index("volumes")
    assert paper.at["important", "recall"] == "46.8 ± 4.8"
    assert paper.at["random", "AUC"] == "0.493 ± 0.053"
    ours = shown[shown["prediction per"] == "single volume"].set_index("volumes")
    assert ours.at["important", "AUC"] == "0.600 ± 0.000" and ours.at["random", "AUC"] == "0.500 ± 0.000"
    assert ours.loc["important, training scans explained by models that did not see them", "AUC"] == "0.580 ± 0.000"
    controls = ["random direction", "important for the wrong class", "important for one class in all scans"]
    assert ours.loc[controls, "AUC"].tolist() == ["0.560 ± 0.000", "0.520 ± 0.000", "0.540 ± 0.000"]
    assert (ours["folds"] == "3 of 10").all() and (paper["folds"] == "–").all()
    assert paper_of(None, "schaefer400").empty


def test_one_scan_a_subject_is_not_shown_twice(tmp_path: Path) -> None:
    landmarks(tmp_path)
    table = read_table(tmp_path / "landmarks.tsv", text=("fold",))
    same = table[table["level"] == "subject"].assign(level="scan")
    shown = landmark_table(
        pd.concat([table[table["level"] != "scan"], same]), paper_of(None, "schaefer400"), expected=3
    )
    assert "scan (majority vote)" not in set(shown["prediction per"])


@pytest.mark.usefixtures("pdf")
def test_all_datasets_and_seeds_stand_in_one_table(tmp_path: Path) -> None:
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


def test_without_a_curve_there_is_no_picture_and_without_anything_an_error(tmp_path: Path) -> None:
    landmarks(tmp_path / "one", offsets=0)
    write_landmark_experiment(load_experiment("landmarks"), [entry("abide1", tmp_path / "one")], tmp_path / "paper")
    assert not (tmp_path / "paper/landmarks.png").exists()
    assert "![" not in (tmp_path / "paper/landmarks.md").read_text()
    with pytest.raises(DataError, match="Ask for the target 'landmarks'"):
        write_landmark_experiment(load_experiment("landmarks"), [entry("abide1", tmp_path / "x")], tmp_path / "paper")


def test_the_papers_atlas_comes_first() -> None:
    chosen = OneAtlas()
    assert chosen.atlas_of(["aal116", "schaefer400"]) == "schaefer400"
    assert chosen.atlas_of(["cc200", "aal116"]) == "cc200"
    assert Experiment(name="x", title="X", landmarks=chosen, rows=[{"model": "bolt"}]).trains  # type: ignore[list-item]
