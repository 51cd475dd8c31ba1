"""The cache of z-scored ROI series that training reads, and the connectivity of its scans.

A cache is a folder with one packed array of all scans (`series.npy`, memory-mapped) and an index. Its manifest is
written last: a folder without one is incomplete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.datasets import COLUMNS, TEXT_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import atomic, columns, read_json, read_table, sha256, write_json, write_table
from bolt.io.integrity import require_present, require_unaltered
from bolt.io.series_files import is_constant, kept_volumes

FILES = ("series.npy", "index.tsv", "rois.tsv")
ROI_COLUMNS, ARRAY_COLUMNS, JOINED_COLUMN = (columns("series", table) for table in ("rois", "index", "joined"))
INDEX_COLUMNS = {**COLUMNS, **ARRAY_COLUMNS, **JOINED_COLUMN}
"""Columns of the index; the last only if scans are joined (`bolt.series.gather`)."""
ROI_TEXT = ("name", "network", "hemisphere")
"""Those of `ROI_COLUMNS` that are text, also where all are numbers."""
Crop = tuple[int, np.random.Generator]
LARGEST = 1 - 1e-6
"""Largest absolute correlation before Fisher's transform, which is infinite at ±1."""


def zscore(series: np.ndarray) -> np.ndarray:
    """Z-score each ROI over the whole scan.

    Parameters
    ----------
    series : (T, R) array
        NaN in columns of ROIs that are not covered.

    Returns
    -------
    (T, R) float32 array
        Mean 0 and standard deviation 1 (ddof 0) over time; zeros if an ROI is constant or not covered.
    """
    values = np.asarray(series, np.float64)
    centred = values - values.mean(axis=0)
    deviation = values.std(axis=0)
    varies = np.isfinite(deviation) & ~is_constant(values)
    return np.where(varies, centred / np.where(varies, deviation, 1), 0).astype(np.float32)


