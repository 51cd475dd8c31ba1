"""Models side by side, and the tests of the cohort, on the page."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import pandas as pd

from bolt.cli.stages import Stages
from bolt.cohort.exclusions import WARNING_COLUMNS
from bolt.cohort.published import COHORT_COLUMNS
from bolt.config import Config, Model, load_model
from bolt.io.files import read_json, read_table, read_yaml, write_table, write_yaml
from bolt.report.html import Table, Text, write_report
from bolt.report.pages.report import collect
from bolt.report.sections.comparison import comparison, floor_words
from bolt.report.sections.runs import run_section
from tests.report.results import ATLAS, make_results
from tests.snake import series_dataset


def two_models(folder: Path) -> tuple:
    """The tree of one model, copied for a second one."""
    config, dataset, layout = make_results(folder, n=12, everything=False)
    write_yaml({"model": "svm"}, folder / "other.yaml")
    config = Config.model_validate(config.model_dump() | {"models": [*config.models, str(folder / "other.yaml")]})
    first = Model(name="tiny", model="bolt", training={"epochs": 3})
    second = Model(name="other", model="svm")
    shutil.copytree(layout.runs(ATLAS, first, 0), layout.runs(ATLAS, second, 0))
    return config, dataset, layout, [first, second]


def test_two_models_stand_in_one_table_with_their_intervals(tmp_path: Path) -> None:
    config, dataset, layout, models = two_models(tmp_path)
    run = comparison(config, dataset, layout, models)
    assert run is not None
    table = next(block.frame for block in run.performance if isinstance(block, Table))
    assert table[""].tolist() == [f"tiny on {ATLAS}", f"other on {ATLAS}"]
    assert table["folds"].tolist() == ["2 of 3", "2 of 3"]
    pooled = read_json(layout.runs(ATLAS, models[0], 0) / "summary.json")["pooled"]
    value, low, high = (f"{100 * pooled['auc'][key]:.1f}" for key in ("value", "low", "high"))
    assert table["AUC [95 %]"].iloc[0] == f"{value} [{low}, {high}]"
    assert re.fullmatch(r"[\d.]+ ± [\d.]+", table["accuracy over folds"].iloc[1])
    assert (layout.report.parent / "figures/comparison.png").stat().st_size > 3000


def test_equal_models_are_not_told_apart_and_calibration_and_sites_are_shown(tmp_path: Path) -> None:
    config, dataset, layout, models = two_models(tmp_path)
    run = comparison(config, dataset, layout, models)
    assert run is not None
    tests = [block for block in run.performance if isinstance(block, Table)][1]
    assert tests.frame[""].tolist() == ["other"] and "tests against tiny" in tests.caption
    assert tests.frame["permutation: p (Holm)"].tolist() == ["1 (1)"]
    assert tests.frame["Wilcoxon: p (Holm)"].tolist() == ["– (–)"] and "2 of at least 6 folds" in tests.caption
    own = run_section(config, dataset, layout, ATLAS, models[0], 0)
    titles = [block.frame.iloc[:, 0].tolist() for block in own.performance if isinstance(block, Table)]
    assert ["balanced accuracy", "Brier score", "expected calibration error"] in titles and ["london", "york"] in titles
    assert list((layout.report.parent / "figures").glob("*_calibration.png"))


def test_motion_that_predicts_as_well_is_a_warning(tmp_path: Path) -> None:
    config, _, layout, models = two_models(tmp_path)
    motion = load_model("motion_only")
    folder = layout.runs(ATLAS, models[0], 0)
    own = (read_table(folder / "metrics.tsv"), read_json(folder / "summary.json")["pooled"])
    found = {f"{name} on {ATLAS}": own for name in ("tiny", "other", "motion_only")}
    words = floor_words(config, [motion, *models], found)
    assert len(words) == 1 and words[0].warning
    assert "is not clearly worse than tiny" in words[0].text
    assert words[0].text.endswith("The same is true of other.")
    far = own[1] | {m: {"value": 0.1, "low": 0.05, "high": 0.15} for m in ("accuracy", "auc")}
    assert floor_words(config, [motion, *models], found | {f"motion_only on {ATLAS}": (own[0], far)}) == []


def test_one_model_alone_is_not_compared(tmp_path: Path) -> None:
    config, dataset, layout, models = two_models(tmp_path)
    assert comparison(config, dataset, layout, models[:1]) is None


def test_the_page_shows_both_and_names_the_svm(tmp_path: Path) -> None:
    config, dataset, layout, _ = two_models(tmp_path)
    data = collect(config, dataset, layout)
    assert data.runs[0].title == "All models side by side" and len(data.runs) == 3
    write_report(data, layout.report)
    page = layout.report.read_text()
    assert page.index("All models side by side") < page.index(f"<h3>tiny on {ATLAS}")
    assert re.search(r"other, a support vector machine \[\d+\] \(linear kernel, C = 1", page)


def test_the_cohorts_tests_are_said_in_words_and_kept_as_a_table(tmp_path: Path) -> None:
    config, dataset, layout = make_results(tmp_path, n=12, everything=False)
    scans = read_table(layout.scans)
    scans.loc[scans["label"] == "patient", "age"] += 60
    scans.to_csv(layout.scans, sep="\t", index=False, na_rep="n/a")
    data = collect(config, dataset, layout)
    lines = [block for block in data.cohort if isinstance(block, Text)]
    aged = [block for block in lines if block.text.startswith("Age differs between classes: median ")]
    assert len(aged) == 1 and aged[0].warning
    assert sum(block.warning for block in lines) == 1
    assert "Head motion is unknown, so it cannot be compared." in [block.text for block in lines]
    table = read_table(layout.tables / "cohort_tests.tsv")
    assert table["measure"].tolist() == ["Site", "Sex", "Age", "Head motion"]
    shown = [block.frame for block in data.cohort if isinstance(block, Table)][-1]
    assert shown[""].tolist() == ["Site", "Sex", "Age"]


def test_numbers_of_the_paper_that_change_are_in_the_next_report(tmp_path: Path, monkeypatch) -> None:
    """The index does not read them, so that nothing is trained again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bolt.report.pages.report.collect", lambda *_: None)
    monkeypatch.setattr("bolt.report.html.write_report", lambda *_: None)
    config, dataset = series_dataset(tmp_path), tmp_path / "mine.yaml"
    options = argparse.Namespace(command="index", config=config, minimum_volumes=2)
    Stages(options).index()
    table = Stages(options).layout.cohort
    assert not table.is_file()
    write_yaml(read_yaml(dataset) | {"paper": {"scans": 13}}, dataset)
    Stages(options).report()
    assert read_table(table).to_numpy().tolist() == [["scans", 12, 13]]
    write_yaml(read_yaml(dataset) | {"paper": None}, dataset)
    Stages(options).report()
    assert not list(table.parent.glob("paper_cohort*"))


def test_the_papers_cohort_and_what_is_odd_stand_with_the_cohort(tmp_path: Path) -> None:
    config, dataset, layout = make_results(tmp_path, n=12, everything=False)
    rows = [("scans", 870, 871), ("subjects, label autism", 403, 403)]
    write_table(pd.DataFrame(rows, columns=list(COHORT_COLUMNS)), layout.cohort, COHORT_COLUMNS)
    odd = read_table(layout.cache(ATLAS) / "warnings.tsv")
    write_table(odd, layout.warnings, WARNING_COLUMNS)
    assert odd.groupby("scan_id").warning.first().str.contains("of 160 ROIs ").tolist() == [True] * 3
    data = collect(config, dataset, layout)
    write_report(data, layout.report)
    cohort = layout.report.read_text().split('id="cohort"')[1].split("</section>")[0]
    for words in (
        "beside the published cohort",
        '<td class="n">871</td>',
        ">-1<",
        "3 scans are used although something",
    ):
        assert words in cohort, words
    assert "all zero or constant (zeros after z-scoring)" in cohort
