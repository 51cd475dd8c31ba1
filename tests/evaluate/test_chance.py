"""Whether a model predicts at all: the mean AUC over folds against permuted labels."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from bolt.evaluate.chance import LEVEL, compare_with_chance
from bolt.io.errors import DataError

CLASSES = ["a", "b"]


def table_of(labels, p, scans, fold=0, n_train=20):
    """Predictions of two classes, from the probabilities of the second."""
    columns = {"scan_id": scans, "subject": scans, "group": scans, "label": labels, "p_a": 1 - p, "p_b": p}
    return pd.DataFrame(columns).assign(predicted=np.where(p > 0.5, "b", "a"), fold=fold, seed=0, n_train=n_train)


def cross_validated(seed, effect=0.0, n=60, folds=6):
    """Predictions from mean differences of noise, in which 20 of 100 features differ between classes by `effect`."""
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((n, 100)), random.permutation(np.arange(n) % 2)
    x[:, :20] += effect * (y[:, None] - 0.5)
    tables = []
    for fold, (train, test) in enumerate(StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y)):
        means = [x[train][y[train] == k].mean(axis=0) for k in (0, 1)]
        p = 1 / (1 + np.exp(-0.1 * (x[test] - np.mean(means, axis=0)) @ (means[1] - means[0])))
        tables.append(table_of(np.array(CLASSES)[y[test]], p, [f"s{i}" for i in test], fold, len(train)))
    return pd.concat(tables, ignore_index=True)


def test_models_of_noise_pass_no_more_often_than_promised_and_real_ones_do():
    noise = [compare_with_chance(cross_validated(seed), CLASSES, draws=199)["p"] for seed in range(40)]
    assert np.mean(np.array(noise) <= LEVEL) <= 0.05  # 2.5 % promised, of 40; without widening it is 7.5 %
    effect = [compare_with_chance(cross_validated(seed, 1.2), CLASSES, draws=199)["p"] for seed in range(10)]
    assert np.mean(np.array(effect) <= LEVEL) >= 0.9


def test_the_value_is_the_mean_over_folds_of_the_mean_over_seeds():
    table = cross_validated(0, 0.5)
    other = table.assign(seed=1, p_b=np.random.default_rng(1).permutation(table["p_b"]))
    both = pd.concat([table, other.assign(p_a=1 - other["p_b"])], ignore_index=True)
    found = compare_with_chance(both, CLASSES, draws=99)
    due = [roc_auc_score(part["label"] == "b", part["p_b"]) for _, part in both.groupby(["fold", "seed"])]
    assert found["value"] == pytest.approx(np.mean(due))
    assert (found["n_folds"], found["n_units"], found["metric"]) == (6, 60, "auc")
    assert found["widened"] == pytest.approx(np.sqrt(1 + 6 * 10 / 50))
    assert found["p"] <= LEVEL if found["value"] > found["bar"] else found["p"] > LEVEL


@pytest.mark.parametrize(("changed", "p"), [([], 1 / 6), ([7], 1 / 3)])
def test_labels_are_permuted_between_people_not_scans(changed, p):
    """Eight scans each of four people, perfectly told apart, are four facts: p is that of 1 of 6 arrangements.

    If the last scan of the first has another label, the three others are still whole: 3 arrangements.
    """
    people = np.repeat(list("abcd"), 8)
    labels = np.where(np.isin(people, ["c", "d"]), "b", "a")
    table = table_of(labels, np.where(labels == "b", 0.9, 0.1), [f"s{i:02d}" for i in range(32)])
    table.loc[changed, "label"] = "b"
    found = compare_with_chance(table.assign(subject=people, group=people), CLASSES, draws=1999)
    assert found["n_units"] == 4 and found["p"] == pytest.approx(p, abs=0.04) and found["widened"] == 1


def test_three_classes_and_numbers():
    random, code = np.random.default_rng(0), np.arange(60) % 3
    p = random.dirichlet(np.ones(3), 60) + 0.5 * np.eye(3)[code]
    table = table_of(np.array(list("xyz"))[code], np.zeros(60), [f"s{i}" for i in range(60)], np.arange(60) % 2, 30)
    table[["p_x", "p_y", "p_z"]], table["predicted"] = p / p.sum(axis=1, keepdims=True), "x"
    assert compare_with_chance(table, list("xyz"), draws=199)["p"] <= LEVEL
    numbers = table.assign(label=np.arange(60.0), predicted=np.arange(60) + 10 * random.standard_normal(60))
    found = compare_with_chance(numbers, None, draws=199)
    due = [np.corrcoef(part["label"], part["predicted"])[0, 1] for _, part in numbers.groupby("fold")]
    assert found["metric"] == "r" and found["value"] == pytest.approx(np.mean(due)) and found["p"] <= LEVEL


def test_folds_without_both_classes_do_not_count():
    one = table_of(list("aaaa"), np.full(4, 0.4), list("mnop"), fold=1)
    two = table_of(list("aabb"), np.full(4, 0.4), list("qrst"))
    found = compare_with_chance(pd.concat([one, two], ignore_index=True), CLASSES, draws=99)
    assert (found["n_folds"], found["value"]) == (1, 0.5) and found["p"] > 0.5
    counted = cross_validated(0, 0.5)  # six folds; of the small one, neither its scans nor its training scans count
    both = pd.concat([counted, one.assign(fold=6, n_train=66)], ignore_index=True)
    assert compare_with_chance(both, CLASSES, draws=99) == compare_with_chance(counted, CLASSES, draws=99)
    nothing = compare_with_chance(one, CLASSES, draws=99)
    assert nothing["value"] is None and nothing["p"] is None


def test_seeds_that_miss_different_scans_are_refused():
    tests = pd.concat([cross_validated(0).assign(seed=seed) for seed in (0, 1)], ignore_index=True)
    missing = [tests.index[tests["seed"] == seed][i] for i, seed in enumerate((0, 1))]
    with pytest.raises(DataError, match="do not predict the same scans"):
        compare_with_chance(tests.drop(missing), CLASSES)
