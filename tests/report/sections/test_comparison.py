"""Models side by side, and the tests of the cohort, on the page."""

from __future__ import annotations

import argparse
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bolt.cli import commands
from bolt.cohort.exclusions import WARNING_COLUMNS
from bolt.cohort.published import COHORT_COLUMNS
from bolt.config import Config
from bolt.config.study import Study
from bolt.experiments.results import gather
from bolt.io.files import read_json, read_table, read_yaml, write_json, write_table, write_yaml
from bolt.jobs.provenance import provenance_path
from bolt.report.html import Picture, Table, Text
from bolt.report.pages.report import performance_sections, write_report
from bolt.report.sections.cohort import cohort_section
from bolt.report.sections.comparison import baseline_warnings, comparison, gathered
from bolt.report.sections.findings import findings
from bolt.report.sections.runs import run_section
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run
from tests.report.results import ATLAS, make_results, words_only
from tests.snake import series_dataset


def with_models(study: Study, models: list[str]) -> Study:
    return Study(Config.model_validate(study.config.model_dump() | {"models": models}), study.dataset)


def two_models(folder: Path) -> Study:
    """Write the tree of one model, copied for a second one."""
    study = make_results(folder, n=12, everything=False)
    fidelity = {"level": "reconstructed", "note": "Its width is chosen here."}
    write_yaml({"model": "svm", "fidelity": fidelity}, folder / "other.yaml")
    study = with_models(study, [*study.config.models, str(folder / "other.yaml")])
    first, second = study.runs
    shutil.copytree(first.folder, second.folder)
    return study


def test_two_models_stand_in_one_table_with_their_intervals(tmp_path: Path) -> None:
    study = two_models(tmp_path)
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
    assert section is not None
    table = next(block.frame for block in section.blocks if isinstance(block, Table))
    assert table[""].tolist() == ["tiny", "other"]
    assert table["fidelity"].tolist() == ["–", "reconstructed"]
    note = "other is reconstructed, not the original method: Its width is chosen here."
    assert [block.text for block in section.blocks if isinstance(block, Text) and "other is" in block.text] == [note]
    assert table["folds"].tolist() == ["2 of 3", "2 of 3"]
    assert table["AUC within folds [95 %]"].tolist() == ["0.610 [0.520, 0.730]", "0.710 [0.620, 0.830]"]
    assert table["accuracy [95 %]"].tolist() == ["66.0 [57.0, 78.0]", "76.0 [67.0, 88.0]"]
    assert table["accuracy over folds"].tolist() == ["60.0 ± 2.0", "61.0 ± 3.0"]
    assert (study.layout.report.parent / "figures/comparison.png").stat().st_size > 3000
    drawing = (study.layout.report.parent / "figures/comparison.svg").read_text()
    assert ">other †<" in drawing and ">tiny<" in drawing
    assert next(block.caption for block in section.blocks if isinstance(block, Picture)).endswith("original method.")


@words_only()
def test_equal_models_are_not_told_apart_and_calibration_and_sites_are_shown(tmp_path: Path) -> None:
    study = two_models(tmp_path)
    section = comparison(study)
    assert section is not None
    tests = [block for block in section.blocks if isinstance(block, Table)][1]
    assert tests.frame[""].tolist() == ["other"] and "tests against tiny" in tests.caption
    assert tests.frame["permutation: p (Holm)"].tolist() == ["1 (1)"]
    assert "Wilcoxon: p (Holm)" not in tests.frame and "2 of at least 6 folds" in tests.caption
    alone = run_section(study, study.runs[0])
    titles = [block.frame.iloc[:, 0].tolist() for block in alone.blocks if isinstance(block, Table)]
    assert ["balanced accuracy", "Brier score", "log loss", "expected calibration error"] in titles and [
        "london",
        "york",
    ] in titles
    assert list((study.layout.report.parent / "figures").glob("*_calibration.png"))
    assert (study.layout.report.parent / "figures/sites.png").is_file()


def test_motion_that_predicts_as_well_is_a_warning(tmp_path: Path) -> None:
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
def test_two_seeds_stand_beside_folds(tmp_path: Path) -> None:
    study = make_results(tmp_path, n=12, everything=False)
    study = Study(Config.model_validate(study.config.model_dump() | {"seeds": [0, 1]}), study.dataset)
    first, second = study.runs
    shutil.copytree(first.folder, second.folder)
    for file in second.folder.glob("fold-*/predictions.tsv"):
        predictions = read_table(file)
        predictions["seed"] = 1
        predictions["predicted"] = predictions["label"]  # always right
        predictions.to_csv(file, sep="\t", index=False)
    section = comparison(study)
    assert section is not None
    table = next(b for b in section.blocks if isinstance(b, Table) and "sd over seeds" in b.frame)
    accuracy = table.frame.set_index("metric").loc["accuracy"]
    tests = pd.concat(read_table(file) for file in first.folder.glob("fold-*/predictions.tsv")).query("role == 'test'")
    right = (tests["label"] == tests["predicted"]).groupby(tests["fold"]).mean()
    assert accuracy["sd over seeds"] == f"{100 * (1 - right.mean()) / 2**0.5:.1f}"  # of two numbers, ddof 1
    assert accuracy["sd over folds"] == f"{100 * right.std(ddof=0) / 2:.1f}"
    assert "All 2 seeds" in table.caption


