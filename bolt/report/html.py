"""What pages share: the blocks they consist of, their words, and the bar that joins them.

Pages load nothing from elsewhere, so their folder can be shared as it is. Sentences and captions are data:
``templates/words.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template, pass_context
from jinja2.runtime import Context

from bolt.cohort.confounding import effect_text, interval_text
from bolt.cohort.quality import is_judged
from bolt.config.study import Study
from bolt.explain.explainable import sees_brain
from bolt.io.files import read_yaml, write_text
from bolt.io.names import is_name
from bolt.report import numbers
from bolt.report.numbers import NOTHING

TEMPLATES = Path(__file__).with_name("templates")


@dataclass
class Picture:
    """A figure, with links to the SVG and PDF files beside the PNG."""

    file: Path
    caption: str


@dataclass
class Table:
    """A table of strings; `file` is the table of numbers that the caption names."""

    frame: pd.DataFrame
    caption: str
    file: Path | None = None


@dataclass
class Text:
    """A paragraph, highlighted if it is a warning; `link` is a page to which it leads."""

    text: str
    warning: bool = False
    link: str = ""


@dataclass
class View:
    """An interactive page, embedded and loaded when the reader opens it."""

    file: Path
    title: str
    caption: str


Block = Picture | Table | Text | View


@dataclass
class Chapter:
    """A heading and the blocks below it."""

    title: str
    blocks: list[Block]


@cache
def page_environment() -> Environment:
    """Return the templates of the pages: text is escaped, an undefined name is an error; `here` is a page's folder."""
    options: Any = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("bolt.report"), undefined=StrictUndefined, **options)
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


@cache
def text_environment() -> Environment:
    """Return the templates of plain text: pages escape it, where it is shown."""
    environment = Environment(loader=PackageLoader("bolt.report"), undefined=StrictUndefined, autoescape=False)
    functions: dict[str, Any] = dict(getmembers(numbers, isfunction))
    functions |= {function.__name__: function for function in (effect_text, interval_text, listed)}
    environment.filters |= functions
    environment.globals |= functions | {"words": all_words()}
    environment.tests["known"] = pd.notna
    return environment


def listed(parts: list[str]) -> str:
    """Join words with commas, and the last with *and*."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


@cache
def all_words() -> dict[str, dict[str, str]]:
    """Return the texts by page and name (``templates/words.yaml``)."""
    return read_yaml(TEMPLATES / "words.yaml")


@cache
def _template(text: str) -> Template:
    return text_environment().from_string(text)


def fill(text: str, /, **facts: Any) -> str:
    """Return a text in which the facts are filled in."""
    return re.sub("[ \n]+", " ", _template(text).render(facts)).strip(" ")


def say(name: str, /, **facts: Any) -> str:
    """Return a text such as ``cohort.tests``, in which the facts are filled in."""
    page, text = name.split(".")
    return fill(all_words()[page][text], **facts)


@cache
def _columns(table: str) -> dict[str, Callable[..., Any]]:
    """Return the headings of a table, each with what fills its cells."""
    cells = read_yaml(TEMPLATES / "tables.yaml")[table]
    return {heading: text_environment().compile_expression(cell) for heading, cell in cells.items()}


def filled(table: str, rows: pd.DataFrame | Iterable[Mapping[Any, Any]], /, **facts: Any) -> pd.DataFrame:
    """Return a table for readers, whose columns are those of ``templates/tables.yaml``.

    Parameters
    ----------
    table : str
    rows : DataFrame or iterable of mapping
        What each row is about.
    **facts
        What all rows have in common.
    """
    rows = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else list(rows)
    cells = {heading: [cell({**facts, **row}) for row in rows] for heading, cell in _columns(table).items()}
    said = {name: column for name, column in cells.items() if name[-1:] != "?" or not NOTHING.issuperset(column)}
    return pd.DataFrame({name.removesuffix("?"): column for name, column in said.items()})


def drawn(file: Path, caption: str, draw: Callable[..., None], *shown: Any, **options: Any) -> Picture:
    """Return a picture that ``draw(*shown, file, **options)`` saves."""
    draw(*shown, file, **options)
    return Picture(file, caption)


PAGES = all_words()["pages"]
"""What each page is called, in reading order."""


def pages_of(study: Study) -> dict[str, str]:
    """Return the titles of the pages that the finished report has, by file; they are known before any is written."""
    dataset, absent = study.dataset, set()
    if dataset.label is None:
        absent = set(PAGES) - {"quality.html"}  # nothing is predicted, so there is no report
    if not is_judged(study.config, dataset):
        absent.add("quality.html")
    if not any(map(sees_brain, study.models.values())):
        absent |= {"explanation.html", "trust.html"}
    return {file: title for file, title in PAGES.items() if file not in absent}


def bar(study: Study, current: str, up: str = "") -> dict[str, Any]:
    """Return what ``base.html`` needs: `current` is the page, or the one to which a page in another folder belongs.

    `up` leads from that folder to the report's.
    """
    shared = {"dataset": study.dataset, "folder": study.layout.results.name}
    return {**shared, "pages": pages_of(study), "current": current, "up": up}


def write_report_page(study: Study, name: str, **content: Any) -> None:
    """Fill the template of a page of the report."""
    write_page(name, study.layout.report.with_name(name), **bar(study, name), **content)


def subject_link(study: Study, subject: str) -> str:
    """Return the link from a page of the report to that of a subject; "" if its name cannot be part of a path."""
    return f"../{study.layout.subjects.name}/{subject}.html" if is_name(subject) else ""
