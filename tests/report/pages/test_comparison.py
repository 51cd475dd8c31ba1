"""Models side by side, and the tests of the cohort, on the page."""

import argparse
import shutil
from dataclasses import replace

import pandas as pd

from bolt.cli import main as cli
from bolt.config import Config
from bolt.config.study import Study
from bolt.evaluate.results import gather
from bolt.io.files import read_json, read_table, read_yaml, write_json, write_yaml
from bolt.report.html import Picture, Table, Text
from bolt.report.pages.performance import baseline_warnings, comparison, gathered
from bolt.report.pages.report import findings
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run
from tests.report.results import make_results, words_only
from tests.snake import series_dataset


def with_models(study, models):
    return Study(Config.model_validate(study.config.model_dump() | {"models": models}), study.dataset)


def two_models(folder):
    """Write the tree of one model, copied for a second one."""
    study = make_results(folder, n=12, everything=False)
    fidelity = {"level": "reconstructed", "note": "Its width is chosen here."}
    write_yaml({"model": "svm", "fidelity": fidelity}, folder / "other.yaml")
    study = with_models(study, [*study.config.models, str(folder / "other.yaml")])
    first, second = study.runs
    shutil.copytree(first.folder, second.folder)
    return study


def blocks_of(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


def test_two_models_stand_in_one_table_with_their_intervals(tmp_path):
    study = two_models(tmp_path)
    assert comparison(with_models(study, study.config.models[:1])) is None
    shown = {"value": 0.61, "low": 0.52, "high": 0.73}
    for run, more in zip(study.runs, (0.0, 0.1), strict=True):  # another model's numbers
        summary = read_json(run.folder / "summary.json")
        summary["pooled"]["auc"] = {end: value + more for end, value in shown.items()}
        summary["pooled"]["accuracy"] = {end: value + more + 0.05 for end, value in shown.items()}
        write_json(summary, run.folder / "summary.json")
        metrics = read_table(run.folder / "metrics.tsv", text=("fold", "state"))
        for fold, value in {"mean": 0.6, "sd": 0.02}.items():
            metrics.loc[metrics["fold"] == fold, "accuracy"] = value + more / 10
        metrics.to_csv(run.folder / "metrics.tsv", sep="\t", index=False, na_rep="n/a")
    section = comparison(study)
    table, tests = blocks_of(section, Table)[:2]
    assert {name: table.frame[name].tolist() for name in table.frame if name in ("", "fidelity", "folds")} == {
        "": ["tiny", "other"], "fidelity": ["–", "reconstructed"], "folds": ["2 of 3", "2 of 3"]
    }  # fmt: skip
    assert table.frame["AUC within folds [95 %]"].tolist() == ["0.610 [0.520, 0.730]", "0.710 [0.620, 0.830]"]
    assert table.frame["accuracy [95 %]"].tolist() == ["66.0 [57.0, 78.0]", "76.0 [67.0, 88.0]"]
    assert table.frame["accuracy over folds"].tolist() == ["60.0 ± 2.0", "61.0 ± 3.0"]
    note = "other is reconstructed, not the original method: Its width is chosen here."
    assert [block.text for block in blocks_of(section, Text) if "other is" in block.text] == [note]
    figures = study.layout.report.parent / "figures"
    assert (figures / "comparison.png").stat().st_size > 3000 and (figures / "sites.png").is_file()
    assert blocks_of(section, Picture)[0].caption.endswith("original method.")
    first_screen = next(p for p in findings(study, gathered(study))["pictures"] if p.file.stem == "models")
    assert first_screen.caption.endswith("† reconstructed, not the original method.")
    for drawing in ((figures / "comparison.svg").read_text(), first_screen.file.with_suffix(".svg").read_text()):
        assert ">other †<" in drawing and ">tiny<" in drawing
    # their predictions are equal
    assert tests.frame[""].tolist() == ["other"] and "tests against tiny" in tests.caption
    assert tests.frame["permutation: p (Holm)"].tolist() == ["1 (1)"]
    assert "Wilcoxon: p (Holm)" not in tests.frame and "2 of at least 6 folds" in tests.caption


def test_motion_that_predicts_as_well_is_a_warning(tmp_path):
    study = two_models(tmp_path)
    study = with_models(study, ["motion_only", *study.config.models])
    models = {model.name: model for model in study.models.values()}
    trained = {name: entry(name, [write_run(tmp_path / name, made_up(2.0, 0))]) for name in models}
    entries = [replace(row, model=models[name]) for name, row in trained.items()]
    blocks = baseline_warnings(study, entries, [gather(row) for row in entries])
    assert len(blocks) == 1 and blocks[0].warning
    assert "is not clearly worse than tiny: tiny is as good in accuracy (sign flips" in blocks[0].text
    assert blocks[0].text.endswith("The same is true of other.")
    guesses = write_run(tmp_path / "guesses", made_up(0.0, 1))
    entries = [replace(row, folders=[guesses]) if row.row == "motion_only" else row for row in entries]
    assert baseline_warnings(study, entries, [gather(row) for row in entries]) == []


@words_only()
def test_two_seeds_stand_beside_folds(tmp_path):
    study = make_results(tmp_path, n=12, everything=False)
    study = Study(Config.model_validate(study.config.model_dump() | {"seeds": [0, 1]}), study.dataset)
    first, second = study.runs
    shutil.copytree(first.folder, second.folder)
    for file in second.folder.glob("fold-*/predictions.tsv"):
        predictions = read_table(file)
        predictions["seed"] = 1
        predictions["predicted"] = predictions["label"]  # always right
        predictions.to_csv(file, sep="\t", index=False)
    table = next(table for table in blocks_of(comparison(study), Table) if "sd over seeds" in table.frame)
    accuracy = table.frame.set_index("metric").loc["accuracy"]
    tests = pd.concat(read_table(file) for file in first.folder.glob("fold-*/predictions.tsv")).query("role == 'test'")
    right = (tests["label"] == tests["predicted"]).groupby(tests["fold"]).mean()
    assert accuracy["sd over seeds"] == f"{100 * (1 - right.mean()) / 2**0.5:.1f}"  # of two numbers, ddof 1
    assert accuracy["sd over folds"] == f"{100 * right.std(ddof=0) / 2:.1f}"
    assert "All 2 seeds" in table.caption


def test_numbers_of_the_paper_that_change_are_in_the_next_report(tmp_path, monkeypatch):
    """The index does not read them, so that nothing is trained again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bolt.report.pages.report.write_report", lambda *_: None)
    config, dataset = series_dataset(tmp_path), tmp_path / "mine.yaml"
    options = argparse.Namespace(stage="index", config=config)
    cli.run(options)
    table = Study.read(config).layout.cohort
    assert not table.is_file()
    write_yaml(read_yaml(dataset) | {"published": {"scans": 13}}, dataset)
    cli.run(argparse.Namespace(stage="report", config=config, zip=None))
    assert read_table(table).to_numpy().tolist() == [["scans", 12, 13]]
    write_yaml(read_yaml(dataset) | {"published": None}, dataset)
    cli.run(argparse.Namespace(stage="report", config=config, zip=None))
    assert not list(table.parent.glob("paper_cohort*"))
