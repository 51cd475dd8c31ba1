"""Scans that cannot be used, and what is odd about those that are: listed, and refused where the configuration says.

The run goes on without a bad scan (`bad_scans: continue`), or stops with all of them in one list (`refuse`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.datasets.participants import SELECTION
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_table

EXCLUSION_COLUMNS = {
    "scan_id": "Scan that is not used",
    "stage": "Stage that left it out; selection: it is not asked for",
    "reason": "Why",
}
WARNING_COLUMNS = {
    "scan_id": "Scan that is used all the same",
    "stage": "Stage that saw it",
    "warning": "What is odd, and in which file",
}


ASKED = (SELECTION, "quality")
"""Stages that leave out scans as the configuration asks (filters, cut-offs): nothing there is bad input."""


def refuse_bad_scans(excluded: pd.DataFrame, listing: Path, refuse: bool) -> None:
    """Stop a run that is to stop at bad scans, with a list of them.

    Parameters
    ----------
    excluded : DataFrame
        `EXCLUSION_COLUMNS`; what filters and cut-offs leave out is not bad.
    listing : Path
        Written where there are bad scans to refuse, and else removed.
    refuse : bool

    Raises
    ------
    DataError
    """
    bad = excluded[~excluded["stage"].isin(ASKED)]
    if not refuse or bad.empty:
        listing.unlink(missing_ok=True)
        listing.with_suffix(".json").unlink(missing_ok=True)
        return
    write_table(bad, listing, EXCLUSION_COLUMNS)
    listed = "".join(f"\n  {scan} ({stage}): {reason}" for scan, stage, reason in bad.itertuples(index=False))
    raise DataError(
        f"the run stops at {len(bad)} bad scan{'s' if len(bad) > 1 else ''} ('bad_scans: refuse'):{listed}\n"
        "This list stands in the file as well",
        where=listing,
        hint="Mend them, or leave them out: 'exclude: {scan_id: […]}' in the dataset's file, or 'bad_scans: continue'",
    )


def warnings_of(scan_id: str, status: Path) -> list[tuple[str, str, str]]:
    """What the stages before said of a scan that they let pass, in rows of `WARNING_COLUMNS`."""
    said = read_json(status).get("warnings", []) if status.is_file() else []
    return [(scan_id, entry["stage"], entry["warning"]) for entry in said]


def odd_rois(
    scan_id: str, series: np.ndarray, constant: np.ndarray, names: pd.Series, path: Path
) -> Iterator[tuple[str, str, str]]:
    """ROIs of a scan that say nothing or too little, in rows of `WARNING_COLUMNS`.

    Parameters
    ----------
    scan_id : str
    series : (T, R) array
        NaN where an ROI is not covered.
    constant : (R,) bool array
        Series that do not change.
    names : (R,) Series of str
    path : Path
        File of the series; damaged voxels are counted in its ``_coverage.tsv``, where there is one.
    """
    uncovered = np.isnan(series[0])
    coverage = path.with_name(path.stem.removesuffix("_timeseries") + "_coverage.tsv")
    damaged = read_table(coverage)["n_nonfinite"].to_numpy() > 0 if coverage.is_file() else np.zeros(len(names), bool)
    for what, which in (
        ("not covered", uncovered),
        ("all zero or constant: zeros once z-scored", constant & ~uncovered),
        ("with voxels that are NaN or infinite, left out of the mean", damaged),
    ):
        if which.any():
            yield scan_id, "cache", f"{path}: {which.sum()} of {len(names)} ROIs {what}: {_some(names[which])}"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
