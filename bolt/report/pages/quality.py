"""Pages to judge images by: ``derivatives/<subject>.html``, and one over all subjects, ``report/quality.html``.

They load nothing from elsewhere. The group page links to the subjects' pages, and these show the pictures in
``derivatives/<folder>/figures``: to send them, send ``report/`` and the pages, figures and ``*_crash.txt`` there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.atlases.image import load_labels
from bolt.config import Config, Quality
from bolt.config.derivatives import SCAN_PICTURES, T1W_PICTURES, pictures_of
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.datasets import TEXT_COLUMNS
from bolt.io.files import read_json, read_table, write_text
from bolt.jobs.crash_report import report_path
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.figures.strips import coverage_strip, outlying, strip
from bolt.report.html import page_environment
from bolt.report.sections.methods import cite, preprocessing_texts
from bolt.report.tables.readable import number

GROUP = 8
"""Scans from which on one can stand out from the others."""
PICTURES = {
    "normalisation_T1w": "Is the brain where the template's is? The two take turns; hover to hold the subject's T1w. "
    "Edges of brain, ventricles and folds should hardly jump, and the contours fit both.",
    "tissues_T1w": "Does the orange line follow the brain's edge, the yellow one the cortex, the blue one the white "
    "matter?",
    "coregistration_boldref": "Do T1w and BOLD show the same head? They take turns; hover to hold the BOLD. Its bright "
    "fluid and its folds should lie within the T1w's contours; above sinuses and ears the BOLD may drop out.",
    "normalisation_boldref": "The scan's mean in template space: what is missing was not acquired, or has dropped out.",
    "carpetplot_bold": "A row a voxel. Stripes from top to bottom are motion or breathing; look for them below peaks "
    "of FD.",
    "tsnr_boldmap": "Mean over standard deviation in time: cortex should be brighter than the brain's middle, without "
    "stripes.",
}
"""What to look at, by a picture's description and suffix, in the order they are shown."""


@dataclass
class Light:
    """A measure's value and what is to be thought of it, in a word and a colour."""

    name: str
    label: str
    value: str
    state: str
    words: str
    description: str


@dataclass
class Figure:
    """A picture below ``derivatives``, or a drawing that is part of the page."""

    place: str
    caption: str
    drawing: str = ""


@dataclass
class Part:
    """A T1w image or a scan on its subject's page."""

    title: str
    state: str
    reason: str
    crash: str
    lights: list[Light]
    figures: list[Figure] = field(default_factory=list)


class Judge:
    """Says of a value whether it is good, worth a look, or beyond its cut-off.

    Parameters
    ----------
    config : Config
    table : DataFrame
        `bolt.cohort.quality.QUALITY_COLUMNS`.
    """

    def __init__(self, config: Config, table: pd.DataFrame) -> None:
        self.cutoffs = {name: (bound, value) for bound, name, value in config.quality.cutoffs()}
        self.shown = [name for name in MEASURES if table[name].notna().any()]
        known = table.set_index("scan_id")
        self.odd = {
            name: outlying(known[name].astype(float), MEASURES[name].better)
            if known[name].notna().sum() >= GROUP
            else pd.Series(False, index=known.index)
            for name in self.shown
        }

    def light(self, name: str, value: float, scan: str) -> Light:
        """`scan`: whose value it is (of a T1w, any of its scans)."""
        measure = MEASURES[name]
        state, words, limit = "plain", "", ""
        if name in self.cutoffs:
            bound, cutoff = self.cutoffs[name]
            limit = f", cut-off {cutoff:g}"
            state, words = ("good", "good") if Quality.met(bound, cutoff, value) else ("bad", "beyond")
        if measure.look is not None and state != "bad":
            side, worse = (
                ("below", value < measure.look) if measure.better == "high" else ("above", value > measure.look)
            )
            state, words = ("look", f"look: {side} {measure.look:g}") if worse else ("good", "good")
        if state != "bad" and self.odd[name].get(scan, False):
            state, words = "look", "look: unlike the other scans"
        words += limit
        unit = f" {measure.unit}" if measure.unit else ""
        return Light(name, measure.label, f"{number(value)}{unit}", state, words, measure.description)

    def lights(self, row: Mapping[str, Any], about: Iterable[str]) -> list[Light]:
        names = [name for name in self.shown if MEASURES[name].about in about and not pd.isna(row[name])]
        return [self.light(name, float(row[name]), str(row["scan_id"])) for name in names]


def write_pages(config: Config, layout: Layout) -> None:
    """Write the group page, and the page of every subject that was preprocessed here.

    Parameters
    ----------
    config : Config
    layout : Layout
        Its quality table is there.
    """
    scans = read_table(layout.scans, text=TEXT_COLUMNS)
    table = read_table(layout.quality, text=("scan_id", "subject", "anatomy", "state", "reason")).fillna({"reason": ""})
    judge, pages = Judge(config, table), {}
    for subject, rows in table[table.anatomy.notna()].groupby("subject"):
        page = layout.derivatives / f"{subject}.html"
        parts = _parts(rows, scans, judge, config, layout)
        words, references = cite(preprocessing_texts(layout, scans[scans.subject == subject]))
        group = os.path.relpath(layout.quality_page, page.parent)
        text = (
            page_environment()
            .get_template("subject.html")
            .render(subject=subject, parts=parts, methods=words, references=references, group=group)
        )
        write_text(text, page)
        pages[str(subject)] = os.path.relpath(page, layout.quality_page.parent)
    write_text(_group(table, judge, pages, layout), layout.quality_page)


