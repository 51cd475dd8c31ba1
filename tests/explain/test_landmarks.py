"""Landmarks: the choice of volumes, the regression, and its random control."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.explain.landmarks import landmark_regression, top_tokens, write_landmarks
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from tests.explain.runs import INFORMATIVE, make_run

CLASSES = ["control", "patient"]


def row(table: pd.DataFrame, fold: str, tokens: str, level: str) -> pd.Series:
    return table[(table["fold"] == fold) & (table["tokens"] == tokens) & (table["level"] == level)].iloc[0]


def test_top_tokens_are_the_largest_and_ties_go_to_the_earlier() -> None:
    assert top_tokens(np.array([0.0, 3, 1, 3, 2]), 3).tolist() == [1, 3, 4]
    assert len(top_tokens(np.ones(2), 5)) == 2


def test_important_volumes_classify_and_random_ones_do_so_less(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    table, coefficients, *_ = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=5)
    important, random = row(table, "mean", "important", "scan"), row(table, "mean", "random", "scan")
    assert important["accuracy"] == 1.0 and important["auc"] == 1.0
    assert random["accuracy"] < 0.8
    assert row(table, "mean", "important", "token")["accuracy"] > 0.85
    assert coefficients.shape == (2, 2, 30)
    np.testing.assert_allclose(coefficients[:, 0], -coefficients[:, 1])
    # a high value of the informative ROI speaks for the second class
    assert (coefficients[:, 1].argmax(axis=1) == INFORMATIVE[0]).all()


def test_without_signal_the_regression_is_at_chance(tmp_path: Path) -> None:
    """Importance that follows the data but not the label must not help."""
    cache = make_run(tmp_path, CLASSES, n_scans=80)
    shuffled = np.random.default_rng(3).permutation(cache.index["label"])
    cache.index["label"] = shuffled
    table, *_ = landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=2)
    assert abs(row(table, "mean", "important", "scan")["auc"] - 0.5) < 0.2


def test_order_of_classes_decides_the_positive_one(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    _, one, *_ = landmark_regression(cache, tmp_path, [0], CLASSES, random_draws=1)
    _, other, *_ = landmark_regression(cache, tmp_path, [0], CLASSES[::-1], random_draws=1)
    np.testing.assert_allclose(one, other[:, ::-1], atol=1e-3)


def test_three_classes(tmp_path: Path) -> None:
    classes = ["rest", "motor", "language"]
    cache = make_run(tmp_path, classes)
    table, coefficients, *_ = landmark_regression(cache, tmp_path, [0, 1], classes, random_draws=2)
    assert coefficients.shape == (2, 3, 30)
    assert row(table, "mean", "important", "scan")["accuracy"] > 0.9


def test_seeded_and_random_draws_averaged(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    one, other = (landmark_regression(cache, tmp_path, [1], CLASSES, random_draws=2, seed=s)[0] for s in (5, 5))
    pd.testing.assert_frame_equal(one, other)
    assert len(one[one["fold"] == "1"]) == 15  # five choices of volumes, three levels
    assert one["n_test"].dtype.kind == "i"  # also of the mean over draws


def test_only_finished_folds_are_used(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    write_status(tmp_path / "fold-1" / "status.json", "failed", "train", DataError("loss is NaN"))
    assert explained_folds(tmp_path, range(3)) == [0]
    write_landmarks(cache, tmp_path, range(3), CLASSES, tmp_path / "out", tokens=5, random_draws=1, seed=0)
    assert np.load(tmp_path / "out" / "coefficients.npy").shape == (1, 2, 30)
    table = read_table(tmp_path / "out" / "landmarks.tsv", text=("fold",))
    assert row(table, "mean", "important", "scan")["n_test"] == 1
    with pytest.raises(DataError, match="no fold"):
        write_landmarks(cache, tmp_path, [7], CLASSES, tmp_path / "out", tokens=5, random_draws=1, seed=0)


def test_a_class_without_training_scans_is_refused(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    with pytest.raises(DataError, match="class has no training scan"):
        landmark_regression(cache, tmp_path, [0], [*CLASSES, "third"], random_draws=1)


def test_weights_are_cut_at_the_right_places(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    table, weights = read_importance(tmp_path / "fold-0")
    assert [len(w) for w in weights] == [len(cache.series(i)) for i in range(len(table))]
    assert all((w > 0.9).sum() == 6 for w in weights)


def test_a_subject_votes_with_the_volumes_of_all_its_scans(tmp_path: Path) -> None:
    """Two scans of a subject, one of them hard: alone it is judged wrong, with the other right."""
    cache = make_run(tmp_path, CLASSES)
    cache.index["subject"] = [f"sub-{i // 4 * 2 + i % 2:02d}" for i in range(24)]  # pairs of one label and fold
    flipped = [2, 3]
    for i in flipped:  # of two test scans of fold 1 most landmarks speak for the other class
        _, weights = read_importance(tmp_path / "fold-1")
        chosen = top_tokens(weights[i], 5)[:3]
        cache.series(i)[chosen] = 0
        cache.series(i)[chosen, INFORMATIVE[0]] = -1.0 if i == 3 else 1.0
    cache.index.loc[flipped, "subject"] = ["sub-02", "sub-03"]
    cache.index.loc[[6, 7], "subject"] = ["sub-02", "sub-03"]
    table, *_ = landmark_regression(cache, tmp_path, [1], CLASSES, random_draws=1)
    scan, subject = (row(table, "1", "important", level) for level in ("scan", "subject"))
    assert scan["accuracy"] == pytest.approx(1 - 2 / 12)
    assert subject["accuracy"] == 1.0


def test_scans_of_one_subject_and_different_labels_do_not_vote_together(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    cache.index["subject"] = "one"
    table, *_ = landmark_regression(cache, tmp_path, [0], CLASSES, random_draws=1)
    assert row(table, "0", "important", "subject")["accuracy"] == 1.0


def test_labels_of_test_scans_change_neither_tokens_nor_regression(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    chosen = [top_tokens(w, 5).tobytes() for w in read_importance(tmp_path / "fold-0")[1]]
    before, one, *_ = landmark_regression(cache, tmp_path, [0], CLASSES, random_draws=1)
    table, _ = read_importance(tmp_path / "fold-0")
    test = cache.index["scan_id"].isin(table.loc[table["role"] == "test", "scan_id"])
    swap = dict(zip(CLASSES, CLASSES[::-1], strict=True))
    cache.index["label"] = cache.index["label"].where(~test, cache.index["label"].map(swap))
    after, other, *_ = landmark_regression(cache, tmp_path, [0], CLASSES, random_draws=1)
    assert other.tobytes() == one.tobytes()
    assert [top_tokens(w, 5).tobytes() for w in read_importance(tmp_path / "fold-0")[1]] == chosen
    assert row(before, "0", "important", "scan")["accuracy"] == 1.0
    assert row(after, "0", "important", "scan")["accuracy"] == 0.0


def test_every_scan_is_read_once_a_fold(tmp_path: Path) -> None:
    cache = make_run(tmp_path, CLASSES)
    read: list[int] = []
    series = cache.series
    cache.series = lambda i: read.append(i) or series(i)  # type: ignore[method-assign]
    landmark_regression(cache, tmp_path, [0, 1], CLASSES, random_draws=5, offsets=20)
    assert sorted(read) == sorted([*range(24), *range(24)])
