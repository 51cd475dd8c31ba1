"""Intervals against scipy, published examples and worked-out numbers, and their coverage where the truth is known."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bolt.evaluate.intervals import (
    FEWEST_GROUPS,
    Units,
    area_interval,
    area_variance,
    clopper_pearson,
    intervals,
    loss_interval,
    variance_of_sum,
)
from bolt.evaluate.metrics import by_fold, fold_metrics

CLASSES = ["control", "patient"]
NOTHING = pytest.approx((np.nan, np.nan), nan_ok=True)


def table(right, label=None, per_group=1, folds=1):
    """Return predictions of two classes that are right or wrong, as given."""
    n = len(right)
    group = np.arange(n) // per_group
    label = group % 2 if label is None else label
    predicted = np.where(right, label, 1 - label)
    p = np.clip(0.5 + (predicted - 0.5) * np.random.default_rng(0).uniform(0.1, 1, n), 0, 1)
    columns = {"scan_id": np.arange(n), "group": group, "fold": group // 2 % folds, "seed": 0}
    columns |= {"label": np.array(CLASSES)[label], "predicted": np.array(CLASSES)[predicted]}
    return pd.DataFrame(columns | {"p_control": 1 - p, "p_patient": p})


def of(predictions, *, over_folds=False):
    return intervals(predictions, CLASSES, over_folds=over_folds, draws=50)


def units(n, group=None, fold=None, seed=None):
    """A group a scan, in one fold and of one seed, unless said otherwise."""
    of = (np.zeros(n, int) if given is None else np.array(given) for given in (fold, seed))
    return Units(np.arange(n), np.arange(n) if group is None else np.array(group), *of)


def exact(right, n):
    return stats.binomtest(int(right), int(n)).proportion_ci(method="exact")


@pytest.mark.parametrize(("right", "n"), [(8, 8), (0, 8), (7, 8), (31, 40), (400, 871)])
def test_independent_scans_have_the_exact_interval(right, n):
    assert clopper_pearson(right / n, n) == pytest.approx(tuple(exact(right, n)))
    assert of(table(np.arange(n) < right))["accuracy"] == pytest.approx(tuple(exact(right, n)), abs=1e-9)


def test_recall_and_precision_are_shares_of_a_class_and_balanced_accuracy_combines_the_classes():
    label = np.repeat([1, 0], [12, 20])
    right = np.arange(32) % 12 < 9  # 9 of 12 patients, 17 of 20 controls: 9 of 12 who are called patients
    found = of(table(right, label))
    assert found["recall"] == pytest.approx(tuple(exact(9, 12)))
    assert found["precision"] == pytest.approx(tuple(exact(9, 9 + (~right[12:]).sum())))
    counts = [(right[label == k].sum(), (label == k).sum()) for k in (0, 1)]
    values = np.array([hits / n for hits, n in counts])
    lows, highs = np.array([exact(*count) for count in counts]).T
    low = values.mean() - np.sqrt(((values - lows) ** 2).sum()) / 2
    high = values.mean() + np.sqrt(((highs - values) ** 2).sum()) / 2
    assert found["balanced_accuracy"] == pytest.approx((low, high))
    perfect = of(table(np.ones(32, bool), label))["balanced_accuracy"]
    assert 0.8 < perfect[0] < 0.9 and perfect[1] == 1


def test_scans_of_a_group_that_are_all_right_count_once():
    assert of(table(np.ones(32, bool), per_group=4))["accuracy"] == pytest.approx(clopper_pearson(1, 8))
    alike = np.repeat(np.arange(8) < 6, 4)  # two of eight subjects are always wrong
    alone, between = 0.75 * 0.25 / 31, 0.75 * 0.25 / 7  # variances of the mean of 32 scans, and of 8 subjects
    expected = clopper_pearson(0.75, 32 * alone / between * (stats.t.ppf(0.975, 31) / stats.t.ppf(0.975, 7)) ** 2)
    assert of(table(alike, per_group=4))["accuracy"] == pytest.approx(expected)
    scattered = np.arange(32) % 4 > 0  # each subject once: the scans vary more than the subjects
    assert of(table(scattered, per_group=4))["accuracy"] == pytest.approx(clopper_pearson(0.75, 32))


def test_variance_between_groups_and_seeds_is_that_of_a_random_effects_model():
    """Of 40 groups and 5 seeds with effects of variance 1 and 0.25, the mean has 1 / 40 + 0.25 / 5, and a residual."""
    random = np.random.default_rng(0)
    group, seed = np.divmod(np.arange(200), 5)
    found = []
    for _ in range(300):
        x = random.normal(size=40)[group] + 0.5 * random.normal(size=5)[seed] + random.normal(size=200)
        found.append(variance_of_sum((x - x.mean()) / 200, group, seed)[0])
    assert np.mean(found) == pytest.approx(1 / 40 + 0.25 / 5 + 2 / 200, rel=0.07)  # which counts twice


def test_a_fold_without_one_of_three_classes_is_not_part_of_the_area():
    """The two folds with all classes are predicted badly; two others, without the third, perfectly."""
    random, truth = np.random.default_rng(0), np.concatenate([np.arange(60) % 3, np.arange(60) % 2])
    p = random.dirichlet(np.ones(3), 120) + 9 * np.eye(3)[truth] * (np.arange(120) >= 60)[:, None]
    fold = units(120, fold=np.arange(120) // 30)
    whole = area_interval(truth[:60], p[:60], range(3), units(60, fold=np.arange(60) // 30), True)
    assert area_interval(truth, p, range(3), fold, True) == pytest.approx(whole, abs=0.01)
    assert sum(area_interval(truth, p, range(3), fold, False)) > sum(whole) + 0.3
    assert area_interval(truth[60:], p[60:], range(3), units(60), True) == NOTHING
    few = np.where(np.arange(60) < 12, truth[:60], truth[60:])  # four of the third class are compared
    few[45:] = 2
    assert area_interval(few, p[:60], range(3), units(60, fold=np.arange(60) // 15), True) == NOTHING


def test_the_score_interval_of_an_auc_by_hand():
    """Where AUC 1 of five against five scans ends: (1 - a)² = z² V(a)."""
    low, high = of(table(np.ones(10, bool)))["auc"]
    assert high == 1 and 0.6 < low < 0.7
    assert (1 - low) ** 2 == pytest.approx(stats.norm.ppf(0.975) ** 2 * area_variance(low, 5.0, 5.0))
    assert area_variance(0.5, 1.0, 1.0) == pytest.approx(0.25)  # of one pair: that of a coin
    assert of(table(np.zeros(10, bool)))["auc"] == pytest.approx((0, 1 - low))


def test_scans_are_compared_within_folds_and_seeds_alone():
    """Scores of another model's scale change neither the AUC nor its interval."""
    truth, fold = np.arange(60) % 2, np.arange(60) // 2 % 3
    score = np.random.default_rng(0).normal(size=60) + truth
    for over_folds in (True, False):
        found, moved = (
            area_interval(truth, np.c_[-x, x], [1], units(60, fold=fold), over_folds)
            for x in (score, score + 10 * fold)
        )
        assert found == moved and 0.5 < found[0] < found[1] < 1


