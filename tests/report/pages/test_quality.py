"""Quality pages, and the report as one file: every link leads somewhere, and problems are described in words."""

import re
import zipfile

import pandas as pd
import pytest

from bolt.cohort.quality import gather_quality
from bolt.config import Config, Dataset
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.datasets import COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import write_json, write_status, write_table, write_text
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.pages.quality import Rater, coverage_strip, outlying, strip, write_quality
from bolt.report.pages.report import zip_report
from bolt.report.pages.subjects import write_some_subjects, write_subjects

T1W = {"template_mask_dice": 0.97, "template_correlation": 0.8, "template_shift_margin": 3.1}
BOLD = {"n_volumes": 100, "mean_fd": 0.2, "coregistration_shift_margin": 4.2, "coregistration_flip_margin": 5.0}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_pages(tmp_path_factory.mktemp("pages"))


def make_pages(folder, n=10):
    """Write the pages of subjects, of whom sub-3 is flipped, sub-5 moved much, sub-7 failed, sub-9 is unlike others."""
    paths = {"results": str(folder / "results"), "work": str(folder / "work")}
    config = Config(dataset="own", atlases=["dosenbach160"], paths=paths, quality={"max_mean_fd": 0.5})
    layout, rows = Layout(config), []
    for i in range(n):
        subject = f"sub-{i}"
        scan = f"{subject}_task-rest"
        rows.append({"scan_id": scan, "subject": subject, "kind": "raw", "t1w": f"/raw/{subject}_T1w.nii.gz"})
        change = {3: {"coregistration_flip_margin": 0.1}, 5: {"mean_fd": 0.7}, 9: {"coregistration_shift_margin": 2.1}}
        numbers = BOLD | {"mean_fd": 0.2 + 0.01 * (i % 10)} | change.get(i, {})
        write_json(T1W, layout.anatomical(subject) / f"{subject}_desc-quality.json")
        write_json(numbers, layout.functional(subject) / f"{scan}_desc-quality.json")
        covered = pd.DataFrame({"value": range(1, 11), "name": [*"abcefghij", "<d>"], "coverage": [0.9] * 9 + [0.2]})
        covered["covered"] = [1] * 9 + [0]
        write_table(covered, layout.coverage(scan, "dosenbach160"), dict.fromkeys(covered, "Test"))
        error = DataError("no brain found") if i == 7 else None
        for status in (layout.functional_status(scan), layout.series_status(scan)):
            write_status(status, "failed" if error else "ok", "functional", error)
        write_status(layout.anatomical_status(subject), "ok", "anatomical")
        figures = layout.derivatives / subject / "figures"
        figures.mkdir()
        for name in (f"{subject}_desc-tissues_T1w.webp", f"{scan}_desc-carpetplot_bold.webp"):
            (figures / name).write_bytes(b"picture")
        (figures / f"{scan}_desc-coregistration_boldref.svg").write_text("<svg/>")
        for space in (layout.space, "Former"):
            (figures / f"{scan}_space-{space}_desc-tsnr_boldmap.webp").write_bytes(b"picture")
    (layout.functional("sub-7") / "sub-7_task-rest_crash.txt").write_text("Traceback")
    scans = pd.DataFrame(rows, columns=list(COLUMNS))
    write_table(scans, layout.scans, COLUMNS)
    gather_quality(scans, config, layout)
    dataset = Dataset(name="own", source="bids", path=folder, label="group", classes=["a", "b"])
    study = Study(config, dataset)
    write_quality(study)
    write_subjects(study)
    return study


def page(path):
    return path.read_text(encoding="utf-8")


def test_every_link_and_picture_of_an_unpacked_report_exists_and_nothing_comes_from_elsewhere(study, tmp_path):
    made = study.layout
    with pytest.raises(DataError, match="no report yet"):
        zip_report(made, tmp_path / "report.zip")
    assert not (tmp_path / "report.zip").exists()
    write_text('<a href="quality.html">Quality</a><img src="figures/a.png">', made.report)
    write_text("picture", made.report.parent / "figures" / "a.png")
    with zipfile.ZipFile(zip_report(made, tmp_path / "sent" / "report.zip")) as archive:
        archive.extractall(tmp_path / "there")
    assert not list((tmp_path / "there").rglob("*.tsv"))  # pages and pictures alone
    pages = sorted((tmp_path / "there").rglob("*.html"))
    assert len(pages) == 1 + 2 + 10
    for path in pages:
        text = re.sub(r"<nav.*?</nav>", "", page(path), flags=re.S)  # leads to pages of later stages
        assert not re.search(r'(?:src|href)="https?:', text)
        places = re.findall(r'(?:src|href|data)="([^"#]+)"|url=([^"]+)"', text)
        assert places and all((path.parent / (one or other)).is_file() for one, other in places)
        names = set(re.findall(r' id="([^"]+)"', text))
        assert set(re.findall(r'href="#([^"]+)"', text)) <= names


