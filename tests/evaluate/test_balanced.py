"""Performance if the classes were alike: overlap weights, strata, and where they are refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from benchmarks.balanced import CASES, CLASSES, simulate, truth
from bolt.evaluate.balanced import ALL, BALANCED, COLUMNS, balanced, logistic, write_balanced
from bolt.io.files import read_table, write_status, write_table


def cohort(case="confounding", n=300, seed=0):
    tests, scans, _ = simulate(CASES[case], n, np.random.default_rng(seed))
    return tests, scans


def rows_of(table, population=BALANCED):
    return table[table["population"] == population].set_index("metric")


def test_the_propensity_is_that_of_scikit_learn():
    random = np.random.default_rng(0)
    x = np.c_[np.ones(80), random.normal(size=(80, 3))]
    y = (random.random(80) < 1 / (1 + np.exp(-2 * x[:, 1]))).astype(int)
    counts = random.integers(0, 3, (2, 80)).astype(float)
    for weights, beta in zip(counts, logistic(x, y, counts), strict=True):
        due = LogisticRegression(C=10, tol=1e-8).fit(x[:, 1:], y, sample_weight=weights)
        assert beta == pytest.approx([*due.intercept_, *due.coef_[0]], abs=1e-4)


def test_confounding_alone_does_not_predict_between_classes_that_are_alike():
    table = balanced(*cohort(), CLASSES)
    raw, alike = (rows_of(table, population).loc["auc"] for population in (ALL, BALANCED))
    assert raw.low > 0.5 and alike.low < 0.5 < alike.high
    assert 0.5 * raw.effective_n < alike.effective_n < raw.effective_n == raw.n_scans == 300
    assert set(table["covariates"].dropna()) == {"", "motion, age, sex, site"}


def test_within_strata_only_their_pairs_are_compared():
    tests, scans = cohort(n=120)
    tests = tests.assign(fold=0)
    table = balanced(tests, scans, CLASSES, draws=20)
    shares = {"sites": scans["site"], "tertiles of motion": pd.qcut(scans["mean_fd"], 3, labels=False)}
    for name, stratum in shares.items():
        ordered = pairs = 0
        for _, part in tests.groupby(stratum.to_numpy()):
            patients, controls = (part.loc[part["label"] == label, "p_patient"].to_numpy() for label in CLASSES[::-1])
            ordered += (patients[:, None] > controls).sum()
            pairs += len(patients) * len(controls)
        assert rows_of(table, f"within {name}").loc["auc", "value"] == pytest.approx(ordered / pairs)


def test_where_classes_hardly_overlap_there_is_a_reason_instead_of_a_number():
    tests, scans = cohort()
    patients = (tests["label"] == "patient").to_numpy()
    for motion in (np.exp(4 * patients), scans["mean_fd"] * np.exp(1.5 * patients)):
        found = rows_of(balanced(tests, scans.assign(mean_fd=motion), CLASSES, draws=20))
        assert found["value"].isna().all()
        assert found["note"].str.contains("control and patient overlap too little.* in motion: ").all()
    few = balanced(tests[~patients | (np.cumsum(patients) < 5)], scans, CLASSES)
    assert few["note"].tolist() == [
        "4 people with label patient and known motion, age, sex, site, too few to balance (at least 15)"
    ]
    unknown = balanced(tests, scans[["scan_id"]], CLASSES)
    assert unknown["note"].tolist() == ["motion, age, sex and site are unknown, or the same in all scans"]


def test_sites_of_one_class_each_are_refused_and_have_no_pairs():
    tests, scans = cohort(n=100)
    table = balanced(tests, scans.assign(site=tests["label"].to_numpy()), CLASSES, draws=20)
    assert rows_of(table)["note"].str.contains("overlap too little.* in site: ").all()
    assert "within sites" not in set(table["population"]) and "within tertiles of motion" in set(table["population"])
    apart = balanced(tests.assign(fold=(tests["label"] == "patient").astype(int)), scans, CLASSES, draws=20)
    assert rows_of(apart).loc["auc", ["value", "low", "high"]].isna().all()


def test_covariates_that_are_known_count_and_the_label_is_none():
    tests, scans = cohort()
    scans["sex"] = tests["label"].str[0].str.upper()  # classification of sex
    scans.loc[:9, "age"], scans.loc[:99, "site"] = np.nan, np.nan
    found = rows_of(balanced(tests, scans, CLASSES, draws=20))
    assert (found.loc["auc", "covariates"], found.loc["auc", "n_scans"]) == ("motion, age", 290)


def test_a_covariate_that_no_longer_varies_is_none():
    """Ages are unknown at the second site, so that its scans are left out."""
    tests, scans = cohort()
    site = np.where(np.arange(len(scans)) < 0.85 * len(scans), "A", "B")
    table = balanced(tests, scans.assign(site=site, age=scans["age"].where(site == "A")), CLASSES, draws=20)
    assert set(table["covariates"].dropna()) == {"", "motion, age, sex"}
    assert "within sites" not in set(table["population"])


def test_scans_of_one_person_are_one_draw():
    tests, scans = cohort(n=150)
    once = rows_of(balanced(tests, scans, CLASSES))
    again = [table.assign(scan_id=table["scan_id"] + "-2") for table in (tests, scans)]
    twice = rows_of(balanced(pd.concat([tests, again[0]]), pd.concat([scans, again[1]]), CLASSES))
    for name in ("low", "high", "effective_n"):
        assert twice[name].tolist() == pytest.approx(once[name].tolist(), rel=0.02)


def test_the_table_of_a_run_holds_its_finished_folds_and_nothing_for_numbers(tmp_path):
    tests, scans = cohort(n=100)
    texts = dict.fromkeys([*tests, "role", "subject"], "Test")
    for fold, part in tests.assign(role="test", subject=tests["group"]).groupby("fold"):
        write_table(part, tmp_path / f"fold-{fold}" / "predictions.tsv", texts)
        write_status(tmp_path / f"fold-{fold}" / "status.json", "ok", "train")
    write_balanced(tmp_path, CLASSES, range(6), scans.astype({"scan_id": str}), tmp_path / "two.tsv")
    assert rows_of(read_table(tmp_path / "two.tsv"), ALL).loc["auc", "n_scans"] == 100
    write_balanced(tmp_path, None, range(6), scans, tmp_path / "none.tsv")
    assert read_table(tmp_path / "none.tsv").columns.tolist() == list(COLUMNS)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["signal", "confounding", "both"])
def test_intervals_cover_the_value_of_the_balanced_population(case):
    known, covered = truth(CASES[case], 300_000)[0], []
    for seed in range(40):
        found = rows_of(balanced(*cohort(case, 200, seed), CLASSES, draws=100, seed=seed))
        covered.append((found["low"] <= pd.Series(known)) & (pd.Series(known) <= found["high"]))
    assert (pd.DataFrame(covered).mean() >= 0.85).all()  # 95 % promised, of 40