def _parts(rows: pd.DataFrame, scans: pd.DataFrame, judge: Judge, config: Config, layout: Layout) -> list[Part]:
    """T1w images, each followed by its scans."""
    parts = []
    for folder, its in rows.groupby("anatomy"):
        known = its.dropna(subset=[n for n in judge.shown if MEASURES[n].about == "T1w"], how="all")
        lights = judge.lights(known.iloc[0].to_dict(), ("T1w",)) if len(known) else []
        parts.append(_part(f"T1w of {folder}", layout.anatomical_status(str(folder)), lights, layout))
        if _was_made(parts[-1]):
            parts[-1].figures = _figures(layout, str(folder), prefix_of(str(folder)), T1W_PICTURES)
        for row in its.to_dict("records"):
            scan = str(row["scan_id"])
            lights = judge.lights(row, ("BOLD", "motion", "ROIs"))
            part = _part(scan, layout.functional_status(scan), lights, layout)
            if _was_made(part):
                part.figures = _figures(layout, folder_of(scan), f"{scan}_", SCAN_PICTURES)
            if row["state"] != "failed":
                part.figures += _coverage(scan, config, layout)
            if row["state"] != "ok":
                part.state, part.reason = row["state"], row["reason"]
            parts.append(part)
    return parts


def _part(title: str, status: Path, lights: list[Light], layout: Layout) -> Part:
    before = read_json(status) if status.is_file() else {"state": "failed", "reason": "not preprocessed"}
    crash = report_path(status)
    place = crash.relative_to(layout.derivatives).as_posix() if crash.is_file() else ""
    state = "look" if before["state"] == "ok" and any(one.state == "look" for one in lights) else before["state"]
    return Part(title, state, before["reason"], place, lights)


def _was_made(part: Part) -> bool:
    """Whether its pictures are of what is there now."""
    return part.state in ("ok", "look")


def _figures(layout: Layout, folder: str, start: str, suffixes: tuple[str, ...]) -> list[Figure]:
    """The pictures of an image or scan, in the order of `PICTURES`; of the run's space alone."""
    kinds = pictures_of(layout.derivatives / folder / "figures", start, suffixes, layout.space)
    shown = sorted(
        (list(PICTURES).index(kind), file, PICTURES[kind]) for file, kind in kinds.items() if kind in PICTURES
    )
    return [Figure(file.relative_to(layout.derivatives).as_posix(), text) for _, file, text in shown]


def _coverage(scan: str, config: Config, layout: Layout) -> list[Figure]:
    figures = []
    for atlas, place in config.atlas_places.items():
        file = layout.coverage(scan, atlas)
        if not file.is_file() or not file.stat().st_size:
            continue
        table = read_table(file, text=("name",))
        lost = table["name"][table["covered"] == 0].tolist()
        labels = load_labels(place, atlas_dir=config.paths.atlas_dir)
        networks = labels.set_index("value")["network"].reindex(table["value"]).where(lambda s: s.notna(), None)
        words = f"{atlas}: {len(table) - len(lost)} of {len(table)} ROIs are covered. A bar a ROI, by network: the"
        words += " share that was acquired; red ones are below the threshold (dashed)."
        words += f" Not covered: {', '.join(lost[:12])}{' and others' if len(lost) > 12 else ''}." if lost else ""
        drawing = coverage_strip(table, networks.tolist(), config.parcellate.coverage)
        figures.append(Figure("", words, drawing))
    return figures


def _group(table: pd.DataFrame, judge: Judge, pages: Mapping[str, str], layout: Layout) -> str:
    known = table.set_index("scan_id", drop=False)
    excluded = known["state"] != "ok"
    strips = []
    for name in judge.shown:
        measure, values = MEASURES[name], known[name].astype(float)
        cutoff = judge.cutoffs.get(name, (None, None))[1]
        drawing = strip(values, judge.odd[name], excluded, cutoff)
        text = f"median {number(values.median())}, {number(values.min())} to {number(values.max())}"
        strips.append({"label": measure.label, "about": measure.description, "words": text, "drawing": drawing})
    rows = []
    for row in table.to_dict("records"):
        lights = {light.name: light for light in judge.lights(row, ("T1w", "BOLD", "motion", "ROIs"))}
        state = "look" if row["state"] == "ok" and any(o.state == "look" for o in lights.values()) else row["state"]
        rows.append({**row, "state": state, "page": pages.get(row["subject"], ""), "lights": lights})
    return (
        page_environment()
        .get_template("quality.html")
        .render(
            dataset=layout.results.name,
            rows=rows,
            left_out=[row for row in rows if row["state"] not in ("ok", "look")],
            measures=[(name, MEASURES[name]) for name in judge.shown],
            cutoffs=[f"{bound} {MEASURES[name].label} {value:g}" for name, (bound, value) in judge.cutoffs.items()],
            strips=strips,
            subjects=bool(pages),
        )
    )
