"""Reading of ready ROI series in the usual file formats."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bolt.io.errors import DataError
from bolt.io.files import read_json

if TYPE_CHECKING:
    import pandas as pd

TEXT = (".csv", ".tsv", ".txt", ".1D")
EMPTY = ("", "n/a", "N/A", "NA", "nan", "NaN", "NAN")
"""Cells of a text file that hold no number."""
MANY = 10
"""Columns from which whole numbers that increase along the first row are taken for labels of ROIs, not for a volume."""
BOLD = "Give the BOLD series of a scan, not a mean or an empty file"
AS_NUMBERS = "Save numbers, one row per volume"
SUFFIXES = (".npy", ".mat", *TEXT)


def read_series(path: str | Path, values: Sequence[int] | None = None) -> np.ndarray:
    """Read ready ROI series, time along rows and ROIs along columns.

    Parameters
    ----------
    path : path
        ``.npy``; ``.mat`` (up to version 7) with one 2D variable; ``.csv`` (commas); ``.tsv``, ``.txt`` or ``.1D``
        (white space). In text files, lines that begin with ``#`` are skipped, and so is a first row of names or of
        column numbers (0 … R-1 or 1 … R, or the labels of ten or more ROIs). ``n/a`` and empty cells are NaN.
    values : sequence of int, optional
        Values of the atlas's ROIs. If the first line of a text file has a ``#<value>`` per column, as in files of PCP
        and AFNI, the columns are put in this order.

    Returns
    -------
    (T, R) float32 array
        A column of NaN is an uncovered ROI.

    Raises
    ------
    DataError
        The file is missing, unreadable, not numeric, not 2D, has fewer than two rows, a column that counts the rows,
        no ROI that varies, single NaN or infinite values, or columns of other ROIs than `values`.
    """
    path = Path(path)
    if not os.path.isfile(path):  # false, too, for a name that no file can have
        what = "not a regular file" if os.path.exists(path) else "file not found"
        raise DataError(what, where=path, hint="Correct the path")
    if path.suffix not in SUFFIXES:
        raise DataError(f"unknown file format '{path.suffix}'", where=path, hint=f"Use one of {', '.join(SUFFIXES)}")
    if path.suffix == ".npy":
        series = _read_npy(path)
    elif path.suffix == ".mat":
        series = _read_mat(path)
    else:
        series = _read_text(path)
    if series.dtype.kind not in "iuf":
        raise DataError(f"contains {series.dtype}, not numbers", where=path, hint="Save real numbers, time × ROIs")
    if series.ndim != 2 or series.shape[1] < 1:
        raise DataError(f"shape {series.shape}, not (time, ROIs)", where=path, hint="Save a 2D array")
    if len(series) < 2:
        raise DataError(
            f"{len(series)} time points", where=path, hint="See the status.json beside it, or save (time, ROIs)"
        )
    with np.errstate(over="ignore"):
        series = series.astype(np.float32)  # a value beyond its range becomes infinite, and is refused below
    not_finite = ~np.isfinite(series) & ~np.isnan(series).all(axis=0)
    if not_finite.any():
        row, column = np.argwhere(not_finite)[0]
        raise DataError(
            f"{series[row, column]} in row {row}, column {column} (counted from 0)",
            where=path,
            hint="Only whole columns may be NaN (uncovered ROIs)",
        )
    if (is_constant(series) | np.isnan(series[0])).all():
        raise DataError("no ROI varies: all are constant or NaN", where=path, hint=BOLD)
    if values is not None and path.suffix in TEXT:
        series = _in_order(series, path, values)
    return series


def is_constant(series: np.ndarray) -> np.ndarray:
    """Find series that are constant up to float32 rounding, (R,) bool."""
    return np.std(series, axis=0, dtype=np.float64) <= 1e-6 * np.abs(series).max(axis=0)


def kept_volumes(path: str | Path, length: int) -> np.ndarray:
    """Return which volumes of the scan a series holds, without dummy and scrubbed volumes.

    Parameters
    ----------
    path : path
        File of the series; if volumes were dropped, the JSON file beside it lists the others as ``KeptVolumes``.
    length : int
        Rows of the series.

    Returns
    -------
    (T,) int array
        Counted from 0.

    Raises
    ------
    DataError
        The JSON file lists more or fewer volumes than there are rows.
    """
    sidecar = Path(path).with_suffix(".json")
    about = read_json(sidecar) if sidecar.is_file() else {}
    kept = np.asarray(about.get("KeptVolumes", range(length)), int)
    if kept.shape != (length,):
        raise DataError(
            f"KeptVolumes lists {kept.size} volumes, but the series has {length}",
            where=sidecar,
            hint="Remove the key, or compute the series again",
        )
    return kept


def check_rois(series: np.ndarray, atlas: str, n_rois: int, path: str | Path) -> None:
    """Refuse series whose number of columns is not the atlas's number of ROIs.

    Parameters
    ----------
    series : (T, R) array
    atlas : str
        Name of the atlas.
    n_rois : int
        Its number of ROIs.
    path : path
        Named in the error.

    Raises
    ------
    DataError
        The message suggests a transposition where the rows match the atlas.
    """
    if series.shape[1] == n_rois:
        return
    if len(series) == n_rois:
        raise DataError(
            f"shape {series.shape}, but atlas '{atlas}' has {n_rois} ROIs: these seem to be along rows",
            where=path,
            hint="Transpose the array to (time, ROIs)",
        )
    raise DataError(
        f"{series.shape[1]} ROIs, but atlas '{atlas}' has {n_rois}",
        where=path,
        hint="Give series of this atlas (time along rows), or set the atlas they were made with",
    )


def _in_order(series: np.ndarray, path: Path, values: Sequence[int]) -> np.ndarray:
    """Put columns in the order of `values`, if the file's first line names the ROI of each column."""
    with path.open(encoding="utf-8") as file:
        cells = file.readline().split("," if path.suffix == ".csv" else None)
    if not all(re.fullmatch(r"#\d+", cell.strip()) for cell in cells):
        return series
    named = [int(cell.strip()[1:]) for cell in cells]
    if len(named) != series.shape[1] or sorted(named) != sorted(values):
        differing = sorted(set(named) ^ set(values))
        raise DataError(
            f"its first line names {len(named)} ROIs for {series.shape[1]} columns, but the atlas has {len(values)} "
            f"ROIs (only in one of them: {', '.join(map(str, differing[:5])) or 'none'})",
            where=path,
            hint="Set the atlas that the series were made with",
        )
    position = {value: column for column, value in enumerate(named)}
    return series[:, [position[value] for value in values]]


