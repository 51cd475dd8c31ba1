"""The pages from a whole results tree, and from trees in which parts are missing."""

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
from bolt.report.pages.cohort import with_lengths, with_motion
from bolt.report.pages.explanation import write_explanation
from bolt.report.pages.report import write_report
from tests.report.before import as_before, words_on
from tests.report.results import ATLAS, make_results, make_scans, settings, words_only


def section(file, name):
    found = re.search(rf'<section id="{name}">(.*?)</section>', file.read_text(), re.S)
    assert found, f"no section {name}"
    return found.group(1)


@pytest.mark.parametrize("name", [*PAGES, "../subjects/sub-00.html"])
def test_every_picture_link_and_anchor_exists_and_nothing_comes_from_elsewhere(whole, name):
    page = (whole / name).read_text()
    assert not re.search(r'(?:src|href)="https?:', page) and "<script src" not in page
    for place, anchor in re.findall(r'(?:src|href)="([^"#]*)#?([^"]*)"', page):
        target = (whole / name).parent / place if place else whole / name
        assert target.is_file(), place
        assert not anchor or f'id="{anchor}"' in target.read_text(), anchor
        assert place.endswith(".html") or not place.startswith(("/", ".."))  # the folder can be sent away


def test_every_page_leads_to_all_others(whole):
    for name in PAGES:
        bar = re.search(r"<nav.*?</nav>", (whole / name).read_text(), re.S).group()
        assert re.findall(r'href="(\w+\.html)"', bar) == list(PAGES)
        assert re.findall(r'href="([^"]+)" aria-current="page"', bar) == [name]


@pytest.mark.parametrize("name", [*PAGES, "../subjects/sub-00.html"])
def test_pages_say_what_they_said_before(whole, name):
    """The planted truth, a failed fold, an excluded scan, damaged ROIs: headings, sentences, tables and their order."""
    as_before(f"{Path(name).stem}.txt", words_on((whole / name).read_text(encoding="utf-8")))


def test_numbers_are_those_of_the_study(whole):
    """Which the golden texts leave out."""
    for page, name, words in (
        ("cohort", "quality", ["≥ 0.5"]),
        ("cohort", "series", ["excluded from the mean: sub-00_task-rest (6).", "1 series is constant over time"]),
        ("performance", "performance-1", ["Without fold 2", "loss is NaN at epoch 3"]),
        ("methods", "methods", ["3-fold cross-validation"]),
        ("methods", "provenance", ["torch"]),
        ("methods", "configuration", ["outer: 3"]),
        ("index", "truth", ["1 of 4 measures out of range", '<tr class="bad"><td>pooled accuracy']),
    ):
        found = section(whole / f"{page}.html", name)
        assert [each for each in words if each not in found] == [], (page, name)
        assert name != "quality" or "<img" not in found  # pictures of subjects are not copied into the report


def test_without_an_explained_run_there_is_no_page(tmp_path):
    study = settings(tmp_path)
    with pytest.raises(DataError, match="no run was explained"):
        write_explanation(study)
    assert not study.layout.explanation_page.exists()


@words_only()
def test_before_anything_was_trained_pages_without_content_are_neither_kept_nor_linked(tmp_path):
    """Of a former run, whose model had an explanation."""
    write_yaml({"model": "majority"}, tmp_path / "other.yaml")
    study = settings(tmp_path, models=[str(tmp_path / "other.yaml")])
    make_scans(study.layout, 6)
    write_text("old", study.layout.explanation_page)
    write_report(Study(study.config, study.dataset.model_copy(update={"description": "<b>a & b</b>"})))
    assert not study.layout.explanation_page.exists()
    page = study.layout.report.read_text()
    assert "&lt;b&gt;a &amp; b&lt;/b&gt;" in page
    assert "explanation.html" not in page and "trust.html" not in page
    assert "other: not explained, because no brain data are seen" in page
    assert "no series were made" in section(study.layout.report.with_name("cohort.html"), "series")
    assert "Not evaluated yet" in section(study.layout.report.with_name("performance.html"), "performance-1")


def test_lengths_of_downloaded_scans_are_the_caches(tmp_path):
    layout = Layout(Config(dataset="abide1", paths={"results": tmp_path}))
    used = pd.DataFrame({"scan_id": ["a", "b", "c"], "n_volumes": [None, 50.0, None]})
    assert with_lengths(used, layout, "cc200").n_volumes.isna().sum() == 2
    index = pd.DataFrame({"scan_id": ["a", "b"], "length": [78, 40]})
    write_table(index, layout.cache("cc200") / "index.tsv", {"scan_id": "Scan", "length": "Volumes"})
    assert with_lengths(used, layout, "cc200").n_volumes.tolist()[:2] == [78, 50]


def test_motion_of_ready_images_comes_from_the_cache(tmp_path):
    """FMRIPrep's displacements are in the cache's index, not in the table of scans."""
    study = make_results(tmp_path, n=8, everything=False)
    cache = study.layout.cache(ATLAS) / "index.tsv"
    index = pd.read_csv(cache, sep="\t", dtype=str)
    write_table(index.assign(mean_fd=[0.1 * (i + 1) for i in range(len(index))]), cache, dict.fromkeys(index, "Test"))
    used = read_table(study.layout.scans, text=TEXT_COLUMNS)
    found = with_motion(used, study.layout, ATLAS).set_index("scan_id")["mean_fd"]
    assert found[index["scan_id"]].round(1).tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