class SeriesCache:
    """Read access to a cache of z-scored series.

    Parameters
    ----------
    folder : path

    Attributes
    ----------
    index : DataFrame
        Columns of the scan table, offset and length; one row per scan.
    rois : DataFrame
        `ROI_COLUMNS` of the columns of the series.
    manifest : dict
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest: dict[str, Any] = read_json(self.folder / "manifest.json")
        for name in FILES:  # missing or altered ones are no fault of a scan or fold
            require_present(self.folder / name)
        require_unaltered(self.folder, self.manifest.get("sha256", {}), self.folder / "manifest.json")
        self.index = read_table(self.folder / "index.tsv", text=TEXT_COLUMNS)
        self.rois = read_table(self.folder / "rois.tsv", text=ROI_TEXT)
        self._array = np.load(self.folder / "series.npy", mmap_mode="r")
        expected = (int(self.index["length"].sum()), len(self.rois))
        if self._array.shape != expected:
            what = f"series.npy has shape {self._array.shape}, but the index implies {expected}"
            raise DataError(what, where=self.folder, hint="Delete the folder and run again")

    def __len__(self) -> int:
        return len(self.index)

    @property
    def n_rois(self) -> int:
        """Return the number of ROIs."""
        return len(self.rois)

    def array(self) -> np.ndarray:
        """Return all series, (sum of T, R), memory-mapped; writing to the result does not change the file."""
        return np.load(self.folder / "series.npy", mmap_mode="c")

    def series(self, i: int) -> np.ndarray:
        """Return a (T, R) float32 view of the scan in row `i` of the index; it is read from disk when used."""
        row = self.index.iloc[i]
        return self._array[row.offset : row.offset + row.length]

    def finite_series(self, i: int) -> np.ndarray:
        """Return the series of the scan in row `i` of the index after checking that it is finite.

        Raises
        ------
        DataError
            The series has NaN or Inf.
        """
        series = self.series(i)
        if not np.isfinite(series).all():
            scan = self.index["scan_id"].iloc[i]
            raise DataError(f"the series of scan '{scan}' has NaN or Inf", hint="Exclude the scan, or fix its series")
        return series


def write_array(out: Path, series: Iterable[np.ndarray], n_volumes: int, n_rois: int) -> None:
    """Write ``series.npy`` scan by scan; without a manifest the cache is incomplete until `seal`.

    Parameters
    ----------
    out : Path
        Folder of the cache.
    series : iterable of (T, R) arrays
        z-scored, in the order of the index.
    n_volumes, n_rois : int
        The sum of all T; R.
    """
    (out / "manifest.json").unlink(missing_ok=True)
    # not a memory map: a full disk would kill the process
    with atomic(out / "series.npy") as temporary, temporary.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_volumes, n_rois)}
        np.lib.format.write_array_header_1_0(file, header)
        for values in series:
            file.write(values.astype("<f4").tobytes())


def with_offsets(scans: pd.DataFrame, lengths: Iterable[int]) -> pd.DataFrame:
    """Add where each scan is in the array: `ARRAY_COLUMNS`."""
    length = np.array(list(lengths))
    return scans.assign(offset=np.cumsum(length) - length, length=length)


def seal(out: Path, index: pd.DataFrame, rois: pd.DataFrame, **facts: Any) -> None:
    """Complete a cache: write its index, its ROIs and, last, its manifest with `facts`.

    Parameters
    ----------
    out : Path
        Holds the array.
    index : DataFrame
        From `with_offsets`.
    rois : DataFrame
        `ROI_COLUMNS` of the array's columns.
    **facts
        atlas, policy, settings, …
    """
    write_table(index, out / "index.tsv", INDEX_COLUMNS)
    write_table(rois[list(ROI_COLUMNS)], out / "rois.tsv", ROI_COLUMNS)
    write_json(facts | {"sha256": {name: sha256(out / name) for name in FILES}}, out / "manifest.json")


def volumes_of(scan: pd.Series | Mapping[str, Any], path: str | Path) -> np.ndarray:
    """Return which volumes of the image the series of a scan holds (`kept_volumes`); of a joined scan, its own rows.

    Parameters
    ----------
    scan : Series or mapping
        Row of the index of a cache.
    path : path
        File of the scan's series.
    """
    length = int(scan["length"])
    return np.arange(length) if isinstance(scan.get("joined"), str) else kept_volumes(path, length)


# ---- static functional connectivity: correlation of the series of two ROIs over a whole scan -------------------------
def n_pairs(n_rois: int) -> int:
    """Return the number of pairs of different ROIs."""
    return n_rois * (n_rois - 1) // 2


def connectivity(series: NDArray[np.floating], *, fisher_z: bool = False) -> NDArray[np.float32]:
    """Compute the Pearson correlations of all pairs of ROIs.

    Parameters
    ----------
    series : (T, R) array
    fisher_z : bool
        Apply Fisher's z-transform (inverse hyperbolic tangent).

    Returns
    -------
    (R (R - 1) / 2,) float32 array
        The strict upper triangle, row by row; 0 for pairs with an ROI that is constant or, in a cache, not covered;
        never NaN.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # a constant ROI: 0 / 0
        covariance = np.atleast_2d(np.cov(np.asarray(series, np.float64).T, bias=True))
        scale = 1 / np.sqrt(np.diag(covariance))
        matrix = covariance * scale * scale[:, None]  # nilearn's ConnectivityMeasure, bit for bit, without its checks
    values = matrix[np.triu_indices(len(matrix), k=1)]
    values = np.where(np.isfinite(values), values, 0).clip(-1, 1)
    if fisher_z:
        values = np.arctanh(values.clip(-LARGEST, LARGEST))
    return values.astype(np.float32)


def connectivity_of(
    cache: SeriesCache, ids: Sequence[int], *, fisher_z: bool = False, crop: Crop | None = None
) -> NDArray[np.float32]:
    """Compute the connectivity of scans of a cache, each over its full length or a random part of it.

    Parameters
    ----------
    cache : SeriesCache
    ids : sequence of int
        Rows of the cache's index.
    fisher_z : bool
    crop : tuple of int and numpy.random.Generator, optional
        Volumes (at most) of a part of each scan that begins at random.

    Returns
    -------
    (len(ids), R (R - 1) / 2) float32 array
    """
    features = np.empty((len(ids), n_pairs(cache.n_rois)), np.float32)
    for row, i in enumerate(ids):
        series = cache.finite_series(int(i))
        if crop is not None:
            length, random = crop
            start = random.integers(max(len(series) - length, 0) + 1)
            series = series[start : start + length]
        features[row] = connectivity(series, fisher_z=fisher_z)
    return features