def _read_npy(path: Path) -> np.ndarray:
    hint = "Save one array of numbers with numpy.save"
    try:
        # as a memory map, a header that claims more than the file has is refused
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, OverflowError) as error:
        reason = "not in NumPy's format, or Python objects" if "pickle" in str(error) else str(error)
        raise DataError(f"not a readable array ({reason})", where=path, hint=hint) from None
    if not isinstance(array, np.ndarray):
        raise DataError("an archive of arrays (.npz), not one array", where=path, hint=hint)
    return np.array(array)


def _read_mat(path: Path) -> np.ndarray:
    from scipy.io import loadmat  # slow to import, and most files are not .mat
    from scipy.io.matlab import MatReadError

    hint = "Save one 2D variable with save(..., '-v7')"
    try:
        variables = {k: v for k, v in loadmat(path).items() if not k.startswith("__")}
    except NotImplementedError:
        raise DataError(".mat version 7.3 (HDF5) is not supported", where=path, hint=hint) from None
    except (ValueError, MatReadError, OSError) as error:
        raise DataError(f"not a readable .mat file ({error})", where=path, hint=hint) from None
    if len(variables) != 1:
        raise DataError(f"contains {len(variables)} variables: {', '.join(sorted(variables))}", where=path, hint=hint)
    variable = next(iter(variables.values()))
    if not isinstance(variable, np.ndarray):
        raise DataError(f"contains a {type(variable).__name__}, not an array of numbers", where=path, hint=hint)
    return variable


