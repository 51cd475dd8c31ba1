"""Files with ready ROI series, in the formats people keep them in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bolt.io.errors import DataError
from bolt.io.files import read_json

TEXT = (".csv", ".tsv", ".txt", ".1D")
SUFFIXES = (".npy", ".mat", *TEXT)


def read_series(path: str | Path, values: Sequence[int] | None = None) -> np.ndarray:
    """Read ready ROI series: time along rows, ROIs along columns.

    Parameters
    ----------
    path : path
        ``.npy``; ``.mat`` (up to version 7) with one 2D variable; ``.csv`` (commas); ``.tsv``, ``.txt`` or ``.1D``
        (white space). In text a first row of names is skipped, and so are lines that begin with ``#``.
    values : sequence of int, optional
        Values of the atlas's ROIs. Where the file's first line has a ``#<value>`` a column, as PCP's and AFNI's have,
        the columns are put in this order.

    Returns
    -------
    (T, R) float32 array
        A column that is NaN throughout is an ROI that is not covered.

    Raises
    ------
    DataError
        Missing, unreadable, not numeric, not 2D, fewer than two rows, with single NaN or infinite values, or with
        columns of other ROIs than `values`.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("file not found", where=path, hint="Correct the path")
    if path.suffix not in SUFFIXES:
        raise DataError(f"unknown kind of file '{path.suffix}'", where=path, hint=f"Use one of {', '.join(SUFFIXES)}")
    if path.suffix == ".npy":
        series = _read_npy(path)
    elif path.suffix == ".mat":
        series = _read_mat(path)
    else:
        series = _read_text(path)
    if series.dtype.kind not in "iufb":
        raise DataError(f"holds {series.dtype}, not numbers", where=path, hint="Save real numbers, time × ROIs")
    if series.ndim != 2 or series.shape[1] < 1:
        raise DataError(f"shape {series.shape}, not (time, ROIs)", where=path, hint="Save a 2D array")
    if len(series) < 2:
        raise DataError(f"{len(series)} rows of time", where=path, hint="See the status.json beside it, or save T × R")
    single = ~np.isfinite(series) & ~np.isnan(series).all(axis=0)
    if single.any():
        row, column = np.argwhere(single)[0]
        raise DataError(
            f"{series[row, column]} in row {row}, column {column} (counted from 0)",
            where=path,
            hint="Only whole columns may be NaN (ROIs that are not covered)",
        )
    if values is not None and path.suffix in TEXT:
        series = _in_order(series, path, values)
    return series.astype(np.float32)


def kept_volumes(path: str | Path, length: int) -> np.ndarray:
    """(T,) volumes of the scan, from 0, that its series hold: not those before the steady state, nor scrubbed ones.

    Parameters
    ----------
    path : path
        File of the series; the JSON file beside it says which, where some were dropped.
    length : int
        Rows of the series.

    Raises
    ------
    DataError
        That file names more or fewer volumes than there are rows.
    """
    beside = Path(path).with_suffix(".json")
    about = read_json(beside) if beside.is_file() else {}
    kept = np.asarray(about.get("KeptVolumes", range(length)), int)
    if kept.shape != (length,):
        raise DataError(
            f"KeptVolumes names {kept.size} volumes, the series has {length}",
            where=beside,
            hint="Remove the key, or make the series again",
        )
    return kept


def check_rois(series: np.ndarray, atlas: str, n_rois: int, path: str | Path) -> None:
    """Refuse series with another number of columns than an atlas has ROIs.

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
        Says so where the array is likely to be transposed.
    """
    if series.shape[1] == n_rois:
        return
    if len(series) == n_rois:
        raise DataError(
            f"shape {series.shape}: ROIs along rows and time along columns, it seems, as atlas '{atlas}' has {n_rois}",
            where=path,
            hint="Transpose the array: a row a volume, a column an ROI",
        )
    raise DataError(
        f"{series.shape[1]} ROIs, but atlas '{atlas}' has {n_rois}",
        where=path,
        hint="Give the series of this atlas (time along rows), or name the one they were made with",
    )


def _in_order(series: np.ndarray, path: Path, values: Sequence[int]) -> np.ndarray:
    """Columns in the order of `values`, where the file's first line says which ROI each column is."""
    with path.open(encoding="utf-8") as file:
        cells = file.readline().split("," if path.suffix == ".csv" else None)
    if not all(re.fullmatch(r"#\d+", cell.strip()) for cell in cells):
        return series
    found = [int(cell.strip()[1:]) for cell in cells]
    if len(found) != series.shape[1] or sorted(found) != sorted(values):
        strange = sorted(set(found) ^ set(values))
        raise DataError(
            f"its first line names {len(found)} ROIs over {series.shape[1]} columns, the atlas has {len(values)} ROIs "
            f"(not in both: {', '.join(map(str, strange[:5])) or 'none'})",
            where=path,
            hint="Name the atlas that the series were made with",
        )
    position = {value: column for column, value in enumerate(found)}
    return series[:, [position[value] for value in values]]


def _read_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"not a readable array ({error})", where=path, hint="Save it again with numpy.save") from None


def _read_mat(path: Path) -> np.ndarray:
    from scipy.io import loadmat  # not for the thousand jobs that read text
    from scipy.io.matlab import MatReadError

    hint = "Save one 2D variable with save(..., '-v7')"
    try:
        variables = {k: v for k, v in loadmat(path).items() if not k.startswith("__")}
    except NotImplementedError:
        raise DataError("saved as version 7.3 of .mat (HDF5), which is not read", where=path, hint=hint) from None
    except (ValueError, MatReadError, OSError) as error:
        raise DataError(f"not a readable .mat file ({error})", where=path, hint=hint) from None
    if len(variables) != 1:
        raise DataError(f"holds {len(variables)} variables: {', '.join(sorted(variables))}", where=path, hint=hint)
    return next(iter(variables.values()))


def _read_text(path: Path) -> np.ndarray:
    separator = "," if path.suffix == ".csv" else None
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        lines = [line for line in lines if not line.lstrip().startswith("#")]
        if lines and not any(_is_number(cell) for cell in lines[0].split(separator)):
            lines = lines[1:]  # names of the ROIs
        return np.loadtxt(lines, delimiter=separator, ndmin=2) if lines else np.empty((0, 1))
    except ValueError as error:  # also text that is not UTF-8
        raise DataError(f"not a table of numbers ({error})", where=path, hint="Save numbers, a row a volume") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
