"""The images and scans of one subject: their state, how each measure is rated, and their pictures.

Image quality over all scans; single scans and their images are on pages of their own.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.atlases.labels import load_labels
from bolt.config import Config, Quality
from bolt.config.derivatives import SCAN_PICTURES, T1W_PICTURES, pictures_of
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.config.study import Study
from bolt.io.files import holds_something, read_columns, read_json, read_table, to_numbers
from bolt.jobs.crash_report import report_path
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.figures.series import coverage_strip, outlying
from bolt.report.html import Block, Table, Text
from bolt.report.tables import readable
from bolt.report.tables.numbers import number

Row = Mapping[Hashable, Any]
"""Of ``quality.tsv``."""
GOOD = ("ok", "check")
"""States of what is included."""
MIN_SCANS = 8
"""Scans that are needed to call one of them an outlier."""
LISTED = 12  # uncovered ROIs that are named
PICTURES = {
    "normalisation_T1w": "Does the brain match the template? The images alternate; hover to keep the subject's T1w. "
    "Edges of brain, ventricles and gyri should hardly move, and the contours should fit both.",
    "tissues_T1w": "Does the orange line follow the edge of the brain, the yellow line the cortex, the blue line the "
    "white matter?",
    "coregistration_boldref": "Do T1w and BOLD show the same head? The images alternate; hover to keep the BOLD. Its "
    "dark white matter should end at the blue line, its bright sulci lie along the yellow one; signal dropout is "
    "expected above sinuses and ears.",
    "normalisation_boldref": "Mean BOLD in template space: missing parts were not acquired, or lost to signal dropout.",
    "carpetplot_bold": "One row per group of neighbouring voxels. Vertical stripes are motion or breathing; look for "
    "them below peaks of FD.",
    "tsnr_boldmap": "Temporal signal-to-noise ratio (mean over standard deviation): cortex should be brighter than the "
    "centre of the brain, without stripes.",
}
"""What to look for in each image (description and suffix), in the order of display."""


@dataclass
class Rating:
    """A measure's value and its rating: a state (colour) and words."""

    name: str
    label: str
    value: str
    state: str
    words: str
    description: str


@dataclass
class Figure:
    """An image, by its place relative to the page, or a drawing that is part of the page."""

    place: str
    caption: str
    drawing: str = ""


@dataclass
class Image:
    """A T1w image or a scan on its subject's page; `tests` are what models predicted (`predictions.predictions_of`)."""

    title: str
    state: str
    reason: str
    crash: str = ""
    ratings: list[Rating] = field(default_factory=list)
    scan: str = ""
    figures: list[Figure] = field(default_factory=list)
    tests: list[dict[Hashable, Any]] = field(default_factory=list)
    courses: list[Figure] = field(default_factory=list)

    @property
    def shown(self) -> bool:
        """Return whether there is more to show than predictions."""
        return bool(self.ratings or self.figures or self.reason)