def test_one_model_alone_is_not_compared(tmp_path: Path) -> None:
    study = two_models(tmp_path)
    assert comparison(with_models(study, study.config.models[:1])) is None


@words_only()
def test_the_page_shows_both_and_names_the_svm(tmp_path: Path) -> None:
    study = two_models(tmp_path)
    sections = performance_sections(study)
    write_report(study)
    assert sections[0].title == "All models side by side" and len(sections) == 3
    page = study.layout.report.with_name("performance.html").read_text()
    assert page.index("<h2>All models side by side") < page.index("<h2>tiny")
    assert page.count("Clopper–Pearson intervals for accuracy") == 3  # the comparison and the metrics of both models
    made = study.layout.report.with_name("methods.html").read_text()
    assert re.search(r"other, a support vector machine \[\d+\] \(linear kernel, C = 1", made)


def test_the_cohorts_tests_are_said_in_words_and_kept_as_a_table(tmp_path: Path) -> None:
    study = make_results(tmp_path, n=12, everything=False)
    layout = study.layout
    scans = read_table(layout.scans)
    scans.loc[scans["label"] == "patient", "age"] += 60
    scans.to_csv(layout.scans, sep="\t", index=False, na_rep="n/a")
    blocks = cohort_section(study, read_table(layout.scans).iloc[:-1])
    lines = [block for block in blocks if isinstance(block, Text)]
    aged = [block for block in lines if block.text.startswith("Age differs between classes: mean ")]
    assert len(aged) == 1 and aged[0].warning
    doubtful = [block for block in lines if " may differ between classes: " in block.text]
    assert {block.text.split()[0] for block in doubtful} == {"Site", "Sex"}  # of 11 participants
    assert all(block.warning for block in doubtful) and sum(block.warning for block in lines) == 3
    assert "Head motion is unknown, so it cannot be compared." in [block.text for block in lines]
    table = read_table(layout.tables / "cohort_tests.tsv")
    assert table["measure"].tolist() == ["Site", "Sex", "Age", "Head motion"]
    shown = [block.frame for block in blocks if isinstance(block, Table)][-1]
    assert shown[""].tolist() == ["Site", "Sex", "Age"]


def test_numbers_of_the_paper_that_change_are_in_the_next_report(tmp_path: Path, monkeypatch) -> None:
    """The index does not read them, so that nothing is trained again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bolt.report.pages.report.write_report", lambda *_: None)
    config, dataset = series_dataset(tmp_path), tmp_path / "mine.yaml"
    options = argparse.Namespace(stage="index", config=config, minimum_volumes=2)
    commands.run(options)
    table = Study.read(config).layout.cohort
    assert not table.is_file()
    write_yaml(read_yaml(dataset) | {"published": {"scans": 13}}, dataset)
    commands.run(argparse.Namespace(stage="report", config=config, zip=None))
    assert read_table(table).to_numpy().tolist() == [["scans", 12, 13]]
    write_yaml(read_yaml(dataset) | {"published": None}, dataset)
    commands.run(argparse.Namespace(stage="report", config=config, zip=None))
    assert not list(table.parent.glob("paper_cohort*"))


@words_only()
def test_the_papers_cohort_and_warnings_stand_with_the_cohort(tmp_path: Path) -> None:
    study = make_results(tmp_path, n=12, everything=False)
    layout = study.layout
    rows = [("scans", 870, 871), ("subjects, label autism", 403, 403)]
    write_table(pd.DataFrame(rows, columns=list(COHORT_COLUMNS)), layout.cohort, COHORT_COLUMNS)
    odd = read_table(layout.cache(ATLAS) / "warnings.tsv")
    write_table(odd, layout.warnings, WARNING_COLUMNS)
    assert odd.groupby("scan_id").warning.first().str.contains("of 160 ROIs ").tolist() == [True] * 3
    write_report(study)
    cohort = layout.report.with_name("cohort.html").read_text().split('id="cohort"')[1].split("</section>")[0]
    for words in (
        "compared with the published cohort",
        '<td class="n">871</td>',
        ">-1<",
        "3 included scans have warnings",
    ):
        assert words in cohort, words
    assert "all zero or constant (zeros after z-scoring)" in cohort


def test_a_reconstructed_model_is_marked_on_the_first_screen(tmp_path: Path) -> None:
    study = two_models(tmp_path)
    (picture,) = [picture for picture in findings(study, gathered(study)).pictures if picture.file.stem == "models"]
    drawing = picture.file.with_suffix(".svg").read_text()
    assert ">other †<" in drawing and ">tiny<" in drawing
    assert picture.caption.endswith("† reconstructed, not the original method.")


def test_the_tables_that_the_index_read_are_named(tmp_path: Path) -> None:
    study = make_results(tmp_path, n=12, everything=False)
    file = provenance_path(study.layout.scans)
    write_json({"inputs": {str(study.layout.config): "0", "/data/study/participants.tsv": "1"}}, file)
    table = cohort_section(study, read_table(study.layout.scans))[0]
    assert isinstance(table, Table) and table.caption.endswith(" Labels and people: /data/study/participants.tsv.")
