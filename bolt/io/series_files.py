"""Reading of ready ROI series in the usual file formats."""

from __future__ import annotations

import csv
import re
import tokenize
import warnings
import zlib
from collections.abc import Collection, Sequence
from io import StringIO
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.io.cifti import DTSERIES, PTSERIES, read_ptseries
from bolt.io.errors import BoltWarning, DataError, readable, require_file
from bolt.io.files import read_json

TEXT = (".csv", ".tsv", ".txt", ".1D")
GREYORDINATES = "Average them first: bolt parcellate scan.dtseries.nii --atlas atlas.dlabel.nii --out series.npy"
BOLD = "Give the BOLD series of a scan, not a mean or an empty file"
SUFFIXES = (".npy", ".mat", PTSERIES, *TEXT)
EMPTY = ("", "n/a", "N/A", "NA", "nan", "NaN", "NAN")
"""Cells of a text file that hold no number."""
MANY = 10
"""Columns from which whole numbers that increase along the first row are taken for labels of ROIs, not for a volume."""
NETWORKS = re.compile(r"^\d+Networks_")
"""What the publisher of Schaefer's atlas, and nilearn, put before the names of its ROIs."""
AS_NUMBERS = "Save numbers, one row per volume"


def read_series(
    path: str | Path, values: Sequence[int] | None = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Read ready ROI series, time along rows and ROIs along columns.

    Parameters
    ----------
    path : path
        ``.npy``; ``.mat`` (up to version 7) with one 2D variable; ``.csv`` (commas); ``.tsv``, ``.txt`` or ``.1D``
        (white space). In text files, lines that begin with ``#`` are no volumes, nor is a first row of names or of
        column numbers (0 … R-1 or 1 … R, `values`, or the labels of ten or more ROIs). ``n/a`` and empty cells are NaN.
        ``.ptseries.nii`` (CIFTI).
    values : sequence of int, optional
        Values of the atlas's ROIs. If the first row of a text file or a comment above it has these, or a ``#<value>``
        per column, as in files of PCP and AFNI, the columns are put in this order.
    names : sequence of str, optional
        Names of the atlas's ROIs. If the file names its columns, as CIFTI and XCP-D do, or a comment above the numbers
        does, they are put in this order; see `order_by_name`.

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
    return in_atlas_order(*read_named_series(path, () if values is None else values), path, values, names)


def in_atlas_order(
    series: np.ndarray,
    columns: Sequence[str] | None,
    path: Path,
    values: Sequence[int] | None,
    names: Sequence[str] | None,
) -> np.ndarray:
    """Put the columns that `read_named_series` has read in the order of ROIs, as far as the file names them."""
    if path.suffix in TEXT:
        told = names if columns is None and names is not None else ()  # a row of names goes before a comment
        series = _by_comment(series, path, () if values is None else values, told)
    if names is not None and columns is not None:
        series = order_by_name(series, columns, names, path, strict=path.name.endswith(PTSERIES))
    return series


def read_named_series(path: str | Path, *atlases: Sequence[int]) -> tuple[np.ndarray, list[str] | None]:
    """Read ready ROI series as `read_series`, and the names of their columns if the file has them.

    Parameters
    ----------
    path : path
    *atlases : sequence of int
        Values of ROIs. Columns with those of an atlas in the first row of a text file are put in this order.

    Returns
    -------
    series : (T, R) float32 array
    names : list of str, or None
    """
    path = Path(path)
    require_file(path, "Correct the path")
    suffix = series_suffix(path)
    if suffix == DTSERIES:
        raise DataError("greyordinates, not ROI series", where=path, hint=GREYORDINATES)
    if suffix not in SUFFIXES:
        raise DataError(f"unknown file format '{suffix}'", where=path, hint=f"Use one of {', '.join(SUFFIXES)}")
    names: list[str] | None = None
    if suffix == ".npy":
        series = _read_npy(path)
    elif suffix == ".mat":
        series = _read_mat(path)
    elif suffix == PTSERIES:
        series, names = read_ptseries(path)
    else:
        series, names = _read_text_table(path, atlases)
    return checked_series(series, path), names


def checked_series(series: np.ndarray, where: str | Path) -> np.ndarray:
    """Return (T, R) series as float32; refuse other shapes and types, holes, and series of which none varies.

    Parameters
    ----------
    series : array
    where : str or Path
        The file or scan that errors name.

    Raises
    ------
    DataError
    """
    if series.dtype.kind not in "iuf":
        raise DataError(f"contains {series.dtype}, not numbers", where=where, hint="Save real numbers, time × ROIs")
    if series.ndim != 2 or series.shape[1] < 1:
        raise DataError(f"shape {series.shape}, not (time, ROIs)", where=where, hint="Give a 2D array, (time, ROIs)")
    if len(series) < 2:
        hint = "Give (time, ROIs); see the status.json beside the series if BolT made them"
        raise DataError(f"{len(series)} time points", where=where, hint=hint)
    with np.errstate(over="ignore"):
        series = series.astype(np.float32)  # a value beyond its range becomes infinite, and is refused below
    not_finite = ~np.isfinite(series) & ~np.isnan(series).all(axis=0)
    if not_finite.any():
        row, column = np.argwhere(not_finite)[0]
        what = f"{series[row, column]} in row {row}, column {column} (counted from 0)"
        raise DataError(what, where=where, hint="Only whole columns may be NaN (uncovered ROIs)")
    if (is_constant(series) | np.isnan(series[0])).all():
        raise DataError("no ROI varies: all are constant or NaN", where=where, hint=BOLD)
    return series


def series_suffix(path: Path) -> str:
    """Return the ending of a file's name that states its format, such as ``.ptseries.nii`` or ``.csv``."""
    return "".join(path.suffixes[-2:]) if path.name.endswith((PTSERIES, DTSERIES)) else path.suffix


def sidecar_of(path: Path) -> Path:
    """Return the JSON file beside series, named as they are; that of a CIFTI file may keep its ``.ptseries``."""
    plain = path.with_name(path.name.removesuffix(series_suffix(path)) + ".json")
    return plain if plain.is_file() else path.with_suffix(".json")


def read_description(path: str | Path) -> dict[str, Any]:
    """Return what the JSON file beside series states, nothing if there is none; refuse a file without keys."""
    sidecar = sidecar_of(Path(path))
    about = read_json(sidecar) if sidecar.is_file() else {}
    if not isinstance(about, dict):
        raise DataError("not a description of series", where=sidecar, hint="Remove the file")
    return about


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
    kept = np.asarray(read_description(path).get("KeptVolumes", range(length)), int)
    if kept.shape != (length,):
        what = f"KeptVolumes lists {kept.size} volumes, but the series has {length}"
        raise DataError(what, where=sidecar_of(Path(path)), hint="Remove the key, or compute the series again")
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
        what = f"shape {series.shape}, but atlas '{atlas}' has {n_rois} ROIs: these seem to be along rows"
        raise DataError(what, where=path, hint="Transpose the array to (time, ROIs)")
    hint = "Give series of this atlas (time along rows), or name the one they were made with: 'atlases', or --atlas"
    raise DataError(f"{series.shape[1]} ROIs, but atlas '{atlas}' has {n_rois}", where=path, hint=hint)


def plain_name(name: str) -> str:
    """Return what spellings of an atlas's name have in common: letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def check_atlas(path: Path, names: Collection[str], checksums: Collection[str] = ()) -> bool:
    """Return whether the JSON file beside series states their atlas; refuse another atlas, or another image of it.

    Parameters
    ----------
    path : Path
    names : collection of str
        Names that the atlas may have; spelling is compared by `plain_name`.
    checksums : collection of str
        Of all its images, if known. Series of one of these are of the atlas, whatever its name was.

    Raises
    ------
    DataError
    """
    about = read_description(path)
    atlas, carried = about.get("Atlas"), about.get("AtlasCarriedOver")
    image = carried.get("Image") if isinstance(carried, dict) else about.get("AtlasSHA256")
    if image and image in list(checksums):
        return True
    if isinstance(atlas, str) and plain_name(atlas) not in map(plain_name, names):
        what = f"series of atlas '{atlas}', but 'atlases' names {', '.join(names)}"
        hint = "Set 'atlases' to theirs; if it is the same under another name, correct 'Atlas' in the JSON file"
        raise DataError(what, where=sidecar_of(path), hint=hint)
    if image and checksums:
        what = f"series of another image of the atlas (with checksum {image})"
        raise DataError(what, where=sidecar_of(path), hint="Set 'atlases' to theirs, or make series with this one")
    return isinstance(atlas, str)


def order_by_name(
    series: np.ndarray, columns: Sequence[str], names: Sequence[str], path: str | Path, *, strict: bool
) -> np.ndarray:
    """Put columns in the order of an atlas's ROIs, by their names; whether these begin with ``7Networks_`` is ignored.

    Parameters
    ----------
    series : (T, R) array
    columns : sequence of str
        Names of the columns.
    names : sequence of str
        Names of the atlas's ROIs.
    path : path
        Named in the error.
    strict : bool
        Refuse other names. Otherwise a file that uses other names throughout is taken to be in the atlas's order, with
        a `BoltWarning`.

    Raises
    ------
    DataError
        The names differ (`strict`), or ROIs of the atlas are in other places and cannot be sorted, because only some
        names agree.
    """
    if list(columns) == list(names) and series.shape[1] == len(names):
        return series
    columns, names = ([NETWORKS.sub("", name) for name in listed] for listed in (columns, names))
    position = {name: column for column, name in enumerate(columns)}
    if len(position) == len(columns) == series.shape[1] and set(position) == set(names):
        return series[:, [position[name] for name in names]]
    same_number = len(columns) == len(names)
    misplaced = same_number and any(position.get(name, place) != place for place, name in enumerate(names))
    if not strict and not misplaced:
        if same_number and not set(names) & set(position):
            what = f"none of the {len(names)} names of columns, such as '{columns[0]}', is an ROI's in the atlas"
            warnings.warn(f"{path}: {what}: read by position, in the atlas's order", BoltWarning, stacklevel=2)
        return series
    place = next((i for i, pair in enumerate(zip(columns, names, strict=False)) if pair[0] != pair[1]), -1)
    here, there = (listed[place] if place >= 0 else "…" for listed in (columns, names))
    absent = [name for name in names if name not in position]
    raise DataError(
        f"{len(columns)} named ROIs do not match the {len(names)} of the atlas: the first that differs is "
        f"'{here}', where the atlas has '{there}' ({len(absent)} of the atlas's names are missing)",
        where=path,
        hint="Set the atlas that the series were made with; `bolt describe-atlas` makes one from the names in a file",
    )


def _by_comment(series: np.ndarray, path: Path, values: Sequence[int], names: Sequence[str]) -> np.ndarray:
    """Put columns in the order of the atlas, if a comment above the numbers has the value or name of each column.

    AFNI and PCP write ``#<value>`` for each, and numpy.savetxt writes any header behind ``# ``.
    """
    with path.open(encoding="utf-8-sig") as file:
        comments = list(takewhile(lambda line: line[:1] in ("", "#"), map(str.strip, file)))
    known = {NETWORKS.sub("", name) for name in names}
    for comment in filter(None, comments):
        cells = re.findall(r"[^\s,;]+", comment)
        numbers = [int(cell.lstrip("#")) for cell in cells if re.fullmatch(r"#?\d+", cell)]
        if len(values) and (all(re.fullmatch(r"#\d+", cell) for cell in cells) or sorted(numbers) == sorted(values)):
            return order_by_name(series, [f"#{n}" for n in numbers], [f"#{v}" for v in values], path, strict=True)
        for separator in (",", ";", "\t", None):
            columns = [cell.strip() for cell in comment.lstrip("#").split(separator)]
            shared = known.intersection(NETWORKS.sub("", name) for name in columns)
            if len(columns) == series.shape[1] and 2 * len(shared) > len(known):
                return order_by_name(series, columns, names, path, strict=True)
    return series


def _read_npy(path: Path) -> np.ndarray:
    hint = "Save one array of numbers with numpy.save"
    try:
        # as a memory map, a header that claims more than the file has is refused
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, OverflowError, tokenize.TokenError) as error:
        reason = "not in NumPy's format, or Python objects" if "pickle" in str(error) else str(error)
        raise DataError(f"not a readable array ({reason})", where=path, hint=hint) from None
    if not isinstance(array, np.ndarray):
        raise DataError("an archive of arrays (.npz), not one array", where=path, hint=hint)
    return np.array(array)


def _read_mat(path: Path) -> np.ndarray:
    from scipy.io import loadmat  # slow to import, and most files are not .mat
    from scipy.io.matlab import MatReadError

    hint = "Save one 2D variable with save(..., '-v7')"
    kinds = (ValueError, IndexError, MatReadError, OSError, zlib.error)
    try:
        with readable(path, *kinds, what="not a readable .mat file", hint=hint, text=False):
            variables = {k: v for k, v in loadmat(path).items() if not k.startswith("__")}
    except NotImplementedError:
        raise DataError(".mat version 7.3 (HDF5) is not supported", where=path, hint=hint) from None
    if len(variables) != 1:
        raise DataError(f"contains {len(variables)} variables: {', '.join(sorted(variables))}", where=path, hint=hint)
    variable = next(iter(variables.values()))
    if not isinstance(variable, np.ndarray):
        raise DataError(f"contains a {type(variable).__name__}, not an array of numbers", where=path, hint=hint)
    return variable


def _read_text_table(path: Path, atlases: Sequence[Sequence[int]]) -> tuple[np.ndarray, list[str] | None]:
    """Read the (T, R) numbers of a text file, and the names of its columns; None if its first row has none, or numbers.

    Refused are rows with fewer cells than the first, as in a file that is cut off (pandas would fill them with NaN), a
    first column of numbers or times of the rows (an index that was saved along with the series), and a row of column
    numbers below the first (a second header, or several tables in one file).
    """
    with readable(path, OSError, what="cannot be read", hint="Copy or download it again"):
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    if not lines:
        return np.empty((0, 1)), None
    likely = ",;\t" if path.suffix == ".csv" else "\t,;"
    separator = next((one for one in likely if one in lines[0]), None)  # None: white space
    first_row = next(csv.reader([lines[0].strip(" ")], delimiter=separator)) if separator else lines[0].split()
    first_row = [cell.strip() for cell in first_row]
    known = [cell for cell in first_row if cell not in EMPTY]
    row_numbers = pd.to_numeric(pd.Series(known, dtype=object), errors="coerce").to_numpy(float)
    named = bool(known) and bool(np.isnan(row_numbers).all())
    numbered = all(re.fullmatch(r"\d+(\.0*)?", cell) for cell in known) and (
        (len(row_numbers) > 1 and _counts(row_numbers))
        or (len(row_numbers) >= MANY and bool((np.diff(row_numbers) > 0).all()))
    )
    labels = next((list(one) for one in atlases if len(one) > 1 and sorted(one) == sorted(row_numbers)), None)
    headed = named or numbered or labels is not None  # by the numbers of columns, as pandas and others write them
    if len(lines) == headed:
        return np.empty((0, len(first_row))), None
    try:
        values = np.loadtxt(lines[headed:], delimiter=separator, comments=None, ndmin=2)
        complete = values.shape[1] == len(first_row)
    except ValueError:
        complete = False
    if not complete:  # cells without numbers, quoted cells, or an error to be described
        values = _read_cells(path, lines, separator or r"\s+", headed)
    first = values[:, 0]
    steps = np.diff(first)
    if len(steps) > 1 and steps[0] and np.allclose(steps, steps[0], rtol=1e-6, atol=0):
        name = f" '{first_row[0]}'" if headed and first_row[0] not in EMPTY else ""
        start = f"{first[0]:g}, {first[1]:g}, {first[2]:g} …"
        what = f"the first column{name} counts the rows ({start}): an index, not an ROI"
        raise DataError(what, where=path, hint="Save the table without its index (pandas: index=False)")
    rows = [row for row in np.flatnonzero(np.isin(first, (0, 1))) if values.shape[1] > 2 and _counts(values[row])]
    if rows:
        what = f"row {rows[0]} (counted from 0, without the header) has the numbers of the columns: a second header"
        raise DataError(what, where=path, hint="Save one table with one header")
    if labels is not None and len(known) == values.shape[1]:
        values = values[:, [row_numbers.tolist().index(label) for label in labels]]
    return values, known if named and len(known) == values.shape[1] else None


def _read_cells(path: Path, lines: list[str], separator: str, headed: bool) -> np.ndarray:
    """Read numbers between cells that are empty, quoted or wrong; describe what is wrong. Much slower than NumPy."""
    expected = len(re.split(separator, lines[0].strip(" ")))
    for number, line in enumerate(lines):
        n_cells = len(re.split(separator, line.strip(" ")))
        if n_cells < expected and '"' not in lines[0] + line:
            what = f"rows of unequal length: row {number} (counted from 0) has {n_cells} cells, the first {expected}"
            raise DataError(what, where=path, hint="Copy or download the file again, or mark empty cells with n/a")
    with readable(path, pd.errors.ParserError, what="rows of unequal length", hint=AS_NUMBERS):
        cells = pd.read_csv(
            StringIO("\n".join(lines)), sep=separator, header=None, dtype=str, keep_default_na=False, index_col=False
        ).iloc[int(headed) :]
    flat = pd.Series([cell.strip() for cell in cells.to_numpy().ravel()], dtype=object)
    flat = flat.mask(flat.isin(EMPTY))
    values = pd.to_numeric(flat, errors="coerce").to_numpy(float)
    wrong = np.flatnonzero(np.isnan(values) & flat.notna().to_numpy())
    if len(wrong):
        row, column = divmod(int(wrong[0]), cells.shape[1])
        what = f"'{flat[wrong[0]]}' in row {row}, column {column} (counted from 0) is not a number"
        raise DataError(what, where=path, hint=AS_NUMBERS)
    return values.reshape(cells.shape)


def _counts(numbers: np.ndarray) -> bool:
    """Return whether numbers count from 0 or 1."""
    return numbers[0] in (0, 1) and np.array_equal(numbers, numbers[0] + np.arange(len(numbers)))
