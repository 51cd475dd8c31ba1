"""Scans that are given as arrays, with their labels and groups: checked, z-scored, and described by a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.datasets import COLUMNS
from bolt.datasets.participants import OLDEST, as_numbers
from bolt.io.errors import DataError
from bolt.io.files import MISSING
from bolt.io.people import known_values, plain_number
from bolt.io.series_files import checked_series
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
        self.rois = roi_table(range(1, series[0].shape[1] + 1))
        self._array = np.concatenate(series)

    def array(self) -> NDArray[np.float32]:
        """Return all series, (sum of T, R)."""
        return self._array


def as_series(
    scans: Any, names: Sequence[str] | None = None, shortest: int = 2
) -> tuple[list[NDArray[np.float32]], list[str] | None]:
    """Check series, put their columns in one order by their names, and z-score each over time.

    Parameters
    ----------
    scans : sequence of (time, rois) arrays, or one array (scans, time, rois)
        Scans may differ in length. A column of NaN is an ROI that is not covered. Columns of DataFrames are reordered,
        if these name them; anything else is read by position.
    names : sequence of str, optional
        The order of the columns; default: that of the first DataFrame.
    shortest : int
        Volumes that a model needs.

    Returns
    -------
    series : list of (T, R) float32 arrays
        Constant and uncovered ROIs are zero.
    names : list of str or None
        None: no scan names its columns.

    Raises
    ------
    DataError
        There is no scan; one of them has other names than the first, is not a two-dimensional array of numbers, has too
        few volumes or another number of ROIs than the first, single values that are not finite, or no ROI that varies.
    """
    if isinstance(scans, str | bytes | Mapping) or not hasattr(scans, "__len__"):
        raise DataError(f"a {type(scans).__name__}, not a list of scans", hint="Give a list of (time, rois) arrays")
    if isinstance(scans, np.ndarray) and scans.dtype != object and scans.ndim != 3:
        hint = "Give a list of (time, rois) arrays, or one array (scans, time, rois); one scan x is [x]"
        raise DataError(f"an array of shape {scans.shape}", hint=hint)
    if not len(scans):
        raise DataError("no scans", hint="Give a list of (time, rois) arrays")
    series: list[NDArray[np.float32]] = []
    order = None if names is None else list(names)
    for i, scan in enumerate(scans):
        where = f"scan {i}"
        if isinstance(scan, pd.DataFrame) and all(isinstance(name, str) for name in scan):
            found = list(scan)
            order = found if order is None else order
            if sorted(found) != sorted(order) or len(set(found)) < len(found):
                odd = next(iter(sorted(set(found) ^ set(order))), "one twice")
                problem = f"columns of other names than the first scan's or the model's, such as '{odd}'"
                hint = "Give series of one atlas; arrays (scan.to_numpy()) are read by position"
                raise DataError(problem, where=where, hint=hint)
            scan = scan[order]
        try:
            masked = isinstance(scan, np.ma.MaskedArray)
            values = np.ma.filled(scan.astype(float), np.nan) if masked else np.asarray(scan)
            values = values if values.dtype.kind in "fiu" else _as_numbers(values)
        except (TypeError, ValueError, RuntimeError) as error:  # the last: a tensor of torch that has a gradient
            raise DataError(f"not an array of numbers ({error})", where=where, hint="Give (time, rois)") from None
        values = checked_series(values, where)
        if len(values) < shortest:
            hint = "Leave such scans out, or train with a shorter window"
            raise DataError(f"scan {i} has {len(values)} volumes, but the model needs at least {shortest}", hint=hint)
        if series and values.shape[1] != series[0].shape[1]:
            hint = "Give series of one atlas, (time, rois)"
            raise DataError(f"scan {i} has {values.shape[1]} ROIs, but scan 0 has {series[0].shape[1]}", hint=hint)
        series.append(zscore(values))
    return series, order


def _as_numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert to floating-point numbers (ValueError or TypeError if it cannot be done)."""
    if values.dtype.kind in "cmM":  # numpy would convert them, and lose what they mean
        raise TypeError(f"{values.dtype} is not real")
    return values.astype(float)


