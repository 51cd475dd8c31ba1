"""Models side by side, and the tests of the cohort, on the page."""

import argparse
import shutil
from dataclasses import replace

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
from tests.report.results import make_results
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
    one = with_models(study, study.config.models[:1])
    assert comparison(one, gathered(one)) is None
    summary = read_json(study.runs[1].folder / "summary.json")
    summary["pooled"]["auc"] = {"value": 0.71, "low": 0.62, "high": 0.83}
    write_json(summary, study.runs[1].folder / "summary.json")
    section = comparison(study, gathered(study))
    table, tests = blocks_of(section, Table)[:2]
    titles = table.frame[["", "fidelity", "folds"]].to_numpy().tolist()
    assert titles == [["tiny", "–", "2 of 3"], ["other", "reconstructed", "2 of 3"]]
    first, second = table.frame["AUC within folds [95 %]"]
    assert first != second == "0.710 [0.620, 0.830]"
    note = "other is reconstructed, not the original method: Its width is chosen here."
    assert [block.text for block in blocks_of(section, Text) if "other is" in block.text] == [note]
    figures = study.layout.report.parent / "figures"
    assert (figures / "comparison.png").stat().st_size > 3000 and (figures / "sites.png").is_file()
    assert blocks_of(section, Picture)[0].caption.endswith("original method.")
    first_screen = next(p for p in findings(study, gathered(study))["pictures"] if p.file.stem == "models")
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
