"""Metrics against numbers worked out by hand and against scikit-learn."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    log_loss,
    precision_score,
    recall_score,
    roc_auc_score,
)

from bolt.evaluate.calibration import SMALLEST, reliability
from bolt.evaluate.classes import scores
from bolt.evaluate.intervals import intervals
from bolt.evaluate.metrics import by_site, fold_metrics, pooled, summarise, write_metrics
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_status
from bolt.report.sections.explanation.measures import averaged
from bolt.report.tables import readable

CLASSES = ["control", "patient"]


def predictions(labels: list[str], positive: list[float], fold: int = 0, role: str = "test") -> pd.DataFrame:
    """Return rows of a predictions table for two classes."""
    names = [f"sub-{fold}{i:02d}" for i in range(len(labels))]
    return pd.DataFrame(
        {
            "scan_id": [f"{n}_task-rest" for n in names],
            "subject": names,
            "group": names,
            "site": "a",
            "role": role,
            "fold": fold,
            "seed": 0,
            "label": labels,
            "predicted": [CLASSES[int(p > 0.5)] for p in positive],
            "p_control": 1 - np.array(positive),
            "p_patient": positive,
        }
    )


def write_fold(run: Path, fold: int, table: pd.DataFrame) -> None:
    folder = run / f"fold-{fold}"
    folder.mkdir(parents=True)
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    write_status(folder / "status.json", "ok", "train")


def test_two_classes_by_hand() -> None:
    table = predictions(["control", "control", "patient", "patient", "patient"], [0.1, 0.7, 0.9, 0.6, 0.2])
    values = fold_metrics(table, CLASSES)
    assert values["accuracy"] == pytest.approx(3 / 5)
    assert values["recall"] == pytest.approx(2 / 3)
    assert values["precision"] == pytest.approx(2 / 3)
    assert values["auc"] == pytest.approx(4 / 6)  # four of six control-patient pairs in the right order


def test_the_positive_class_is_the_last() -> None:
    table = predictions(["control"] * 3 + ["patient"], [0.1, 0.1, 0.1, 0.1])
    assert fold_metrics(table, CLASSES)["recall"] == 0.0
    assert fold_metrics(table, CLASSES[::-1])["recall"] == 1.0


def test_more_classes_are_macro_averages_as_in_scikit_learn() -> None:
    random = np.random.default_rng(0)
    classes = ["a", "b", "c"]
    p = random.dirichlet(np.ones(3), 60)
    truth, guess = random.integers(3, size=60), p.argmax(axis=1)
    table = pd.DataFrame({"scan_id": [str(i) for i in range(60)], "label": np.array(classes)[truth]})
    table["predicted"] = np.array(classes)[guess]
    table[[f"p_{c}" for c in classes]] = p
    values = fold_metrics(table, classes)
    assert values["recall"] == pytest.approx(recall_score(truth, guess, average="macro"))
    assert values["precision"] == pytest.approx(precision_score(truth, guess, average="macro"))
    assert values["auc"] == pytest.approx(roc_auc_score(truth, p, multi_class="ovr"))


def test_weighted_scores_agree_with_scikit_learn() -> None:
    random = np.random.default_rng(2)
    truth, guess = random.integers(2, size=50), random.integers(2, size=50)
    p = np.round(random.uniform(size=50), 1)  # many ties
    weights = random.integers(0, 4, size=(3, 50)).astype(float)
    values = scores(truth, guess, np.stack([1 - p, p], axis=1), weights)
    for i, weight in enumerate(weights):
        assert values["auc"][i] == pytest.approx(roc_auc_score(truth, p, sample_weight=weight))
        assert values["recall"][i] == pytest.approx(recall_score(truth, guess, sample_weight=weight))
        assert values["precision"][i] == pytest.approx(precision_score(truth, guess, sample_weight=weight))


def test_one_class_has_no_auc_and_says_so(tmp_path: Path) -> None:
    write_fold(tmp_path, 0, predictions(["patient", "patient"], [0.9, 0.2]))
    table, _ = summarise(tmp_path, [0], CLASSES)
    assert np.isnan(table.loc[0, "auc"]) and "control" in table.loc[0, "note"]
    assert table.loc[0, "accuracy"] == 0.5


def test_a_missing_and_a_failed_fold_are_listed_not_averaged(tmp_path: Path) -> None:
    write_fold(tmp_path, 0, predictions(["control", "patient"], [0.1, 0.9]))
    write_fold(tmp_path, 1, predictions(["control", "patient"], [0.9, 0.9], fold=1))
    (tmp_path / "fold-2").mkdir()
    write_status(tmp_path / "fold-2" / "status.json", "failed", "train", DataError("loss is NaN"))
    write_metrics(tmp_path, CLASSES, range(4), tmp_path)
    table = read_table(tmp_path / "metrics.tsv", text=("fold",)).set_index("fold")
    assert table["state"].tolist()[:4] == ["ok", "ok", "failed", "missing"]
    assert "NaN" in table.loc["2", "note"]
    assert table.loc["mean", "accuracy"] == pytest.approx(0.75) and table.loc["mean", "n_test"] == 2
    assert table.loc["sd", "accuracy"] == pytest.approx(0.25)  # ddof 0
    assert "2, 3" in table.loc["mean", "note"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["missing_folds"] == [2, 3]
    assert summary["pooled"]["accuracy"]["value"] == pytest.approx(0.75)


def test_a_single_fold_has_no_deviation(tmp_path: Path) -> None:
    """Zero would say that folds are alike."""
    write_fold(tmp_path, 0, predictions(["control", "patient"] * 2, [0.1, 0.9, 0.2, 0.4]))
    table, _ = summarise(tmp_path, [0, 1], CLASSES)
    rows = table.set_index("fold")
    assert rows.loc["mean", "accuracy"] == 0.75 and np.isnan(rows.loc["sd", "accuracy"])


def test_training_rows_are_never_judged(tmp_path: Path) -> None:
    right = predictions(["control", "patient"], [0.1, 0.9])
    wrong = predictions(["control", "patient"] * 10, [0.9, 0.1] * 10, role="train")
    write_fold(tmp_path, 0, pd.concat([wrong, right]))
    table, tests = summarise(tmp_path, [0], CLASSES)
    assert table.loc[0, "accuracy"] == 1.0 and len(tests) == 2


def test_interval_covers_the_value_and_widens_with_families() -> None:
    random = np.random.default_rng(1)
    labels = random.choice(CLASSES, 40).tolist()
    table = predictions(labels, random.uniform(size=40).tolist())
    alone = pooled(table, CLASSES)
    # ten copies of each scan, as scans of one subject, add no information
    tenfold = pd.concat([table] * 10, ignore_index=True)
    several = tenfold.assign(scan_id=[str(i) for i in range(400)])
    families = pooled(several, CLASSES)
    naive = pooled(several.assign(group=several["scan_id"]), CLASSES)

    def width(summary: dict) -> float:
        return summary["accuracy"]["high"] - summary["accuracy"]["low"]

    assert alone["accuracy"]["low"] < alone["accuracy"]["value"] < alone["accuracy"]["high"]
    assert width(families) == pytest.approx(width(alone), rel=0.15)
    assert width(naive) < 0.5 * width(families)


def test_majority_and_confusion() -> None:
    table = predictions(["control"] * 3 + ["patient"], [0.1, 0.9, 0.2, 0.8])
    summary = pooled(table, CLASSES, draws=10)
    assert summary["majority_accuracy"] == 0.75
    assert summary["confusion"].tolist() == [[2, 1], [0, 1]]
    assert pooled(table, CLASSES, draws=10)["accuracy"] == summary["accuracy"]  # seeded


def test_unknown_label_and_lost_probability_are_refused() -> None:
    table = predictions(["control", "patient"], [0.1, 0.9])
    with pytest.raises(DataError, match="patient"):
        fold_metrics(table, ["control", "other"])
    with pytest.raises(DataError, match="sub-001_task-rest"):
        fold_metrics(table.assign(p_patient=[0.1, np.nan]), CLASSES)


def test_no_fold_at_all_gives_empty_results(tmp_path: Path) -> None:
    write_metrics(tmp_path, CLASSES, range(2), tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["pooled"] is None
    assert read_table(tmp_path / "metrics.tsv")["accuracy"].isna().all()


def test_metrics_beside_the_papers_agree_with_scikit_learn() -> None:
    random = np.random.default_rng(3)
    for n_classes in (2, 3):
        p = random.dirichlet(np.ones(n_classes), 80)
        truth, guess = random.integers(n_classes, size=80), p.argmax(axis=1)
        values = scores(truth, guess, p)
        assert values["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, guess))
        summed = ((p - np.eye(n_classes)[truth]) ** 2).sum(axis=1).mean()
        brier = brier_score_loss(truth, p[:, 1]) if n_classes == 2 else summed
        assert values["brier"] == pytest.approx(brier)


def test_log_loss_is_scikit_learns_and_finite() -> None:
    random = np.random.default_rng(3)
    for n_classes in (2, 3):
        p = random.dirichlet(np.ones(n_classes), 80)
        truth = random.integers(n_classes, size=80)
        values = scores(truth, p.argmax(axis=1), p)
        assert values["log_loss"] == pytest.approx(log_loss(truth, p, labels=range(n_classes)))
    certain = np.array([[1.0, 0.0]])
    wrong, right = (scores(np.array([truth]), np.array([0]), certain)["log_loss"] for truth in (1, 0))
    assert wrong == pytest.approx(-np.log(SMALLEST)) and right == 0


def test_calibration_error_by_hand() -> None:
    p = np.array([0.9, 0.9, 0.9, 0.9, 0.4])  # patients; the last is a control with 0.6
    truth, guess = np.array([1, 1, 1, 0, 0]), np.array([1, 1, 1, 1, 0])
    bins = reliability(truth, guess, np.stack([1 - p, p], axis=1), draws=20_000)
    assert bins["ece"] == pytest.approx(0.8 * abs(0.75 - 0.9) + 0.2 * abs(1 - 0.6))
    # of four scans with 0.9, k are right: binomial; the scan with 0.6 is off by 0.4 (right) or 0.6
    four = sum(stats.binom.pmf(k, 4, 0.9) * abs(k / 4 - 0.9) for k in range(5))
    assert bins["ece_if_calibrated"] == pytest.approx(0.8 * four + 0.2 * (0.6 * 0.4 + 0.4 * 0.6), rel=0.02)
    assert bins["n_scans"] == [1, 4] and bins["accuracy"] == [1.0, 0.75]
    assert bins["probability"] == pytest.approx([0.6, 0.9])


def test_calibration_error_tells_honest_from_overconfident() -> None:
    random = np.random.default_rng(4)
    p = random.uniform(size=20_000)
    truth = (random.uniform(size=20_000) < p).astype(int)
    bold = p**3 / (p**3 + (1 - p) ** 3)
    honest, wrong = (
        reliability(truth, (q > 0.5).astype(int), np.stack([1 - q, q], axis=1), draws=20) for q in (p, bold)
    )
    assert honest["ece"] < 0.02 < 0.1 < wrong["ece"]
    assert honest["ece"] < 2 * honest["ece_if_calibrated"] and wrong["ece"] > 5 * wrong["ece_if_calibrated"]


def test_seeds_are_not_further_scans_for_the_error_of_a_calibrated_model() -> None:
    random = np.random.default_rng(4)
    p = random.uniform(0.5, 1, size=60)
    truth, probability = np.ones(60, int), np.stack([1 - p, p], axis=1)
    once = reliability(truth, truth, probability)["ece_if_calibrated"]
    five = [np.concatenate([part] * 5) for part in (truth, truth, probability)]
    assert reliability(*five, np.tile(np.arange(60), 5))["ece_if_calibrated"] == pytest.approx(once)
    assert reliability(*five)["ece_if_calibrated"] < 0.6 * once


def test_sites_are_judged_apart(tmp_path: Path) -> None:
    table = predictions(["control", "patient"] * 6, [0.1, 0.9] * 3 + [0.9, 0.1] * 3).assign(site=["a"] * 6 + ["b"] * 6)
    write_fold(tmp_path, 0, table)
    write_metrics(tmp_path, CLASSES, [0], tmp_path)
    sites = json.loads((tmp_path / "summary.json").read_text())["sites"]
    assert [(s["site"], s["n_scans"], s["accuracy"]["value"], s["auc"]["value"]) for s in sites] == [
        ("a", 6, 1.0, 1.0),
        ("b", 6, 0.0, 0.0),
    ]
    assert by_site(table.assign(site="a"), CLASSES) == [] == by_site(table.assign(site=None), CLASSES)


def test_weights_are_counts_of_scans_whatever_their_sum() -> None:
    """A bootstrap by families draws more or fewer scans than there are."""
    random = np.random.default_rng(3)
    n, p = 30, random.uniform(0.05, 0.95, 30)
    truth, probability = random.integers(2, size=n), np.c_[1 - p, p]
    counts = random.integers(0, 4, size=(5, n))
    assert (counts.sum(axis=1) != n).all()
    weighted = scores(truth, (p > 0.5).astype(int), probability, counts.astype(float))
    for draw, count in enumerate(counts):
        rows = np.repeat(np.arange(n), count)
        alone = scores(truth[rows], (p > 0.5).astype(int)[rows], probability[rows])
        for metric, values in weighted.items():
            assert values[draw] == pytest.approx(alone[metric][0]), metric


def test_a_class_that_nobody_has_is_no_part_of_an_average() -> None:
    truth, predicted = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
    values = scores(truth, predicted, np.eye(3)[predicted])
    assert values["recall"][0] == values["balanced_accuracy"][0] == pytest.approx((1 / 2 + 1) / 2)
    assert values["precision"][0] == pytest.approx((1 + 1) / 2)  # of the third class, which was only called, none
    assert np.isnan(values["auc"][0])


def test_intervals_include_the_variation_between_seeds() -> None:
    """One seed is always right, the other always wrong: their mean is one half in all subjects, yet unknown."""
    labels = ["control", "patient"] * 4
    right = [0.1, 0.9] * 4
    tables = [
        predictions(labels, values, fold).assign(seed=seed)
        for fold in (0, 1)
        for seed, values in ((0, right), (1, [1 - p for p in right]))
    ]
    for over_folds in (True, False):
        found = intervals(pd.concat(tables, ignore_index=True), CLASSES, over_folds=over_folds)
        for metric in ("accuracy", "balanced_accuracy", "auc", "brier", "log_loss"):
            low, high = found[metric]
            assert low < 0.05 and high > 0.95, metric
    copies = [table.assign(seed=seed) for table in tables[::2] for seed in (0, 1)]
    found = intervals(pd.concat(copies, ignore_index=True), CLASSES, over_folds=True)
    alone = intervals(pd.concat(tables[::2], ignore_index=True), CLASSES, over_folds=True)
    for metric in ("accuracy", "recall", "auc"):  # equal predictions by two seeds are those of one
        assert found[metric] == pytest.approx(alone[metric]), metric


def test_families_widen_an_interval_that_their_copies_would_narrow() -> None:
    random = np.random.default_rng(1)
    labels = random.choice(CLASSES, 30).tolist()
    table = predictions(labels, random.uniform(0, 1, 30).tolist())
    copies = pd.concat([table.assign(scan_id=table.scan_id + f"_{i}") for i in range(4)], ignore_index=True)
    alone = pooled(copies.assign(group=copies.scan_id), CLASSES)["accuracy"]
    family, once = (pooled(one, CLASSES)["accuracy"] for one in (copies, table))
    width = {name: found["high"] - found["low"] for name, found in (("alone", alone), ("family", family), ("1", once))}
    assert width["family"] == pytest.approx(width["1"], rel=0.15) and width["alone"] < 0.65 * width["family"]


def test_intervals_are_the_same_again_and_depend_on_the_seed() -> None:
    random = np.random.default_rng(0)
    table = predictions(["control", "patient"] * 20, random.random(40).tolist())
    first, again, other = (pooled(table, CLASSES, seed=seed)["brier"] for seed in (0, 0, 1))
    assert first == again and first != other


def test_the_summary_names_the_positive_one_of_two_classes(tmp_path: Path) -> None:
    write_fold(tmp_path, 0, predictions(["control", "patient"] * 4, [0.2, 0.8] * 4))
    write_metrics(tmp_path, CLASSES, [0], tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text())["positive_class"] == "patient"
    three = predictions(["control", "patient"] * 4, [0.2, 0.8] * 4).assign(p_other=0.0)
    write_fold(tmp_path / "three", 0, three)
    write_metrics(tmp_path / "three", [*CLASSES, "other"], [0], tmp_path / "three")
    assert json.loads((tmp_path / "three/summary.json").read_text())["positive_class"] is None


def test_folds_that_were_not_asked_for_are_part_of_the_whole(tmp_path: Path) -> None:
    """Two of four folds: half of the scans are tested, and nothing calls that all."""
    for fold in (0, 1):
        test = predictions(["control", "patient"] * 3, [0.2, 0.8] * 3, fold)
        rest = predictions(["control", "patient"] * 9, [0.2, 0.8] * 9, fold + 10, role="train").assign(fold=fold)
        write_fold(tmp_path, fold, pd.concat([test, rest], ignore_index=True))
    write_metrics(tmp_path, CLASSES, [0, 1], tmp_path, outer=4)
    summary = json.loads((tmp_path / "summary.json").read_text())
    for part in ("pooled", "chance"):
        assert (summary[part]["outer_folds"], summary[part]["n_all_scans"]) == (4, 24)
    assert summary["pooled"]["n_scans"] == 12 and summary["chance"]["n_folds"] == 2
    row = readable.comparison(
        {"bolt": (read_table(tmp_path / "metrics.tsv", text=("fold", "state")), summary["pooled"])}
    )
    assert row[["folds", "test scans"]].iloc[0].tolist() == ["2 of 4", "12 of 24"]
    assert averaged(summary["chance"]) == "mean over 2 of 4 folds"
    assert averaged({"n_folds": 1, "outer_folds": 4}) == "one of 4 folds"
    assert averaged({"n_folds": 1, "outer_folds": 1}) == "one fold" and averaged({"n_folds": 3}) == "mean over 3 folds"


def test_the_auc_compares_predictions_of_one_model_only() -> None:
    """Ties, classes that a fold lacks and weights included: the pairs within folds, counted one by one."""
    random = np.random.default_rng(4)
    n = 60
    truth, fold, p = random.integers(2, size=n), random.integers(5, size=n), random.integers(1, 9, n) / 10
    truth[fold == 4] = 1
    probability, weights = np.c_[1 - p, p], random.integers(0, 3, (4, n)).astype(float)
    found = scores(truth, (p > 0.5).astype(int), probability, weights, fold)["auc"]
    for draw, weight in enumerate(weights):
        pairs = ordered = 0.0
        for i, j in product(np.flatnonzero(truth), np.flatnonzero(truth == 0)):
            if fold[i] == fold[j]:
                pairs += weight[i] * weight[j]
                ordered += weight[i] * weight[j] * ((p[i] > p[j]) + 0.5 * (p[i] == p[j]))
        assert found[draw] == pytest.approx(ordered / pairs)


def test_a_model_that_sees_nothing_is_at_chance_whatever_its_folds_hold(tmp_path: Path) -> None:
    """Leave-site-out: the majority of the other sites is the minority of the tested one, which would give AUC 0."""
    tables = []
    for fold, share in enumerate((0.2, 0.5, 0.8)):
        labels = ["patient"] * round(20 * share) + ["control"] * round(20 * (1 - share))
        tables.append(predictions(labels, [0.5 - 0.3 * (share - 0.5)] * 20, fold).assign(site=f"site{fold}"))
    table = pd.concat(tables, ignore_index=True).assign(scan_id=lambda t: [f"s{i}" for i in range(len(t))])
    assert roc_auc_score(table.label == "patient", table.p_patient) < 0.4
    assert pooled(table, CLASSES)["auc"]["value"] == 0.5
    assert [site["auc"]["value"] for site in by_site(table, CLASSES)] == [0.5] * 3


def test_sites_are_compared_by_ranks_within_folds() -> None:
    """A shift between folds does not reach the AUC of a site whose scans are spread over them."""
    random = np.random.default_rng(5)
    fold, site = np.repeat(range(5), 40), np.tile(["a", "b"], 100)
    labels = np.where(random.random(200) < 0.5, "patient", "control")
    logit = random.normal(np.where(labels == "patient", 1.0, 0.0)) + np.array([0, 4, -4, 2, -2])[fold]
    table = predictions(list(labels), list(1 / (1 + np.exp(-logit)))).assign(fold=fold, site=site)
    for about in by_site(table, CLASSES):
        assert about["auc"]["value"] > 0.7
        own = table[table.site == about["site"]]
        assert roc_auc_score(own.label == "patient", own.p_patient) < 0.65


# ---- temperature scaling ---------------------------------------------------------------------------------------------
def overconfident(random: np.random.Generator, fold: int, role: str, n: int = 300) -> pd.DataFrame:
    """Return predictions whose log odds are three times what they should be."""
    log_odds = random.normal(0, 1, n)
    labels = [CLASSES[int(y)] for y in random.random(n) < 1 / (1 + np.exp(-log_odds))]
    table = predictions(labels, list(1 / (1 + np.exp(-3 * log_odds))), fold, role)
    return table.assign(scan_id=[f"{role}-{name}" for name in table["scan_id"]])


def test_the_temperature_of_the_validation_scans_mends_overconfidence(tmp_path):
    random = np.random.default_rng(0)
    for fold in (0, 1):
        parts = [overconfident(random, fold, role) for role in ("train", "validation", "test")]
        write_fold(tmp_path, fold, pd.concat(parts))
    _, tests = summarise(tmp_path, [0, 1], CLASSES)
    assert set(tests["role"]) == {"test"} and tests["temperature"].nunique() == 2
    summary = pooled(tests, CLASSES)
    calibrated = summary["calibrated"]
    assert calibrated["temperature"] == pytest.approx(3, rel=0.25)
    assert calibrated["ece"] < summary["calibration"]["ece"] / 2
    log_odds = np.log(tests["p_patient"] / tests["p_control"]) / tests["temperature"]
    by_hand = brier_score_loss(tests["label"] == "patient", 1 / (1 + np.exp(-log_odds)))
    assert calibrated["brier"] == pytest.approx(by_hand) and by_hand < summary["brier"]["value"]
    assert "scaled, temperature" in "".join(readable.calibration(summarise(tmp_path, [0, 1], CLASSES)[0], summary))


def test_without_validation_scans_nothing_is_scaled(tmp_path):
    write_fold(tmp_path, 0, overconfident(np.random.default_rng(0), 0, "test"))
    table, tests = summarise(tmp_path, [0], CLASSES)
    summary = pooled(tests, CLASSES)
    assert tests["temperature"].isna().all() and "calibrated" not in summary
    assert list(readable.calibration(table, summary)) == ["", "all test scans [95 %]", "over folds"]


def test_the_auc_of_all_scans_compares_within_folds_and_another_across_as_scikit_learns_does() -> None:
    table = predictions(["control", "patient"] * 8, list(np.random.default_rng(3).uniform(size=16)))
    table["fold"] = np.repeat([0, 1], 8)
    table.loc[table["fold"] == 1, "p_patient"] /= 3  # a model of another scale
    table["p_control"] = 1 - table["p_patient"]
    summary = pooled(table, CLASSES, draws=10)
    truth = table["label"] == "patient"
    folds = [roc_auc_score(truth[part.index], part["p_patient"]) for _, part in table.groupby("fold")]
    assert summary["auc"]["value"] == pytest.approx(np.mean(folds))
    assert summary["auc_across"] == pytest.approx(roc_auc_score(truth, table["p_patient"])) != summary["auc"]["value"]
    twice = pd.concat([table.assign(seed=0), table.assign(seed=1, p_patient=table["p_patient"] / 4)])
    assert pooled(twice, CLASSES, draws=10)["auc_across"] == pytest.approx(summary["auc_across"])
