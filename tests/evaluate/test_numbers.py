"""Metrics of predicted numbers against scikit-learn, NumPy, and numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mean_absolute_error, r2_score

from bolt.evaluate.intervals import intervals
from bolt.evaluate.metrics import fold_metrics, write_metrics
from bolt.evaluate.numbers import number_scores
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table
from tests.evaluate.test_metrics import write_fold


def predictions(n=30, fold=0):
    random = np.random.default_rng(fold)
    names = [f"sub-{fold}{i:02d}" for i in range(n)]
    label = random.normal(40, 10, n).round(1)
    table = pd.DataFrame({"scan_id": names, "subject": names, "group": names, "site": "a", "role": "test"})
    return table.assign(fold=fold, seed=0, label=label, predicted=label + random.normal(0, 3, n))


def test_scores_agree_with_scikit_learn_under_any_weights():
    table, random = predictions(), np.random.default_rng(1)
    truth, guess = table["label"].to_numpy(), table["predicted"].to_numpy()
    weights = random.integers(0, 4, size=(3, 30)).astype(float)
    values = number_scores(truth, guess, weights)
    for i, weight in enumerate(weights):
        assert values["mae"][i] == pytest.approx(mean_absolute_error(truth, guess, sample_weight=weight))
        assert values["r2"][i] == pytest.approx(r2_score(truth, guess, sample_weight=weight))
        rows = np.repeat(np.arange(30), weight.astype(int))
        assert values["r"][i] == pytest.approx(np.corrcoef(truth[rows], guess[rows])[0, 1])


def test_by_hand():
    table = predictions(3).assign(label=["1", "2", "3"], predicted=["2", "2", "5"])  # text, as it is read
    assert fold_metrics(table, None) == pytest.approx({"r": 0.866025, "mae": 1, "r2": 1 - 5 / 2}, abs=1e-6)
    alike = fold_metrics(table.assign(label=7.0), None)
    assert np.isnan(alike["r"]) and np.isnan(alike["r2"]) and alike["mae"] > 0
    with pytest.raises(DataError, match="label 'old' is not a number"):
        fold_metrics(table.assign(label="old"), None)


def test_intervals_over_folds_are_of_the_mean_of_folds_and_seeds():
    """They hold it as often as promised and are as wide as by formula; those of one fold are its own."""
    held, widths = 0, []
    for cohort in range(40):
        table = pd.concat([predictions(30, 10 * cohort + fold).assign(fold=fold) for fold in range(3)])
        both = pd.concat([table, table.assign(seed=1, predicted=table["predicted"] + 0.1)], ignore_index=True)
        low, high = intervals(both, None, over_folds=True, draws=400)["mae"]
        held += low < 3 * np.sqrt(2 / np.pi) < high  # the mean of |x| of a normal x with deviation 3
        widths.append(high - low)
    assert held >= 34
    assert np.mean(widths) == pytest.approx(2 * 1.96 * 3 * np.sqrt((1 - 2 / np.pi) / 90), rel=0.2)
    one = predictions()
    assert intervals(one, None, over_folds=True) == intervals(one, None, over_folds=False)


def test_files_of_a_run(tmp_path):
    for fold in (0, 1):
        write_fold(tmp_path, fold, predictions(20, fold))
    write_metrics(tmp_path, None, range(3), tmp_path)
    table = read_table(tmp_path / "metrics.tsv", text=("fold",)).set_index("fold")
    assert list(table) == ["state", "n_test", "r", "mae", "r2", "note"]
    assert table.loc["mean", "mae"] == pytest.approx(table.loc[["0", "1"], "mae"].mean())
    assert table.loc["2", "state"] == "missing"
    summary = read_json(tmp_path / "summary.json")
    found, everything = summary["pooled"], pd.concat([predictions(20, 0), predictions(20, 1)])
    assert summary["positive_class"] is None and found["n_scans"] == found["n_groups"] == 40
    assert found["r2"]["value"] == pytest.approx(r2_score(everything["label"], everything["predicted"]))
    for metric in ("r", "mae", "r2"):
        assert found[metric]["low"] < found[metric]["value"] < found[metric]["high"]
    spread = (everything["label"] - everything["label"].mean()).abs().mean()
    assert found["mean_guess_mae"] == pytest.approx(spread)
