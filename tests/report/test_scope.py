"""As long as `folds: run` asks for some of the folds, this is said wherever a metric stands."""

from __future__ import annotations

import argparse
import html
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bolt.config import Config, Experiment, load_experiment
from bolt.config.study import Study
from bolt.evaluate.metrics import TEXT, write_metrics
from bolt.experiments.entries import Entry
from bolt.experiments.results import due
from bolt.io.files import read_json, read_table, write_table, write_yaml
from bolt.packs.pack import pack
from bolt.report.experiments.experiment import write_experiment
from bolt.report.experiments.landmarks import write_landmark_experiment
from bolt.report.pages.explanation import write_explanation
from bolt.report.pages.report import write_report
from bolt.report.sections.comparison import gathered
from bolt.report.tables.numbers import joined, scope_text
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run
from tests.packs.test_packs import build_run
from tests.report.results import CLASSES, make_results, words_only
from tests.report.sections.explanation.test_landmarks import landmarks

SCOPE = "2 of 4 folds, 8 of 11 scans tested"
METRIC = re.compile(r"\b(AUC|accurac|recall|Brier score|log loss|log odds|predicts)")


def some_folds(folder: Path) -> Study:
    """Two models and seeds, of which two of four folds were asked for and are trained."""
    study = make_results(folder, n=12)
    write_yaml({"model": "svm"}, folder / "other.yaml")
    changes = {"models": [*study.config.models, str(folder / "other.yaml")], "seeds": [0, 1]}
    config = study.config.model_dump() | changes | {"folds": {"outer": 4, "run": [0, 1]}}
    made, study = study.runs[0].folder, Study(Config.model_validate(config), study.dataset)
    shutil.rmtree(made / "fold-2")
    for run in study.runs:
        if run.folder != made:
            shutil.copytree(made, run.folder)
        for fold in (0, 1):
            file = run.fold(fold) / "predictions.tsv"
            table = read_table(file, text=TEXT).assign(seed=run.seed)
            write_table(table, file, dict.fromkeys(table.columns, "Test"))
        write_metrics(run.folder, CLASSES, [0, 1], run.folder, outer=4)
    return study


@pytest.fixture(scope="module")
@words_only()
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    study = some_folds(tmp_path_factory.mktemp("some"))
    write_explanation(study)
    write_report(study)
    return study


def parts_of(page: str) -> list[str]:
    """The text of each part of a page: what is above its sections, and the sections."""
    parts = re.findall(r"<header.*?</header>|<section.*?</section>", page, re.S)
    return [html.unescape(re.sub(r"<[^>]+>", " ", part)) for part in parts]


@pytest.mark.parametrize(
    ("name", "least"), [("index.html", 2), ("performance.html", 5), ("explanation.html", 1), ("trust.html", 1)]
)
def test_every_part_of_a_page_with_a_metric_says_how_much_was_tested(study: Study, name: str, least: int) -> None:
    parts = parts_of((study.layout.report.parent / name).read_text())
    limits = "How to read an explanation, and its limits"
    shown = [part for part in parts if METRIC.search(part) and re.search(r"\d\.\d", part) and limits not in part]
    silent = [part for part in shown if SCOPE not in part]
    assert len(shown) >= least and silent == []


def test_the_first_screen_and_its_facts(study: Study) -> None:
    page = study.layout.report.read_text()
    assert f"predicts control or patient in test scans ({SCOPE}) with an AUC within folds of" in page
    assert re.search(r"<dt>folds</dt><dd>2 of 4</dd>", page)
    caption = re.search(r"<figcaption>AUC within folds of all test scans.*?</figcaption>", page, re.S)
    assert (
        caption is not None
        and f"models that see no brain data. Hollow: tested on some of the folds. {SCOPE}." in caption.group()
    )


def test_each_run_says_what_was_asked_for(study: Study) -> None:
    page = html.unescape((study.layout.report.parent / "performance.html").read_text())
    assert page.count(f"<p class=warning>{SCOPE} ('folds: run' asks for 2).</p>") == 4  # two models, two seeds
    assert page.count(f"<p class=warning>{SCOPE}.</p>") == 1  # of all models together


def test_tables_of_models_seeds_tests_and_landmarks_count_of_all(study: Study) -> None:
    folder = study.layout.report.parent
    rows = {
        "performance.html": [
            r"tiny, seed 0\D.*?8 of 11.*?2 of 4",
            r"tiny accuracy 8 of 11 2 of 4",  # over the seeds
            r"tests against tiny|other 2 of 4 8 of 11",
        ],
        "trust.html": [r"single volume important [^a-z]*2 of 4"],
    }
    for name, patterns in rows.items():
        text = " ".join(re.sub(r"<[^>]+>", " ", (folder / name).read_text()).split())
        for pattern in patterns:
            assert re.search(pattern, text), pattern


