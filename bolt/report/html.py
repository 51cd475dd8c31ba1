"""The report: one page, its pictures in a folder beside it, nothing loaded from elsewhere."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from bolt.config import Config, Model
from bolt.config.layout import Layout
from bolt.io.files import keep, write_text
from bolt.report.sections.explanation.verdicts import Verdict
from bolt.report.sections.methods import methods_page


@dataclass
class Picture:
    """A figure; an SVG and a PDF of the same name beside the PNG are offered for papers."""

    file: Path
    caption: str
    kind: str = "picture"


@dataclass
class Table:
    """A table of strings (see `bolt.report.tables.readable`)."""

    frame: pd.DataFrame
    caption: str
    file: Path | None = None
    """Where the same numbers stand for machines; named under the table."""
    kind: str = "table"


@dataclass
class Text:
    """A paragraph; with `warning`, one that must be seen; with `link`, one that ends in a link to a page beside it."""

    text: str
    warning: bool = False
    link: str = ""
    kind: str = "text"


@dataclass
class View:
    """A page beside the report that can be turned or browsed; it loads when the reader opens it."""

    file: Path
    title: str
    caption: str
    kind: str = "view"


Block = Picture | Table | Text | View


@dataclass
class Chapter:
    """What the explanation page says below one heading."""

    title: str
    blocks: list[Block]


@dataclass
class Story:
    """The explanation of one run: its part of the explanation page."""

    title: str
    anchor: str
    verdicts: list[Verdict]
    chapters: list[Chapter]


@dataclass
class Run:
    """One atlas, model and seed."""

    title: str
    performance: list[Block] = field(default_factory=list)
    explanation: list[Block] = field(default_factory=list)


@dataclass
class ReportData:
    """All that the report shows. Sections whose content is empty are left out.

    Attributes
    ----------
    dataset, description : str
    facts : dict
        What to know first: name to value, both short.
    truth : DataFrame or None
        From `bolt.report.tables.readable.truth`; simulated data only.
    cohort, series : list of blocks
    exclusions : DataFrame
        ``scan_id, stage, reason``.
    quality : list of blocks
        Group tables; empty where nothing was preprocessed here.
    runs : list of Run
    methods, references : list of str
        Paragraphs, and what they cite by number.
    provenance : dict
        Name to value.
    costs : list of blocks
    configuration : str
        The YAML that was run.
    """

    dataset: str
    description: str
    facts: dict[str, str]
    truth: pd.DataFrame | None
    cohort: list[Block]
    exclusions: pd.DataFrame
    quality: list[Block]
    series: list[Block]
    runs: list[Run]
    methods: list[str]
    references: list[str]
    provenance: dict[str, str]
    costs: list[Block]
    configuration: str


def figure_folder(layout: Layout) -> Path:
    """Where the report's own pictures are drawn."""
    return layout.report.parent / "figures"


def run_title(config: Config, atlas: str, model: Model, seed: int) -> str:
    """What a run is called for people."""
    return f"{model.name} on {atlas}" + (f", seed {seed}" if len(config.seeds) > 1 else "")


def run_stem(atlas: str, model: Model, seed: int) -> str:
    """How the names of a run's pictures begin."""
    return f"{atlas}_{model.run_name}_seed-{seed}"


def page_environment() -> Environment:
    """Where the templates of pages are found, and how they are filled: what is missing is an error, text is escaped."""
    return Environment(
        loader=PackageLoader("bolt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write_report(data: ReportData, out: Path) -> None:
    """Write the page `out`, the methods text (``methods.md``), and copy pictures into ``figures`` beside it.

    Pictures that already lie beside the page are linked where they are, so the folder can be sent
    to a colleague as it is.
    """
    write_text(methods_page(data.methods, data.references), out.with_name("methods.md"))
    write_page("report.html", out, data=data)


def write_page(template: str, out: Path, **content: Any) -> None:
    """Fill a template of `bolt/report/templates` with blocks and whatever else it names."""
    environment = page_environment()
    environment.filters["place"] = lambda file: _place(Path(file), out.parent)
    environment.filters["vectors"] = lambda file: _vectors(Path(file), out.parent)
    environment.filters["alignment"] = _alignment
    write_text(environment.get_template(template).render(**content), out)


def _place(file: Path, folder: Path) -> str:
    """Path of a picture relative to the page, after it has been brought there."""
    if file.is_relative_to(folder):
        return file.relative_to(folder).as_posix()
    short = hashlib.sha256(str(file.parent).encode()).hexdigest()[:6]  # equal names from different folders
    target = folder / "figures" / "scans" / f"{short}_{file.name}"
    keep(file, target)
    return target.relative_to(folder).as_posix()


def _vectors(file: Path, folder: Path) -> dict[str, str]:
    """The same picture in the formats of papers: name of the format to its place."""
    drawings = {name: file.with_suffix(f".{name.lower()}") for name in ("SVG", "PDF")}
    return {name: _place(path, folder) for name, path in drawings.items() if path != file and path.is_file()}


def _alignment(frame: pd.DataFrame) -> list[str]:
    """A CSS class a column: numbers (``n``, also such as '3 of 4') are set right-aligned."""
    classes = []
    for _, column in frame.items():
        filled = [str(v) for v in column if v not in ("", "–")]
        classes.append("n" if filled and all(re.match(r"[-+−<≥≤ ]*\d[^A-Z]*$", v) for v in filled) else "")
    return classes
