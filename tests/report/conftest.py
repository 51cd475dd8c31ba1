"""The report that several files of tests read."""

from pathlib import Path

import pytest
from matplotlib.backends.backend_pdf import FigureCanvasPdf

from bolt.report.pages.explanation import write_explanation
from bolt.report.pages.quality import write_quality
from bolt.report.pages.report import write_report
from tests.report.results import make_results


@pytest.fixture
def pdf():
    """Ask for PDFs of pictures."""


@pytest.fixture(autouse=True)
def _no_pdf(request, monkeypatch):
    """Leave PDFs of pictures empty where a test does not ask for them: they take as long as PNG and SVG together."""
    if "pdf" not in request.fixturenames:
        monkeypatch.setattr(FigureCanvasPdf, "print_pdf", _leave_empty)


def _leave_empty(_, file, **__):
    Path(file).touch()


@pytest.fixture(scope="session")
def whole(once):
    """All pages of a made-up study, not to be changed: their folder."""
    return once("whole", _write_all)


def _write_all(folder):
    study = make_results(folder, n=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureCanvasPdf, "print_pdf", _leave_empty)
        write_quality(study)
        write_explanation(study)
        write_report(study)
    return study.layout.report.parent