def scan_table(n: int, about: Any = None) -> pd.DataFrame:
    """Return the table of scans that are given as arrays, with all columns of `bolt.datasets.COLUMNS`.

    Parameters
    ----------
    n : int
        Number of scans; they are called by their positions, so that their order is the order of their names.
    about : DataFrame or mapping of columns, optional
        What is known of each scan, a row per scan: columns of `GIVEN`, which covariates and harmonisation may need.
        Sites and sexes become text: the same for 1, 1.0 and ``1``; None if missing. Codes for missing values (``NA``,
        -9999, an age of 999 and the like) count as such.

    Raises
    ------
    DataError
        `about` has another number of rows, an unknown column, or a value that is no number where one is needed.
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
    for name, values in given.items():
        if name in GIVEN_TEXT:
            whole = [int(v) if isinstance(v, float | np.floating) and v == v and v % 1 == 0 else v for v in values]
            texts = pd.Series([None if pd.isna(value) else str(value).strip() for value in whole], dtype=object)
            known = known_values(texts, f"scans: {name}")
            require_plain(known.dropna(), f"scans: {name}")
            table[name] = known.where(known.notna(), None)
        else:
            stated = known_values(values.astype(object), f"scans: {name}")
            numbers = pd.to_numeric(stated, errors="coerce").to_numpy(float, na_value=np.nan)
            wrong = np.isnan(numbers) & stated.notna().to_numpy()
            if wrong.any():
                value = values.iloc[int(wrong.argmax())]
                raise DataError(f"scans: {name} '{value}' is not a number", hint="Give numbers, or NaN where unknown")
            most = OLDEST if name == "age" else np.inf
            table[name] = as_numbers(pd.Series(numbers), f"scans: {name}", least=0, most=most)
    return table


def require_plain(names: Iterable[str], what: str) -> None:
    """Refuse text that would not survive being written to a table (DataError)."""
    for text in names:
        if not text.isprintable() or text != text.strip() or text in ("", MISSING):
            problem = f"{what}: {text[:50]!r} is empty, '{MISSING}', has spaces around it, or has characters"
            raise DataError(f"{problem} that do not print", hint="Rename it")


def one_per_scan(values: Any, n: int, what: str) -> NDArray[Any]:
    """Return values as an array of one dimension; refuse another length, and missing values (DataError)."""
    array = np.asarray(values)
    if array.shape != (n,):
        raise DataError(f"{what} have shape {array.shape} for {n} scans", hint="Give one per scan")
    if pd.isna(array).any():
        raise DataError(f"{what}: number {int(pd.isna(array).argmax())} is missing", hint="Leave such scans out")
    return array


def groups_of(groups: Any, n: int) -> list[str]:
    """Return the groups of `n` scans as they stand in a table; refuse what could not stand there (DataError)."""
    names = [str(group) for group in one_per_scan(groups, n, "groups")]
    require_plain(names, "groups")
    one_per_scan(known_values(pd.Series(names, dtype=object)), n, "groups")  # people without a family are not one
    return names


def labels_of(labels: Any, n: int, numbers: bool) -> tuple[Any, NDArray[Any] | None]:
    """Check the labels of scans.

    Parameters
    ----------
    labels : (scans,) array
    n : int
        Number of scans.
    numbers : bool
        Whether they are numbers.

    Returns
    -------
    labels : (scans,) array of numbers, or list of str
        As they stand in a table of scans.
    classes : (classes,) array or None
        Sorted, of the type of the labels; None for numbers.

    Raises
    ------
    DataError
        One is missing, they are no numbers, or they are classes that cannot be learned or saved.
    """
    labels = one_per_scan(labels, n, "labels")
    if numbers:
        try:
            values = _as_numbers(labels)
        except (TypeError, ValueError) as error:
            raise DataError(f"labels are no numbers ({error})", hint="Use a classifier for classes") from None
        if not np.isfinite(values).all():
            raise DataError(f"label {int((~np.isfinite(values)).argmax())} is NaN or infinite", hint="Leave it out")
        return values, None
    try:
        classes = np.unique(labels)
    except TypeError:
        raise DataError("labels of several types", hint="Give labels of one type") from None
    names = [class_name(name) for name in classes]
    if len(names) < 2:
        raise DataError(f"only one class: {names[0]}", hint="Give labels of at least two classes")
    if not all(isinstance(name, str | int | float) for name in classes.tolist()):
        raise DataError(f"labels of type {type(classes[0]).__name__}", hint="Give text or whole numbers")
    if classes.dtype.kind == "f" and (classes != np.floor(classes)).any():
        raise DataError(f"Unknown label type: numbers such as {names[0]}", hint="Use a regressor, or give text")
    if len(set(names)) < len(names):
        raise DataError(f"labels that are one class in tables: {', '.join(names)}", hint="Rename some, such as 1.0")
    require_plain(names, "labels")
    return [class_name(label) for label in labels], classes


def class_name(label: Any) -> str:
    """Return what a table calls a class: 1 for 1.0, too, which pandas makes of whole numbers with gaps."""
    return plain_number(str(label))


def roi_table(values: Sequence[int]) -> pd.DataFrame:
    """Return ROIs of which only the label values are known."""
    names = [f"ROI {value}" for value in values]
    return pd.DataFrame({"value": values, "name": names, "network": None, "hemisphere": None})
