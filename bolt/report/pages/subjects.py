"""A page per subject, ``subjects/<subject>.html``: quality, predictions, importance and pictures of each scan.

They are written after preprocessing, when images are checked, and again with the report, which knows the predictions.
They load nothing from elsewhere, and show the images in ``derivatives/<folder>/figures``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.labels import load_labels
from bolt.cohort.exclusions import JOINED
from bolt.cohort.quality import gather_quality
from bolt.config.derivatives import SCAN_PICTURES, T1W_PICTURES, pictures_of
from bolt.config.layout import Layout, folder_of, prefix_of
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.datasets.participants import SELECTION
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import shorten_list
from bolt.io.files import holds_something, read_columns, read_json, read_table, to_numbers
from bolt.jobs.crash_report import report_path
from bolt.report.html import all_words, bar, say, subject_link, write_page
from bolt.report.numbers import decimal, number
from bolt.report.pages.methods import cite, preprocessing_texts
from bolt.report.pages.performance import Compared, reference
from bolt.report.pages.quality import GOOD, Rater, Rating, course_strip, coverage_strip, odd, read_quality, state_of
from bolt.series.cache import SeriesCache, volumes_of

Row = Mapping[Hashable, Any]
"""Of a table."""
URGENT = ("failed", "excluded", "check", "ok")
"""States, those worth a look first."""
LISTED = 4
"""Reasons that the table of all subjects names."""
OF_SCANS = ("BOLD", "motion", "ROIs")
"""What the measures of a scan are about."""
KEYS = ["subject", "scan_id", "fold", "label"]


@dataclass
class Figure:
    """An image, by its place relative to the page, or a drawing that is part of the page."""

    place: str
    caption: str
    drawing: str = ""


@dataclass
class Image:
    """A T1w image or a scan on its subject's page; `tests` are what models predicted (`predictions_of`)."""

    title: str
    state: str
    reason: str
    crash: str = ""
    ratings: list[Rating] = field(default_factory=list)
    scan: str = ""
    figures: list[Figure] = field(default_factory=list)
    tests: list[Row] = field(default_factory=list)
    courses: list[Figure] = field(default_factory=list)

    @property
    def shown(self) -> bool:
        """Return whether there is more to show than predictions."""
        return bool(self.ratings or self.figures or self.reason)


@dataclass
class Subject:
    """One person: the rows of the scan table, and all that is known of the scans; `label` is what it is called."""

    name: str
    label: str
    page: str
    scans: pd.DataFrame
    images: list[Image]

    @cached_property
    def tests(self) -> list[Row]:
        """Return what was predicted of all scans."""
        return [test for image in self.images for test in image.tests]

    @cached_property
    def _told(self) -> list[Row]:
        """Return what the model of the first page predicted, the worst error first."""
        told = [test for test in self.tests if test["reference"]]
        return sorted(told, key=lambda test: -test["error"])

    @cached_property
    def state(self) -> str:
        """Return the state of the image that most needs a look."""
        return min((image.state for image in self.images), key=URGENT.index)

    @cached_property
    def why(self) -> str:
        """Return why this person is worth a look."""
        reasons = [image.reason for image in self.images if image.state not in GOOD]
        values = [value for image in self.images for value in odd(image.ratings)]
        return shorten_list(dict.fromkeys(reasons + values), LISTED)

    @cached_property
    def prediction(self) -> str:
        """Return what the model of the first page predicted."""
        if not self._told:
            return "–"
        worst = self._told[0]
        if worst["right"] is None:
            return f"{worst['predicted']} instead of {number(float(worst['label']))}"
        n, n_right = len(self._told), sum(test["right"] for test in self._told)
        share = f"{n_right} of {n} right; " if n > 1 else ""
        return f"{share}{'✓' if worst['right'] else '✗'} {worst['predicted']} {decimal(worst['probability'])}"

    @cached_property
    def error(self) -> float:
        """Return how wrong that is; the most confidently wrong are the largest; without a prediction, less than any."""
        return float(self._told[0]["error"]) if self._told else -2.0

    @cached_property
    def facts(self) -> dict[str, str]:
        """Return what the scan table says of this person."""
        names = {"label": self.label, "site": "site", "sex": "sex", "age": "age (years)", "group": "family"}
        rows = self.scans[list(names)].to_dict("records")
        known = {
            shown: list(dict.fromkeys(number(row[column]) for row in rows if not pd.isna(row[column])))
            for column, shown in names.items()
        }
        if known["family"] == [self.name]:
            del known["family"]
        listed = {name: ", ".join(values) for name, values in known.items() if len(values)}
        return listed | {"scans": str(len(self.scans))}


