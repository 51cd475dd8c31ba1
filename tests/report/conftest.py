"""The report that several files of tests read."""

import pytest

from tests.report.results import make_results, words_only


@pytest.fixture(scope="session")
def whole(once):
    """All pages of a made-up study, not to be changed, without what is on its pictures: their folder."""
    return once("whole", words_only()(write_all))


def write_all(folder):
    """Write all pages of a made-up study."""
    from bolt.report.pages.explanation import write_explanation
    from bolt.report.pages.quality import write_quality
    from bolt.report.pages.report import write_report

    study = make_results(folder, n=8)
    write_quality(study)
    write_explanation(study)
    write_report(study)
    return study.layout.report.parent
