"""Quality pages: ``derivatives/<subject>.html``, and one for all subjects, ``report/quality.html``.

They load nothing from elsewhere. The group page links to the subjects' pages, which show the images in
``derivatives/<folder>/figures``: to share them, send ``report/`` with these pages, figures and ``*_crash.txt`` files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
from bolt.datasets import TEXT_COLUMNS
from bolt.io.files import holds_something, read_columns, read_json, read_table, to_numbers
from bolt.jobs.crash_report import report_path
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.contents import bar, write_report_page
from bolt.report.figures.strips import coverage_strip, outlying, strip
from bolt.report.html import write_page
from bolt.report.sections.methods import cite, preprocessing_texts
from bolt.report.tables.numbers import number

URGENT = ("failed", "excluded", "check", "ok")
"""States of images, those worth a look first."""
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
    """An image below ``derivatives``, or a drawing that is part of the page."""

    place: str
    caption: str
    drawing: str = ""


@dataclass
class ImageQuality:
    """A T1w image or a BOLD scan on its subject's page."""

    title: str
    state: str
    reason: str
    crash: str
    ratings: list[Rating]
    scan: str = ""
    figures: list[Figure] = field(default_factory=list)


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

    def rate_all(self, row: Mapping[str, Any], about: Iterable[str]) -> list[Rating]:
        """Rate all measures about T1w, BOLD, motion or ROIs that are known of a scan."""
        names = [name for name in self.shown if MEASURES[name].about in about and not pd.isna(row[name])]
        return [self.rate(name, float(row[name]), str(row["scan_id"])) for name in names]


def _state(state: str, ratings: Iterable[Rating]) -> str:
    """Return 'check' instead of 'ok' if any rating asks for it."""
    return "check" if state == "ok" and any(rating.state == "check" for rating in ratings) else state


def write_pages(study: Study) -> None:
    """Write the group page, and the page of every subject that was preprocessed here."""
    layout = study.layout
    scans = read_table(layout.scans, text=TEXT_COLUMNS)
    table = read_table(layout.quality, text=("scan_id", "subject", "anatomy", "state", "reason")).fillna({"reason": ""})
    rater, scans_of = Rater(study.config, table), dict(list(scans.groupby("subject")))
    images = {
        str(subject): _images(study, rows, rater)
        for subject, rows in table[table["anatomy"].notna()].groupby("subject")
    }
    order = sorted(images, key=lambda subject: (min(URGENT.index(image.state) for image in images[subject]), subject))
    files = {subject: layout.derivatives / f"{subject}.html" for subject in order}
    shared = bar(study, "quality.html", f"{os.path.relpath(layout.report.parent, layout.derivatives)}/")
    for i, subject in enumerate(order):
        paragraphs, references = cite(preprocessing_texts(layout, scans_of[subject]))
        write_page(
            "subject.html",
            files[subject],
            **shared,
            subject=subject,
            images=images[subject],
            methods=paragraphs,
            references=references,
            group=os.path.relpath(layout.quality_page, layout.derivatives),
            before=files[order[i - 1]].name if i else "",
            after=files[order[i + 1]].name if i + 1 < len(order) else "",
            place=i + 1,
            n=len(order),
        )
    pages = {subject: os.path.relpath(file, layout.quality_page.parent) for subject, file in files.items()}
    _write_group_page(study, table, rater, pages)


def _images(study: Study, rows: pd.DataFrame, rater: Rater) -> list[ImageQuality]:
    """Return the T1w images of a subject, each followed by its scans."""
    layout, images = study.layout, []
    of_t1w = [name for name in rater.shown if MEASURES[name].about == "T1w"]
    for folder, scans in rows.groupby("anatomy"):
        known = scans.dropna(subset=of_t1w, how="all")
        ratings = rater.rate_all(known.iloc[0].to_dict(), ("T1w",)) if len(known) else []
        t1w = _image(f"T1w of {folder}", layout.anatomical_status(str(folder)), ratings, layout)
        if _was_made(t1w):
            t1w.figures = _figures(layout, str(folder), prefix_of(str(folder)), T1W_PICTURES)
        images.append(t1w)
        for row in scans.to_dict("records"):
            scan = str(row["scan_id"])
            ratings = rater.rate_all(row, ("BOLD", "motion", "ROIs"))
            image = _image(scan, layout.functional_status(scan), ratings, layout)
            image.scan = scan
            if _was_made(image):
                image.figures = _figures(layout, folder_of(scan), f"{scan}_", SCAN_PICTURES)
            if row["state"] != "failed":
                image.figures += _coverage(study, scan)
            if row["state"] != "ok":
                image.state, image.reason = row["state"], row["reason"]
            images.append(image)
    return images


def _image(title: str, status: Path, ratings: list[Rating], layout: Layout) -> ImageQuality:
    outcome = read_json(status) if status.is_file() else {"state": "failed", "reason": "not preprocessed"}
    crash = report_path(status)
    place = crash.relative_to(layout.derivatives).as_posix() if crash.is_file() else ""
    return ImageQuality(title, _state(outcome["state"], ratings), outcome["reason"], place, ratings)


def _was_made(image: ImageQuality) -> bool:
    """Return whether its figures are of this run, rather than an earlier one."""
    return image.state in ("ok", "check")


def _figures(layout: Layout, folder: str, start: str, suffixes: tuple[str, ...]) -> list[Figure]:
    """Return the figures of an image or scan in the order of `PICTURES`, those of the configured space only."""
    kinds = pictures_of(layout.derivatives / folder / "figures", start, suffixes, layout.space)
    files = sorted((list(PICTURES).index(kind), file) for file, kind in kinds.items() if kind in PICTURES)
    return [Figure(file.relative_to(layout.derivatives).as_posix(), PICTURES[kinds[file]]) for _, file in files]


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


def _write_group_page(study: Study, table: pd.DataFrame, rater: Rater, pages: Mapping[str, str]) -> None:
    known = table.set_index("scan_id", drop=False)
    strips = []
    for name in rater.shown:
        measure, values = MEASURES[name], known[name].astype(float)
        _, cutoff = rater.cutoffs.get(name, (None, None))
        drawing = strip(values, rater.outliers[name], known["state"] != "ok", cutoff)
        words = f"median {number(values.median())}, {number(values.min())} to {number(values.max())} {measure.unit}"
        label = f"{measure.label} ({measure.unit})" if measure.unit else measure.label
        strips.append({"label": label, "about": measure.description, "words": words, "drawing": drawing})
    rows = []
    for row in table.to_dict("records"):
        ratings = {rating.name: rating for rating in rater.rate_all(row, ("T1w", "BOLD", "motion", "ROIs"))}
        state, page = _state(row["state"], ratings.values()), pages.get(row["subject"], "")
        why = "; ".join(f"{r.label} {r.value}" for r in ratings.values() if r.state in ("check", "bad"))
        rows.append({**row, "state": state, "page": page, "ratings": ratings, "why": why})
    write_report_page(
        study,
        "quality.html",
        rows=rows,
        excluded=[row for row in rows if row["state"] not in ("ok", "check")],
        measures=[(name, MEASURES[name]) for name in rater.shown],
        cutoffs=[f"{bound} {MEASURES[name].label} {value:g}" for name, (bound, value) in rater.cutoffs.items()],
        strips=strips,
        subjects=bool(pages),
    )
