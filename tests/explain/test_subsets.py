"""The subset-index curve: its places, its score, and that it falls where importance means something."""

import numpy as np
import pytest

from bolt.explain.landmarks import _relative, landmark_regression, subset_offsets, subset_rows
from bolt.explain.token_regression import FoldScans
from bolt.explain.weights import IMPORTANCE_COLUMNS, read_importance
from bolt.io.files import read_table, write_table
from tests.explain.runs import make_run

CLASSES = ["control", "patient"]


def test_places_are_spread_from_the_first_to_the_last_of_the_shortest_scan():
    many = subset_offsets(1200, 5, 60)
    assert len(many) == 60 and many[0] == 0 and many[-1] == 1195 and set(np.diff(many)) <= {20, 21}
    assert subset_offsets(8, 5, 60).tolist() == [0, 1, 2, 3]
    assert subset_offsets(5, 5, 60).tolist() == [0]
    assert not len(subset_offsets(4, 5, 60)) and not len(subset_offsets(100, 5, 0))


def test_accuracy_falls_down_the_list_and_begins_with_the_landmarks(tmp_path):
    cache = make_run(tmp_path, CLASSES)
    table, _, _, curve, _ = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=1, offsets=12)
    landmarks = table[(table["tokens"] == "important") & (table["fold"] == "0")].set_index("level")
    first = curve[(curve["offset"] == 0) & (curve["fold"] == "0")].set_index("level")
    for level in ("token", "scan", "subject"):  # six volumes of each scan hold the class
        assert first.at[level, "accuracy"] == landmarks.at[level, "accuracy"]
    mean = curve[(curve["fold"] == "mean") & (curve["level"] == "scan")].set_index("offset")
    assert mean["accuracy"].iloc[0] == 1 and mean.loc[mean.index > 10, "accuracy"].mean() < 0.7
    assert mean.index[-1] == 55 and (mean["score"].diff().dropna() <= 0).all() and (mean["n_test"] == 2).all()


def test_scores_are_multiples_of_the_smallest_weight(tmp_path):
    cache = make_run(tmp_path, CLASSES)
    table, values = read_importance(tmp_path / "fold-0")
    weights = dict(zip(table["scan_id"], values, strict=True))
    data = FoldScans(cache, table, CLASSES, tmp_path)
    tested = [weights[s.name] for s in data.parts["test"]]
    assert min(w.min() / w.mean() for w in tested) > 1e-3  # no scan's score is bounded
    expected = np.mean([np.sort(w)[::-1][2:7].mean() / w.min() for w in tested])
    assert subset_rows(data, weights, np.array([2]), 5)[0]["score"] == pytest.approx(expected, rel=1e-5)


def test_volumes_without_any_weight_do_not_make_scores_infinite():
    assert _relative(np.array([0.0, 2.0, 4.0])).tolist() == [0, 1, 2]
    assert _relative(np.zeros(3)).tolist() == [1, 1, 1]
    assert _relative(np.array([1e-12, 1.0, 2.0]))[2] == pytest.approx(2000)  # over 1/1000 of the mean, which is 1


def test_scans_of_different_lengths_have_the_places_of_the_shortest(tmp_path):
    cache, file = make_run(tmp_path, CLASSES), tmp_path / "fold-1/importance.tsv"
    table = read_table(file, text=("scan_id", "role", "predicted"))
    table.loc[3, "length"] = 20  # one scan of 20 volumes
    write_table(table, file, IMPORTANCE_COLUMNS)
    curve = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=1, offsets=60).curve
    assert sorted(curve["offset"].unique()) == list(range(16))
    assert set(curve.loc[curve["offset"] == 15, "fold"]) == {"0", "1", "mean", "sd"}
