"""The pages of the report: one per question, and on each a bar that leads to the others."""

from __future__ import annotations

from typing import Any

from bolt.cohort.quality import is_judged
from bolt.config.study import Study
from bolt.explain.explainable import can_be_explained
from bolt.io.names import is_name
from bolt.report.html import write_page

PAGES = {
    "index.html": "Summary",
    "cohort.html": "Who is in it",
    "quality.html": "Image quality",
    "performance.html": "How well",
    "explanation.html": "What it looked at",
    "trust.html": "Can it be believed",
    "methods.html": "How it was made",
}
"""What each page is called, in reading order."""
ABOUT = {
    "cohort.html": "All subjects, each with a page; what differs besides the label; excluded scans; ROI series.",
    "quality.html": "Every scan by every quality measure, and rating by eye.",
    "performance.html": "All models side by side and against chance; folds, sites, calibration, training.",
    "explanation.html": "Which moments, regions and networks drive the predictions.",
    "trust.html": "Are training and test apart? Is the explanation stable, learned from the labels, used by the model?",
    "methods.html": "The methods text with its references, versions, computing resources, configuration.",
}
"""What is on each page, for the first one."""


def pages_of(study: Study) -> dict[str, str]:
    """Return the titles of the pages that the finished report has, by file; they are known before any is written."""
    dataset, absent = study.dataset, set()
    if dataset.label is None:
        absent = set(PAGES) - {"quality.html"}  # nothing is predicted, so there is no report
    if not is_judged(study.config, dataset):
        absent.add("quality.html")
    if not any(can_be_explained(model, dataset) for model in study.models.values()):
        absent |= {"explanation.html", "trust.html"}
    return {file: title for file, title in PAGES.items() if file not in absent}


def bar(study: Study, current: str, up: str = "") -> dict[str, Any]:
    """Return what ``base.html`` needs: `current` is the page, or the one to which a page in another folder belongs.

    `up` leads from that folder to the report's.
    """
    shared = {"dataset": study.dataset, "folder": study.layout.results.name}
    return {**shared, "pages": pages_of(study), "current": current, "up": up}


def subject_link(study: Study, subject: str) -> str:
    """Return the link from a page of the report to that of a subject; "" if its name cannot be part of a path."""
    return f"../{study.layout.subjects.name}/{subject}.html" if is_name(subject) else ""


def write_report_page(study: Study, name: str, **content: Any) -> None:
    """Fill the template of a page of the report."""
    write_page(name, study.layout.report.with_name(name), **bar(study, name), **content)
