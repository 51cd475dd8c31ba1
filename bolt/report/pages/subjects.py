"""A page per subject, ``subjects/<subject>.html``: quality, predictions, importance and pictures of each scan.

They are written after preprocessing, when images are checked, and again with the report, which knows the predictions.
They load nothing from elsewhere, and show the images in ``derivatives/<folder>/figures``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.cohort.exclusions import JOINED
from bolt.cohort.quality import gather_quality
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.datasets.participants import SELECTION
from bolt.io.files import read_table
from bolt.io.text import shorten_list
from bolt.report.html import bar, subject_link, write_page
from bolt.report.pages.quality import read_quality
from bolt.report.sections.comparison import Compared
from bolt.report.sections.images import GOOD, Image, Rater, images_of
from bolt.report.sections.methods import cite, preprocessing_texts
from bolt.report.sections.runs import courses, in_short, predictions_of, worst_error
from bolt.report.tables.numbers import number

URGENT = ("failed", "excluded", "check", "ok")
"""States, those worth a look first."""
LISTED = 4
"""Reasons that the table of all subjects names."""


@dataclass
class Subject:
    """One person: the rows of the scan table, and all that is known of the scans; `label` is what it is called."""

    name: str
    label: str
    page: str
    scans: pd.DataFrame
    images: list[Image]

    @cached_property
    def tests(self) -> list[dict[Hashable, Any]]:
        """Return what was predicted of all scans."""
        return [test for image in self.images for test in image.tests]

    @cached_property
    def state(self) -> str:
        """Return the state of the image that most needs a look."""
        return min((image.state for image in self.images), key=URGENT.index)

    @cached_property
    def why(self) -> str:
        """Return why this person is worth a look."""
        reasons = [image.reason for image in self.images if image.state not in GOOD]
        odd = [f"{r.label} {r.value}" for i in self.images for r in i.ratings if r.state in ("check", "bad")]
        return shorten_list(dict.fromkeys(reasons + odd), LISTED)

    @cached_property
    def prediction(self) -> str:
        """Return what the model of the first page predicted."""
        return in_short(self.tests)

    @cached_property
    def error(self) -> float:
        """Return how wrong that is; the most confidently wrong are the largest."""
        return worst_error(self.tests)

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
        The models of each atlas (`bolt.report.sections.comparison.gathered`), once they have predicted.
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
    write_page("subject.html", page, subject=subject, methods=methods, references=references, **shown)
    return page


def _subjects(
    study: Study,
    scans: pd.DataFrame,
    quality: pd.DataFrame,
    exclusions: pd.DataFrame | None,
    compared: Mapping[str, Compared] | None,
) -> list[Subject]:
    scans = scans[scans["exclude_stage"] != SELECTION]
    rater, known = Rater(study.config, quality), _grouped(quality, "subject")
    if exclusions is None:
        exclusions = index_exclusions(scans)
    excluded = exclusions.drop_duplicates("scan_id").set_index("scan_id")[["stage", "reason"]].to_dict("index")
    tests = _grouped(predictions_of(study, compared), "scan_id") if compared else {}
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


def _grouped(table: pd.DataFrame, column: str) -> dict[str, list[dict[Hashable, Any]]]:
    """Return the rows of a table by the values of a column; a frame per value would be slow."""
    groups: dict[str, list[dict[Hashable, Any]]] = {}
    for row in table.to_dict("records"):
        groups.setdefault(row[column], []).append(row)
    return groups


def index_exclusions(scans: pd.DataFrame) -> pd.DataFrame:
    """Return the scans that the index excludes, with stage and reason."""
    listed = scans.loc[scans["exclude_reason"].notna(), ["scan_id", "exclude_stage", "exclude_reason"]]
    return listed.set_axis(["scan_id", "stage", "reason"], axis=1)
