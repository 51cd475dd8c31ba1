"""Excluded scans, warnings about included ones, and their counts beside those that a publication reports.

A run continues without bad scans (`bad_scans: continue`), or stops and lists all of them (`refuse`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.config import Published
from bolt.datasets.participants import SELECTION
from bolt.io.errors import DataError, shorten_list
from bolt.io.files import columns, read_columns, read_text, to_numbers, write_table

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


def roi_warnings(
    scan_id: str, series: np.ndarray, constant: np.ndarray, names: pd.Series, path: Path
) -> Iterator[tuple[str, str, str]]:
    """Yield warnings about ROIs without a complete signal, as rows of `WARNING_COLUMNS`.

    Parameters
    ----------
    scan_id : str
    series : (T, R) array
        NaN for ROIs that are not covered.
    constant : (R,) bool array
        ROIs whose series is constant.
    names : (R,) Series of str
    path : Path
        File of the series; damaged voxels are counted in its ``_coverage.tsv``, if there is one.
    """
    uncovered = np.isnan(series[0])
    coverage = path.with_name(path.stem.removesuffix("_timeseries") + "_coverage.tsv")
    damaged = np.zeros(len(names), bool)
    if coverage.is_file() and "n_nonfinite" in read_text(coverage):  # XCP-D has tables of this name, too
        (n_nonfinite,) = read_columns(coverage, ["n_nonfinite"])
        damaged = to_numbers(n_nonfinite) > 0
    for problem, affected in (
        ("not covered", uncovered),
        ("all zero or constant (zeros after z-scoring)", constant & ~uncovered),
        ("with NaN or infinite voxels, which are excluded from the mean", damaged),
    ):
        if affected.any():
            rois = shorten_list(names[affected])
            yield scan_id, "cache", f"{path}: {affected.sum()} of {len(names)} ROIs {problem}: {rois}"


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
