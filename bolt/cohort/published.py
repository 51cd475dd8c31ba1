"""Comparison of the cohort with the one that a publication reports."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from bolt.config import Published
from bolt.io.files import columns, write_table

log = logging.getLogger("bolt")

COHORT_COLUMNS = columns("cohort", "cohort")


def compare_cohort(scans: pd.DataFrame, published: Published) -> pd.DataFrame:
    """Count scans and subjects as the paper does.

    Parameters
    ----------
    scans : DataFrame
        The scan table; scans with an `exclude_reason` are not counted.
    published : Published

    Returns
    -------
    DataFrame
        `COHORT_COLUMNS`.
    """
    usable = scans[scans.exclude_reason.isna()]
    rows = [] if published.scans is None else [("scans", len(usable), published.scans)]
    for column, counts in (("label", published.label), ("sex", published.sex)):
        for value, count in counts.items():
            found = usable.subject[usable[column] == value].nunique()
            rows.append((f"subjects, {column} {value}", found, count))
    return pd.DataFrame(rows, columns=list(COHORT_COLUMNS))


def write_cohort(scans: pd.DataFrame, published: Published | None, path: Path) -> None:
    """Write the cohort beside the published one; remove the table where the dataset's file names none."""
    if published is None:
        path.unlink(missing_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
        return
    cohort = compare_cohort(scans, published)
    write_table(cohort, path, COHORT_COLUMNS)
    for measure, found, count in cohort.itertuples(index=False):
        log.info("%s: %d (the paper: %d)", measure, found, count)