def write_subjects(
    study: Study, exclusions: pd.DataFrame | None = None, compared: Mapping[str, Compared] | None = None
) -> list[Subject]:
    """Write the pages of all subjects, and return these, those worth a look first.

    Parameters
    ----------
    study : Study
    exclusions : DataFrame, optional
        All excluded scans; default: those that the index excludes.
    compared : mapping, optional
        The models of each atlas (`bolt.report.pages.performance.gathered`), once they have predicted.
    """
    scans = read_table(study.layout.scans, text=TEXT_COLUMNS)
    subjects = _subjects(study, scans, read_quality(study), exclusions, compared)
    written = [subject for subject in subjects if subject.page]
    names = [f"{subject.name}.html" for subject in written]
    shared = bar(study, "cohort.html", f"{os.path.relpath(study.layout.report.parent, study.layout.subjects)}/")
    for i, subject in enumerate(written):
        before, after = names[i - 1] if i else "", names[i + 1] if i + 1 < len(names) else ""
        _write(study, subject, **shared, before=before, after=after, place=i + 1, n=len(names))
    for former in set(study.layout.subjects.glob("*.html")) - {study.layout.subjects / name for name in names}:
        former.unlink()
    return subjects


def write_some_subjects(study: Study, names: Collection[str]) -> list[Path]:
    """Write the pages of some subjects whose series are made, beside others that are not; return the pages."""
    scans = read_table(study.layout.scans, text=TEXT_COLUMNS)
    scans = scans[scans["subject"].isin(names)]
    quality = gather_quality(scans, study.config, study.layout, write=False)
    subjects = [subject for subject in _subjects(study, scans, quality, None, None) if subject.page]
    alone = bar(study, "") | {"pages": {}}  # those of the cohort are not written yet
    return [_write(study, subject, **alone, before="", after="", n=1) for subject in subjects]


def _write(study: Study, subject: Subject, **shown: Any) -> Path:
    page = study.layout.subjects / f"{subject.name}.html"
    methods, references = cite(preprocessing_texts(study.layout, subject.scans))
    foreign = any(model.file for model in study.models.values())
    write_page("subject.html", page, subject=subject, methods=methods, references=references, foreign=foreign, **shown)
    return page


def _subjects(
    study: Study,
    scans: pd.DataFrame,
    quality: pd.DataFrame,
    exclusions: pd.DataFrame | None,
    compared: Mapping[str, Compared] | None,
) -> list[Subject]:
    scans = scans[scans["exclude_stage"] != SELECTION]
    rater, known = Rater(study.config, quality), _grouped(quality.to_dict("records"), "subject")
    if exclusions is None:
        exclusions = index_exclusions(scans)
    excluded = exclusions.drop_duplicates("scan_id").set_index("scan_id")[["stage", "reason"]].to_dict("index")
    tests = _grouped(predictions_of(study, compared).to_dict("records"), "scan_id") if compared else {}
    drawn = courses(study) if compared else {}
    subjects = []
    label = study.dataset.label or "label"
    for name, rows in scans.groupby("subject"):
        images = images_of(study, rows["scan_id"], known.get(str(name), []), rater)
        for image in images:
            image.tests = tests.get(image.scan, [])
            image.courses = drawn.get(image.scan, [])
            if image.scan in excluded and image.state in GOOD:
                image.reason = excluded[image.scan]["reason"]
                image.state = image.state if excluded[image.scan]["stage"] == JOINED else "excluded"
        subjects.append(Subject(str(name), label, subject_link(study, str(name)), rows, images))
    return sorted(subjects, key=lambda subject: (URGENT.index(subject.state), -subject.error, subject.name))


