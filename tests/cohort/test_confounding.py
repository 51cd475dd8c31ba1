"""Planted imbalance between classes is found, and described in words."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from bolt.cohort.confounding import TEST_COLUMNS, compare, compare_families, compare_pairs, holm
from tests.shared import shared_data

CLASSES = ["control", "patient"]


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    """Enough for what is asserted."""
    monkeypatch.setattr("bolt.cohort.confounding.N_PERMUTATIONS", 999)
    monkeypatch.setattr("bolt.cohort.confounding.N_BOOTSTRAPS", 199)


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
    "Sex": ("sex", lambda label, random: np.where((random.random(len(label)) < 0.6) & (label != "patient"), "F", "M")),
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


def test_each_participant_is_counted_once():
    scans = cohort(40)
    thrice = pd.concat([scans.assign(mean_fd=scans["mean_fd"] + more) for more in (0, 0.1, -0.1)])
    pd.testing.assert_frame_equal(compare(scans, CLASSES), compare(thrice, CLASSES))


def test_ages_of_the_same_participants_are_the_same_however_many_scans_they_have():
    """The mean of three equal ages is another number, in its last digit, than that of one."""
    ages = [18.3 + 0.7 * i for i in range(30)]
    people = pd.DataFrame({"subject": [f"s{i}" for i in range(30)], "age": ages})
    scans = pd.concat([people.assign(label=CLASSES[0]), *[people.assign(label=CLASSES[1])] * 3], ignore_index=True)
    assert "because these are the same participants" in by_measure(scans)["words"]["Age"]


def test_unknown_measures_are_reported():
    scans = cohort(40).assign(site="here", sex=None, age=np.nan)
    table = by_measure(scans)
    words = table["words"]
    assert "the same for all participants: here" in words["Site"] and "unknown" in words["Sex"]
    assert table.loc["Age", "n"] == 0 and np.isnan(table.loc["Age", "p"])
    assert table.loc["Head motion", "p"] == table.loc["Head motion", "p_holm"]  # a single test needs no correction
    one_class = cohort(40)
    one_class.loc[one_class["label"] == "patient", "age"] = np.nan
    assert "known for one class only: control" in by_measure(one_class).loc["Age", "words"]
    numbers = cohort(40).assign(label=np.repeat([20.0, 30.0], 20))
    numbers.loc[20:, "site"], numbers.loc[2:, "age"] = None, np.nan
    words = by_measure(numbers.assign(mean_fd=numbers["mean_fd"].where(numbers.index % 20 == 0)), None)["words"]
    assert words["Site"] == "Site is known for one label only: 20.0." and "one label only" in words["Age"]
    assert words["Head motion"] == "Head motion is known for two participants only."


def test_three_classes_and_numbers():
    scans = cohort(150).assign(label=np.repeat(["a", "b", "c"], 50))
    scans["age"] += 10 * (scans["label"] == "c")
    table = by_measure(scans, ["a", "b", "c"])
    assert table.loc["Age", "test"] == "Kruskal–Wallis" and table.loc["Age", "p_holm"] < 0.05
    scans["label"] = scans["mean_fd"] * 3 + 1
    table = by_measure(scans, None)
    assert table.loc["Head motion", "test"] == "Spearman correlation" and table.loc["Head motion", "effect"] > 0.999
    assert table.loc["Site", "test"] == "Kruskal–Wallis" and table.loc["Sex", "test"] == "Mann–Whitney"


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


# ---- families are the unit, persons with all labels are compared with themselves, and words follow the effect --------
TASKS = ["EMOTION", "MOTOR", "WM"]


def families(seed, n=40, shared=True, shift=0.0):
    """Pairs of relatives whose motion is nearly the same; both have one label, or each has a label of its own."""
    random = np.random.default_rng(seed)
    label = np.repeat(random.integers(0, 2, n), 2) if shared else random.integers(0, 2, 2 * n)
    level = np.repeat(random.normal(size=n), 2) + 0.2 * random.normal(size=2 * n)
    names = [f"s{i}" for i in range(2 * n)]
    table = {"subject": names, "group": [f"f{i // 2}" for i in range(2 * n)], "label": np.array(["a", "b"])[label]}
    return pd.DataFrame(table | {"mean_fd": level + shift * label})


def tasks(n=40, more=0.0, seed=0, labels=TASKS):
    """Every person does every task, and moves `more` (a share) in the last."""
    random = np.random.default_rng(seed)
    motion = np.exp(random.normal(-2, 0.5, (n, 1)) + 0.12 * random.normal(size=(n, len(labels))))
    motion[:, -1] *= 1 + more
    table = {"subject": np.repeat([f"s{i}" for i in range(n)], len(labels)), "label": np.tile(labels, n)}
    people = pd.DataFrame(table | {"mean_fd": motion.ravel(), "site": "here"})
    number = people["subject"].str[1:].astype(int)
    return people.assign(sex=np.where(number % 2, "F", "M"), age=20.0 + number, group=people["subject"])


def motion(scans, classes):
    return by_measure(scans, classes).loc["Head motion"]


def test_relatives_with_one_label_count_once():
    scans = families(0)
    row = motion(scans, ["a", "b"])
    means = scans.groupby(["group", "label"])["mean_fd"].mean()
    parts = [means.xs(name, level="label") for name in "ab"]
    assert (row.n, row.units, row.test) == (80, 40, "Mann–Whitney")
    assert row.p == pytest.approx(stats.mannwhitneyu(*parts).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_relatives_raise_no_false_alarms(shared, monkeypatch):
    """Of 60 cohorts without any difference about 3 are significant; single participants make it about 12 if shared."""
    monkeypatch.setattr("bolt.cohort.confounding.N_PERMUTATIONS", 199)
    monkeypatch.setattr("bolt.cohort.confounding.N_BOOTSTRAPS", 3)
    rows = [motion(families(seed, 25, shared), ["a", "b"]) for seed in range(60)]
    assert sum(row.p < 0.05 for row in rows) <= 7
    assert all(row.units == 25 for row in rows)
    if shared:
        parts = (families(seed, 25).groupby("label")["mean_fd"] for seed in range(60))
        assert sum(stats.mannwhitneyu(*(part for _, part in each)).pvalue < 0.05 for each in parts) > 7


def test_a_difference_between_families_is_found():
    for shared, how in ((True, ""), (False, ", permuted between families")):
        row = motion(families(3, 60, shared, shift=1.5), ["a", "b"])
        assert row.verdict == "differs" and 0.28 < row.low < row.effect < row.high
        assert row.test == f"Mann–Whitney{how}"


def test_families_of_mixed_sexes_and_labels_are_permuted():
    """Sex and label are the same in each family of a site, so four families at two sites prove nothing."""
    scans = pd.DataFrame({"subject": [f"s{i:02d}" for i in range(40)], "group": np.repeat(list("wxyz"), 10)})
    scans = scans.assign(label=np.repeat(["a", "b"], 20), sex=np.tile(["F", "M"], 20))
    table = by_measure(scans.assign(site=np.repeat(["p", "q"], 20)), ["a", "b"])
    assert table.loc["Site", "units"] == 4 and table.loc["Site", "p"] > 0.3  # of 40 independent people: p < 1e-8
    assert table.loc["Sex", "test"].endswith("permuted between families") and table.loc["Sex", "effect"] == 0


def test_permuted_p_values_are_those_of_the_usual_test():
    """Pairs whose members have nothing in common."""
    random = np.random.default_rng(1)
    label, values = random.normal(size=200), random.normal(size=200)
    values += 0.15 * label
    alone = compare_families(label, values, np.arange(200))
    paired = compare_families(label, values, np.arange(200) // 2)
    assert alone.effect == paired.effect == pytest.approx(stats.spearmanr(label, values).statistic)
    assert alone.p == pytest.approx(stats.spearmanr(label, values).pvalue)
    assert paired.p == pytest.approx(alone.p, abs=0.02) and paired.units == 100


def test_the_same_persons_in_several_tasks_are_paired():
    scans = tasks(more=0.15)
    row = motion(scans, TASKS)
    wide = scans.pivot(index="subject", columns="label", values="mean_fd")[TASKS]
    expected = stats.friedmanchisquare(*wide.to_numpy().T)
    assert row.test == "Friedman" and row.p == pytest.approx(expected.pvalue) and row.verdict == "differs"
    assert (row.n, row.units) == (40, 40)
    w = expected.statistic / (40 * 2)
    assert row.effect == pytest.approx((40 * w - 1) / 39)
    row = motion(scans.assign(group="f" + (scans["subject"].str[1:].astype(int) // 2).astype(str)), TASKS)
    assert (row.n, row.units, row.test) == (40, 20, "Friedman")  # relatives are one unit


def test_two_tasks_are_compared_by_signed_ranks():
    scans = tasks(more=0.1, labels=["MOTOR", "WM"])
    row = motion(scans, ["MOTOR", "WM"])
    wide = scans.pivot(index="subject", columns="label", values="mean_fd")
    assert row.test == "Wilcoxon signed-rank" and row.effect > 0.3
    assert row.p == pytest.approx(stats.wilcoxon(wide["WM"], wide["MOTOR"]).pvalue)
    assert motion(scans, ["WM", "MOTOR"]).effect == pytest.approx(-row.effect)


def test_persons_without_all_tasks_do_not_count_unless_they_are_most():
    scans = tasks(more=0.3)
    few = scans[~((scans["label"] == "WM") & scans["subject"].isin([f"s{i}" for i in range(10)]))]
    assert motion(few, TASKS)[["test", "units"]].tolist() == ["Friedman", 30]
    most = scans[~((scans["label"] == "WM") & scans["subject"].isin([f"s{i}" for i in range(25)]))]
    row = motion(most, TASKS)
    assert row.test == "Kruskal–Wallis, permuted between families" and row.units == 40


def test_what_is_constant_within_persons_is_the_same_in_all_classes():
    scans = tasks()
    words = by_measure(scans, TASKS)["words"]
    assert all(f"{name} is the same in all classes" in words[name] for name in ("Sex", "Age"))
    # site confounded with the task: not constant, and not overlooked
    scanners = scans.assign(site=np.where(scans["label"] == "WM", "new", "old"))
    table = by_measure(scanners, TASKS)
    assert table.loc["Site", "verdict"] == "differs" and table.loc["Site", "p"] <= 0.001


def test_words_do_not_deny_a_plain_imbalance():
    """28.7 against 36.7 years: too few participants for a test, and nothing that excludes a difference."""
    ages = [18, 22, 25, 26, 31, 50, 19, 30, 36, 38, 45, 52]
    scans = pd.DataFrame({"subject": list("abcdefghijkl"), "label": ["control"] * 6 + ["patient"] * 6, "age": ages})
    row = by_measure(scans).loc["Age"]
    assert row.p > 0.05 and row.verdict == "may differ"
    assert "mean 36.7 (patient) against 28.7 (control) years, Welch p = 0.25; rank-biserial r 0.44 [" in row.words
    assert row.words.endswith("; the effect is not small, but 12 participants are too few to tell.")
    scans["label"] = scans["label"].map({"control": "0", "patient": "1"})
    assert "mean 36.7 (class 1) against 28.7 (class 0) years" in by_measure(scans, ["0", "1"]).loc["Age", "words"]


def test_similar_needs_enough_participants():
    values = stats.norm.ppf((np.arange(400) + 0.5) / 400)
    for n, verdict in ((16, "may differ"), (400, "similar")):
        chosen = values[:: 400 // n]
        scans = pd.DataFrame({"subject": [f"s{i}" for i in range(n)], "label": ["a", "b", "b", "a"] * (n // 4)})
        row = motion(scans.assign(mean_fd=chosen), ["a", "b"])
        assert row.verdict == verdict and abs(row.effect) < 0.05
        assert ("too few to exclude a medium effect" in row.words) == (n == 16)


def test_numbers_as_labels_have_the_same_three_verdicts():
    random = np.random.default_rng(0)
    n = 400
    scans = pd.DataFrame({"subject": [f"s{i}" for i in range(n)], "label": random.normal(size=n)})
    scans = scans.assign(sex=random.choice(["F", "M"], n), age=30 + scans["label"] + random.normal(size=n))
    table = by_measure(scans, None)
    assert table.loc["Age", "words"].startswith("Age is associated with the label: rank correlation 0.")
    assert table.loc["Sex", "verdict"] == "similar" and "weakly associated" in table.loc["Sex", "words"]
    few = by_measure(scans.head(12).assign(age=random.normal(size=12)), None)
    assert "may be associated with the label" in few.loc["Age", "words"]


def test_intervals_hold_the_true_effect():
    """Of 60 samples about 57; d = 0.5 is a rank-biserial correlation of 0.28."""
    held = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        groups = np.eye(2)[np.arange(80) % 2]
        found = compare_families(groups, random.normal(size=80) + 0.5 * groups[:, 1], np.arange(80), seed)
        held += found.low < 0.2763 < found.high
    assert 53 <= held <= 59


def test_a_task_that_differs_is_never_similar():
    """10 % more motion in one of three tasks is d = 0.56 of the paired differences."""
    verdicts = [motion(tasks(60, more=0.1, seed=seed), TASKS).verdict for seed in range(8)]
    assert verdicts.count("similar") == 0 and "differs" in verdicts


def test_effects_without_any_difference_are_about_zero():
    """Kendall's W, η² and V would otherwise be larger, the fewer there are: V of 40 sites and 200 people 0.45."""
    random = np.random.default_rng(0)
    labels, sites = (np.eye(n)[np.arange(200) % n] for n in (2, 40))
    v = [compare_families(random.permutation(labels), sites, np.arange(200)) for _ in range(5)]
    assert {found.effect_name for found in v} == {"Cramér's V"} and np.mean([found.effect for found in v]) < 0.15
    w = [compare_pairs(random.normal(size=(8, 5))) for _ in range(20)]
    assert {found.effect_name for found in w} == {"Kendall's W"} and np.mean([found.effect for found in w]) < 0.08
    assert np.mean([found.low for found in w]) < 0.03
