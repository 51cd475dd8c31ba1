"""The report that several files of tests read."""

import pytest
from matplotlib.backends.backend_pdf import FigureCanvasPdf

from bolt.report.pages.explanation import write_explanation
from bolt.report.pages.quality import write_quality
from bolt.report.pages.report import write_report
from tests.conftest import leave_empty
from tests.report.results import make_results


@pytest.fixture(scope="session")
def whole(once):
    """All pages of a made-up study, not to be changed: their folder."""
    return once("whole", _write_all)


def _write_all(folder):
    study = make_results(folder, n=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureCanvasPdf, "print_pdf", leave_empty)
        write_quality(study)
        write_explanation(study)
        write_report(study)
    return study.layout.report.parent
