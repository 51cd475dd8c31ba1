"""Comparison of the cohort with the one that a publication reports."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from bolt.config import Published
from bolt.io.files import write_table

log = logging.getLogger("bolt")

COHORT_COLUMNS = {
    "measure": "What is counted, among the included scans",
    "found": "Count in this cohort",
    "paper": "Published count",
}


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

    def rows() -> Iterator[tuple[str, int, int]]:
        if published.scans is not None:
            yield "scans", len(usable), published.scans
        for column, counts in (("label", published.label), ("sex", published.sex)):
            for value, count in counts.items():
                yield f"subjects, {column} {value}", usable.subject[usable[column] == value].nunique(), count

    return pd.DataFrame(list(rows()), columns=list(COHORT_COLUMNS))


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
