"""The folds of ABIDE-I that others train in, and a table of their predictions judged beside ours."""

import numpy as np
import pytest

from benchmarks.abide_benchmark import PREDICTIONS
from benchmarks.judge_abide import committed_folds, judge, kept_models
from bolt.folds.audit import find_leaks
from bolt.io.errors import DataError
from bolt.io.files import read_table


@pytest.fixture(scope="module")
def folds():
    return committed_folds()


@pytest.fixture
def tests(folds):
    tests = folds[folds["role"] == "test"].sort_values(["fold", "scan_id"])
    signal = np.where(tests["label"] == "autism", 0.4, 0.2) + 0.3 * np.random.default_rng(0).random(len(tests))
    return tests.assign(p=signal)[["scan_id", "fold", "p"]]


def test_committed_folds_are_those_of_the_kept_predictions_and_have_no_leak(folds):
    kept = read_table(PREDICTIONS)[["fold", "scan_id"]].drop_duplicates()
    tests = folds.loc[folds["role"] == "test", ["fold", "scan_id"]]
    assert len(tests) == 871 and set(map(tuple, tests.to_numpy())) == set(map(tuple, kept.to_numpy()))
    assert folds.groupby("fold")["scan_id"].nunique().eq(871).all() and set(folds["fold"]) == set(range(10))
    assert set(folds["role"]) == {"train", "validation", "test"}
    assert find_leaks(folds, folds[["scan_id", "subject", "group"]]) == []


def test_our_own_predictions_are_no_better_than_ours(tmp_path, folds):
    ridge = kept_models(folds)["Ridge"]
    ridge.reset_index().to_csv(tmp_path / "theirs.csv", index=False)
    table = judge(tmp_path / "theirs.csv")
    assert table.loc["theirs", "auc"] == table.loc["Ridge", "auc"] == pytest.approx(0.762, abs=0.01)
    assert table.loc["Ridge", "theirs_minus_model_auc"] == 0 and table.loc["Majority", "p_holm"] < 0.001
    assert {"BolT", "SVM", "Tangent", "meanMLP", "Motion only", "Site only"} < set(table.index)


def test_better_predictions_are_clearly_better_than_all(tmp_path, tests):
    tests.to_csv(tmp_path / "theirs.tsv", sep="\t", index=False)
    table = judge(tmp_path / "theirs.tsv")
    assert table.index[0] == "theirs" and (table.drop("theirs")["p_holm"] < 0.001).all()


def test_a_prediction_of_another_fold_is_refused(tmp_path, tests):
    tests.assign(fold=(tests["fold"] + 1) % 10).to_csv(tmp_path / "theirs.csv", index=False)
    with pytest.raises(DataError, match="not of a test scan of their fold"):
        judge(tmp_path / "theirs.csv")