def test_ends_enclose_the_values_of_the_tables():
    predictions = table(np.random.default_rng(1).random(120) < 0.7, per_group=3, folds=5)
    pooled, means = fold_metrics(predictions, CLASSES), by_fold(predictions, CLASSES).mean()
    for over_folds, values in ((False, pooled), (True, means)):
        for metric, (low, high) in of(predictions, over_folds=over_folds).items():
            assert low < values[metric] < high, metric


def test_the_interval_of_normal_losses_is_a_t_interval():
    """As of a mean, also of few groups."""
    truth = np.random.default_rng(0).normal(0, 10, 8)
    errors = np.array([3.0, 4, 5, 6, 6, 7, 8, 9])
    numbers = pd.DataFrame({"scan_id": range(8), "group": range(8), "label": truth, "predicted": truth + errors})
    low, high = intervals(numbers, None, over_folds=False, draws=20_000)["mae"]
    expected = stats.t.interval(0.95, 7, errors.mean(), stats.sem(errors))
    assert (low, high) == pytest.approx(expected, abs=0.15) and high - low > 3  # percentiles 2.5 and 97.5: 2.6


def test_too_few_groups_have_no_interval():
    enough = of(table(np.arange(FEWEST_GROUPS) > 0))
    assert np.isfinite(enough["accuracy"]).all() and enough["auc"] == NOTHING  # three of each class
    few = of(table(np.arange(4 * (FEWEST_GROUPS - 1)) > 0, per_group=4))
    assert all(ends == NOTHING for ends in few.values())
    one_class = of(table(np.arange(30) > 4, np.ones(30, int)))
    assert one_class["auc"] == NOTHING and np.isfinite(one_class["recall"]).all()


