"""Pages and the blocks they consist of; pages load nothing from elsewhere, so their folder can be shared as it is.

The pages of the report: one per question, and on each a bar that leads to the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from bolt.cohort.quality import is_judged
from bolt.config.study import Study
from bolt.explain.explainable import can_be_explained
from bolt.io.files import write_text
from bolt.io.names import is_name


@dataclass
class Picture:
    """A figure, with links to the SVG and PDF files beside the PNG."""

    file: Path
    caption: str
    kind: str = "picture"


@dataclass
class Table:
    """A table of strings; `file` is the table of numbers that the caption names."""

    frame: pd.DataFrame
    caption: str
    file: Path | None = None
    kind: str = "table"


@dataclass
class Text:
    """A paragraph, highlighted if it is a warning; `link` is a page to which it leads."""

    text: str
    warning: bool = False
    link: str = ""
    kind: str = "text"


@dataclass
class View:
    """An interactive page, embedded and loaded when the reader opens it."""

    file: Path
    title: str
    caption: str
    kind: str = "view"


Block = Picture | Table | Text | View


@dataclass
class Chapter:
    """A heading and the blocks below it."""

    title: str
    blocks: list[Block]


@cache
def page_environment() -> Environment:
    """Return the templates of the pages: text is escaped, an undefined name is an error; `here` is a page's folder."""
    environment = Environment(
        loader=PackageLoader("bolt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"place": _place, "vectors": _vectors, "alignment": _alignment, "unbroken": _unbroken}
    return environment


def write_page(template: str, out: Path, **content: Any) -> None:
    """Fill a template of ``bolt/report/templates``; pictures must be below the folder of the page."""
    write_text(page_environment().get_template(template).render(here=out.parent, **content), out)


@pass_context
def _place(context: Context, file: Path | str) -> str:
    return Path(file).relative_to(context["here"]).as_posix()


@pass_context
def _vectors(context: Context, file: Path) -> dict[str, str]:
    drawings = {name: file.with_suffix(f".{name.lower()}") for name in ("SVG", "PDF")}
    return {name: _place(context, path) for name, path in drawings.items() if path.is_file()}


def _unbroken(value: object) -> object:
    """Keep an interval, or a deviation, on one line of a cell."""
    if not isinstance(value, str):
        return value
    return re.sub(r"\[[^\]]*\]|± \S+", lambda match: match[0].replace(" ", "\u00a0"), value)


def _alignment(frame: pd.DataFrame) -> list[str]:
    """Return a CSS class per column: ``n`` (right-aligned) for numbers, including such as '3 of 4'."""
    classes = []
    for _, column in frame.items():
        filled = [str(v) for v in column if v not in ("", "–")]
        classes.append("n" if filled and all(re.match(r"[-+−<≥≤ ]*\d[^A-Z]*$", v) for v in filled) else "")
    return classes


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
