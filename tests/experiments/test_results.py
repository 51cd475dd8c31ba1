"""From entries to tables of numbers; the paper's own family averages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from bolt.config import Model, load_experiment
from bolt.config.study import Entry
from bolt.evaluate.results import gather, paired_tests, sites, summaries
from bolt.experiments.results import families, family_table, paper_values, with_paper
from bolt.io.errors import DataError
from bolt.io.files import read_yaml, write_status
from tests.evaluate.test_paired import CLASSES, made_up

METRICS = ["accuracy", "recall", "precision", "auc"]
PUBLISHED = read_yaml(Path(__file__).with_name("paper.yaml"))
"""Numbers of the paper, copied by hand."""
FAMILY = {row: family for family, rows in PUBLISHED["families"].items() for row in rows}


def write_run(folder: Path, predictions: pd.DataFrame, seed: int = 0) -> Path:
    """A folder ``seed-<s>`` as a training leaves it."""
    run = folder / f"seed-{seed}"
    for fold, part in predictions.groupby("fold"):
        place = run / f"fold-{fold}"
        place.mkdir(parents=True)
        part.assign(subject=part["group"], seed=seed, site=[f"s{int(g) % 3}" for g in part["group"]]).to_csv(
            place / "predictions.tsv", sep="\t", index=False
        )
        write_status(place / "status.json", "ok", "train")
    return run


def entry(row: str, folders: list[Path], **more: object) -> Entry:
    model = Model(name=re.sub(r"\W", "_", row), model="bolt", family="" if row == "BolT" else more.pop("family", "RNN"))
    given = {"dataset": "abide1", "paper_dataset": "abide1", "atlas": "schaefer400", "folds": list(range(10))}
    return Entry(row=row, model=model, folders=folders, **given | {"classes": CLASSES} | more)


def summary(own: Entry) -> pd.DataFrame:
    return summaries(own, gather(own)).set_index("metric")


def test_the_papers_family_averages() -> None:
    """All of the text from the paper's own table, but for one slip: SVM, recall in ABIDE, 8.15 for 8.185."""
    paper = paper_values(load_experiment("comparison")).rename(columns={"model": "row"})
    found = families(paper, FAMILY, "BolT", "paper_mean").set_index(["dataset", "family", "metric"])
    slips = []
    for dataset, rows in PUBLISHED["improvements"].items():
        for family, values in rows.items():
            for metric, value in zip(METRICS, values, strict=True):
                own = found.loc[dataset, family, metric]
                assert own["n_pairs"] == 2 * list(FAMILY.values()).count(family)
                if abs(100 * own["improvement"] - value) > 0.02:
                    slips.append((dataset, family, metric, round(100 * own["improvement"], 3)))
    assert slips == [("abide1", "traditional", "recall", 8.185)]


def test_a_fold_that_was_not_asked_for_is_a_missing_one(tmp_path: Path) -> None:
    own = entry("LSTM", [write_run(tmp_path, made_up(1.0, 0))], folds=[0, 1, 2], outer=10)
    accuracy = summary(own).loc["accuracy"]
    assert (accuracy["n_folds"], accuracy["expected_folds"]) == (3, 10)
    assert accuracy["missing_folds"] == "3, 4, 5, 6, 7, 8, 9" and "not asked for" in accuracy["note"]
    assert accuracy["sd"] > 0 and np.isnan(summary(replace(own, folds=[1])).loc["accuracy", "sd"])


def test_an_undefined_metric_is_not_averaged_away(tmp_path: Path) -> None:
    table = made_up(1.0, 0)
    one_class = table[~((table.fold == 0) & (table.role == "test") & (table.label == "patient"))]
    rows = [entry(row, [write_run(tmp_path / row, one_class)]) for row in ("BolT", "LSTM")]
    values = summary(rows[0])
    assert values["n_folds"].to_dict() | {"auc": 9, "recall": 9, "accuracy": 10} == values["n_folds"].to_dict()
    assert values.loc["auc", "missing_folds"] == "0" and values.loc["auc", "note"] == "auc is undefined in fold 0"
    assert pd.isna(values.loc["accuracy", "note"]) and set(values["expected_folds"]) == {10}
    tests = paired_tests(rows, [gather(row) for row in rows], "BolT").set_index("metric")
    assert (tests.loc["auc", "n_folds"], tests.loc["accuracy", "n_folds"]) == (9, 10)
    assert tests.loc["auc", "note"] == "undefined in 1 of 10 folds"


def test_a_fold_counts_where_all_its_seeds_are_finished_and_is_named_otherwise(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, made_up(1.0, seed), seed) for seed in (0, 1)]
    write_status(runs[1] / "fold-2/status.json", "failed", "train", DataError("a NaN"))
    own = entry("LSTM", runs)
    found = gather(own)
    assert list(found.missing) == [2] and set(found.predictions["fold"]) == set(range(10)) - {2}
    table, tests = summary(own), found.predictions[found.predictions.role == "test"]
    right = (tests.label == tests.predicted).groupby([tests.fold, tests.seed]).mean().unstack()
    accuracy = table.loc["accuracy"]
    assert accuracy["mean"] == pytest.approx(right.mean(axis=1).mean())
    assert accuracy["sd"] == pytest.approx(right.mean(axis=1).std(ddof=0))
    assert (accuracy["n_folds"], accuracy["expected_folds"], accuracy["missing_folds"]) == (9, 10, "2")
    assert "a NaN" in accuracy["note"] and accuracy["n_scans"] == 108  # two seeds predict the same scans
    assert accuracy["pooled_low"] < accuracy["pooled"] < accuracy["pooled_high"] and accuracy["no_skill"] == 0.5
    assert accuracy["low"] < accuracy["mean"] < accuracy["high"]
    assert accuracy["sd_seeds"] == pytest.approx(right.mean().std(ddof=1))
    assert accuracy["sd_seeds_within"] == pytest.approx(right.var(axis=1).mean() ** 0.5)
    assert (table["n_seeds"] == 2).all() and table.loc["auc", "sd_seeds"] > 0
    assert summary(entry("LSTM", runs[:1]))[["sd_seeds", "sd_seeds_within"]].isna().all(axis=None)


