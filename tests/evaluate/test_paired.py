"""Paired tests against scipy, numbers worked out by hand, and what they must do under the null."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bolt.evaluate.paired import NO_SPREAD, TESTS, compare, compare_all, corrected_t, sign_flip, wilcoxon

CLASSES = ["control", "patient"]


def made_up(skill, seed, n=120, folds=10):
    """Simulate the predictions of all folds: a scan per group, each tested once; same labels for all seeds."""
    random = np.random.default_rng(seed)
    groups, truth = np.arange(n), np.arange(n) % 2
    p = 1 / (1 + np.exp(-skill * (2 * truth - 1) - random.logistic(size=n)))
    table = pd.DataFrame({"scan_id": [f"g{g:03d}-0" for g in groups], "group": groups.astype(str), "seed": 0})
    table = table.assign(label=np.array(CLASSES)[truth], predicted=np.array(CLASSES)[(p > 0.5).astype(int)])
    table = table.assign(p_control=1 - p, p_patient=p)
    parts = []
    for fold in range(folds):
        place = (groups // 2 - fold) % folds
        parts.append(table.assign(fold=fold, role=np.select([place == 0, place == 1], ["test", "validation"], "train")))
    return pd.concat(parts, ignore_index=True)


GOOD, BAD = made_up(1.5, 1), made_up(0.5, 2)


@pytest.mark.parametrize("n", [6, 10, 13])
def test_signed_ranks_are_scipys(n):
    d = np.random.default_rng(n).normal(0.3, 1, n)
    assert wilcoxon(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
    assert wilcoxon(-d) == wilcoxon(d)


def test_signed_ranks_of_ties_try_all_signs():
    assert wilcoxon(np.full(6, 0.1)) == pytest.approx(2 / 2**6)
    # the sum of signed ranks is 6: sums of as many or more, of either sign, counted over all 64 signs
    d, ranks = np.array([1.0, -1.0, 1.0, 2.0, 3.0, -3.0]), np.array([2, 2, 2, 4, 5.5, 5.5])
    sums = np.abs(np.array(list(product([-1, 1], repeat=6))) @ ranks)
    assert wilcoxon(d) == pytest.approx(np.mean(sums >= abs(ranks @ np.sign(d))))
    assert np.isnan(wilcoxon(np.ones(5))) and wilcoxon(np.zeros(6)) == 1  # five folds are not testable


def test_corrected_t_by_hand_and_without_overlap_as_scipy():
    d = np.array([0.02, 0.05, -0.01, 0.04])  # mean 0.025, variance 0.0007
    t = 0.025 / np.sqrt((1 / 4 + 1 / 8) * 0.0007)
    assert [corrected_t(x, 1 / 8) for x in (d, -d)] == pytest.approx([2 * stats.t.sf(t, 3)] * 2)
    assert corrected_t(d, 0.0) == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    # equal differences are not certainty
    assert corrected_t(np.zeros(10), 0.1) == 1
    assert np.isnan([corrected_t(np.array(x), 0.1) for x in ([0.1] * 10, [0.1], [])]).all()


def test_sign_flips_agree_with_the_sign_test_and_are_never_certain():
    """Of 20 subjects that only one model classifies correctly, 16 are the reference's (McNemar's exact test)."""
    d = np.array([1.0] * 16 + [-1.0] * 4 + [0.0] * 100)
    assert sign_flip(d, draws=20_000) == pytest.approx(stats.binomtest(16, 20).pvalue, rel=0.2)
    assert sign_flip(d) == sign_flip(d) == pytest.approx(sign_flip(-d), rel=0.2)
    assert sign_flip(np.ones(200), draws=99) == 0.01 and sign_flip(np.zeros(5)) == 1


def test_a_difference_without_spread_is_said_to_have_no_t_test():
    right = GOOD.assign(predicted=GOOD["label"])
    flipped = {"control": "patient", "patient": "control"}
    wrong = right.assign(predicted=right["label"].map(flipped), p_control=right["p_patient"])
    accuracy = compare(right, wrong, CLASSES)[0]
    assert accuracy["difference"] == 1 and np.isnan(accuracy["corrected_t_p"]) and accuracy["note"] == NO_SPREAD
    assert NO_SPREAD not in compare(right[right["fold"] == 0], wrong, CLASSES)[0]["note"]


def test_swapping_rows_turns_the_difference_and_keeps_p():
    rows = compare(GOOD, BAD, CLASSES)
    for one, other in zip(rows, compare(BAD, GOOD, CLASSES), strict=True):
        assert one["difference"] == pytest.approx(-other["difference"])
        for test in ("wilcoxon_p", "corrected_t_p"):
            assert one[test] == pytest.approx(other[test])
    accuracy = rows[0]
    assert accuracy["pooled_difference"] > 0.1 and accuracy["permutation_p"] < 0.01
    assert accuracy["wilcoxon_p"] < accuracy["corrected_t_p"]  # corrected for the overlap of training sets
    assert (accuracy["n_folds"], accuracy["n_scans"], accuracy["n_groups"]) == (10, 120, 120)
    right = [(t.label == t.predicted).groupby(t.fold).mean() for t in (t[t.role == "test"] for t in (GOOD, BAD))]
    # the ratio is that of the test to the training scans, on average over both
    assert accuracy["corrected_t_p"] == pytest.approx(corrected_t((right[0] - right[1]).to_numpy(), 12 / 96))
    half = BAD[(BAD.role != "train") | (BAD.groupby(["fold", "role"]).cumcount() % 2 == 0)]
    p = compare(GOOD, half, CLASSES)[0]["corrected_t_p"]
    assert p == pytest.approx(corrected_t((right[0] - right[1]).to_numpy(), 12 / 72))


def test_only_what_both_predicted_enters():
    row = compare(GOOD, BAD[(BAD.fold < 4) & (BAD.scan_id != "g000-0")], CLASSES)[0]
    assert (row["n_folds"], row["n_scans"]) == (4, 47)
    assert np.isnan(row["wilcoxon_p"]) and "4 of at least 6" in row["note"]
    nothing = compare(GOOD[GOOD.fold < 4], BAD[BAD.fold > 5], CLASSES)[0]
    assert nothing["note"] == "no fold that both finished" and "permutation_p" not in nothing
    assert (nothing["metric"], nothing["n_folds"]) == ("accuracy", 0)


def test_folds_without_a_metric_do_not_change_its_test():
    counts = (GOOD["fold"] < 7) | (GOOD["role"] != "test")  # test scans of the other folds are all patients
    first = GOOD.groupby(["fold", "role"]).cumcount() < 2
    one_class = [t.assign(label=t["label"].where(counts, "patient")) for t in (GOOD, BAD)]
    areas = [compare(a, b, CLASSES)[3] for a, b in (one_class, [t[counts | first] for t in one_class])]
    assert [(area["metric"], area["n_folds"]) for area in areas] == [("auc", 7)] * 2
    assert areas[0]["corrected_t_p"] == areas[1]["corrected_t_p"]


def test_scans_of_a_family_are_flipped_together():
    """Ten equal scans of a subject are not ten subjects."""
    once = [made_up(skill, seed, n=40) for skill, seed in ((1.2, 5), (0.4, 6))]
    tenfold = [pd.concat([t.assign(scan_id=t.scan_id + f"-{i}") for i in range(10)], ignore_index=True) for t in once]
    alone = [table.assign(group=table.scan_id) for table in tenfold]
    single, together, apart = (compare(*pair, CLASSES)[0]["permutation_p"] for pair in (once, tenfold, alone))
    assert together == pytest.approx(single, rel=0.15) and apart < 0.2 * together


def test_seeds_of_a_fold_are_averaged():
    again = made_up(1.5, 3), made_up(0.5, 4)
    both = (pd.concat([t, other.assign(seed=1)]) for t, other in zip((GOOD, BAD), again, strict=True))
    row, first, second = (compare(*pair, CLASSES)[0] for pair in (both, (GOOD, BAD), again))
    assert (row["n_folds"], row["n_scans"]) == (10, 120)
    for name in ("difference", "pooled_difference"):
        assert row[name] == pytest.approx((first[name] + second[name]) / 2)


def test_every_test_is_corrected_for_the_rows_of_its_metric():
    table = compare_all({"BolT": GOOD, "a": BAD, "b": made_up(1.0, 3), "c": made_up(1.5, 4)}, "BolT", CLASSES)
    assert table["row"].unique().tolist() == ["a", "b", "c"]
    own = table[table.metric == "accuracy"]
    for test in TESTS:
        p, corrected = own[test].to_numpy(), own[f"{test}_holm"].to_numpy()
        assert corrected.min() == pytest.approx(min(1, 3 * p.min())) and (corrected >= p).all()
    of_scans = table["metric"].isin(["accuracy", "brier", "log_loss"])
    assert (table["permutation_p"].notna() == of_scans).all()


def test_numbers_are_compared_by_their_errors():
    random, truth = np.random.default_rng(0), GOOD["group"].astype(float)
    near, far = (GOOD.assign(label=truth, predicted=truth + random.normal(0, sd, len(truth))) for sd in (5, 30))
    found = {row["metric"]: row for row in compare(near, far, None)}
    mae = found["mae"]
    assert mae["difference"] == pytest.approx(mae["pooled_difference"]) and mae["difference"] < 0
    assert mae["permutation_p"] < 0.01 and found["r"]["difference"] > 0
