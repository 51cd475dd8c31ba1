"""Methods side by side on ABIDE-I: the README shows what the tables hold, and what is kept belongs together."""

from __future__ import annotations

import re

from benchmarks.abide_benchmark import COSTS, EXPERIMENTS, HERE, PREDICTIONS, common_folds, shown_table
from bolt.config import ROOT, Config, load_experiment
from bolt.experiments.entries import rows_of
from bolt.io.files import read_table
from bolt.report.numbers import decimal


def test_the_readme_shows_the_table():
    lines = shown_table()
    assert len(lines) > 10 and "\n".join(lines) in (HERE / "README.md").read_text()


def test_the_page_of_the_paper_shows_the_ablation_and_the_window_sizes():
    text = (ROOT / "docs/paper.md").read_text()
    for name in EXPERIMENTS[1:]:
        lines = shown_table(name)
        assert len(lines) > 4 and "\n".join(lines) in text
        assert {int(line.split("|")[2]) for line in lines[2:]} == {len(common_folds(name))}


def test_the_page_of_the_paper_shows_the_measured_complexity():
    text = (ROOT / "docs/paper.md").read_text()
    for row in read_table(HERE / "complexity_exponents.tsv", text=("row", "formula")).itertuples():
        measured = " | ".join(map(decimal, (row.operations, row.seconds, row.peak_bytes)))
        assert re.search(rf"^\| {re.escape(row.row)} \|.*\| {re.escape(measured)} \|", text, re.MULTILINE), row.row


def test_the_readme_names_what_differs_clearly_from_bolt():
    tests = read_table(HERE / "abide_benchmark_tests.tsv", text=("row",))
    clear = tests[tests["corrected_t_p_holm"] < 0.05].set_index("metric")
    no_brain = {"Motion only", "Site only", "Majority"}
    assert set(clear.loc["accuracy", "row"]) == set(clear.loc["auc", "row"]) == no_brain
    better = clear[clear["difference"] > 0]["row"].groupby("metric").agg(set)  # BolT's loss is larger
    linear = {"Ridge", "Tangent", "meanMLP"}
    assert better["brier"] == linear and better["log_loss"] == linear | {"SVM"}
    text = " ".join((HERE / "README.md").read_text().split())
    assert "of meanMLP, Ridge and Tangent (Brier score, log loss) and of the SVM (log loss) are clearly better" in text


def test_rows_of_one_name_are_one_model_in_all_experiments():
    config = Config(dataset="abide1")
    rows = [rows_of(load_experiment(place), config) for place in ("abide_benchmark", "baselines")]
    ours, baselines = ({row.row: (model.hash(), model.fidelity) for row, model in named} for named in rows)
    common = ours.keys() & baselines.keys()
    assert "TFF, width of BolT" in common and {n for n in common if ours[n] != baselines[n]} == set()


def test_each_row_is_kept_with_its_setting_and_nothing_else():
    config = Config(dataset="abide1")
    runs = {name: {model.run_name for _, model in rows_of(load_experiment(name), config)} for name in EXPERIMENTS}
    kept = set(read_table(COSTS)["run"])
    assert runs["abide_benchmark"] <= kept <= set().union(*runs.values())


def test_every_kept_fold_has_the_same_test_scans_and_a_cost():
    kept, costs = read_table(PREDICTIONS), read_table(COSTS)
    assert kept["p_autism"].between(0, 1).all() and not kept.duplicated(["run", "fold", "scan_id"]).any()
    folds = kept.groupby(["run", "fold"])["scan_id"].agg(frozenset)
    tested = {fold: max(of_fold, key=len) for fold, of_fold in folds.groupby("fold")}
    assert sum(map(len, tested.values())) == 871
    too_long = "bolt-c48bed4c"  # a window of 80 volumes, of which some scans have 78
    lacking = {run: len(tested[fold] - scans) for (run, fold), scans in folds.items() if scans != tested[fold]}
    assert set(lacking) == {too_long} and all(scans <= tested[fold] for (_, fold), scans in folds.items())
    assert set(folds.index) == set(costs.set_index(["run", "fold"]).index)
    of_method = costs.groupby("run")["fold"].agg(set)
    assert all(found in ({2, 3, 4}, set(range(len(found)))) for found in of_method)
