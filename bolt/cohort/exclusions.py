"""Excluded scans, warnings about included ones, and their counts beside those that a publication reports.

A run continues without bad scans (`bad_scans: continue`), or stops and lists all of them (`refuse`).
"""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from bolt.config import Published
from bolt.datasets.participants import SELECTION
from bolt.io.errors import DataError
from bolt.io.files import columns, write_table

log = logging.getLogger("bolt")
EXCLUSION_COLUMNS = columns("cohort", "exclusions")
WARNING_COLUMNS = columns("cohort", "warnings")
COHORT_COLUMNS = columns("cohort", "cohort")
DUPLICATES = "duplicates"
"""Stage of copies of a recording, excluded or grouped by `folds: duplicates`."""
JOINED = "joined"
"""Stage of scans that are part of another by `join_scans`."""
INTENDED = (SELECTION, "quality", DUPLICATES, JOINED)
"""Stages that exclude scans because the configuration asks for it (filters, cut-offs), not because of bad input."""


def refuse_bad_scans(excluded: pd.DataFrame, listing: Path, refuse: bool) -> None:
    """List the bad scans and stop the run if the configuration says so.

    Parameters
    ----------
    excluded : DataFrame
        `EXCLUSION_COLUMNS`; scans excluded by filters and cut-offs are not bad.
    listing : Path
        Written if there are bad scans to refuse, otherwise removed.
    refuse : bool

    Raises
    ------
    DataError
        There are bad scans, and `refuse`.
    """
    bad = excluded[~excluded["stage"].isin(INTENDED)]
    if not refuse or bad.empty:
        listing.unlink(missing_ok=True)
        listing.with_suffix(".json").unlink(missing_ok=True)
        return
    write_table(bad, listing, EXCLUSION_COLUMNS)
    listed = "".join(f"\n  {scan} ({stage}): {reason}" for scan, stage, reason in bad.itertuples(index=False))
    what = f"the run stops because of {len(bad)} bad scan{'s' if len(bad) > 1 else ''} ('bad_scans: refuse'):{listed}\n"
    hint = "Fix them, or exclude them: 'exclude: {scan_id: […]}' in the dataset's file, or 'bad_scans: continue'"
    raise DataError(f"{what}The file has the same list", where=listing, hint=hint)


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
