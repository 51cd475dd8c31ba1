"""Landmarks: the choice of volumes, the regression, and its random control."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from bolt.evaluate.classes import METRICS
from bolt.explain.landmarks import landmark_regression, top_tokens, write_landmarks
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from tests.explain.runs import INFORMATIVE, make_run

CLASSES = ["control", "patient"]


@pytest.fixture
def made(tmp_path):
    return make_run(tmp_path, CLASSES), tmp_path


def row(table, fold, tokens, level):
    return table[(table["fold"] == fold) & (table["tokens"] == tokens) & (table["level"] == level)].iloc[0]


def test_top_tokens_are_the_largest_and_ties_go_to_the_earlier():
    assert top_tokens(np.array([0.0, 3, 1, 3, 2]), 3).tolist() == [1, 3, 4]
    assert len(top_tokens(np.ones(2), 5)) == 2


def test_important_volumes_classify_and_random_ones_do_so_less(made, monkeypatch):
    read, series = [], made[0].series
    monkeypatch.setattr(made[0], "series", lambda i: read.append(i) or series(i))
    found, again = (landmark_regression(*made, [0, 1], CLASSES, random_draws=3, offsets=4) for _ in range(2))
    assert sorted(read) == sorted([*range(24)] * 4)  # every scan is read once a fold
    pd.testing.assert_frame_equal(found.table, again.table)
    table, coefficients = found.table, found.coefficients
    assert len(table[table["fold"] == "1"]) == 15  # five choices of volumes, three levels
    assert table["n_test"].dtype.kind == "i"  # also of the mean over draws
    important = row(table, "mean", "important", "scan")
    assert important["accuracy"] == 1.0 and important["auc"] == 1.0
    assert row(table, "mean", "random", "scan")["accuracy"] < 0.8
    assert row(table, "mean", "important", "token")["accuracy"] > 0.85
    assert coefficients.shape == (2, 2, 30)
    np.testing.assert_allclose(coefficients[:, 0], -coefficients[:, 1])
    # a high value of the informative ROI speaks for the second class
    assert (coefficients[:, 1].argmax(axis=1) == INFORMATIVE[0]).all()
    other = landmark_regression(*made, [0, 1], CLASSES[::-1], random_draws=1).coefficients
    np.testing.assert_allclose(coefficients, other[:, ::-1], atol=1e-3)


def test_without_signal_the_regression_is_at_chance(tmp_path):
    """Importance that follows the data but not the label must not help."""
    cache = make_run(tmp_path, CLASSES, n_scans=80)
    cache.index["label"] = np.random.default_rng(3).permutation(cache.index["label"])
    table, *_ = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=2)
    assert abs(row(table, "mean", "important", "scan")["auc"] - 0.5) < 0.2


def test_three_classes(tmp_path):
    classes = ["rest", "motor", "language"]
    cache = make_run(tmp_path, classes)
    table, coefficients, *_ = landmark_regression(cache, tmp_path, [0, 1], classes, random_draws=1)
    assert coefficients.shape == (2, 3, 30)
    assert row(table, "mean", "important", "scan")["accuracy"] > 0.9


def test_only_finished_folds_are_used(made):
    cache, run = made
    write_status(run / "fold-1" / "status.json", "failed", "train", DataError("loss is NaN"))
    assert explained_folds(run, range(3)) == [0]
    settings = {"tokens": 5, "random_draws": 1, "seed": 0}
    write_landmarks(cache, run, range(3), CLASSES, run / "out", **settings)
    assert np.load(run / "out" / "coefficients.npy").shape == (1, 2, 30)
    table = read_table(run / "out" / "landmarks.tsv", text=("fold",))
    assert row(table, "mean", "important", "scan")["n_test"] == 1
    with pytest.raises(DataError, match="no fold"):
        write_landmarks(cache, run, [7], CLASSES, run / "out", **settings)


def test_a_class_without_training_scans_is_refused(made):
    with pytest.raises(DataError, match="class has no training scan"):
        landmark_regression(*made, [0], [*CLASSES, "third"], random_draws=1)


def test_a_subject_votes_with_the_volumes_of_all_its_scans(made):
    """Two scans of a subject, one of them hard: alone it is judged wrong, with the other right."""
    cache, run = made
    cache.index["subject"] = [f"sub-{i // 4 * 2 + i % 2:02d}" for i in range(24)]  # pairs of one label and fold
    _, weights = read_importance(run / "fold-1")
    for i in (2, 3):  # of two test scans of fold 1 most landmarks speak for the other class
        chosen = top_tokens(weights[i], 5)[:3]
        cache.series(i)[chosen] = 0
        cache.series(i)[chosen, INFORMATIVE[0]] = -1.0 if i == 3 else 1.0
    cache.index.loc[[2, 3, 6, 7], "subject"] = ["sub-02", "sub-03"] * 2
    table, *_ = landmark_regression(cache, run, [1], CLASSES, random_draws=1)
    assert row(table, "1", "important", "scan")["accuracy"] == pytest.approx(1 - 2 / 12)
    assert row(table, "1", "important", "subject")["accuracy"] == 1.0
    cache.index["subject"] = "one"  # scans of different labels do not vote together
    table, *_ = landmark_regression(cache, run, [0], CLASSES, random_draws=1)
    assert row(table, "0", "important", "subject")["accuracy"] == 1.0


def test_labels_of_test_scans_do_not_change_the_regression(made):
    cache, run = made
    before, one, *_ = landmark_regression(*made, [0], CLASSES, random_draws=1)
    table, _ = read_importance(run / "fold-0")
    test = cache.index["scan_id"].isin(table.loc[table["role"] == "test", "scan_id"])
    swap = dict(zip(CLASSES, CLASSES[::-1], strict=True))
    cache.index["label"] = cache.index["label"].where(~test, cache.index["label"].map(swap))
    after, other, *_ = landmark_regression(*made, [0], CLASSES, random_draws=1)
    assert other.tobytes() == one.tobytes()
    assert row(before, "0", "important", "scan")["accuracy"] == 1.0
    assert row(after, "0", "important", "scan")["accuracy"] == 0.0


def test_volumes_side_by_side_are_one_sample(made):
    cache, run = made
    apart, together = (
        landmark_regression(*made, [0, 1], CLASSES, tokens=3, random_draws=2, offsets=2, side_by_side=choice)
        for choice in (False, True)
    )
    assert together.coefficients.shape == apart.coefficients.shape
    assert (together.coefficients[:, 1].argmax(axis=1) == INFORMATIVE[0]).all()
    token, scan = (together.table[together.table["level"] == level][[*METRICS]] for level in ("token", "scan"))
    np.testing.assert_array_equal(token, scan)
    table, importance = read_importance(run / "fold-0")
    weights = dict(zip(table["scan_id"], importance, strict=True))
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}

    def samples(role):
        scans = table.loc[table["role"] == role, "scan_id"]
        x = [cache.series(position[scan])[top_tokens(weights[scan], 3)].ravel() for scan in scans]
        return np.array(x, float), (cache.index["label"].iloc[[position[s] for s in scans]] == CLASSES[1]).to_numpy()

    by_hand = LogisticRegression(max_iter=1000).fit(*samples("train"))
    x, truth = samples("test")
    assert row(together.table, "0", "important", "scan")["accuracy"] == by_hand.score(x, truth)
    np.testing.assert_allclose(together.coefficients[0, 1], by_hand.coef_.reshape(3, -1).mean(axis=0), rtol=1e-6)
    with pytest.raises(DataError, match="fewer than the 999"):
        landmark_regression(*made, [0], CLASSES, tokens=999, side_by_side=True)
