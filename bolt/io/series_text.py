"""Reading of ROI series from text files: tables of numbers, with or without a row of names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bolt.io.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

EMPTY = ("", "n/a", "N/A", "NA", "nan", "NaN", "NAN")
"""Cells of a text file that hold no number."""
MANY = 10
"""Columns from which whole numbers that increase along the first row are taken for labels of ROIs, not for a volume."""
AS_NUMBERS = "Save numbers, one row per volume"


def read_text_table(path: Path) -> tuple[np.ndarray, list[str] | None]:
    """Read the numbers of a text file, and the names of its columns if its first row has them.

    Parameters
    ----------
    path : Path
        See `bolt.io.series_files.read_series`.

    Returns
    -------
    values : (T, R) array
    names : list of str, or None
        None, too, if the columns are numbered.

    Raises
    ------
    DataError
        It is not a table of numbers.
    """
    import pandas as pd  # slow to import, and most files are not text

    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text ({error})", where=path, hint="Save it as UTF-8") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=path) from None
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    if not lines:
        return np.empty((0, 1)), None
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
    return values, _names(header)


def _names(header: pd.Series | None) -> list[str] | None:
    """Return the names of the columns; None if there are none, or numbers."""
    if header is None or header.isna().any() or any(_is_number(name) for name in header):
        return None
    return [str(name) for name in header]


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
