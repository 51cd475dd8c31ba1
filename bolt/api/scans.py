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
from bolt.io.files import MISSING
from bolt.io.series_files import is_constant
from bolt.series.cache import SeriesCache, with_offsets, zscore

GIVEN = ("site", "age", "sex", "mean_fd", "tr")
"""Columns that the user may give about scans."""
GIVEN_TEXT = ("site", "sex")


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


def in_one_order(scans: Any, names: Sequence[str] | None = None) -> tuple[Any, list[str] | None]:
    """Put the columns of DataFrames in one order, by their names.

    Parameters
    ----------
    scans : sequence
        DataFrames whose columns are names of ROIs are reordered; anything else is taken as it is.
    names : sequence of str, optional
        The order; default: that of the first DataFrame.

    Returns
    -------
    scans : sequence
    names : list of str or None
        None: no scan names its columns.

    Raises
    ------
    DataError
        A scan has other names than the first, or one name twice.
    """
    order = None if names is None else list(names)
    if not (isinstance(scans, list | tuple) or (isinstance(scans, np.ndarray) and scans.dtype.kind == "O")):
        return scans, order
    ordered = []
    for i, scan in enumerate(scans):
        if isinstance(scan, pd.DataFrame) and all(isinstance(name, str) for name in scan):
            found = list(scan)
            order = found if order is None else order
            if sorted(found) != sorted(order) or len(set(found)) < len(found):
                odd = next(iter(sorted(set(found) ^ set(order))), "one twice")
                raise DataError(
                    f"columns of other names than the first scan's or the model's, such as '{odd}'",
                    where=f"scan {i}",
                    hint="Give series of one atlas; arrays (scan.to_numpy()) are read by position",
                )
            scan = scan[order]
        ordered.append(scan)
    return ordered, order


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
        values = np.ma.filled(scan.astype(float), np.nan) if isinstance(scan, np.ma.MaskedArray) else np.asarray(scan)
        if values.dtype.kind in "cmM":  # numpy would convert them, and lose what they mean
            raise TypeError(f"{values.dtype} is not real")
        values = values if values.dtype.kind in "fiu" else values.astype(float)
    except (TypeError, ValueError, RuntimeError) as error:  # the last: a tensor of torch that has a gradient
        raise DataError(f"not an array of numbers ({error})", where=where, hint="Give (time, rois)") from None
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
    try:
        given = pd.DataFrame(about)
    except ValueError as error:
        raise DataError(f"scans: not a table ({error})", hint="Give a DataFrame with one row per scan") from None
    unknown = sorted(set(map(str, given)) - set(GIVEN))
    if unknown:
        raise DataError(f"scans: unknown column '{unknown[0]}'", hint=f"Known: {', '.join(GIVEN)}")
    if not given.columns.is_unique:
        raise DataError("scans: duplicate columns", hint="Give each column once")
    if len(given) != n:
        raise DataError(f"scans: {len(given)} rows for {n} scans", hint="Give one row per scan")
    return table.assign(
        **{name: _texts(given[name]) if name in GIVEN_TEXT else _numbers(given[name]) for name in given}
    )


def _texts(values: pd.Series) -> NDArray[np.object_]:
    """Return sites or sexes as text: the same for 1, 1.0 and ``1``; None if missing."""
    whole = [int(v) if isinstance(v, float | np.floating) and v == v and v % 1 == 0 else v for v in values]
    texts = [None if pd.isna(value) else str(value).strip() for value in whole]
    known = [None if text in ("", MISSING) else text for text in texts]
    for text in set(filter(None, known)):
        require_plain(text, f"scans: {values.name}")
    return np.array(known, object)


def _numbers(values: pd.Series) -> NDArray[np.float64]:
    """Return a column of numbers; refuse values that are none (DataError)."""
    numbers = pd.to_numeric(values.replace({MISSING: None, "": None}), errors="coerce").to_numpy(float, na_value=np.nan)
    wrong = np.isnan(numbers) & values.notna().to_numpy() & ~values.isin([MISSING, ""]).to_numpy()
    if wrong.any():
        value = values.iloc[int(wrong.argmax())]
        raise DataError(f"scans: {values.name} '{value}' is not a number", hint="Give numbers, or NaN where unknown")
    return numbers


def require_plain(text: str, what: str) -> None:
    """Refuse text that would not survive being written to a table (DataError)."""
    if not text.isprintable() or text != text.strip() or text in ("", MISSING):
        raise DataError(
            f"{what}: {text[:50]!r} is empty, '{MISSING}', has spaces around it, or has characters that do not print",
            hint="Rename it",
        )


def one_per_scan(values: Any, n: int, what: str) -> NDArray[Any]:
    """Return values as an array of one dimension; refuse another length, and missing values (DataError)."""
    array = np.asarray(values)
    if array.shape != (n,):
        raise DataError(f"{what} have shape {array.shape} for {n} scans", hint="Give one per scan")
    if pd.isna(array).any():
        raise DataError(f"{what}: number {int(pd.isna(array).argmax())} is missing", hint="Leave such scans out")
    return array


def roi_table(n: int) -> pd.DataFrame:
    """Return the ROIs of series without an atlas: numbered from 1."""
    values = range(1, n + 1)
    return pd.DataFrame({"value": values, "name": [f"ROI {v}" for v in values], "network": None, "hemisphere": None})
