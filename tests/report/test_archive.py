"""The report as one file: unpacked anywhere, no link of its pages is broken."""

import re
import zipfile

import pytest

from bolt.io.errors import DataError
from bolt.io.files import write_text
from bolt.report.pages.report import zip_report
from tests.report.pages.test_quality import make_pages


def test_no_link_is_broken_after_unpacking(tmp_path):
    layout = make_pages(tmp_path / "here", 8).layout
    write_text('<a href="quality.html">Quality</a><img src="figures/a.png">', layout.report)
    write_text("picture", layout.report.parent / "figures" / "a.png")
    with zipfile.ZipFile(zip_report(layout, tmp_path / "sent" / "report.zip")) as archive:
        archive.extractall(tmp_path / "there")
    pages = sorted((tmp_path / "there").rglob("*.html"))
    assert len(pages) == 1 + 2 + 8
    for page in pages:
        text = re.sub(r"<nav.*?</nav>", "", page.read_text(), flags=re.S)  # the rest of the report is not made here
        places = re.findall(r'(?:src|href|data)="([^"#]+)"|url=([^"]+)"', text)
        assert places and all((page.parent / (one or other)).is_file() for one, other in places)
    assert not any(path.suffix == ".tsv" for path in (tmp_path / "there").rglob("*"))  # pages and pictures alone


def test_without_a_report_there_is_nothing_to_pack(tmp_path):
    layout = make_pages(tmp_path, 8).layout
    with pytest.raises(DataError, match="no report yet"):
        zip_report(layout, tmp_path / "report.zip")
    assert not (tmp_path / "report.zip").exists()
