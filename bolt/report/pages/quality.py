"""The quality page: all scans by every measure, and how each value is rated; subjects have pages of their own."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bolt.cohort.quality import QUALITY_COLUMNS, is_judged
from bolt.config import Config, Quality
from bolt.config.study import Study
from bolt.io.files import read_table
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.figures.strips import outlying, strip
from bolt.report.html import subject_link, write_report_page
from bolt.report.tables.numbers import number

GOOD = ("ok", "check")
"""States of what is included."""
MIN_SCANS = 8
"""Scans that are needed to call one of them an outlier."""


@dataclass
class Rating:
    """A measure's value and its rating: a state (colour) and words."""

    name: str
    label: str
    value: str
    state: str
    words: str
    description: str


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

    def rate_all(self, row: Mapping[Hashable, Any], about: Iterable[str]) -> list[Rating]:
        """Rate all measures about T1w, BOLD, motion or ROIs that are known of a scan, a row of ``quality.tsv``."""
        names = [name for name in self.shown if MEASURES[name].about in about and not pd.isna(row[name])]
        return [self.rate(name, float(row[name]), str(row["scan_id"])) for name in names]


def state_of(state: str, ratings: Iterable[Rating]) -> str:
    """Return 'check' instead of 'ok' if any rating asks for it."""
    return "check" if state == "ok" and any(rating.state == "check" for rating in ratings) else state


def odd(ratings: Iterable[Rating]) -> list[str]:
    """Return the values that are worth a look, or beyond their cut-off."""
    return [f"{rating.label} {rating.value}" for rating in ratings if rating.state in ("check", "bad")]


def read_quality(study: Study) -> pd.DataFrame:
    """Read the quality of all scans; without rows if it is not judged."""
    file = study.layout.quality
    if not is_judged(study.config, study.dataset) or not file.is_file():
        return pd.DataFrame(columns=list(QUALITY_COLUMNS))
    return read_table(file, text=("scan_id", "subject", "anatomy", "state", "reason")).fillna({"reason": ""})


def write_quality(study: Study) -> None:
    """Write the page of all scans."""
    table = read_quality(study)
    rater, known = Rater(study.config, table), table.set_index("scan_id", drop=False)
    strips = []
    for name in rater.shown:
        values = known[name].astype(float)
        _, cutoff = rater.cutoffs.get(name, (None, None))
        drawing = strip(values, rater.outliers[name], known["state"] != "ok", cutoff)
        about = {"median": number(values.median()), "low": number(values.min()), "high": number(values.max())}
        strips.append({"measure": MEASURES[name], "drawing": drawing, **about})
    rows = []
    for row in table.to_dict("records"):
        ratings = rater.rate_all(row, ("T1w", "BOLD", "motion", "ROIs"))
        about = {"state": state_of(row["state"], ratings), "page": subject_link(study, row["subject"])}
        rows.append({**row, **about, "ratings": {rating.name: rating for rating in ratings}, "why": odd(ratings)})
    write_report_page(
        study,
        "quality.html",
        rows=rows,
        excluded=[row for row in rows if row["state"] not in GOOD],
        measures=[(name, MEASURES[name]) for name in rater.shown],
        cutoffs=[f"{bound} {MEASURES[name].label} {value:g}" for name, (bound, value) in rater.cutoffs.items()],
        strips=strips,
    )
