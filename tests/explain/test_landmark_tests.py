"""Tests of landmark regressions over folds: by hand, with few folds, and their rate of false positives."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bolt.explain.landmarks import LANDMARK_COLUMNS, SUBSET_COLUMNS, TEST_COLUMNS, _tested, landmark_tests

NO_CURVE = pd.DataFrame(columns=list(SUBSET_COLUMNS))


def regressions(**values):
    """``landmarks.tsv`` from the AUC of each fold; `inner` is the importance, with its own wrong class."""
    rows = []
    for name, aucs in values.items():
        tokens = name.removeprefix("inner_").replace("_", " ")
        importance = "inner" if name.startswith("inner_") else "none" if tokens == "random" else "fitted"
        for fold, level, auc in [
            *((str(fold), "token", auc - 1) for fold, auc in enumerate(aucs)),
            *((str(fold), "scan", auc) for fold, auc in enumerate(aucs)),
            ("mean", "scan", 9.0),
        ]:
            rows.append({"fold": fold, "importance": importance, "tokens": tokens, "level": level, "auc": auc})
    return pd.DataFrame(rows).reindex(columns=list(LANDMARK_COLUMNS))


def test_p_by_hand():
    important, random = np.array([0.7, 0.8, 0.6, 0.7, 0.9, 0.7]), np.array([0.5, 0.6, 0.55, 0.5, 0.6, 0.5])
    found = landmark_tests(regressions(important=important, random=random), NO_CURVE, 0.2)
    assert list(found) == list(TEST_COLUMNS) and len(found) == 1
    difference, row = important - random, found.iloc[0]
    t = difference.mean() / np.sqrt((1 / 6 + 0.2) * difference.var(ddof=1))
    assert row["p"] == pytest.approx(2 * stats.t.sf(t, 5)) and row["difference"] == pytest.approx(difference.mean())
    assert (row["auc_first"], row["auc_second"], row["n_folds"]) == pytest.approx((important.mean(), random.mean(), 6))
    assert row["note"] == ""


def test_each_control_is_compared_with_the_importance_it_belongs_to():
    aucs = {name: np.full(6, 0.5) for name in ("important", "wrong_class", "fixed_class", "random")}
    aucs |= {"inner_important": np.full(6, 0.7), "inner_wrong_class": np.linspace(0.5, 0.6, 6)}
    found = landmark_tests(regressions(**aucs), NO_CURVE, 0.2).set_index(["importance", "second"])
    of_fitted = [("fitted", name) for name in ("random", "wrong class", "fixed class")]
    assert found.index.tolist() == [*of_fitted, ("inner", "random"), ("inner", "wrong class")]
    assert found.at[("inner", "wrong class"), "difference"] == pytest.approx(0.15)
    assert found.at[("fitted", "wrong class"), "p"] == 1 and np.isnan(found.at[("inner", "random"), "p"])
    assert found.at[("inner", "random"), "note"] == "the difference is the same in all folds"


def test_fewer_than_six_folds_are_not_tested():
    aucs = {"important": [0.9, 0.9, 0.8, 0.9, 0.9, 0.9], "random": [0.5, 0.6, 0.4, 0.5, 0.6, np.nan]}
    row = landmark_tests(regressions(**aucs), NO_CURVE, 0.2).iloc[0]
    assert np.isnan(row["p"]) and row["n_folds"] == 5 and row["note"] == "5 of at least 6 folds"


def test_quarters_of_the_curve_are_compared():
    places = pd.DataFrame(
        [(fold, offset) for fold in range(6) for offset in range(0, 80, 10)], columns=["fold", "offset"]
    )
    fold, offset = places["fold"], places["offset"]
    curve = places.assign(fold=fold.astype(str), level="scan", auc=0.8 - 0.004 * offset + 0.01 * fold * (offset < 20))
    equal = regressions(important=[0.5] * 6, random=[0.5] * 6)
    order = landmark_tests(equal, curve, 0.2).query("question == 'order'").set_index("second")
    assert order["auc_first"].tolist() == pytest.approx([0.78 + 0.025] * 3) and (order["p"] < 0.001).all()
    expected = {"second quarter": 0.7, "third quarter": 0.62, "last quarter": 0.54}
    assert order["auc_second"].to_dict() == pytest.approx(expected)
    assert "order" not in set(landmark_tests(equal, curve[offset < 30], 0.2)["question"])


@pytest.mark.parametrize("folds", [6, 10])
def test_noise_is_significant_no_more_often_than_promised(folds):
    """AUCs of folds of which each pair shares its training scans: correlated as Nadeau and Bengio assume."""
    random, ratio = np.random.default_rng(1), 1 / (folds - 1)
    shared = ratio / (1 + ratio)  # their correlation: n_test / (n_test + n_train)
    said, half = 0, pd.Series(np.full(folds, 0.5))
    for _ in range(500):
        noise = np.sqrt(shared) * random.standard_normal() + np.sqrt(1 - shared) * random.standard_normal(folds)
        found = _tested(0.5 + 0.1 * pd.Series(noise), half, ratio)
        said += found["p"] < 0.05 and found["difference"] >= 0.02
    assert said / 500 < 0.035  # one side of 5 %