class Rater:
    """Rate values as good, worth a look, or beyond their cut-off.

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
        self.outliers = {
            name: outlying(known[name].astype(float), MEASURES[name].better)
            if known[name].notna().sum() >= MIN_SCANS
            else pd.Series(False, index=known.index)
            for name in self.shown
        }

    def rate(self, name: str, value: float, scan: str) -> Rating:
        """Rate one value of a scan; for T1w images, of any of their scans."""
        measure = MEASURES[name]
        state, words, limit = "plain", "", ""
        if name in self.cutoffs:
            bound, cutoff = self.cutoffs[name]
            limit = f", cut-off {cutoff:g}"
            state, words = ("good", "good") if Quality.met(bound, cutoff, value) else ("bad", "beyond")
        if measure.look is not None and state != "bad":
            side = "below" if measure.better == "high" else "above"
            suspicious = value < measure.look if side == "below" else value > measure.look
            state, words = ("check", f"check: {side} {measure.look:g}") if suspicious else ("good", "good")
        if state != "bad" and self.outliers[name].get(scan, False):
            state, words = "check", "check: outlier among scans"
        shown = f"{number(value)} {measure.unit}".strip()
        return Rating(name, measure.label, shown, state, words + limit, measure.description)

    def rate_all(self, row: Row, about: Iterable[str]) -> list[Rating]:
        """Rate all measures about T1w, BOLD, motion or ROIs that are known of a scan."""
        names = [name for name in self.shown if MEASURES[name].about in about and not pd.isna(row[name])]
        return [self.rate(name, float(row[name]), str(row["scan_id"])) for name in names]


def state_of(state: str, ratings: Iterable[Rating]) -> str:
    """Return 'check' instead of 'ok' if any rating asks for it."""
    return "check" if state == "ok" and any(rating.state == "check" for rating in ratings) else state


def images_of(study: Study, scans: Iterable[str], known: Iterable[Row], rater: Rater) -> list[Image]:
    """Return the T1w images of a subject, each followed by its scans, and then scans that were not preprocessed here.

    Parameters
    ----------
    study : Study
    scans : iterable of str
        All scans of the subject.
    known : iterable of mapping
        The rows of ``quality.tsv`` about them.
    rater : Rater
    """
    folders: dict[str, list[Row]] = {}
    others = {}
    for row in known:
        if isinstance(row["anatomy"], str):
            folders.setdefault(row["anatomy"], []).append(row)
        else:
            others[row["scan_id"]] = row
    images = []
    for folder in sorted(folders):
        images.append(_t1w(study.layout, folder, folders[folder], rater))
        images += [_preprocessed(study, row, rater) for row in folders[folder]]
    shown = {image.scan for image in images}
    return images + [_scan(study, scan, others.get(scan), rater) for scan in scans if scan not in shown]


def _t1w(layout: Layout, folder: str, scans: Iterable[Row], rater: Rater) -> Image:
    rated = (rater.rate_all(row, ("T1w",)) for row in scans)  # the same for all scans that have it
    ratings = next(filter(None, rated), [])
    image = _image(f"T1w of {folder}", layout.anatomical_status(folder), ratings, layout)
    if image.state in GOOD:  # else its figures are of an earlier run
        image.figures = _figures(layout, folder, prefix_of(folder), T1W_PICTURES)
    return image


def _preprocessed(study: Study, row: Row, rater: Rater) -> Image:
    layout, scan = study.layout, str(row["scan_id"])
    ratings = rater.rate_all(row, ("BOLD", "motion", "ROIs"))
    image = _image(scan, layout.functional_status(scan), ratings, layout)
    image.scan = scan
    if image.state in GOOD:
        image.figures = _figures(layout, folder_of(scan), f"{scan}_", SCAN_PICTURES)
    if row["state"] != "failed":
        image.figures += _coverage(study, scan)
    if row["state"] != "ok":
        image.state, image.reason = row["state"], row["reason"]
    return image


def _scan(study: Study, scan: str, row: Row | None, rater: Rater) -> Image:
    """Return a scan that was preprocessed elsewhere; `row` is None if its quality is not known."""
    if row is None:
        return Image(scan, "ok", "", scan=scan)
    ratings = rater.rate_all(row, ("BOLD", "motion", "ROIs"))
    figures = _coverage(study, scan) if row["state"] != "failed" else []
    return Image(scan, state_of(row["state"], ratings), row["reason"], ratings=ratings, scan=scan, figures=figures)


def _image(title: str, status: Path, ratings: list[Rating], layout: Layout) -> Image:
    outcome = read_json(status) if status.is_file() else {"state": "failed", "reason": "not preprocessed"}
    crash = report_path(status)
    place = os.path.relpath(crash, layout.subjects) if crash.is_file() else ""
    return Image(title, state_of(outcome["state"], ratings), outcome["reason"], place, ratings)


def _figures(layout: Layout, folder: str, start: str, suffixes: tuple[str, ...]) -> list[Figure]:
    """Return the figures of an image or scan in the order of `PICTURES`, those of the configured space only."""
    kinds = pictures_of(layout.derivatives / folder / "figures", start, suffixes, layout.space)
    files = sorted((list(PICTURES).index(kind), file) for file, kind in kinds.items() if kind in PICTURES)
    return [Figure(os.path.relpath(file, layout.subjects), PICTURES[kinds[file]]) for _, file in files]


def _coverage(study: Study, scan: str) -> list[Figure]:
    config, figures = study.config, []
    for atlas, place in config.atlas_places.items():
        file = study.layout.coverage(scan, atlas)
        if not holds_something(file):
            continue
        values, rois, shares, covered = read_columns(file, ["value", "name", "coverage", "covered"])
        lost = [name for name, cell in zip(rois, covered, strict=True) if cell == "0"]
        networks = _networks(place, config.paths.atlas_dir)
        caption = (
            f"{atlas}: {len(rois) - len(lost)} of {len(rois)} ROIs are covered. One bar per ROI, by network: the "
            "share that was acquired and has signal; red bars are below the threshold (dashed)."
        )
        if lost:
            caption += f" Not covered: {', '.join(lost[:LISTED])}{' and others' if len(lost) > LISTED else ''}."
        of_rois = [networks.get(int(value)) for value in values]
        drawing = coverage_strip(rois, to_numbers(shares).tolist(), of_rois, config.parcellate.coverage)
        figures.append(Figure("", caption, drawing))
    return figures


@cache
def _networks(place: str, atlas_dir: Path | None) -> dict[int, str]:
    """Return the network of each ROI of an atlas, by its value; ROIs without one are missing."""
    labels = load_labels(place, atlas_dir=atlas_dir).dropna(subset=["network"])
    return dict(zip(labels["value"].astype(int), labels["network"], strict=True))


def quality_section(study: Study) -> list[Block]:
    """Summarise the quality measures and link to the quality page; [] if quality was not assessed."""
    layout = study.layout
    if not layout.quality.is_file():
        return []
    cutoffs = {name: (bound, value) for bound, name, value in study.config.quality.cutoffs()}
    shown = readable.quality(read_table(layout.quality, text=("scan_id", "subject", "anatomy")), cutoffs)
    if shown.empty:
        return []
    blocks: list[Block] = []
    if layout.quality_page.is_file():
        text = "All measures of every scan:"
        blocks.append(Text(text, link=layout.quality_page.name))
    return [*blocks, Table(shown, "Quality measures over all preprocessed scans.", layout.quality)]
