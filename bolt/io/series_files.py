"""Reading of ready ROI series in the usual file formats."""

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
    """Read ready ROI series, time along rows and ROIs along columns.

    Parameters
    ----------
    path : path
        ``.npy``; ``.mat`` (up to version 7) with one 2D variable; ``.csv`` (commas); ``.tsv``, ``.txt`` or ``.1D``
        (white space). In text files, a first row of names and lines that begin with ``#`` are skipped.
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
        The file is missing, unreadable, not numeric, not 2D, has fewer than two rows, single NaN or infinite values,
        or columns of other ROIs than `values`.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("file not found", where=path, hint="Correct the path")
    if path.suffix not in SUFFIXES:
        raise DataError(f"unknown file format '{path.suffix}'", where=path, hint=f"Use one of {', '.join(SUFFIXES)}")
    if path.suffix == ".npy":
        series = _read_npy(path)
    elif path.suffix == ".mat":
        series = _read_mat(path)
    else:
        series = _read_text(path)
    if series.dtype.kind not in "iufb":
        raise DataError(f"contains {series.dtype}, not numbers", where=path, hint="Save real numbers, time × ROIs")
    if series.ndim != 2 or series.shape[1] < 1:
        raise DataError(f"shape {series.shape}, not (time, ROIs)", where=path, hint="Save a 2D array")
    if len(series) < 2:
        raise DataError(
            f"{len(series)} time points", where=path, hint="See the status.json beside it, or save (time, ROIs)"
        )
    not_finite = ~np.isfinite(series) & ~np.isnan(series).all(axis=0)
    if not_finite.any():
        row, column = np.argwhere(not_finite)[0]
        raise DataError(
            f"{series[row, column]} in row {row}, column {column} (counted from 0)",
            where=path,
            hint="Only whole columns may be NaN (uncovered ROIs)",
        )
    if values is not None and path.suffix in TEXT:
        series = _in_order(series, path, values)
    return series.astype(np.float32)


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
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"not a readable array ({error})", where=path, hint="Save it again with numpy.save") from None


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
        hint = "Save numbers, one row per volume"
        raise DataError(f"not a table of numbers ({error})", where=path, hint=hint) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
