"""Atlases on the grid of an image, and series of their ROIs: shared by template-space and native parcellation.

Labels are averaged. Maps of probabilistic atlases overlap, so a series is the weight of its map in the volume beside
all others: least squares of each volume on the maps, as nilearn's NiftiMapsMasker (but for maps with negative weights:
given a mask, nilearn leaves out voxels where no map is positive). Only M'M and M'y are kept of the maps M and the
volumes y: memory does not grow with the scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import nibabel as nib
import numpy as np
import pandas as pd

from bolt.atlases.image import Atlas, resample
from bolt.atlases.labels import iter_maps
from bolt.io.files import columns
from bolt.io.volumes import BoldInfo

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BASELINE = 3.0
"""Median of mean over SD below which an image has lost its mean (denoised, z-scored), which says nothing of signal."""
SINGULAR = 1e-12
"""Smallest eigenvalue of M'M, relative to the largest, that is not taken for zero."""
COVERAGE_COLUMNS = columns("series", "coverage_of_scan")


@dataclass(frozen=True)
class Averaged:
    """What `average` finds in an atlas's ROIs and voxels.

    Attributes
    ----------
    series : (T, R) array
    finite, varies : (N,) bool array
        Which voxels are always finite, and which ever change.
    mean, sd : (N,) array
        Over time; meaningless where a voxel is not always finite.
    """

    series: np.ndarray
    finite: np.ndarray
    varies: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True)
