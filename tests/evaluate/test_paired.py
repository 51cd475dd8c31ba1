"""Paired tests against scipy, numbers worked out by hand, and what they must do under the null."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bolt.evaluate.paired import NO_SPREAD, TESTS, compare, compare_all, corrected_t, sign_flip, wilcoxon

CLASSES = ["control", "patient"]


def made_up(skill: float, seed: int, n: int = 120, folds: int = 10, scans_each: int = 1) -> pd.DataFrame:
    """Simulate the predictions of all folds: `scans_each` per group, each tested once; same labels for all seeds."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n), scans_each)
    truth = groups % 2
    logit = skill * (2 * truth - 1) + random.logistic(size=len(groups))
    p = 1 / (1 + np.exp(-logit))
    names = [f"g{g:03d}-{i}" for i, g in enumerate(groups)]
    table = pd.DataFrame({"scan_id": names, "group": groups.astype(str), "label": np.array(CLASSES)[truth], "seed": 0})
    table["predicted"], table["p_control"], table["p_patient"] = np.array(CLASSES)[(p > 0.5).astype(int)], 1 - p, p
    parts = []
    for fold in range(folds):
        place = (groups // 2 - fold) % folds
        parts.append(table.assign(fold=fold, role=np.select([place == 0, place == 1], ["test", "validation"], "train")))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("n", [6, 10, 13])
def test_signed_ranks_are_scipys(n: int) -> None:
    d = np.random.default_rng(n).normal(0.3, 1, n)
    assert wilcoxon(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)
    assert wilcoxon(-d) == wilcoxon(d)


def test_signed_ranks_of_ties_try_all_signs() -> None:
    assert wilcoxon(np.full(6, 0.1)) == pytest.approx(2 / 2**6)
    # ranks 2 2 2 4 5.5 5.5; the sum of signed ranks is 10: sums of |x| >= 10 counted over all 64 signs
    d = np.array([1.0, -1.0, 1.0, 2.0, 3.0, -3.0])
    ranks = np.array([2, 2, 2, 4, 5.5, 5.5])
    sums = [abs(sum(r if i >> k & 1 else -r for k, r in enumerate(ranks))) for i in range(64)]
    assert wilcoxon(d) == pytest.approx(np.mean(np.array(sums) >= abs((ranks * np.sign(d)).sum())))


def test_five_folds_are_not_testable_by_ranks() -> None:
    assert np.isnan(wilcoxon(np.ones(5)))
    assert wilcoxon(np.zeros(6)) == 1


def test_corrected_t_by_hand_and_without_overlap_as_scipy() -> None:
    d = np.array([0.02, 0.05, -0.01, 0.04])  # mean 0.025, variance 0.0007
    t = 0.025 / np.sqrt((1 / 4 + 1 / 8) * 0.0007)
    assert corrected_t(d, 1 / 8) == pytest.approx(2 * stats.t.sf(t, 3))
    assert corrected_t(d, 0.0) == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
    assert corrected_t(d, 1 / 8) > corrected_t(d, 0.0)
    assert corrected_t(-d, 1 / 8) == pytest.approx(corrected_t(d, 1 / 8))


def test_corrected_t_of_equal_differences_is_not_certainty() -> None:
    assert corrected_t(np.zeros(10), 0.1) == 1
    assert np.isnan(corrected_t(np.full(10, 0.1), 0.1)) and np.isnan(corrected_t(np.array([0.1]), 0.1))


def test_sign_flips_agree_with_the_sign_test() -> None:
    """Of 20 subjects that only one model classifies correctly, 16 are the reference's (McNemar's exact test)."""
    d = np.array([1.0] * 16 + [-1.0] * 4 + [0.0] * 100)
    assert sign_flip(d, draws=20_000) == pytest.approx(stats.binomtest(16, 20).pvalue, rel=0.2)
    assert sign_flip(d) == sign_flip(d)
    assert sign_flip(d) == pytest.approx(sign_flip(-d), rel=0.2)


def test_sign_flips_are_never_certain() -> None:
    assert sign_flip(np.ones(200), draws=99) == 0.01
    assert sign_flip(np.zeros(5)) == 1


def test_p_of_sign_flips_is_uniform_under_the_null() -> None:
    random = np.random.default_rng(0)
    p = [sign_flip(random.normal(size=40), draws=199, seed=i) for i in range(300)]
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert np.mean(np.array(p) <= 0.05) < 0.09
    biased = [sign_flip(random.normal(0.5, size=40), draws=199, seed=i) for i in range(50)]
    assert np.mean(np.array(biased) <= 0.05) > 0.7


def test_equal_rows_have_p_1() -> None:
    table = made_up(1.0, 0)
    for row in compare(table, table, CLASSES):
        assert row["difference"] == 0 and row["wilcoxon_p"] == 1 and row["corrected_t_p"] == 1
    assert compare(table, table, CLASSES)[0]["permutation_p"] == 1


def test_a_difference_without_spread_is_said_to_have_no_t_test() -> None:
    right = made_up(9.0, 1)
    right["predicted"] = right["label"]
    flipped = {"control": "patient", "patient": "control"}
    wrong = right.assign(predicted=right["label"].map(flipped), p_control=right["p_patient"])
    accuracy = compare(right, wrong, CLASSES)[0]
    assert accuracy["difference"] == 1 and np.isnan(accuracy["corrected_t_p"]) and accuracy["note"] == NO_SPREAD
    assert NO_SPREAD not in compare(right[right["fold"] == 0], wrong, CLASSES)[0]["note"]


def test_swapping_rows_turns_the_difference_and_keeps_p() -> None:
    good, bad = made_up(1.5, 1), made_up(0.5, 2)
    for one, other in zip(compare(good, bad, CLASSES), compare(bad, good, CLASSES), strict=True):
        assert one["difference"] == pytest.approx(-other["difference"])
        for test in ("wilcoxon_p", "corrected_t_p"):
            assert one[test] == pytest.approx(other[test])
    accuracy = compare(good, bad, CLASSES)[0]
    assert accuracy["pooled_difference"] > 0.1 and accuracy["permutation_p"] < 0.01
    assert accuracy["wilcoxon_p"] < accuracy["corrected_t_p"]  # corrected for the overlap of training sets
    assert (accuracy["n_folds"], accuracy["n_scans"], accuracy["n_groups"]) == (10, 120, 120)


def test_ratio_is_that_of_the_test_to_the_training_scans() -> None:
    good, bad = made_up(1.5, 1), made_up(0.5, 2)
    tests = [t[t.role == "test"] for t in (good, bad)]
    right = [(t.label == t.predicted).groupby(t.fold).mean() for t in tests]
    d = (right[0] - right[1]).to_numpy()
    assert compare(good, bad, CLASSES)[0]["corrected_t_p"] == pytest.approx(corrected_t(d, 12 / 96))


def test_only_what_both_predicted_enters() -> None:
    good, bad = made_up(1.5, 1), made_up(0.5, 2)
    fewer = bad[(bad.fold < 4) & (bad.scan_id != "g000-0")]
    rows = compare(good, fewer, CLASSES)
    assert (rows[0]["n_folds"], rows[0]["n_scans"]) == (4, 47)
    assert np.isnan(rows[0]["wilcoxon_p"]) and "4 of at least 6" in rows[0]["note"]
    nothing = compare(good[good.fold < 4], bad[bad.fold > 5], CLASSES)
    assert nothing[0]["note"] == "no fold that both finished" and "permutation_p" not in nothing[0]


def test_scans_of_a_family_are_flipped_together() -> None:
    """Ten equal scans of a subject are not ten subjects."""
    once = [made_up(skill, seed, n=40) for skill, seed in ((1.2, 5), (0.4, 6))]
    tenfold = [
        pd.concat([table.assign(scan_id=table.scan_id + f"-{i}") for i in range(10)], ignore_index=True)
        for table in once
    ]
    alone = tenfold[0].assign(group=tenfold[0].scan_id), tenfold[1].assign(group=tenfold[1].scan_id)
    single, together, apart = (compare(*pair, CLASSES)[0]["permutation_p"] for pair in (once, tenfold, alone))
    assert together == pytest.approx(single, rel=0.15)
    assert apart < 0.2 * together


def test_seeds_of_a_fold_are_averaged() -> None:
    good, bad = made_up(1.5, 1), made_up(0.5, 2)
    both = pd.concat([good, made_up(1.5, 3).assign(seed=1)], ignore_index=True)
    others = pd.concat([bad, made_up(0.5, 4).assign(seed=1)], ignore_index=True)
    row = compare(both, others, CLASSES)[0]
    assert (row["n_folds"], row["n_scans"]) == (10, 120)
    first, second = compare(good, bad, CLASSES)[0], compare(made_up(1.5, 3), made_up(0.5, 4), CLASSES)[0]
    assert row["difference"] == pytest.approx((first["difference"] + second["difference"]) / 2)
    assert row["pooled_difference"] == pytest.approx((first["pooled_difference"] + second["pooled_difference"]) / 2)


def test_every_test_is_corrected_for_the_rows_of_its_metric() -> None:
    rows = {"BolT": made_up(1.5, 1), "a": made_up(0.5, 2), "b": made_up(1.0, 3), "c": made_up(1.5, 4)}
    table = compare_all(rows, "BolT", CLASSES)
    assert table["row"].unique().tolist() == ["a", "b", "c"]
    own = table[table.metric == "accuracy"]
    for test in TESTS:
        p, corrected = own[test].to_numpy(), own[f"{test}_holm"].to_numpy()
        assert corrected.min() == pytest.approx(min(1, 3 * p.min()))
        assert (corrected >= p).all()
    of_scans = table["metric"].isin(["accuracy", "brier", "log_loss"])
    assert (table["permutation_p"].notna() == of_scans).all()


def test_numbers_are_compared_by_their_errors() -> None:
    random = np.random.default_rng(0)
    near, far = (made_up(1, 0).drop(columns=["p_control", "p_patient"]) for _ in range(2))
    truth = near["group"].astype(float)
    near["label"], far["label"] = truth, truth
    near["predicted"], far["predicted"] = (
        truth + random.normal(0, 5, len(truth)),
        truth + random.normal(0, 30, len(truth)),
    )
    found = {row["metric"]: row for row in compare(near, far, None)}
    assert (
        found["mae"]["difference"] == pytest.approx(found["mae"]["pooled_difference"])
        and found["mae"]["difference"] < 0
    )
    assert found["mae"]["permutation_p"] < 0.01 and found["r"]["difference"] > 0
