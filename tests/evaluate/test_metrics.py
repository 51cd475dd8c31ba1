"""Metrics against numbers worked out by hand and against scikit-learn."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import metrics as sk

from bolt.evaluate.intervals import intervals
from bolt.evaluate.metrics import by_site, fold_metrics, pooled, summarise, write_metrics
from bolt.evaluate.scores import SMALLEST, number_scores, reliability, scores
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_status
from bolt.report import tables as readable
from bolt.report.pages.verdicts import averaged

CLASSES = ["control", "patient"]


def predictions(labels, positive, fold=0, role="test"):
    """Return rows of a predictions table for two classes."""
    positive, names = np.array(positive), [f"sub-{fold}{i:02d}" for i in range(len(labels))]
    table = pd.DataFrame({"scan_id": [f"{n}_task-rest" for n in names], "subject": names, "group": names, "site": "a"})
    table = table.assign(role=role, fold=fold, seed=0, label=labels, predicted=np.array(CLASSES)[(positive > 0.5) * 1])
    return table.assign(p_control=1 - positive, p_patient=positive)


def write_fold(run, fold, table):
    folder = run / f"fold-{fold}"
    folder.mkdir(parents=True)
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    write_status(folder / "status.json", "ok", "train")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_agree_with_scikit_learn_under_any_weights(n_classes):
    """A bootstrap by families draws more or fewer scans than there are."""
    random = np.random.default_rng(2)
    p = random.integers(1, 5, (60, n_classes)).astype(float)  # many ties
    p /= p.sum(axis=1, keepdims=True)
    truth, guess = random.integers(n_classes, size=60), random.integers(n_classes, size=60)
    weights = np.concatenate([np.ones((1, 60)), random.integers(0, 4, size=(3, 60))])
    values = scores(truth, guess, p, weights)
    average = "binary" if n_classes == 2 else "macro"
    for i, weight in enumerate(weights):
        own = {"sample_weight": weight}
        squared = np.average(((p - np.eye(n_classes)[truth]) ** 2).sum(axis=1), weights=weight)
        due = {
            "accuracy": sk.accuracy_score(truth, guess, **own),
            "recall": sk.recall_score(truth, guess, average=average, **own),
            "precision": sk.precision_score(truth, guess, average=average, **own),
            "auc": sk.roc_auc_score(truth, p if n_classes > 2 else p[:, 1], multi_class="ovr", **own),
            "balanced_accuracy": sk.balanced_accuracy_score(truth, guess, **own),
            "brier": squared if n_classes > 2 else sk.brier_score_loss(truth, p[:, 1], **own),
            "log_loss": sk.log_loss(truth, p, labels=range(n_classes), **own),
        }
        assert {name: value[i] for name, value in values.items()} == pytest.approx(due)
    names = np.array(list("abc"))[:n_classes]
    table = pd.DataFrame({"scan_id": range(60), "group": 0, "label": names[truth], "predicted": names[guess]})
    table[[f"p_{name}" for name in names]] = p
    summary = pooled(table, list(names), draws=10)
    assert {name: summary[name]["value"] for name in due} == pytest.approx({name: values[name][0] for name in due})
    assert summary["confusion"].tolist() == sk.confusion_matrix(truth, guess).tolist()
    assert summary["majority_accuracy"] == np.bincount(truth).max() / 60


def test_the_log_loss_of_certain_errors_is_finite():
    certain = np.array([[1.0, 0.0]])
    wrong, right = (scores(np.array([truth]), np.array([0]), certain)["log_loss"] for truth in (1, 0))
    assert wrong == pytest.approx(-np.log(SMALLEST)) and right == 0


def test_a_class_that_nobody_has_is_no_part_of_an_average():
    truth, predicted = np.array([0, 0, 1, 1]), np.array([0, 2, 1, 1])
    values = scores(truth, predicted, np.eye(3)[predicted])
    assert values["recall"][0] == values["balanced_accuracy"][0] == pytest.approx((1 / 2 + 1) / 2)
    assert values["precision"][0] == pytest.approx((1 + 1) / 2)  # of the third class, which was only called, none
    assert np.isnan(values["auc"][0])


def test_unknown_label_and_lost_probability_are_refused():
    table = predictions(["control", "patient"], [0.1, 0.9])
    with pytest.raises(DataError, match="patient"):
        fold_metrics(table, ["control", "other"])
    with pytest.raises(DataError, match="sub-001_task-rest"):
        fold_metrics(table.assign(p_patient=[0.1, np.nan]), CLASSES)


def test_one_class_has_no_auc_and_says_so(tmp_path):
    write_fold(tmp_path, 0, predictions(["patient", "patient"], [0.9, 0.2]))
    table, tests = summarise(tmp_path, [0], CLASSES)
    assert np.isnan(table.loc[0, "auc"]) and "control" in table.loc[0, "note"]
    assert table.loc[0, "accuracy"] == 0.5 and "roc" not in pooled(tests, CLASSES, draws=10)


def test_a_missing_and_a_failed_fold_are_listed_not_averaged(tmp_path):
    write_metrics(tmp_path, CLASSES, range(2), tmp_path)  # no fold at all
    assert read_json(tmp_path / "summary.json")["pooled"] is None
    wrong = predictions(["control", "patient"] * 10, [0.9, 0.1] * 10, role="train")  # is never judged
    write_fold(tmp_path, 0, pd.concat([wrong, predictions(["control", "patient"], [0.1, 0.9])]))
    rows = summarise(tmp_path, [0, 1], CLASSES)[0].set_index("fold")
    assert rows.loc["mean", "accuracy"] == 1 and np.isnan(rows.loc["sd", "accuracy"])  # one fold has no deviation
    write_fold(tmp_path, 1, predictions(["control", "patient"], [0.9, 0.9], fold=1))
    (tmp_path / "fold-2").mkdir()
    write_status(tmp_path / "fold-2" / "status.json", "failed", "train", DataError("loss is NaN"))
    write_metrics(tmp_path, CLASSES, range(4), tmp_path)
    table = read_table(tmp_path / "metrics.tsv", text=("fold",)).set_index("fold")
    assert table["state"].tolist()[:4] == ["ok", "ok", "failed", "missing"] and table.loc["0", "n_test"] == 2
    assert "NaN" in table.loc["2", "note"] and "2, 3" in table.loc["mean", "note"]
    assert table.loc["mean", "accuracy"] == pytest.approx(0.75) and table.loc["mean", "n_test"] == 2
    assert table.loc["sd", "accuracy"] == pytest.approx(0.25)  # ddof 0
    summary = read_json(tmp_path / "summary.json")
    assert summary["missing_folds"] == [2, 3] and summary["pooled"]["accuracy"]["value"] == pytest.approx(0.75)


def test_calibration_error_by_hand():
    p = np.array([0.9, 0.9, 0.9, 0.9, 0.4])  # patients; the last is a control with 0.6
    truth, guess = np.array([1, 1, 1, 0, 0]), np.array([1, 1, 1, 1, 0])
    bins = reliability(truth, guess, np.stack([1 - p, p], axis=1), draws=20_000)
    assert bins["ece"] == pytest.approx(0.8 * abs(0.75 - 0.9) + 0.2 * abs(1 - 0.6))
    # of four scans with 0.9, k are right: binomial; the scan with 0.6 is off by 0.4 (right) or 0.6
    four = sum(stats.binom.pmf(k, 4, 0.9) * abs(k / 4 - 0.9) for k in range(5))
    assert bins["ece_if_calibrated"] == pytest.approx(0.8 * four + 0.2 * (0.6 * 0.4 + 0.4 * 0.6), rel=0.02)
    assert bins["n_scans"] == [1, 4] and bins["accuracy"] == [1.0, 0.75]
    assert bins["probability"] == pytest.approx([0.6, 0.9])


def test_seeds_are_not_further_scans_for_the_error_of_a_calibrated_model():
    p = np.random.default_rng(4).uniform(0.5, 1, size=60)
    truth, probability = np.ones(60, int), np.stack([1 - p, p], axis=1)
    once = reliability(truth, truth, probability)["ece_if_calibrated"]
    five = [np.concatenate([part] * 5) for part in (truth, truth, probability)]
    assert reliability(*five, np.tile(np.arange(60), 5))["ece_if_calibrated"] == pytest.approx(once)
    assert reliability(*five)["ece_if_calibrated"] < 0.6 * once


def test_sites_are_judged_apart(tmp_path):
    table = predictions(["control", "patient"] * 6, [0.1, 0.9] * 3 + [0.9, 0.1] * 3).assign(site=["a"] * 6 + ["b"] * 6)
    write_fold(tmp_path, 0, table)
    write_metrics(tmp_path, CLASSES, [0], tmp_path)
    summary = read_json(tmp_path / "summary.json")
    sites = [(s["site"], s["n_scans"], s["accuracy"]["value"], s["auc"]["value"]) for s in summary["sites"]]
    assert sites == [("a", 6, 1.0, 1.0), ("b", 6, 0.0, 0.0)] and summary["positive_class"] == "patient"
    assert by_site(table.assign(site="a"), CLASSES) == [] == by_site(table.assign(site=None), CLASSES)
    write_fold(tmp_path / "three", 0, table.assign(p_other=0.0))
    write_metrics(tmp_path / "three", [*CLASSES, "other"], [0], tmp_path / "three")
    assert read_json(tmp_path / "three/summary.json")["positive_class"] is None


def test_intervals_include_the_variation_between_seeds():
    """One seed is always right, the other always wrong: their mean is one half in all subjects, yet unknown."""
    labels, right = ["control", "patient"] * 4, np.array([0.1, 0.9] * 4)
    answers = [(fold, seed) for fold in (0, 1) for seed in (0, 1)]
    tables = [predictions(labels, abs(seed - right), fold).assign(seed=seed) for fold, seed in answers]
    for over_folds in (True, False):
        found = intervals(pd.concat(tables, ignore_index=True), CLASSES, over_folds=over_folds)
        for metric in ("accuracy", "balanced_accuracy", "auc", "brier", "log_loss"):
            low, high = found[metric]
            assert low < 0.05 and high > 0.95, metric
    copies = [table.assign(seed=seed) for table in tables[::2] for seed in (0, 1)]
    found, alone = (intervals(pd.concat(t, ignore_index=True), CLASSES, over_folds=True) for t in (copies, tables[::2]))
    for metric in ("accuracy", "recall", "auc"):  # equal predictions by two seeds are those of one
        assert found[metric] == pytest.approx(alone[metric]), metric


def test_folds_that_were_not_asked_for_are_part_of_the_whole(tmp_path):
    """Two of four folds: half of the scans are tested, and nothing calls that all."""
    for fold in (0, 1):
        test = predictions(["control", "patient"] * 3, [0.2, 0.8] * 3, fold)
        rest = predictions(["control", "patient"] * 9, [0.2, 0.8] * 9, fold + 10, role="train").assign(fold=fold)
        write_fold(tmp_path, fold, pd.concat([test, rest], ignore_index=True))
    write_metrics(tmp_path, CLASSES, [0, 1], tmp_path, outer=4)
    summary = read_json(tmp_path / "summary.json")
    for part in ("pooled", "chance"):
        assert (summary[part]["outer_folds"], summary[part]["n_all_scans"]) == (4, 24)
    assert summary["pooled"]["n_scans"] == 12 and averaged(summary["chance"]) == "mean over 2 of 4 folds"
    assert averaged({"n_folds": 1, "outer_folds": 4}) == "one of 4 folds"
    assert averaged({"n_folds": 1, "outer_folds": 1}) == "one fold" and averaged({"n_folds": 3}) == "mean over 3 folds"


def test_the_auc_compares_predictions_of_one_model_only():
    """Ties, classes that a fold lacks and weights included: the pairs within folds, counted one by one."""
    random = np.random.default_rng(4)
    truth, fold, p = random.integers(2, size=60), random.integers(5, size=60), random.integers(1, 9, 60) / 10
    truth[fold == 4] = 1
    weights = random.integers(0, 3, (4, 60)).astype(float)
    found = scores(truth, (p > 0.5).astype(int), np.c_[1 - p, p], weights, fold)["auc"]
    for draw, weight in enumerate(weights):
        pairs = ordered = 0.0
        for i, j in product(np.flatnonzero(truth), np.flatnonzero(truth == 0)):
            if fold[i] == fold[j]:
                pairs += weight[i] * weight[j]
                ordered += weight[i] * weight[j] * ((p[i] > p[j]) + 0.5 * (p[i] == p[j]))
        assert found[draw] == pytest.approx(ordered / pairs)


def test_sites_are_compared_by_ranks_within_folds():
    """A shift between folds does not reach the AUC of a site whose scans are spread over them."""
    random = np.random.default_rng(5)
    fold, site = np.repeat(range(5), 40), np.tile(["a", "b"], 100)
    labels = np.where(random.random(200) < 0.5, "patient", "control")
    logit = random.normal(np.where(labels == "patient", 1.0, 0.0)) + np.array([0, 4, -4, 2, -2])[fold]
    table = predictions(labels, 1 / (1 + np.exp(-logit))).assign(fold=fold, site=site)
    assert all(about["auc"]["value"] > 0.7 for about in by_site(table, CLASSES))
    blind = by_site(table.assign(p_patient=0.3 + fold / 10), CLASSES)  # sees nothing: all scans of a fold are equal
    assert [about["auc"]["value"] for about in blind] == [0.5] * 2


def overconfident(random, fold, role, n=300):
    """Return predictions whose log odds are three times what they should be."""
    log_odds = random.normal(0, 1, n)
    labels = np.array(CLASSES)[(random.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)]
    table = predictions(labels, 1 / (1 + np.exp(-3 * log_odds)), fold, role)
    return table.assign(scan_id=f"{role}-" + table["scan_id"])


def test_the_temperature_of_the_validation_scans_mends_overconfidence(tmp_path):
    random = np.random.default_rng(0)
    for fold in (0, 1):
        parts = [overconfident(random, fold, role) for role in ("train", "validation", "test")]
        write_fold(tmp_path, fold, pd.concat(parts))
    table, tests = summarise(tmp_path, [0, 1], CLASSES)
    assert set(tests["role"]) == {"test"} and tests["temperature"].nunique() == 2
    summary = pooled(tests, CLASSES)
    calibrated = summary["calibrated"]
    assert calibrated["temperature"] == pytest.approx(3, rel=0.25)
    assert calibrated["ece"] < summary["calibration"]["ece"] / 2
    log_odds = np.log(tests["p_patient"] / tests["p_control"]) / tests["temperature"]
    by_hand = sk.brier_score_loss(tests["label"] == "patient", 1 / (1 + np.exp(-log_odds)))
    assert calibrated["brier"] == pytest.approx(by_hand) and by_hand < summary["brier"]["value"]
    assert "scaled, temperature" in "".join(readable.calibration(table, summary))
    write_fold(tmp_path, 2, parts[2].assign(fold=2))  # without validation scans nothing is scaled
    tests = summarise(tmp_path, [2], CLASSES)[1]
    assert tests["temperature"].isna().all() and "calibrated" not in pooled(tests, CLASSES)


def test_the_auc_of_all_scans_compares_within_folds_and_another_across_as_scikit_learns_does():
    table = predictions(["control", "patient"] * 8, np.random.default_rng(3).uniform(size=16))
    table["fold"] = np.repeat([0, 1], 8)
    table.loc[table["fold"] == 1, "p_patient"] /= 3  # a model of another scale
    table["p_control"] = 1 - table["p_patient"]
    summary = pooled(table, CLASSES, draws=10)
    truth = table["label"] == "patient"
    folds = [sk.roc_auc_score(truth[part.index], part["p_patient"]) for _, part in table.groupby("fold")]
    assert summary["auc"]["value"] == pytest.approx(np.mean(folds))
    across = sk.roc_auc_score(truth, table["p_patient"])
    assert summary["auc_across"] == pytest.approx(across) != summary["auc"]["value"]
    twice = pd.concat([table.assign(seed=0), table.assign(seed=1, p_patient=table["p_patient"] / 4)])
    assert pooled(twice, CLASSES, draws=10)["auc_across"] == pytest.approx(summary["auc_across"])


# ---- metrics of predicted numbers against scikit-learn, NumPy, and numbers worked out by hand ------------------------


def numbers(n=30, fold=0):
    random = np.random.default_rng(fold)
    names = [f"sub-{fold}{i:02d}" for i in range(n)]
    label = random.normal(40, 10, n).round(1)
    table = pd.DataFrame({"scan_id": names, "subject": names, "group": names, "site": "a", "role": "test"})
    return table.assign(fold=fold, seed=0, label=label, predicted=label + random.normal(0, 3, n))


def test_scores_of_numbers_agree_with_scikit_learn():
    table, random = numbers(), np.random.default_rng(1)
    truth, guess = table["label"].to_numpy(), table["predicted"].to_numpy()
    weights = random.integers(0, 4, size=(3, 30)).astype(float)
    values = number_scores(truth, guess, weights)
    for i, weight in enumerate(weights):
        assert values["mae"][i] == pytest.approx(sk.mean_absolute_error(truth, guess, sample_weight=weight))
        assert values["r2"][i] == pytest.approx(sk.r2_score(truth, guess, sample_weight=weight))
        rows = np.repeat(np.arange(30), weight.astype(int))
        assert values["r"][i] == pytest.approx(np.corrcoef(truth[rows], guess[rows])[0, 1])


def test_numbers_by_hand():
    table = numbers(3).assign(label=["1", "2", "3"], predicted=["2", "2", "5"])  # text, as it is read
    assert fold_metrics(table, None) == pytest.approx({"r": 0.866025, "mae": 1, "r2": 1 - 5 / 2}, abs=1e-6)
    alike = fold_metrics(table.assign(label=7.0), None)
    assert np.isnan(alike["r"]) and np.isnan(alike["r2"]) and alike["mae"] > 0
    with pytest.raises(DataError, match="label 'old' is not a number"):
        fold_metrics(table.assign(label="old"), None)


def test_intervals_over_folds_are_of_the_mean_of_folds_and_seeds():
    """They hold it as often as promised and are as wide as by formula; those of one fold are its own."""
    held, widths = 0, []
    for cohort in range(40):
        table = pd.concat([numbers(30, 10 * cohort + fold).assign(fold=fold) for fold in range(3)])
        both = pd.concat([table, table.assign(seed=1, predicted=table["predicted"] + 0.1)], ignore_index=True)
        low, high = intervals(both, None, over_folds=True, draws=400)["mae"]
        held += low < 3 * np.sqrt(2 / np.pi) < high  # the mean of |x| of a normal x with deviation 3
        widths.append(high - low)
    assert held >= 34
    assert np.mean(widths) == pytest.approx(2 * 1.96 * 3 * np.sqrt((1 - 2 / np.pi) / 90), rel=0.2)
    one = numbers()
    assert intervals(one, None, over_folds=True) == intervals(one, None, over_folds=False)
    one = numbers(8)  # r is −1 in four seeds and 1 in the last; of four that are drawn, P(3 are the last) is 0.026
    five = pd.concat([one.assign(seed=s, predicted=one["label"] * (-1 if s < 4 else 1)) for s in range(5)])
    assert intervals(five, None, over_folds=True)["r"] == pytest.approx((-1, (3 - 1) / 4))


def test_files_of_a_run_of_numbers(tmp_path):
    for fold in (0, 1):
        write_fold(tmp_path, fold, numbers(20, fold))
    write_metrics(tmp_path, None, range(3), tmp_path)
    table = read_table(tmp_path / "metrics.tsv", text=("fold",)).set_index("fold")
    assert list(table) == ["state", "n_test", "r", "mae", "r2", "note"]
    summary = read_json(tmp_path / "summary.json")
    found, everything = summary["pooled"], pd.concat([numbers(20, 0), numbers(20, 1)])
    assert summary["positive_class"] is None and found["n_scans"] == found["n_groups"] == 40
    for metric in ("r", "mae", "r2"):
        assert found[metric]["low"] < found[metric]["value"] < found[metric]["high"]
    spread = (everything["label"] - everything["label"].mean()).abs().mean()
    assert found["mean_guess_mae"] == pytest.approx(spread)