def _grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    """Return the rows of a table by the values of a column; a frame per value would be slow."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def index_exclusions(scans: pd.DataFrame) -> pd.DataFrame:
    """Return the scans that the index excludes, with stage and reason."""
    listed = scans.loc[scans["exclude_reason"].notna(), ["scan_id", "exclude_stage", "exclude_reason"]]
    return listed.set_axis(["scan_id", "stage", "reason"], axis=1)


# ---- images


def images_of(study: Study, scans: Iterable[str], known: Sequence[Row], rater: Rater) -> list[Image]:
    """Return the T1w images of a subject, each followed by its scans, and then scans that were not preprocessed here.

    Parameters
    ----------
    study : Study
    scans : iterable of str
        All scans of the subject.
    known : sequence of mapping
        The rows of ``quality.tsv`` about them.
    rater : Rater
    """
    layout, images = study.layout, []
    folders = _grouped((row for row in known if isinstance(row["anatomy"], str)), "anatomy")
    others = {row["scan_id"]: row for row in known if not isinstance(row["anatomy"], str)}
    for folder in sorted(folders):
        rated = (rater.rate_all(row, ("T1w",)) for row in folders[folder])  # the same for all scans that have it
        ratings = next(filter(None, rated), [])
        image = _image(f"T1w of {folder}", layout.anatomical_status(folder), ratings, layout)
        if image.state in GOOD:  # else its figures are of an earlier run
            image.figures = _figures(layout, folder, prefix_of(folder), T1W_PICTURES)
        images.append(image)
        for row in folders[folder]:
            scan = str(row["scan_id"])
            image = _image(scan, layout.functional_status(scan), rater.rate_all(row, OF_SCANS), layout)
            image.scan = scan
            if image.state in GOOD:
                image.figures = _figures(layout, folder_of(scan), f"{scan}_", SCAN_PICTURES)
            if row["state"] != "failed":
                image.figures += _coverage(study, scan)
            if row["state"] != "ok":
                image.state, image.reason = row["state"], row["reason"]
            images.append(image)
    shown = {image.scan for image in images}
    for scan in scans:
        if scan in shown:
            continue
        image = Image(scan, "ok", "", scan=scan)
        if scan in others:
            row = others[scan]
            image.ratings = rater.rate_all(row, OF_SCANS)
            image.figures = _coverage(study, scan) if row["state"] != "failed" else []
            image.state, image.reason = state_of(row["state"], image.ratings), row["reason"]
        images.append(image)
    return images


def _image(title: str, status: Path, ratings: list[Rating], layout: Layout) -> Image:
    outcome = read_json(status) if status.is_file() else {"state": "failed", "reason": "not preprocessed"}
    crash = report_path(status)
    place = os.path.relpath(crash, layout.subjects) if crash.is_file() else ""
    return Image(title, state_of(outcome["state"], ratings), outcome["reason"], place, ratings)


def _figures(layout: Layout, folder: str, start: str, suffixes: tuple[str, ...]) -> list[Figure]:
    """Return the pictures of an image or scan in the order of their captions, those of the configured space only."""
    captions = all_words()["pictures"]
    kinds = pictures_of(layout.derivatives / folder / "figures", start, suffixes, layout.space)
    files = sorted((list(captions).index(kind), file) for file, kind in kinds.items() if kind in captions)
    return [Figure(os.path.relpath(file, layout.subjects), captions[kinds[file]]) for _, file in files]


def _coverage(study: Study, scan: str) -> list[Figure]:
    config, figures = study.config, []
    for atlas, place in config.atlas_places.items():
        file = study.layout.coverage(scan, atlas)
        if not holds_something(file):
            continue
        values, rois, shares, covered = read_columns(file, ["value", "name", "coverage", "covered"])
        lost = [name for name, cell in zip(rois, covered, strict=True) if cell == "0"]
        networks = _networks(place, config.paths.atlas_dir)
        of_rois = [networks.get(int(value)) for value in values]
        drawing = coverage_strip(rois, to_numbers(shares).tolist(), of_rois, config.parcellate.coverage)
        figures.append(Figure("", say("coverage.scan", atlas=atlas, n=len(rois), lost=lost), drawing))
    return figures


@cache
def _networks(place: str, atlas_dir: Path | None) -> dict[int, str]:
    """Return the network of each ROI of an atlas, by its value; ROIs without one are missing."""
    labels = load_labels(place, atlas_dir=atlas_dir).dropna(subset=["network"])
    return dict(zip(labels["value"].astype(int), labels["network"], strict=True))


# ---- predictions


def predictions_of(study: Study, compared: Mapping[str, Compared]) -> pd.DataFrame:
    """Return a row per model and test scan, of predictions averaged over seeds.

    Columns: `KEYS`; model; reference (whether it is the model that the first page is about); predicted; probability, of
    the predicted class; right (None for numbers); error, by which the most confidently wrong predictions come first;
    n_seeds, and n_right of them.
    """
    several, first = len(compared) > 1, next(iter(compared))
    tables = []
    for atlas, rows in compared.items():
        for entry, gathered in zip(*rows, strict=True):
            tests = gathered.predictions[gathered.predictions["role"] == "test"]
            if tests.empty:
                continue
            if entry.classes:
                columns = {f"p_{name}": name for name in entry.classes}
                mean = tests.groupby(KEYS)[list(columns)].mean().rename(columns=columns)
                table = pd.DataFrame({"predicted": mean.idxmax(axis=1), "probability": mean.max(axis=1)})
                table["right"] = table["predicted"] == table.index.get_level_values("label")
                table["error"] = table["probability"].where(~table["right"], -table["probability"])
                right = tests.assign(right=tests["predicted"] == tests["label"])
                table["n_right"] = right.groupby(KEYS)["right"].sum()
            else:
                values = tests.assign(predicted=tests["predicted"].astype(float)).groupby(KEYS)["predicted"].mean()
                error = (values - values.index.get_level_values("label").astype(float)).abs()
                table = pd.DataFrame({"predicted": values.map(number), "right": None, "error": error})
            table["n_seeds"] = tests.groupby(KEYS).size()
            table["model"] = entry.model.shown + (f" on {atlas}" if several else "")
            table["reference"] = atlas == first and entry.model is reference(study)
            tables.append(table.reset_index())
    return pd.concat(tables) if tables else pd.DataFrame(columns=[*KEYS, "reference"])


def courses(study: Study) -> dict[str, list[Figure]]:
    """Draw the importance of each scan in the fold that tested it, one line per seed; by scan."""
    found: dict[tuple[str, str], dict[str, list[NDArray[np.floating]]]] = {}
    for run in study.runs:
        scans = found.setdefault((run.atlas, run.model), {})
        for fold in explained_folds(run.folder, study.folds_of(run)):
            table, weights = read_importance(run.fold(fold))
            for scan, role, course in zip(table["scan_id"], table["role"], weights, strict=True):
                if role == "test":
                    scans.setdefault(scan, []).append(course)
    drawn: dict[str, list[Figure]] = {}
    tokens = study.config.explain.tokens
    for (atlas, model), scans in found.items():
        if not scans:
            continue
        title = study.models[model].name + (f" on {atlas}" if len(study.config.atlas_places) > 1 else "")
        for row in SeriesCache(study.layout.cache(atlas)).index.to_dict("records"):
            scan = str(row["scan_id"])
            if scan in scans:
                volumes = volumes_of(row, study.layout.series_file(scan, atlas))
                caption = say("moments.subject", model=title, tokens=tokens, n_seeds=len(scans[scan]))
                drawing = course_strip(scans[scan], volumes, float(row["tr"]), tokens)
                drawn.setdefault(scan, []).append(Figure("", caption, drawing))
    return drawn