def test_the_interval_is_the_means_own(tmp_path: Path) -> None:
    """Probabilities that are shifted from fold to fold spoil neither the folds' AUC nor that of all test scans."""
    table = made_up(1.0, 0, n=400)
    shift = np.exp(table["fold"].map(dict(enumerate(np.random.default_rng(0).normal(0, 3, 10)))))
    table["p_patient"] = table.p_patient * shift / (table.p_patient * shift + table.p_control)
    auc = summary(entry("LSTM", [write_run(tmp_path, table.assign(p_control=1 - table.p_patient))])).loc["auc"]
    assert auc["low"] < auc["mean"] < auc["high"] and abs(auc["pooled"] - auc["mean"]) < 0.01
    assert roc_auc_score(table.label == "patient", table.p_patient) < auc["low"]
    by_chance = 4 * auc["sd"] / np.sqrt(10)  # of folds that differ by chance
    assert 0.5 < (auc["high"] - auc["low"]) / by_chance < 2


def test_the_papers_values_stand_beside_ours(tmp_path: Path) -> None:
    own = entry("SVM", [write_run(tmp_path, made_up(0.55, 0, n=400))], paper={"model": "SVM"}, family="traditional")
    paper = paper_values(load_experiment("comparison"))
    table = with_paper(summaries(own, gather(own)), [own], paper).set_index("metric")
    theirs = paper.query("dataset == 'abide1' and atlas == 'schaefer400' and model == 'SVM'")
    for metric, value in theirs.set_index("metric")["paper_mean"].items():
        row = table.loc[metric]
        assert row["paper_mean"] == value and row["difference"] == pytest.approx(row["mean"] - value)
        assert row["paper_inside"] == str(row["low"] <= value <= row["high"]).lower()
    assert table.loc["brier", ["paper_mean", "paper_inside"]].isna().all()
    few = with_paper(summaries(own, gather(own)).assign(low=np.nan), [own], paper)
    assert few["paper_inside"].isna().all() and few["difference"].notna().any()  # no interval, no star
    alone = with_paper(summaries(own, gather(own)), [own], None)
    assert alone["paper_mean"].isna().all() and alone["paper_inside"].isna().all()


def test_sites_and_tests_of_entries(tmp_path: Path) -> None:
    rows = [entry(row, [write_run(tmp_path / row, made_up(skill, 1))]) for row, skill in (("BolT", 1.5), ("LSTM", 0.5))]
    rows.append(entry("W = 200", [], note="too long"))
    found = [gather(row) for row in rows]
    table = sites(rows[0], found[0])
    assert set(table["site"]) == {"s0", "s1", "s2"} and table[table.metric == "accuracy"]["n_scans"].sum() == 120
    assert (table["low"] < table["pooled"]).all() and (table["pooled"] <= table["high"]).all()
    tests = paired_tests(rows, found, "BolT")
    assert set(tests["row"]) == {"LSTM"} and set(tests["reference"]) == {"BolT"}
    assert paired_tests(rows, found, "unknown").empty


def test_our_families_and_the_papers_are_of_the_same_whole_rows() -> None:
    names = ["BolT", "LSTM", "GC-LSTM", "BNT", "SVM"]
    entries = [entry(name, [], **({"family": "traditional"} if name == "SVM" else {})) for name in names]
    values = {"mean": [0.9, 0.8, 0.2, 0.1, 0.7], "paper_mean": [0.95, 0.85, 0.45, np.nan, 0.65]}
    table = pd.DataFrame({"dataset": "abide1", "atlas": "a", "row": names, "metric": "accuracy", **values})
    table = table.assign(expected_folds=10, n_folds=[10, 10, 8, 10, 10])
    more = table.assign(metric="balanced_accuracy", paper_mean=np.nan)
    found = family_table(pd.concat([table, more]), entries, "BolT").set_index(["family", "metric"])
    rnn = found.loc["RNN", "accuracy"]
    assert (rnn["improvement"], rnn["paper_improvement"]) == (pytest.approx(0.1), pytest.approx(0.1))
    assert (rnn["n_pairs"], rnn["expected_pairs"]) == (1, 2)
    assert found.loc[("traditional", "accuracy"), "improvement"] == pytest.approx(0.2)
    new = found.loc["RNN, not in the paper", "accuracy"]
    assert new["improvement"] == pytest.approx(0.8) and np.isnan(new["paper_improvement"])
    beyond = found.loc["RNN", "balanced_accuracy"]
    assert beyond["improvement"] == pytest.approx(0.1) and np.isnan(beyond["paper_improvement"])
    late = table.assign(n_folds=[8, 10, 10, 10, 10])  # of the reference: nothing can be compared
    assert family_table(late, entries, "BolT")[["improvement", "paper_improvement"]].isna().all(axis=None)
    assert family_table(table.assign(paper_mean=np.nan), entries[:3], "BolT").empty
