"""Planted imbalance between classes is found, and described in words."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bolt.cohort.confounding import TEST_COLUMNS, compare, holm
from tests.shared import shared_data

CLASSES = ["control", "patient"]


def cohort(n=200, seed=0, **columns):
    random = np.random.default_rng(seed)
    label = np.array(CLASSES)[np.arange(n) % 2]
    table = {"subject": [f"s{i}" for i in range(n)], "label": label, "site": random.choice(list("xyz"), n)}
    table |= {"sex": random.choice(list("FM"), n), "age": random.uniform(8, 60, n)}
    table |= {"mean_fd": random.gamma(2, 0.1, n)}
    return pd.DataFrame(table | {name: make(label, random) for name, make in columns.items()})


def by_measure(scans, classes=CLASSES):
    return compare(scans, classes).set_index("measure")


PLANTED = {
    "Site": ("site", lambda label, random: np.where(random.random(len(label)) < 0.5, label, "z")),
    "Sex": (
        "sex",
        lambda label, random: np.where((random.random(len(label)) < 0.6) & (label != "patient"), "F", "M"),
    ),
    "Age": ("age", lambda label, random: random.normal(30, 8, len(label)) + 8 * (label == "patient")),
    "Head motion": ("mean_fd", lambda label, random: random.gamma(2, 0.1, len(label)) * (1 + (label == "patient"))),
}


@pytest.mark.parametrize("measure", PLANTED)
def test_what_was_planted_is_found_and_nothing_else(measure):
    column, make = PLANTED[measure]
    table = by_measure(cohort(**{column: make}))
    assert (table["p_holm"] < 0.05).to_dict() == {name: name == measure for name in PLANTED}
    assert table.loc[measure, "words"].startswith(f"{measure} differs between classes: ")
    assert not table.drop(measure)["verdict"].eq("differs").any()


def test_the_numbers_are_scipys():
    scans = cohort(mean_fd=PLANTED["Head motion"][1])
    table = by_measure(scans)
    parts = [scans.loc[scans["label"] == name, "mean_fd"] for name in CLASSES]
    assert table.loc["Head motion", "p"] == pytest.approx(stats.mannwhitneyu(*parts).pvalue)
    larger = np.mean([b > a for a in parts[0] for b in parts[1]])
    assert table.loc["Head motion", "effect"] == pytest.approx(2 * larger - 1)
    counts = pd.crosstab(scans["label"], scans["site"])
    assert table.loc["Site", "p"] == pytest.approx(stats.chi2_contingency(counts).pvalue)
    assert list(table.reset_index()) == ["measure", *list(TEST_COLUMNS)[1:]]


def test_holm_is_statsmodels():
    p = pd.Series([0.04, np.nan, 0.01, 0.03, 0.5])
    expected = multipletests(p.dropna(), method="holm")[1]
    np.testing.assert_allclose(holm(p).dropna(), expected)
    assert np.isnan(holm(p)[1])


def test_small_tables_are_judged_exactly():
    scans = pd.DataFrame({"subject": list("abcdefghijkl"), "label": ["a"] * 6 + ["b"] * 6})
    scans["sex"], scans["site"] = list("MMMMMM") + list("FFFFFM"), list("xxyyzz") * 2
    table = by_measure(scans, ["a", "b"])
    assert table.loc["Sex", "test"] == "Fisher's exact test"
    assert table.loc["Sex", "p"] == pytest.approx(stats.fisher_exact(pd.crosstab(scans["label"], scans["sex"])).pvalue)
    assert table.loc["Site", "test"] == "chi-square by permutation"
    assert table.loc["Site", "p"] > 0.9 and table.loc["Site", "effect"] == 0


@pytest.mark.slow
def test_many_sites_alone_are_no_effect(monkeypatch):
    """Uncorrected Cramér's V of 40 sites and 200 participants is about 0.45 by chance."""
    monkeypatch.setattr("bolt.cohort.association.N_PERMUTATIONS", 99)
    sites = {"site": lambda label, random: random.integers(0, 40, len(label)).astype(str)}
    effects = [by_measure(cohort(seed=seed, **sites)).loc["Site", "effect"] for seed in range(5)]
    assert np.mean(effects) < 0.15


def test_each_participant_is_counted_once():
    scans = cohort(40)
    thrice = pd.concat([scans.assign(mean_fd=scans["mean_fd"] + more) for more in (0, 0.1, -0.1)])
    pd.testing.assert_frame_equal(compare(scans, CLASSES), compare(thrice, CLASSES))


def test_unknown_measures_are_reported():
    scans = cohort(40).assign(site="here", sex=None, age=np.nan)
    table = by_measure(scans)
    assert (
        "the same for all participants: here" in table.loc["Site", "words"] and "unknown" in table.loc["Sex", "words"]
    )
    assert table.loc["Age", "n"] == 0 and np.isnan(table.loc["Age", "p"])
    assert table.loc["Head motion", "p"] == table.loc["Head motion", "p_holm"]  # a single test needs no correction
    one_class = cohort(40)
    one_class.loc[one_class["label"] == "patient", "age"] = np.nan
    assert "known for one class only: control" in by_measure(one_class).loc["Age", "words"]


def test_three_classes_and_numbers():
    scans = cohort(150).assign(label=np.repeat(["a", "b", "c"], 50))
    scans["age"] += 10 * (scans["label"] == "c")
    table = by_measure(scans, ["a", "b", "c"])
    assert table.loc["Age", "test"] == "Kruskal–Wallis" and table.loc["Age", "p_holm"] < 0.05
    scans["label"] = scans["mean_fd"] * 3 + 1
    table = by_measure(scans, None)
    assert table.loc["Head motion", "test"] == "Spearman correlation" and table.loc["Head motion", "effect"] > 0.999
    assert table.loc["Site", "test"] == "Kruskal–Wallis" and table.loc["Sex", "test"] == "Mann–Whitney"
    assert table.loc["Head motion", "words"].startswith("Head motion is associated with the label: ")


def test_head_motion_differs_in_abide():
    table = pd.read_csv(shared_data("abide1") / "Phenotypic_V1_0b_preprocessed1.csv")
    raters = table[["qc_anat_rater_2", "qc_func_rater_2", "qc_anat_rater_3", "qc_func_rater_3"]]
    table = table[(table["FILE_ID"] != "no_filename") & (table["qc_rater_1"] == "OK") & ~(raters == "fail").any(axis=1)]
    scans = pd.DataFrame({"subject": table["SUB_ID"].astype(str), "site": table["SITE_ID"]})
    scans["label"], scans["sex"] = table["DX_GROUP"].map({1: "autism", 2: "control"}), table["SEX"].map(str)
    scans["age"], scans["mean_fd"] = table["AGE_AT_SCAN"], table["func_mean_fd"]
    tests = by_measure(scans, ["control", "autism"])
    assert len(scans) == 871 and tests.loc["Head motion", "p_holm"] < 0.001
    assert "mean 0.126 (autism) against 0.094 (control) mm, Welch p < 0.001" in tests.loc["Head motion", "words"]
    assert (tests.drop("Head motion")["p_holm"] > 0.05).all()
