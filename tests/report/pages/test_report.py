"""The page from a whole results tree, and from trees in which parts are missing."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from bolt.config import Config
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.io.errors import DataError
from bolt.io.files import write_table
from bolt.report.pages.explanation import CHAPTERS, write_explanation
from bolt.report.pages.report import write_report
from bolt.report.sections.cohort import with_lengths
from tests.report.results import make_results, make_scans, settings


def page_of(folder: Path, **options: bool) -> tuple[str, Path]:
    study = make_results(folder, n=8, **options)
    write_explanation(study)
    write_report(study)
    return study.layout.report.read_text(), study.layout.report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return page_of(tmp_path_factory.mktemp("whole"))


def section(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">(.*?)</section>', page, re.S)
    assert found, f"no section {name}"
    return found.group(1)


@pytest.mark.parametrize("name", ["index.html", "explanation.html"])
def test_every_picture_and_link_exists_and_nothing_comes_from_elsewhere(whole: tuple[str, Path], name: str) -> None:
    path = whole[1].with_name(name)
    page = path.read_text()
    places = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert len(places) > 10
    assert all((path.parent / place).is_file() for place in places)
    assert not re.search(r"https?://", page) and "<script src" not in page
    assert not any(place.startswith(("/", "..")) for place in places)  # the folder can be sent away


def test_anchors_lead_to_sections(whole: tuple[str, Path]) -> None:
    page, path = whole
    told = path.with_name("explanation.html").read_text()
    for text in (page, told):
        for name in re.findall(r'href="#([^"]+)"', text):
            assert f'id="{name}"' in text, name
    [anchor] = set(re.findall(r'href="explanation.html#([^"]+)"', page))
    assert f'id="{anchor}"' in told


def test_the_explanation_page_answers_in_the_order_of_its_questions(whole: tuple[str, Path]) -> None:
    told = whole[1].with_name("explanation.html").read_text()
    assert told.count("importance of each volume") >= 2 and "_brain.png" in told
    assert len(re.findall("by name that was predicted correctly|by name, as none was predicted correctly", told)) >= 2
    assert "vmPFC 11" in told  # the planted ROI at position 10
    headings = re.findall(r'<h3 class="chapter"[^>]*>([^<]+)</h3>', told)
    assert headings == [name for name in CHAPTERS if name in headings] and len(headings) >= 4
    assert "Importance is not causation" in section(told, "reading")
    lights = re.findall(r'<td class="light">(.) ([a-z ]+)</td>', told)
    assert set(lights) <= {("✓", "supported"), ("✗", "not supported"), ("○", "not tested")}
    assert len(lights) >= 9 and told.index('<table class="verdicts">') < told.index('<h3 class="chapter"')


def test_without_an_explained_run_there_is_no_page(tmp_path: Path) -> None:
    study = settings(tmp_path)
    with pytest.raises(DataError, match="no run was explained"):
        write_explanation(study)
    assert not study.layout.explanation_page.exists()


def test_out_of_range_is_red_and_the_common_origin_is_said(whole: tuple[str, Path]) -> None:
    truth = section(whole[0], "truth")
    assert "1 of 4 measures out of range" in truth and truth.count('<tr class="bad">') == 1
    assert re.search(r'<tr class="bad"><td>pooled accuracy', truth)
    assert "derived from the same brain" in truth


def test_sections_hold_what_they_should(whole: tuple[str, Path]) -> None:
    page, _ = whole
    cohort = section(page, "cohort")
    assert "ends within volume 17. Copy it again." in cohort and "1 scan is excluded" in cohort
    quality = section(page, "quality")
    assert "mean FD (mm)" in quality and "≥ 0.5" in quality and '<a href="quality.html">' in quality
    assert "<img" not in quality  # pictures of subjects are not copied into the report
    assert "scans without coverage" in section(page, "series")
    assert "1 series is constant over time and thus zero after z-scoring" in section(page, "series")
    assert "excluded from the mean: sub-00_task-rest (6)." in section(page, "series")
    performance = section(page, "performance")
    assert "Without fold 2" in performance and "loss is NaN at epoch 3" in performance
    digest = section(page, "explanation")
    assert "are selected in more than half" in digest and "_brain.png" in digest
    assert "important volumes of a scan predict the class" not in digest  # two folds are too few to test it
    assert 'href="explanation.html#' in digest and "importance of each volume" not in digest
    methods = section(page, "methods")
    assert (whole[1].parent / "methods.md").read_text().startswith("# Methods\n") and "doi:10." in methods
    assert "3-fold cross-validation" in methods and "outer: 3" in methods and "torch" in methods


def test_ready_series_have_no_registration_and_no_truth(tmp_path: Path) -> None:
    page, path = page_of(tmp_path, everything=False)
    assert 'id="quality"' not in page and 'id="truth"' not in page and "simulated event" not in page
    told = path.with_name("explanation.html").read_text()
    assert "importance of each volume" in told and "planted" not in told


def test_before_anything_was_trained(tmp_path: Path) -> None:
    study = settings(tmp_path)
    make_scans(study.layout, 6)
    write_report(study)
    page = study.layout.report.read_text()
    assert "no series were made" in section(page, "series")
    assert "Not evaluated yet" in section(page, "performance") and 'id="explanation"' not in page


def test_text_is_escaped(tmp_path: Path) -> None:
    study = settings(tmp_path)
    make_scans(study.layout, 6)
    write_report(Study(study.config, study.dataset.model_copy(update={"description": "<b>a & b</b>"})))
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in study.layout.report.read_text()


def test_lengths_of_downloaded_scans_are_the_caches(tmp_path: Path) -> None:
    layout = Layout(Config(dataset="abide1", paths={"results": tmp_path}))
    used = pd.DataFrame({"scan_id": ["a", "b", "c"], "n_volumes": [None, 50.0, None]})
    assert with_lengths(used, layout, "cc200").n_volumes.isna().sum() == 2
    index = pd.DataFrame({"scan_id": ["a", "b"], "length": [78, 40]})
    write_table(index, layout.cache("cc200") / "index.tsv", {"scan_id": "Scan", "length": "Volumes"})
    assert with_lengths(used, layout, "cc200").n_volumes.tolist()[:2] == [78, 50]