def test_pages_of_some_subjects_are_written_beside_others(study):
    """At the participant level, where there is no page of the cohort yet."""
    layout = study.layout
    before = {path: path.read_bytes() for path in layout.results.rglob("*") if path.is_file()}
    pages = write_some_subjects(study, {"sub-3", "sub-9"})
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert set(pages) == changed == {layout.subjects / "sub-3.html", layout.subjects / "sub-9.html"}
    assert "left and right seem to be exchanged" in page(pages[0]) and "cohort.html" not in page(pages[0])
    for path in pages:
        path.write_bytes(before[path])


def test_the_group_page_lists_excluded_scans_with_reasons(study):
    text = page(study.layout.quality_page)
    excluded = re.search(r'<section id="excluded">(.*?)</section>', text, re.S)[1]
    assert excluded.count("<tr>") == 4 and "left and right seem to be exchanged" in excluded
    assert "mean FD 0.7 mm is above the cut-off 0.5" in excluded and "functional: no brain found." in excluded
    assert "10 scans: 6 good, 1 to check, 3 excluded" in text
    head, *rows = re.findall(r"<tr.*?</tr>", re.search(r'<table class="scans">(.*?)</table>', text, re.S)[1], re.S)
    # scan, state, what to look at, rating, and eight measures
    assert len(rows) == 10 and [head.count("<th"), *{row.count("<td") for row in rows}] == [12, 12]


def test_a_subjects_page_says_what_to_think_of_a_number_and_has_pictures_of_this_run_alone(study):
    """None of the space that was configured before, and none of a scan that failed since they were drawn."""
    good, flipped, failed, odd = (page(study.layout.subjects / f"sub-{i}.html") for i in (0, 3, 7, 9))
    assert "(1 of 10, those worth a look first)" in failed and "(10 of 10, those worth a look first)" not in failed
    assert '<span class="state ok">ok</span>' in good and "good, cut-off 0.8" in good
    assert "beyond, cut-off 0.8" in flipped and "state excluded" in flipped
    assert "functional: no brain found." in failed and "crash.txt" in failed
    assert "check: outlier among scans" in odd and "state check" in odd
    assert "9 of 10 ROIs are covered" in good and "Not covered: &lt;d&gt;" in good
    assert good.index("coregistration_boldref.svg") < good.index("carpetplot_bold.webp")  # the order of importance

    assert "space-Former" not in good and f"space-{study.layout.space}_desc-tsnr" in good
    assert "carpetplot" in flipped  # excluded for its quality: its pictures show why
    assert "tissues_T1w" in failed and "carpetplot" not in failed and "ROIs are covered" not in failed


def test_few_scans_are_not_compared_with_each_other():
    table = pd.DataFrame({"scan_id": list("abc"), "mean_fd": [0.1, 0.1, 0.29]})
    table = table.reindex(columns=[*table.columns, *(name for name in MEASURES if name != "mean_fd")])
    rater = Rater(Config(dataset="own"), table)
    rating = rater.rate("mean_fd", 0.29, "c")
    assert (rating.state, rating.words) == ("good", "good")
    assert rater.rate("mean_fd", 0.41, "c").words == "check: above 0.4"


def test_strips_mark_what_stands_out():
    values = pd.Series([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 5.0, -3.0], index=list("abcdefgh"))
    assert outlying(values, "low")[lambda s: s].index.tolist() == ["g"]
    assert outlying(values, "high")[lambda s: s].index.tolist() == ["h"]
    assert outlying(values, "")[lambda s: s].index.tolist() == ["g", "h"]
    excluded = values.index == "a"
    drawing = strip(values, outlying(values, "low"), pd.Series(excluded, values.index), 4.0)
    assert drawing.count("<circle") == 2 and 'href="#g"' in drawing and 'class="out"' in drawing
    assert drawing.count("h0") == 6 and 'class="cut"' in drawing and ">-3<" in drawing and ">5<" in drawing
    drawing = coverage_strip(["x", "y", "z"], [1.0, 0.2, 0.7], ["B", "A", "B"], 0.5)
    assert drawing.count("<rect") == 3 and drawing.count("#b42318") == 1
    assert drawing.index("y: 20 %") < drawing.index("x: 100 %")  # by network
