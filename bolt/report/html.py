"""Pages and the blocks they consist of; pages load nothing from elsewhere, so their folder can be shared as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from bolt.io.files import write_text


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
