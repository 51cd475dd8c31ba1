"""The pages from a whole results tree, and from trees in which parts are missing."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from bolt.config import Config
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table, write_text, write_yaml
from bolt.report.html import PAGES
from bolt.report.pages.explanation import CHAPTERS, write_explanation
from bolt.report.pages.report import write_report
from bolt.report.sections.cohort import with_lengths, with_motion
from tests.report.results import ATLAS, make_results, make_scans, settings, words_only


def section(file: Path, name: str) -> str:
    found = re.search(rf'<section id="{name}">(.*?)</section>', file.read_text(), re.S)
    assert found, f"no section {name}"
    return found.group(1)


@pytest.mark.parametrize("name", [*PAGES, "../subjects/sub-00.html"])
def test_every_picture_link_and_anchor_exists_and_nothing_comes_from_elsewhere(whole: Path, name: str) -> None:
    page = (whole / name).read_text()
    assert not re.search(r'(?:src|href)="https?:', page) and "<script src" not in page
    for place, anchor in re.findall(r'(?:src|href)="([^"#]*)#?([^"]*)"', page):
        target = (whole / name).parent / place if place else whole / name
        assert target.is_file(), place
        assert not anchor or f'id="{anchor}"' in target.read_text(), anchor
        assert place.endswith(".html") or not place.startswith(("/", ".."))  # the folder can be sent away


@pytest.mark.parametrize("name", PAGES)
def test_every_page_leads_to_all_others(whole: Path, name: str) -> None:
    bar = re.search(r"<nav.*?</nav>", (whole / name).read_text(), re.S)
    assert bar and re.findall(r'href="(\w+\.html)"', bar.group()) == list(PAGES)
    assert re.findall(r'href="([^"]+)" aria-current="page"', bar.group()) == [name]


def test_the_explanation_answers_in_the_order_of_its_questions(whole: Path) -> None:
    told, trust = ((whole / name).read_text() for name in CHAPTERS)
    assert told.count("importance of each volume") >= 2 and "_brain.png" in told
    assert len(re.findall("by name that was predicted correctly|by name, as none was predicted correctly", told)) >= 2
    assert "vmPFC 11" in told  # the planted ROI at position 10
    for page, chapters in zip((told, trust), CHAPTERS.values(), strict=True):
        headings = re.findall(r'<h3 class="chapter"[^>]*>([^<]+)</h3>', page)
        assert headings == [name for name in chapters if name in headings] and len(headings) >= 2
    assert "With care: " in told or "In part: " in told or "No: " in told
    assert "Importance is not causation" in section(whole / "trust.html", "reading")
    lights = re.findall(r'<td class="light">(.) ([a-z ]+)</td>', trust)
    assert set(lights) <= {("✓", "supported"), ("✗", "not supported"), ("○", "not tested")}
    assert len(lights) >= 9 and trust.index('<table class="verdicts">') < trust.index('<h3 class="chapter"')


def test_without_an_explained_run_there_is_no_page(tmp_path: Path) -> None:
    study = settings(tmp_path)
    with pytest.raises(DataError, match="no run was explained"):
        write_explanation(study)
    assert not study.layout.explanation_page.exists()


@words_only()
def test_pages_without_content_are_neither_kept_nor_linked(tmp_path: Path) -> None:
    """Of a former run, whose model had an explanation."""
    write_yaml({"model": "svm"}, tmp_path / "other.yaml")
    study = settings(tmp_path, models=[str(tmp_path / "other.yaml")])
    make_scans(study.layout, 6)
    write_text("old", study.layout.explanation_page)
    write_report(study)
    assert not study.layout.explanation_page.exists()
    page = study.layout.report.read_text()
    assert "explanation.html" not in page and "trust.html" not in page
    assert "Not explained: other. No importance weights" in page


def test_out_of_range_is_red_and_the_common_origin_is_said(whole: Path) -> None:
    truth = section(whole / "index.html", "truth")
    assert "1 of 4 measures out of range" in truth and truth.count('<tr class="bad">') == 1
    assert re.search(r'<tr class="bad"><td>pooled accuracy', truth)
    assert "derived from the same brain" in truth


def test_sections_hold_what_they_should(whole: Path) -> None:
    people = whole / "cohort.html"
    excluded = section(people, "excluded")
    assert "ends within volume 17. Copy it again." in excluded and "1 scan is excluded" in excluded
    quality = section(people, "quality")
    assert "mean FD (mm)" in quality and "≥ 0.5" in quality and '<a href="quality.html">' in quality
    assert "<img" not in quality  # pictures of subjects are not copied into the report
    assert "scans without coverage" in section(people, "series")
    assert "1 series is constant over time and thus zero after z-scoring" in section(people, "series")
    assert "excluded from the mean: sub-00_task-rest (6)." in section(people, "series")
    performance = section(whole / "performance.html", "performance-1")
    assert "Without fold 2" in performance and "loss is NaN at epoch 3" in performance
    made = whole / "methods.html"
    assert (whole / "methods.md").read_text().startswith("# Methods\n") and "doi:10." in section(made, "references")
    assert "3-fold cross-validation" in section(made, "methods") and "torch" in section(made, "provenance")
    assert "outer: 3" in section(made, "configuration")


@words_only()
def test_ready_series_have_no_registration_and_no_truth(tmp_path: Path) -> None:
    study = make_results(tmp_path, n=8, everything=False)
    write_explanation(study)
    write_report(study)
    folder = study.layout.report.parent
    assert 'id="quality"' not in (folder / "cohort.html").read_text()
    assert 'id="truth"' not in (folder / "index.html").read_text()
    told = (folder / "explanation.html").read_text()
    assert "importance of each volume" in told and "planted" not in told and "simulated event" not in told


@words_only()
def test_before_anything_was_trained(tmp_path: Path) -> None:
    study = settings(tmp_path)
    make_scans(study.layout, 6)
    write_report(study)
    folder = study.layout.report.parent
    assert "no series were made" in section(folder / "cohort.html", "series")
    assert "Not evaluated yet" in section(folder / "performance.html", "performance-1")


@words_only()
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


def test_motion_of_ready_images_comes_from_the_cache(tmp_path: Path) -> None:
    """FMRIPrep's displacements are in the cache's index, not in the table of scans."""
    study = make_results(tmp_path, n=8, everything=False)
    cache = study.layout.cache(ATLAS) / "index.tsv"
    index = pd.read_csv(cache, sep="\t", dtype=str)
    write_table(index.assign(mean_fd=[0.1 * (i + 1) for i in range(len(index))]), cache, dict.fromkeys(index, "Test"))
    used = read_table(study.layout.scans, text=TEXT_COLUMNS)
    found = with_motion(used, study.layout, ATLAS).set_index("scan_id")["mean_fd"]
    assert found[index["scan_id"]].round(1).tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
