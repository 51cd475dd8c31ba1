"""Pages of subjects: predictions, importance and quality of each scan, those worth a look first."""

import re

import pandas as pd
import pytest

from bolt.config import Config
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.evaluate.metrics import read_predictions
from bolt.explain.weights import read_importance
from bolt.io.files import read_table, write_text
from bolt.report.pages.explanation import write_explanation
from bolt.report.pages.performance import gathered
from bolt.report.pages.report import write_report
from bolt.report.pages.subjects import courses, predictions_of, write_subjects
from tests.report.results import ATLAS, first_run, make_results, words_only


@pytest.fixture(scope="module")
@words_only()
def study(tmp_path_factory):
    """Of ready series: no quality, no pictures."""
    made = make_results(tmp_path_factory.mktemp("subjects"), n=8, everything=False)
    write_text("old", made.layout.subjects / "sub-99.html")
    write_explanation(made)
    write_report(made)
    return made


def test_ready_series_have_no_registration_and_no_truth(study):
    pages = {name: study.layout.report.with_name(f"{name}.html").read_text() for name in ("cohort", "index")}
    assert 'id="quality"' not in pages["cohort"] and 'id="truth"' not in pages["index"]
    told = study.layout.explanation_page.read_text()
    assert "importance of each volume" in told and "planted" not in told and "simulated event" not in told


def of_fold(study, fold):
    table = read_predictions(first_run(study).fold(fold) / "predictions.tsv")
    return table[table["role"] == "test"]


def test_a_page_says_what_was_predicted_in_the_fold_that_tested_the_scan(study):
    for row in of_fold(study, 1).to_dict("records"):
        page = (study.layout.subjects / f"{row['subject']}.html").read_text()
        cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
        right = "right" if row["label"] == row["predicted"] else "wrong"
        shown = [row["label"], row["predicted"], f"{row['p_' + row['predicted']]:.2f}", right, "1"]
        assert cells == ["tiny", *shown]
        assert page.count('class="course"') == 1 and page.count("<circle") == 5


def test_what_no_fold_has_tested_has_no_prediction(study):
    known = set(of_fold(study, 0)["subject"]) | set(of_fold(study, 1)["subject"])
    scans = read_table(study.layout.scans, text=TEXT_COLUMNS)
    untested = study.layout.subjects / f"{next(s for s in scans['subject'] if s not in known)}.html"
    assert 'id="predictions"' not in untested.read_text() and 'id="importance"' not in untested.read_text()


def test_the_course_is_that_of_the_test_fold(study):
    drawn, (scan, *_) = courses(study), of_fold(study, 0)["scan_id"]
    table, weights = read_importance(first_run(study).fold(0))
    course = weights[table["scan_id"].tolist().index(scan)]
    [figure] = drawn[scan]
    assert set(drawn) == {*of_fold(study, 0)["scan_id"], *of_fold(study, 1)["scan_id"]}
    assert f"highest: {course.max() / course.mean():.2g} times the mean" in figure.drawing
    assert figure.caption.startswith("tiny: importance of each moment")


def test_those_worth_a_look_come_first(study):
    excluded = pd.DataFrame({"scan_id": ["sub-05_task-rest"] * 2, "stage": "series", "reason": ["no volume", "no TR"]})
    first, *others = write_subjects(study, excluded, gathered(study))
    assert (first.name, first.state, first.why) == ("sub-05", "excluded", "no volume")
    wrong = [subject for subject in others if subject.prediction.startswith("✗")]
    right = [subject for subject in others if subject.prediction.startswith("✓")]
    assert others[: len(wrong) + len(right)] == wrong + right
    assert [subject.error for subject in others] == sorted((s.error for s in others), reverse=True)
    assert {subject.prediction for subject in others[len(wrong) + len(right) :]} <= {"–"}


def test_the_table_of_all_leads_to_every_page_and_former_pages_are_removed(study):
    page = study.layout.report.with_name("cohort.html").read_text()
    table = re.search(r'<section id="subjects">(.*?)</section>', page, re.S)[1]
    links = re.findall(r'href="\.\./subjects/(sub-\d\d).html"', table)
    assert sorted(links) == sorted(file.stem for file in study.layout.subjects.glob("*.html"))  # and no sub-99
    assert links[0] == "sub-07" and "ends within volume 17" in table  # excluded
    assert len(links) == 8 and "prediction of tiny" in table


def test_probabilities_are_means_over_seeds(tmp_path):
    study = make_results(tmp_path, n=8, everything=False)
    study = Study(Config.model_validate(study.config.model_dump() | {"seeds": [0, 1]}), study.dataset)
    first, second = study.runs
    for fold in (0, 1):
        table = read_predictions(first.fold(fold) / "predictions.tsv").assign(seed=1)
        table["p_patient"], table["p_control"], table["predicted"] = 1.0, 0.0, "patient"
        second.fold(fold).mkdir(parents=True)
        table.to_csv(second.fold(fold) / "predictions.tsv", sep="\t", index=False)
        write_text((first.fold(fold) / "status.json").read_text(), second.fold(fold) / "status.json")
    table = predictions_of(study, gathered(study)).set_index("scan_id")
    for row in of_fold(study, 0).to_dict("records"):
        shown = table.loc[row["scan_id"]]
        p = (row["p_patient"] + 1) / 2
        assert shown["predicted"] == ("patient" if p > 0.5 else "control")
        assert shown["probability"] == pytest.approx(max(p, 1 - p))
        n_right = int(row["predicted"] == row["label"]) + int(row["label"] == "patient")
        assert (shown["n_right"], shown["n_seeds"]) == (n_right, 2)
    assert set(table["reference"]) == {True} and ATLAS not in table["model"].iloc[0]