def _read_text(path: Path) -> np.ndarray:
    import pandas as pd  # slow to import, and most files are not text

    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text ({error})", where=path, hint="Save it as UTF-8") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=path) from None
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    if not lines:
        return np.empty((0, 1))
    separator = _separator(path, lines[0])
    _refuse_short_rows(lines, separator, path)
    try:
        cells = pd.read_csv(
            StringIO("\n".join(lines)), sep=separator, header=None, dtype=str, keep_default_na=False, index_col=False
        )
    except pd.errors.ParserError as error:
        raise DataError(f"rows of unequal length ({str(error).strip()})", where=path, hint=AS_NUMBERS) from None
    cells = cells.apply(lambda column: column.str.strip()).mask(lambda table: table.isin(EMPTY))
    header = cells.iloc[0] if _is_header(cells.iloc[0]) else None
    if header is not None:
        cells = cells.iloc[1:]
    numbers = cells.apply(pd.to_numeric, errors="coerce")
    wrong = np.argwhere((numbers.isna() & cells.notna()).to_numpy())
    if len(wrong):
        row, column = wrong[0]
        raise DataError(
            f"'{cells.iat[row, column]}' in row {row}, column {column} (counted from 0) is not a number",
            where=path,
            hint=AS_NUMBERS,
        )
    values = numbers.to_numpy(float)
    _refuse_index(values, header, path)
    _refuse_second_header(values, path)
    return values


def _separator(path: Path, line: str) -> str:
    """Return what separates the cells of a line: commas, tabs or semicolons, or else white space."""
    likely = ",;\t" if path.suffix == ".csv" else "\t,;"
    return next((separator for separator in likely if separator in line), r"\s+")


def _refuse_short_rows(lines: Sequence[str], separator: str, path: Path) -> None:
    """Refuse rows with fewer cells than the first, as in a file that is cut off; pandas would fill them with NaN."""
    expected = len(re.split(separator, lines[0].strip(" ")))
    for number, line in enumerate(lines):
        cells = len(re.split(separator, line.strip(" ")))
        if cells < expected and '"' not in lines[0] + line:
            raise DataError(
                f"rows of unequal length: row {number} (counted from 0) has {cells} cells, the first {expected}",
                where=path,
                hint="Copy or download the file again, or mark empty cells with n/a",
            )


def _is_header(row: Sequence[str | float]) -> bool:
    """Return whether a row has names of ROIs, or numbers of columns as pandas and others write them."""
    cells = [cell for cell in row if isinstance(cell, str)]  # not empty
    if not any(_is_number(cell) for cell in cells):
        return bool(cells)
    if not all(re.fullmatch(r"\d+(\.0*)?", cell) for cell in cells):
        return False
    numbers = np.array(cells, float)
    return (len(numbers) > 1 and _counts(numbers)) or (len(numbers) >= MANY and bool((np.diff(numbers) > 0).all()))


def _counts(numbers: np.ndarray) -> bool:
    """Return whether numbers count from 0 or 1."""
    return numbers[0] in (0, 1) and np.array_equal(numbers, numbers[0] + np.arange(len(numbers)))


def _refuse_index(values: np.ndarray, header: pd.Series | None, path: Path) -> None:
    """Refuse a first column of numbers or times of the rows: an index that was saved along with the series."""
    first = values[:, 0]
    steps = np.diff(first)
    if len(steps) < 2 or not steps[0] or not np.allclose(steps, steps[0], rtol=1e-6, atol=0):
        return
    name = f" '{header.iloc[0]}'" if header is not None and isinstance(header.iloc[0], str) else ""
    raise DataError(
        f"the first column{name} counts the rows ({first[0]:g}, {first[1]:g}, {first[2]:g} …): an index, not an ROI",
        where=path,
        hint="Save the table without its index (pandas: index=False)",
    )


def _refuse_second_header(values: np.ndarray, path: Path) -> None:
    """Refuse a row of column numbers below the first: a second header, or several tables in one file."""
    if values.shape[1] < 3:
        return
    rows = [row for row in np.flatnonzero(np.isin(values[:, 0], (0, 1))) if _counts(values[row])]
    if rows:
        raise DataError(
            f"row {rows[0]} (counted from 0, without the header) has the numbers of the columns: a second header",
            where=path,
            hint="Save one table with one header",
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
