"""Atlases on the grid of an image, and means over their ROIs: shared by template-space and native parcellation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bolt.atlases.image import Atlas
from bolt.series.averaged import Averaged
from bolt.series.maps import LeastSquares, MapVoxels

COVERAGE_COLUMNS = {
    "value": "Value of the ROI in the atlas image",
    "name": "ROI",
    "n_voxels": "Voxels of the ROI on the grid of the image",
    "inside": "Share of the ROI's voxels (on the atlas's own grid) within the field of view of the image",
    "n_masked": "Voxels outside the mask",
    "n_nonfinite": "Voxels within the mask that are NaN or infinite in some volume; excluded from the mean there",
    "n_constant": "Finite voxels within the mask whose value never changes",
    "n_dark": "Other voxels within the mask without signal: darker, in the mean over time, than a share (the key "
    "`signal`) of the median of all ROIs' voxels",
    "brightness": "Median over the ROI's voxels of their mean over time, relative to the median of all ROIs' voxels; "
    "n/a: maps, or images without their mean",
    "tsnr": "Median over the ROI's voxels of mean over SD in time; n/a as above",
    "coverage": "Share of the ROI that is within the image and the mask, is finite, varies over time and has signal",
    "covered": "1: coverage reaches the threshold; 0: the ROI's series is NaN",
}


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
    roi = _roi_index(grid[voxels], atlas.values)
    order = np.argsort(roi, kind="stable")
    voxels, roi = voxels[order], roi[order]
    kept = mask[voxels]
    reached = ((positions >= -0.5) & (positions <= np.array(labels.shape) - 0.5)).all(axis=1)
    atlas_roi, n_rois = _roi_index(atlas.data[atlas.data > 0], atlas.values), len(atlas.values)
    inside = np.bincount(atlas_roi, reached, minlength=n_rois) / np.bincount(atlas_roi, minlength=n_rois)
    return RoiVoxels(voxels[kept], roi[kept], np.bincount(roi, minlength=n_rois), inside)


def average(volumes: Iterable[np.ndarray], n_volumes: int, located: Sequence[RoiVoxels | MapVoxels]) -> list[Averaged]:
    """Average over ROIs, one volume at a time.

    Parameters
    ----------
    volumes : iterable of (N,) arrays
        Values of the voxels of all atlases, one atlas after the other.
    n_volumes : int
    located : sequence of RoiVoxels or MapVoxels
        All with maps are last; their series are fitted, not averaged.

    Returns
    -------
    list of Averaged
        One per atlas.
    """
    labelled = [rois for rois in located if isinstance(rois, RoiVoxels)]
    ends = np.cumsum([rois.voxels.size for rois in located])
    parts = [slice(end - rois.voxels.size, end) for end, rois in zip(ends, located, strict=True)]
    fits = {k: LeastSquares(maps, n_volumes) for k, maps in enumerate(located) if isinstance(maps, MapVoxels)}
    sizes = np.concatenate([np.zeros(0, int), *(rois.count() for rois in labelled)])
    n_labelled = int(sizes.sum())
    filled = sizes > 0  # ROIs without voxels stay NaN
    starts, sizes = (np.cumsum(sizes) - sizes)[filled], sizes[filled]
    means = np.full((n_volumes, len(filled)), np.nan)
    finite, varies = np.ones(ends[-1], bool), np.zeros(ends[-1], bool)
    total, squares = np.zeros(ends[-1]), np.zeros(ends[-1])
    first: np.ndarray | None = None
    for t, values in enumerate(volumes):
        first = values if first is None else first
        varies |= values != first
        good = np.isfinite(values)
        if not (complete := good.all()):
            finite &= good
        known = values.astype(np.float64) if complete else np.where(good, values, 0).astype(np.float64)
        total += known
        squares += known**2
        for k, fit in fits.items():
            fit.add(t, values[parts[k]])
        if fits:
            values, good = values[:n_labelled], good[:n_labelled]
        if not len(starts):
            continue
        if complete:
            means[t, filled] = np.add.reduceat(values, starts, dtype=np.float64) / sizes
        else:
            sums = np.add.reduceat(np.where(good, values, 0), starts, dtype=np.float64)
            with np.errstate(invalid="ignore"):  # NaN if no voxel is finite
                means[t, filled] = sums / np.add.reduceat(good, starts, dtype=np.int64)
    by_roi = np.cumsum([len(rois.n_voxels) for rois in labelled])[:-1]
    series = [*np.split(means, by_roi, axis=1)][: len(labelled)] + [fit.solve() for fit in fits.values()]
    mean = total / n_volumes
    sd = np.sqrt(np.maximum(squares / n_volumes - mean**2, 0))
    facts = (finite, varies, mean, sd)
    return [Averaged(own, *(fact[part] for fact in facts)) for own, part in zip(series, parts, strict=True)]


def coverage_of(atlas: Atlas, rois: RoiVoxels, found: Averaged, threshold: float, signal: float) -> pd.DataFrame:
    """Return `COVERAGE_COLUMNS` of an atlas.

    Parameters
    ----------
    atlas : Atlas
    rois : RoiVoxels
    found : Averaged
    threshold : float
        Smallest coverage of a covered ROI.
    signal : float
        Smallest brightness of a voxel with signal, relative to the median of all ROIs' voxels.
    """
    dark, level = found.dark(signal), found.level or np.nan
    sd = np.where((found.sd > 0) & np.isfinite(level), found.sd, np.nan)
    n_voxels, good = rois.n_voxels, rois.count(found.usable & ~dark)
    coverage = rois.inside * np.divide(good, n_voxels, out=np.zeros(len(good)), where=n_voxels > 0)
    return pd.DataFrame(
        {
            "value": atlas.values,
            "name": atlas.labels["name"].to_numpy(),
            "n_voxels": n_voxels,
            "inside": rois.inside.round(4),
            "n_masked": n_voxels - rois.count(),
            "n_nonfinite": rois.count(~found.finite),
            "n_constant": rois.count(found.finite & ~found.varies),
            "n_dark": rois.count(dark),
            "brightness": _medians(rois, found.mean / level),
            "tsnr": _medians(rois, found.mean / sd),
            "coverage": coverage.round(4),
            "covered": (coverage >= threshold) & (coverage > 0),
        }
    )


def _medians(rois: RoiVoxels, values: np.ndarray) -> np.ndarray:
    """Return the median of the (N,) values over each ROI's voxels, (R,), four decimals; NaN without any."""
    medians = pd.Series(values).groupby(rois.roi).median()
    return medians.reindex(range(len(rois.n_voxels))).to_numpy().round(4)


def _roi_index(labels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the index of each label among the sorted `values`, which contain all labels (`load_atlas` checks it)."""
    return np.searchsorted(values, labels)
