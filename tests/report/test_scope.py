"""As long as `folds: run` asks for some of the folds, this is said wherever a metric stands."""

import argparse
import html
import re
import shutil
from dataclasses import replace

import pytest
import yaml

from bolt.config import Config, Experiment, load_experiment
from bolt.config.study import Study
from bolt.evaluate.metrics import TEXT, write_metrics
from bolt.evaluate.results import due
from bolt.experiments.explained import write_landmark_experiment
from bolt.experiments.tables import write_experiment
from bolt.io.files import read_json, read_table, write_table, write_yaml
from bolt.report.numbers import joined, scope_text
from bolt.report.pages.explanation import write_explanation
from bolt.report.pages.performance import gathered
from bolt.report.pages.report import write_report
from bolt.share.models import pack
from tests.evaluate.test_paired import made_up
from tests.experiments.test_results import entry, write_run
from tests.report.pages.test_moments import landmarks
from tests.report.results import CLASSES, make_results, words_only
from tests.share.test_packs import build_run

SCOPE, OF_SIXTY = "2 of 4 folds, 8 of 11 scans tested", "2 of 4 folds, 12 of 60 scans tested"
EXPERIMENT = Experiment(name="mine", title="Mine", rows=[{"model": "bolt"}])
METRIC = re.compile(r"\b(AUC|accurac|recall|Brier score|log loss|log odds|predicts)")


@pytest.fixture(scope="module")
@words_only()
def study(tmp_path_factory):
    """Two models and seeds, of which two of four folds were asked for and are trained."""
    folder = tmp_path_factory.mktemp("some")
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
    write_explanation(study)
    write_report(study)
    return study


@pytest.mark.parametrize(("name", "least"), [("index", 2), ("performance", 5), ("explanation", 1), ("trust", 1)])
def test_every_part_of_a_page_with_a_metric_says_how_much_was_tested(study, name, least):
    """A part is what is above the sections, or a section."""
    page = (study.layout.report.parent / f"{name}.html").read_text()
    parts = re.findall(r"<header.*?</header>|<section.*?</section>", page, re.S)
    texts = [html.unescape(re.sub(r"<[^>]+>", " ", part)) for part in parts]
    limits = "How to read an explanation, and its limits"
    shown = [text for text in texts if METRIC.search(text) and re.search(r"\d\.\d", text) and limits not in text]
    assert len(shown) >= least and [text for text in shown if SCOPE not in text] == []


def test_the_first_screen_its_facts_and_each_run_say_what_was_asked_for(study):
    page = study.layout.report.read_text()
    assert f"predicts control or patient in test scans ({SCOPE}) with an AUC within folds of" in page
    assert "<dt>folds</dt><dd>2 of 4</dd>" in page and f"Hollow: tested on some of the folds. {SCOPE}." in page
    page = html.unescape((study.layout.report.parent / "performance.html").read_text())
    assert page.count(f"<p class=warning>{SCOPE} ('folds: run' asks for 2).</p>") == 4  # two models, two seeds
    assert page.count(f"<p class=warning>{SCOPE}.</p>") == 1  # of all models together
    for entries, found in gathered(study).values():
        assert [due(one) for one in entries] == [[0, 1, 2, 3]] * 2
        assert [list(missing) for _, missing in found] == [[2, 3]] * 2


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("performance", r"tiny, seed 0\D.*?8 of 11.*?2 of 4"),
        ("performance", r"tiny accuracy 8 of 11 2 of 4"),  # over the seeds
        ("performance", r"tests against tiny|other 2 of 4 8 of 11"),
        ("trust", r"single volume important [^a-z]*2 of 4"),
    ],
)
def test_tables_of_models_seeds_tests_and_landmarks_count_of_all(study, name, pattern):
    text = (study.layout.report.parent / f"{name}.html").read_text()
    assert re.search(pattern, " ".join(re.sub(r"<[^>]+>", " ", text).split()))


def of_four(name, folder):
    """A row of an experiment of which two folds were asked for."""
    return replace(entry(name, [folder]), folds=[0, 1], outer=4, paper_dataset="")


@words_only()
def test_every_table_of_an_experiment_says_how_much_was_tested(tmp_path):
    rows = [of_four(name, write_run(tmp_path / name, made_up(2.0, i, n=60))) for i, name in enumerate(("BolT", "LSTM"))]
    write_experiment(EXPERIMENT, rows, tmp_path / "out")
    head, *tables = (tmp_path / "out/mine.md").read_text().split("\n### ")
    assert len(tables) == 4 and head.count(OF_SIXTY) == 2  # below both figures
    for table in tables:
        assert f"- {OF_SIXTY}\n" in table or "| LSTM | 2 of 4 | 12 of 60 |" in table, table
    tests = read_table(tmp_path / "out/mine_tests.tsv")
    assert set(tests["expected_folds"]) == {4} and set(tests["n_all_scans"]) == {60}
    # a row that learns from a share of the scans counts all of them
    few = made_up(1.0, 1, n=60)
    kept = few[(few["role"] != "train") | (few["scan_id"].str[-1].isin(list("0123")))]
    write_experiment(EXPERIMENT, [rows[0], of_four("half", write_run(tmp_path / "run", kept))], tmp_path / "half")
    for folder in ("out", "half"):
        assert set(read_table(tmp_path / folder / "mine.tsv")["n_all_scans"]) == {60}


@words_only()
def test_landmarks_of_all_datasets_say_how_much_was_tested(tmp_path):
    landmarks(tmp_path / "explained")
    row = of_four("BolT", write_run(tmp_path / "run", made_up(2.0, 0, n=60)))
    row = replace(row, explanations=[tmp_path / "explained"])
    write_landmark_experiment(load_experiment("landmarks"), [row], tmp_path / "out")
    head, *tables = (tmp_path / "out/landmarks.md").read_text().split("\n### ")
    assert OF_SIXTY in head and len(tables) == 2 and all(f"- {OF_SIXTY}\n" in table for table in tables)
    assert "| 3 of 4 |" in tables[1]  # the folds that the made-up regressions have


def test_the_card_of_a_pack_says_how_much_was_tested(tmp_path):
    run = build_run(tmp_path, "svm", seeds=(0,), outer=4, run=[0, 1])
    pack(argparse.Namespace(run=run, out=tmp_path / "model", licence=None))
    card = (tmp_path / "model/README.md").read_text()
    scope = "2 of 4 folds, 12 of 24 scans tested"
    assert f"In 12 scans of the training cohort ({scope}), each predicted by" in card
    assert "further trainings failed" not in card
    (result,) = yaml.safe_load(card.split("---")[1])["model-index"][0]["results"]
    assert result["dataset"]["args"] == {"tested": scope}
    assert read_json(tmp_path / "model/model.json")["runs"]["tested"] == scope


def test_a_complete_run_needs_no_such_words():
    """Nor has its card any: ``golden/model_card.md``."""
    assert scope_text(4, 4, 88, 88) == ""
    texts = {"": [], "xx": ["x"], "xx-": ["a; b: x"], "-x": ["b: x"], "--": []}
    for each, expected in texts.items():
        assert joined({name: text.strip("-") for name, text in zip("abc", each, strict=False)}) == expected