def test_three_classes_have_intervals_at_the_edge_too():
    label = np.arange(30) % 3
    predictions = pd.DataFrame({"scan_id": range(30), "group": range(30), "label": np.array(list("abc"))[label]})
    predictions[["p_a", "p_b", "p_c"]] = np.eye(3)[label] * 0.8 + 0.1 * (1 - np.eye(3)[label])
    right, never = predictions.assign(predicted=predictions["label"]), predictions.assign(predicted="a")
    found = intervals(right, list("abc"), over_folds=False, draws=50)
    for metric in ("recall", "precision", "balanced_accuracy", "auc"):
        assert 0.7 < found[metric][0] < 0.97 and found[metric][1] == 1, metric
    assert found["recall"] == found["balanced_accuracy"]
    # the precision of a class that was never predicted is 0 by definition
    found = intervals(never, list("abc"), over_folds=False, draws=50)["precision"]
    assert found == pytest.approx(tuple(np.array(exact(10, 30)) / 3))


@pytest.mark.parametrize(("truth", "n"), [(0.5, 10), (0.95, 10), (0.75, 20)])
def test_the_auc_misses_the_truth_as_rarely_as_promised(truth, n):
    random, missed = np.random.default_rng(0), 0
    label = np.arange(n) % 2
    for _ in range(300):
        score = random.normal(size=n) + label * stats.norm.ppf(truth) * np.sqrt(2)
        low, high = area_interval(label, np.c_[-score, score], [1], units(n), False)
        missed += not low <= truth <= high
    assert missed <= 25


# ---- mean losses ----------------------------------------------------------------------------------------------------
def interval(loss, group=None, fold=None, seed=None, over_folds=False, largest=100.0, **draws):
    return loss_interval(np.array(loss), units(len(loss), group, fold, seed), over_folds, largest, **draws)


def test_an_interval_scales_with_the_loss():
    loss = np.random.default_rng(0).exponential(size=30)
    for scale in (0.5, 2.0):
        assert interval(loss * scale) == pytest.approx(np.array(interval(loss)) * scale)


def test_skewed_losses_have_skewed_intervals_that_contain_their_mean_as_often_as_promised():
    """Twenty losses of which one in five is large."""
    random, missed, longer_above = np.random.default_rng(1), 0, 0
    for _ in range(400):
        loss = np.where(random.random(20) < 0.2, random.uniform(2, 4, 20), random.uniform(0, 0.2, 20))
        low, high = interval(loss, largest=4.0, draws=300)
        missed += not low <= 0.2 * 3 + 0.8 * 0.1 <= high
        longer_above += high - loss.mean() > loss.mean() - low
    assert missed <= 32 and longer_above > 350  # 8 %: three standard errors above 5 %


def test_copies_of_a_persons_scan_add_no_certainty():
    loss = np.random.default_rng(2).exponential(size=12)
    assert interval(np.repeat(loss, 4), np.repeat(np.arange(12), 4)) == pytest.approx(interval(loss))


def test_folds_count_alike_whatever_their_size():
    loss, fold = [0.1, 0.2, 0.3] * 3 + [0.9, 1.0, 1.1], [0] * 9 + [1] * 3
    low, high = interval(loss, fold=fold, over_folds=True, largest=2.0)
    assert low < 0.6 < high  # the mean of 0.2 and 1.0
    pooled_low, pooled_high = interval(loss, fold=fold, largest=2.0)
    assert pooled_low < 0.4 < pooled_high and pooled_high - pooled_low > high - low


@pytest.mark.parametrize("n_folds", [10, 20])
def test_folds_of_one_or_two_people_have_intervals_as_wide_as_promised(n_folds):
    random, missed, widths = np.random.default_rng(1), 0, []
    for _ in range(200):
        loss = np.abs(random.normal(size=20))
        low, high = interval(loss, fold=np.arange(20) % n_folds, over_folds=True, draws=300)
        missed += not low <= np.sqrt(2 / np.pi) <= high
        widths.append(high - low)
    assert missed <= 19 and np.median(widths) < 0.7  # 5 % and three standard errors; 1.3 if drawn within folds
    one = [0.1, 0.9, 0.3, 0.4, 0.8, 0.2]
    assert interval(one * 2, [*range(6)] * 2, [*range(6)] * 2, [0] * 6 + [1] * 6, True) == pytest.approx(interval(one))


def test_ends_are_possible_losses_and_equal_losses_have_no_width():
    low, high = interval([0.0] * 7 + [1.0], largest=1.0)
    assert 0 <= low < 0.125 < high <= 1
    assert interval([0.25] * 8, largest=1.0) == (0.25, 0.25)
    assert np.isnan(interval([1.0] * 3, [0] * 3, largest=1.0)).all()
