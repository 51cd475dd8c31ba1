"""The quality page: all scans by every measure; subjects have pages of their own (``subjects.py``)."""

from __future__ import annotations

import pandas as pd

from bolt.cohort.quality import QUALITY_COLUMNS, is_judged
from bolt.config.study import Study
from bolt.io.files import read_table
from bolt.preprocess.quality.measures import MEASURES
from bolt.report.figures.series import strip
from bolt.report.html import subject_link, write_report_page
from bolt.report.sections.images import GOOD, Rater, state_of
from bolt.report.tables.numbers import number


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
        measure, values = MEASURES[name], known[name].astype(float)
        _, cutoff = rater.cutoffs.get(name, (None, None))
        drawing = strip(values, rater.outliers[name], known["state"] != "ok", cutoff)
        words = f"median {number(values.median())}, {number(values.min())} to {number(values.max())} {measure.unit}"
        label = f"{measure.label} ({measure.unit})" if measure.unit else measure.label
        strips.append({"label": label, "about": measure.description, "words": words, "drawing": drawing})
    rows = []
    for row in table.to_dict("records"):
        ratings = {rating.name: rating for rating in rater.rate_all(row, ("T1w", "BOLD", "motion", "ROIs"))}
        state = state_of(row["state"], ratings.values())
        why = "; ".join(f"{r.label} {r.value}" for r in ratings.values() if r.state in ("check", "bad"))
        page = subject_link(study, row["subject"])
        rows.append({**row, "state": state, "page": page, "ratings": ratings, "why": why})
    write_report_page(
        study,
        "quality.html",
        rows=rows,
        excluded=[row for row in rows if row["state"] not in GOOD],
        measures=[(name, MEASURES[name]) for name in rater.shown],
        cutoffs=[f"{bound} {MEASURES[name].label} {value:g}" for name, (bound, value) in rater.cutoffs.items()],
        strips=strips,
    )
