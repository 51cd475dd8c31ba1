"""Scans that are given as arrays: checked, z-scored, and described by a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bolt.datasets import COLUMNS
from bolt.io.errors import DataError
from bolt.io.series_files import is_constant
from bolt.series.cache import SeriesCache, with_offsets, zscore

GIVEN = ("site", "age", "sex", "mean_fd", "tr")
"""Columns that the user may give about scans."""


class SeriesInMemory(SeriesCache):
    """A cache of z-scored series that is not on disk.

    Parameters
    ----------
    series : sequence of (T, R) arrays
        From `as_series`.
    scans : DataFrame
        From `scan_table`, in the same order.
    """

    def __init__(self, series: Sequence[NDArray[np.floating]], scans: pd.DataFrame) -> None:
        self.folder, self.manifest = Path(), {}
        self.index = with_offsets(scans, map(len, series))
        self.rois = roi_table(series[0].shape[1])
        self._array = np.concatenate(series)

    def array(self) -> NDArray[np.float32]:
        """Return all series, (sum of T, R)."""
        return self._array


def as_series(scans: Any) -> list[NDArray[np.float32]]:
    """Check series and z-score each over time.

    Parameters
    ----------
    scans : sequence of (time, rois) arrays, or one array (scans, time, rois)
        Scans may differ in length. A column of NaN is an ROI that is not covered.

    Returns
    -------
    list of (T, R) float32 arrays
        Constant and uncovered ROIs are zero.

    Raises
    ------
    DataError
        There is no scan; one of them is not a two-dimensional array of numbers, has fewer than two volumes or another
        number of ROIs than the first, single values that are not finite, or no ROI that varies.
    """
    if isinstance(scans, str | bytes | Mapping) or not hasattr(scans, "__len__"):
        raise DataError(f"a {type(scans).__name__}, not a list of scans", hint="Give a list of (time, rois) arrays")
    if isinstance(scans, np.ndarray) and scans.dtype != object and scans.ndim != 3:
        raise DataError(
            f"an array of shape {scans.shape}",
            hint="Give a list of (time, rois) arrays, or one array (scans, time, rois); one scan x is [x]",
        )
    if not len(scans):
        raise DataError("no scans", hint="Give a list of (time, rois) arrays")
    series = [_checked(scan, i) for i, scan in enumerate(scans)]
    for i, scan in enumerate(series):
        if scan.shape[1] != series[0].shape[1]:
            raise DataError(
                f"scan {i} has {scan.shape[1]} ROIs, but scan 0 has {series[0].shape[1]}",
                hint="Give series of one atlas, (time, rois)",
            )
    return series


def require_length(shortest: int, series: Sequence[NDArray[np.floating]]) -> None:
    """Refuse scans with fewer than `shortest` volumes, which the model cannot read (DataError)."""
    for i, scan in enumerate(series):
        if len(scan) < shortest:
            raise DataError(
                f"scan {i} has {len(scan)} volumes, but the model needs at least {shortest}",
                hint="Leave such scans out, or train with a shorter window",
            )


def _checked(scan: ArrayLike, i: int) -> NDArray[np.float32]:
    """Return the z-scored series of scan number `i`."""
    where = f"scan {i}"
    try:
        values = np.asarray(scan)
        values = values if values.dtype.kind in "fiu" else values.astype(float)
    except (TypeError, ValueError) as error:
        raise DataError(f"not an array of numbers ({error})", where=where, hint="Give (time, rois)") from None
    if np.iscomplexobj(scan):
        raise DataError("complex numbers", where=where, hint="Give real numbers")
    if values.ndim != 2 or values.shape[1] < 1:
        raise DataError(f"shape {values.shape}, not (time, rois)", where=where, hint="Give a 2D array for each scan")
    if len(values) < 2:
        raise DataError(f"{len(values)} time points", where=where, hint="Give (time, rois): rows are volumes")
    with np.errstate(over="ignore"):  # a value beyond float32's range becomes infinite, and is refused below
        values = values.astype(np.float32)
    uncovered = np.isnan(values).all(axis=0)
    wrong = ~np.isfinite(values) & ~uncovered
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{values[row, column]} at volume {row}, ROI {column} (counted from 0)",
            where=where,
            hint="Only whole ROIs may be NaN (not covered)",
        )
    if (is_constant(np.where(uncovered, 0, values)) | uncovered).all():
        raise DataError("no ROI varies", where=where, hint="Give the BOLD series of a scan")
    return zscore(values)


def scan_table(n: int, about: Any = None) -> pd.DataFrame:
    """Return the table of scans that are given as arrays, with all columns of `bolt.datasets.COLUMNS`.

    Parameters
    ----------
    n : int
        Number of scans; they are called by their positions, so that their order is the order of their names.
    about : DataFrame or mapping of columns, optional
        What is known of each scan, a row per scan: columns of `GIVEN`, which covariates and harmonisation may need.

    Raises
    ------
    DataError
        `about` has another number of rows or an unknown column.
    """
    names = [f"{i:08d}" for i in range(n)]
    table = pd.DataFrame({"scan_id": names, "subject": names, "group": names, "kind": "series"})
    table = table.reindex(columns=list(COLUMNS)).astype(dict.fromkeys(("age", "mean_fd", "tr", "n_volumes"), float))
    if about is None:
        return table
    given = pd.DataFrame(about)
    unknown = sorted(set(map(str, given)) - set(GIVEN))
    if unknown:
        raise DataError(f"scans: unknown column '{unknown[0]}'", hint=f"Known: {', '.join(GIVEN)}")
    if len(given) != n:
        raise DataError(f"scans: {len(given)} rows for {n} scans", hint="Give one row per scan")
    return table.assign(**{column: given[column].to_numpy() for column in given})


def roi_table(n: int) -> pd.DataFrame:
    """Return the ROIs of series without an atlas: numbered from 1."""
    values = range(1, n + 1)
    return pd.DataFrame({"value": values, "name": [f"ROI {v}" for v in values], "network": None, "hemisphere": None})
