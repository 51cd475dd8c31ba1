"""The quality page: all scans by every measure, and how each value is rated; subjects have pages of their own.

Small drawings within a page (SVG, `templates/strips.html`): a scan among the others, its ROIs, its importance.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.cohort.quality import QUALITY_COLUMNS, is_judged
from bolt.config import Config, Quality
from bolt.config.study import Study
from bolt.io.files import read_table
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.html import page_environment, subject_link, write_report_page
from bolt.report.numbers import number

FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which a value is an outlier: Tukey's outer fence. With 25 measures a
scan, the inner one (1.5) marks many that are good."""


def outlying(values: pd.Series, better: str) -> pd.Series:
    """Return which values are outliers towards the bad end (towards either, if neither is good)."""
    low, high = values.quantile([0.25, 0.75])
    far = FENCE * (high - low)
    below, above = values < low - far, values > high + far
    return {"high": below, "low": above}.get(better, below | above)


def _svg(name: str, **content: Any) -> str:
    return str(getattr(page_environment().get_template("strips.html").module, name)(**content))


def strip(values: pd.Series, outlier: pd.Series, excluded: pd.Series, cutoff: float | None) -> str:
    """Draw each scan's value as a dot; outliers and excluded scans are larger, named, and link to their rows.

    All series are indexed by scan_id; missing values are not drawn, the cut-off is dashed.
    """
    width, height, edge = 460, 34, 8
    shown = values.dropna()
    ends = [*shown, *([] if cutoff is None else [cutoff])]
    low, high = min(ends), max(ends)

    def place(value: float) -> float:
        return edge + (value - low) / ((high - low) or 1.0) * (width - 2 * edge)

    jitter = np.random.default_rng(0).uniform(-9, 9, len(shown))  # so that equal values do not hide each other
    dots = []
    for (scan, value), shake in zip(shown.items(), jitter, strict=True):
        kind = "out" if excluded[scan] else "odd" if outlier[scan] else ""
        dots.append({"scan": scan, "value": f"{value:.3g}", "kind": kind, "x": place(value), "y": height / 2 + shake})
    return _svg(
        "scans",
        **{"width": width, "height": height, "edge": edge, "dots": dots},
        low=f"{low:.4g}",
        high=f"{high:.4g}",
        median=place(float(shown.median())),
        cut=None if cutoff is None else place(cutoff),
    )


def coverage_strip(
    rois: Sequence[str], shares: Sequence[float], networks: Sequence[str | None], threshold: float
) -> str:
    """Draw the coverage of an atlas's ROIs (names, shares) as bars by network; red if below the threshold."""
    height = 46
    order = sorted(range(len(rois)), key=lambda i: (str(networks[i] or ""), i))
    bars = [
        (rois[i], shares[i], max(2.0, shares[i] * height), "#1f6f8b" if shares[i] >= threshold else "#b42318")
        for i in order
    ]
    marks = []
    for name, places in groupby(range(len(order)), key=lambda x: networks[order[x]] or ""):
        first, *others = places
        marks.append((name, first, others[-1] if others else first))
    cut = height * (1 - threshold)
    return _svg("rois", step=900 / len(rois), height=height, bars=bars, networks=marks, cut=cut)


def course_strip(courses: Sequence[NDArray[np.floating]], volumes: NDArray[np.integer], tr: float, tokens: int) -> str:
    """Draw importance (T,) of each seed, and its mean, relative to the scan's mean; dropped volumes are gaps.

    Parameters
    ----------
    courses : sequence of (T,) arrays
    volumes : int array (T,)
        Volume of the scan that each row is.
    tr : float
        Repetition time, s; NaN: the axis counts volumes.
    tokens : int
        How many of the most important volumes get a dot.
    """
    rows = np.array([course / (course.mean() or 1.0) for course in courses])
    mean = rows.mean(axis=0)
    step, unit = (tr, "s") if np.isfinite(tr) else (1.0, "volumes")
    width, height, top = 900, 70, max(float(rows.max()), 1.0)
    x = (volumes + 0.5) / (volumes[-1] + 1) * width
    pens = np.where(np.diff(volumes, prepend=-9) > 1, "M", "L")

    def y(value: Any) -> Any:
        return height - 2 - np.clip(value, 0, top) / top * (height - 6)

    lines = [("seed", row) for row in rows if len(rows) > 1] + [("mean", mean)]
    marked = np.argsort(-mean, kind="stable")[:tokens]
    return _svg(
        "course",
        width=width,
        height=height,
        lines=[(kind, list(zip(pens, x, y(row), strict=True))) for kind, row in lines],
        level=y(1.0),
        dots=[(x[i], y(mean[i]), f"{volumes[i] * step:.4g} {unit}: {mean[i]:.2g}") for i in marked],
        highest=f"{top:.2g}",
        end=f"{(volumes[-1] + 1) * step:.4g} {unit}",
    )


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