class RoiVoxels:
    """The voxels of an atlas's ROIs on the grid of an image, ordered by ROI.

    Attributes
    ----------
    voxels : (N,) array
        Flat indices (Fortran order) of the voxels inside the mask.
    roi : (N,) array
        Index of each among the atlas's values, ascending.
    n_voxels : (R,) array
        Size of each ROI, inside the mask or not.
    inside : (R,) array
        Share of each ROI, on the atlas's own grid, within the field of view of the image.
    """

    voxels: np.ndarray
    roi: np.ndarray
    n_voxels: np.ndarray
    inside: np.ndarray

    def count(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count the `chosen` ((N,) bool; default: all) voxels of each ROI, (R,)."""
        roi = self.roi if chosen is None else self.roi[chosen]
        return np.bincount(roi, minlength=len(self.n_voxels))


def locate(atlas: Atlas, labels: np.ndarray, mask: np.ndarray, positions: np.ndarray) -> RoiVoxels:
    """Locate the ROIs of an atlas on the grid of an image.

    Parameters
    ----------
    atlas : Atlas
    labels : (X, Y, Z) int array
        The atlas on the image's grid.
    mask : (X·Y·Z,) bool array
        In Fortran order.
    positions : (M, 3) array
        Positions of the atlas's own labelled voxels, in voxels of the image.
    """
    grid = labels.ravel(order="F")
    voxels = np.flatnonzero(grid)
    roi = np.searchsorted(atlas.values, grid[voxels])  # which contain all labels: `load_atlas` checks it
    order = np.argsort(roi, kind="stable")
    voxels, roi = voxels[order], roi[order]
    kept = mask[voxels]
    reached = ((positions >= -0.5) & (positions <= np.array(labels.shape) - 0.5)).all(axis=1)
    atlas_roi, n_rois = np.searchsorted(atlas.values, atlas.data[atlas.data > 0]), len(atlas.values)
    inside = np.bincount(atlas_roi, reached, minlength=n_rois) / np.bincount(atlas_roi, minlength=n_rois)
    return RoiVoxels(voxels[kept], roi[kept], np.bincount(roi, minlength=n_rois), inside)


@dataclass(frozen=True)
class MapVoxels:
    """The maps of an atlas on the grid of an image.

    Attributes
    ----------
    voxels : (N,) array
        Flat indices (Fortran order) of the voxels inside the mask in which a map has any weight.
    weights : (N, R) sparse array
    n_voxels : (R,) array
        Voxels of each map, inside the mask or not.
    total : (R,) array
        Sum of the absolute weights of each map, inside the mask or not.
    inside : (R,) array
        Share of each map's weight, on the atlas's own grid, within the field of view of the image.
    """

    voxels: np.ndarray
    weights: csr_array
    n_voxels: np.ndarray
    total: np.ndarray
    inside: np.ndarray

    def count(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count the `chosen` ((N,) bool; default: all) voxels of each map, (R,)."""
        present = (self.weights != 0).astype(np.int64)
        return present.T @ (np.ones(len(self.voxels), int) if chosen is None else chosen.astype(int))


def locate_maps(atlas: Atlas, info: BoldInfo, mask: np.ndarray) -> MapVoxels:
    """Resample the maps of an atlas linearly to the grid of an image.

    Parameters
    ----------
    atlas : Atlas
        With maps.
    info : BoldInfo
    mask : (X·Y·Z,) bool array
        In Fortran order.
    """
    from scipy.sparse import csr_array  # which only maps wait for

    own = atlas.image.affine
    to_image = np.linalg.inv(info.affine) @ own
    voxels, weights, inside = [], [], []
    for values in iter_maps(atlas.image):
        where = np.argwhere(values)
        absolute = np.abs(values[tuple(where.T)])
        positions = nib.affines.apply_affine(to_image, where)
        reached = ((positions >= -0.5) & (positions <= np.array(info.shape) - 0.5)).all(axis=1)
        inside.append(absolute[reached].sum() / absolute.sum() if len(where) else 0.0)
        on_grid = resample(values, own, info.shape, info.affine, order=1).ravel(order="F")
        voxels.append(np.flatnonzero(on_grid))
        weights.append(on_grid[voxels[-1]].astype(np.float64))
    n_voxels = np.array([len(v) for v in voxels])
    total = np.array([np.abs(w).sum() for w in weights])
    rows, columns = np.concatenate(voxels), np.repeat(np.arange(len(voxels)), n_voxels)
    kept = mask[rows]
    used, place = np.unique(rows[kept], return_inverse=True)
    shape = (len(used), len(voxels))
    sparse = csr_array((np.concatenate(weights)[kept], (place, columns[kept])), shape=shape)
    return MapVoxels(used, sparse, n_voxels, total, np.array(inside))


class Means:
    """Average volumes over labelled voxels, one at a time; the series of ROIs without voxels are NaN.

    Where a voxel is not finite it counts with its mean over time: left out in some volumes, it would put steps into the
    series, as high as its ROI's voxels differ.
    """

    def __init__(self, rois: RoiVoxels, n_volumes: int) -> None:
        sizes = rois.count()
        self.filled = sizes > 0
        self.starts = (np.cumsum(sizes) - sizes)[self.filled]
        self.sums = np.zeros((n_volumes, len(self.starts)))
        self.lacking: dict[bytes, list[int]] = {}

    def add(self, t: int, values: np.ndarray, good: np.ndarray) -> None:
        """Add volume `t`, the (N,) values of the voxels and which of them are `good`."""
        if not len(self.starts):
            return
        if not good.all():
            self.lacking.setdefault(np.packbits(good).tobytes(), []).append(t)
            values = np.where(good, values, 0)
        self.sums[t] = np.add.reduceat(values, self.starts, dtype=np.float64)

    def series(self, total: np.ndarray) -> np.ndarray:
        """Return the (T, R) series; `total` are the (N,) sums of the voxels' good values."""
        series = np.full((len(self.sums), len(self.filled)), np.nan)
        if len(self.starts):
            found = np.zeros(total.size, int) + len(self.sums)
            lacking = []
            for packed, volumes in self.lacking.items():
                bad = np.unpackbits(np.frombuffer(packed, np.uint8), count=total.size) == 0
                found[bad] -= len(volumes)
                lacking.append((bad, volumes))
            mean = total / found.clip(1)
            for bad, volumes in lacking:
                some = np.logical_or.reduceat(~bad, self.starts)  # else the ROI is NaN there
                self.sums[volumes] += np.where(some, np.add.reduceat(np.where(bad, mean, 0), self.starts), np.nan)
            with np.errstate(invalid="ignore"):
                series[:, self.filled] = self.sums / np.add.reduceat(found > 0, self.starts, dtype=np.int64)
        return series


class LeastSquares:
    """Fit maps to volumes, one at a time; the series of maps without weight in any finite voxel are NaN."""

    def __init__(self, maps: MapVoxels, n_volumes: int) -> None:
        self.weights, self.transposed = maps.weights, maps.weights.T.tocsr()
        self.projected = np.zeros((maps.weights.shape[1], n_volumes))
        self.lacking: dict[bytes, list[int]] = {}

    def add(self, t: int, values: np.ndarray, good: np.ndarray) -> None:
        """Add volume `t`, the (N,) values of the voxels; those that are not `good` are left out of its fit."""
        if not good.all():
            self.lacking.setdefault(good.tobytes(), []).append(t)
            values = np.where(good, values, 0)
        self.projected[:, t] = self.transposed @ values.astype(np.float64)

    def series(self, total: np.ndarray) -> np.ndarray:
        """Return the (T, R) series."""
        series = self._solved(self.weights, self.projected)
        for good, volumes in self.lacking.items():
            weights = self.weights[np.flatnonzero(np.frombuffer(good, bool))]
            series[:, volumes] = self._solved(weights, self.projected[:, volumes])
        return series.T

    @staticmethod
    def _solved(weights: csr_array, projected: np.ndarray) -> np.ndarray:
        squares = (weights.T @ weights).toarray()
        solved = np.linalg.pinv(squares, rcond=SINGULAR, hermitian=True) @ projected
        solved[np.diag(squares) == 0] = np.nan
        return solved


def average(volumes: Iterable[np.ndarray], n_volumes: int, located: Sequence[RoiVoxels | MapVoxels]) -> list[Averaged]:
    """Average over ROIs, one volume at a time.

    Parameters
    ----------
    volumes : iterable of (N,) arrays
        Values of the voxels of all atlases, one atlas after the other.
    n_volumes : int
    located : sequence of RoiVoxels or MapVoxels
        The series of maps are fitted, not averaged.

    Returns
    -------
    list of Averaged
        One per atlas.
    """
    ends = np.cumsum([rois.voxels.size for rois in located])
    parts = [slice(end - rois.voxels.size, end) for end, rois in zip(ends, located, strict=True)]
    fits = [LeastSquares(r, n_volumes) if isinstance(r, MapVoxels) else Means(r, n_volumes) for r in located]
    finite, varies = np.ones(ends[-1], bool), np.zeros(ends[-1], bool)
    total, squares = np.zeros(ends[-1]), np.zeros(ends[-1])
    first: np.ndarray | None = None
    for t, values in enumerate(volumes):
        first = values if first is None else first
        varies |= values != first
        good = np.isfinite(values)
        finite &= good
        known = (values if good.all() else np.where(good, values, 0)).astype(np.float64)
        total += known
        squares += known**2
        for fit, part in zip(fits, parts, strict=True):
            fit.add(t, values[part], good[part])
    mean = total / n_volumes
    sd = np.sqrt(np.maximum(squares / n_volumes - mean**2, 0))
    facts = (finite, varies, mean, sd)
    return [
        Averaged(fit.series(total[part]), *(fact[part] for fact in facts))
        for fit, part in zip(fits, parts, strict=True)
    ]


def coverage_of(
    atlas: Atlas, rois: RoiVoxels | MapVoxels, found: Averaged, threshold: float, signal: float
) -> pd.DataFrame:
    """Return `COVERAGE_COLUMNS` of an atlas; of a map, the coverage is the share of its weight.

    Parameters
    ----------
    atlas : Atlas
    rois : RoiVoxels or MapVoxels
    found : Averaged
    threshold : float
        Smallest coverage of a covered ROI.
    signal : float
        Smallest brightness of a voxel with signal, relative to the median of all ROIs' voxels.
    """
    usable = found.finite & found.varies
    steady = usable & (found.sd > 0)
    has_mean = steady.any() and np.median(found.mean[steady] / found.sd[steady]) >= BASELINE
    level = np.median(found.mean[steady]) if has_mean else np.nan
    dark = usable & (found.mean < signal * level)  # signal dropout; none where the image has lost its mean
    good = usable & ~dark
    brightness: np.ndarray | float = np.nan
    tsnr: np.ndarray | float = np.nan
    if isinstance(rois, MapVoxels):
        total, present = rois.total, np.abs(rois.weights).T @ good.astype(float)
    else:
        total, present = rois.n_voxels, rois.count(good)
        sd = np.where((found.sd > 0) & np.isfinite(level), found.sd, np.nan)
        brightness, tsnr = (
            pd.Series(values).groupby(rois.roi).median().reindex(range(len(total))).to_numpy().round(4)
            for values in (found.mean / level, found.mean / sd)
        )
    coverage = rois.inside * np.divide(present, total, out=np.zeros(len(present)), where=total > 0)
    return pd.DataFrame(
        {
            "value": atlas.values,
            "name": atlas.labels["name"].to_numpy(),
            "n_voxels": rois.n_voxels,
            "inside": rois.inside.round(4),
            "n_masked": rois.n_voxels - rois.count(),
            "n_nonfinite": rois.count(~found.finite),
            "n_constant": rois.count(found.finite & ~found.varies),
            "n_dark": rois.count(dark),
            "brightness": brightness,
            "tsnr": tsnr,
            "coverage": coverage.round(4),
            "covered": (coverage >= threshold) & (coverage > 0),
        }
    )