def test_folds_that_were_not_asked_for_are_due(study: Study) -> None:
    for entries, found in gathered(study).values():
        assert [due(one) for one in entries] == [[0, 1, 2, 3]] * 2
        assert [list(missing) for _, missing in found] == [[2, 3]] * 2


def of_four(name: str, folder: Path) -> Entry:
    """A row of an experiment of which two folds were asked for."""
    return replace(entry(name, [folder]), folds=[0, 1], outer=4, paper_dataset="")


@words_only()
def test_every_table_of_an_experiment_says_how_much_was_tested(tmp_path: Path) -> None:
    rows = [of_four(name, write_run(tmp_path / name, made_up(2.0, i, n=60))) for i, name in enumerate(("BolT", "LSTM"))]
    write_experiment(Experiment(name="mine", title="Mine", rows=[{"model": "bolt"}]), rows, tmp_path / "out")  # type: ignore[list-item]
    head, *tables = (tmp_path / "out/mine.md").read_text().split("\n### ")
    scope = "2 of 4 folds, 12 of 60 scans tested"
    assert len(tables) == 4 and head.count(scope) == 2  # below both figures
    for table in tables:
        assert f"- {scope}\n" in table or "| LSTM | 2 of 4 | 12 of 60 |" in table, table
    tests = read_table(tmp_path / "out/mine_tests.tsv")
    assert set(tests["expected_folds"]) == {4} and set(tests["n_all_scans"]) == {60}
    assert set(read_table(tmp_path / "out/mine.tsv")["n_all_scans"]) == {60}


@words_only()
def test_a_row_that_learns_from_a_share_of_the_scans_counts_all_of_them(tmp_path: Path) -> None:
    whole = of_four("BolT", write_run(tmp_path / "BolT", made_up(2.0, 0, n=60)))
    few = made_up(1.0, 1, n=60)
    kept = few[(few["role"] != "train") | (few["scan_id"].str[-1].isin(list("0123")))]
    write_experiment(
        Experiment(name="mine", title="Mine", rows=[{"model": "bolt"}]),  # type: ignore[list-item]
        [whole, of_four("half", write_run(tmp_path / "half", kept))],
        tmp_path / "out",
    )
    assert set(read_table(tmp_path / "out/mine.tsv")["n_all_scans"]) == {60}


@words_only()
def test_landmarks_of_all_datasets_say_how_much_was_tested(tmp_path: Path) -> None:
    landmarks(tmp_path / "explained")
    run = write_run(tmp_path / "run", made_up(2.0, 0, n=60))
    row = replace(of_four("BolT", run), explanations=[tmp_path / "explained"])
    write_landmark_experiment(load_experiment("landmarks"), [row], tmp_path / "out")
    head, *tables = (tmp_path / "out/landmarks.md").read_text().split("\n### ")
    scope = "2 of 4 folds, 12 of 60 scans tested"
    assert scope in head and len(tables) == 2 and all(f"- {scope}\n" in table for table in tables)
    assert "| 3 of 4 |" in tables[1]  # the folds that the made-up regressions have


def test_the_card_of_a_pack_says_how_much_was_tested(tmp_path: Path) -> None:
    run = build_run(tmp_path, "svm", seeds=(0,), outer=4, run=[0, 1])
    pack(argparse.Namespace(run=run, out=tmp_path / "model", licence=None))
    card = (tmp_path / "model/README.md").read_text()
    scope = "2 of 4 folds, 12 of 24 scans tested"
    assert f"In 12 scans of the training cohort ({scope}), each predicted by" in card
    assert "further trainings failed" not in card
    (result,) = yaml.safe_load(card.split("---")[1])["model-index"][0]["results"]
    assert result["dataset"]["args"] == {"tested": scope}
    assert read_json(tmp_path / "model/model.json")["runs"]["tested"] == scope


def test_a_complete_run_needs_no_such_words(tmp_path: Path) -> None:
    assert scope_text(4, 4, 88, 88) == ""
    assert scope_text(2, 4, 44, 88) == "2 of 4 folds, 44 of 88 scans tested"
    assert joined({"a": "", "b": ""}) == [] and joined({"a": "x", "b": "x"}) == ["x"]
    assert joined({"a": "", "b": "x"}) == ["b: x"] and joined({}) == []
    run = build_run(tmp_path, "svm", seeds=(0,))
    pack(argparse.Namespace(run=run, out=tmp_path / "model", licence=None))
    card = (tmp_path / "model/README.md").read_text()
    assert "In 24 scans of the training cohort, each" in card and "folds," not in card and "args" not in card
