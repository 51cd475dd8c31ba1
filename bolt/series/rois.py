"""An atlas on the grid of an image, and means over its ROIs: what every way of parcellation shares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bolt.atlases.image import Atlas

COVERAGE_COLUMNS = {
    "value": "Value of the ROI in the atlas",
    "name": "ROI",
    "n_voxels": "Voxels of the ROI on the grid of the image",
    "inside": "Share of the ROI's voxels (on the atlas's own grid) that lie within the grid of the image",
    "n_masked": "Voxels outside the mask",
    "n_nonfinite": "Voxels within the mask that are NaN or infinite at some volume; left out of the mean there",
    "n_constant": "Finite voxels within the mask that never change",
    "coverage": "Share of the ROI that lies in the image and the mask, is finite and changes over time",
    "covered": "1: coverage reaches the threshold; 0: the ROI's series is NaN",
}


@dataclass(frozen=True)
class Placed:
    """An atlas on the grid of an image, its voxels in the order of the ROIs.

    voxels : (N,) those inside the mask, counted with the first axis running fastest
    roi : (N,) position of each among the atlas's values, ascending
    n_voxels : (R,) of each ROI, inside the mask or not
    inside : (R,) share of each ROI, on the atlas's own grid, that lies within the grid of the image
    """

    voxels: np.ndarray
    roi: np.ndarray
    n_voxels: np.ndarray
    inside: np.ndarray

    def count(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """(R,) how many voxels of each ROI are `chosen` ((N,) bool; default: all)."""
        roi = self.roi if chosen is None else self.roi[chosen]
        return np.bincount(roi, minlength=len(self.n_voxels))


def place(atlas: Atlas, labels: np.ndarray, inside: np.ndarray, at: np.ndarray) -> Placed:
    """An atlas whose labels are on the grid of an image.

    Parameters
    ----------
    atlas : Atlas
    labels : (X, Y, Z) int array
        On the image's grid.
    inside : (X·Y·Z,) bool array
        The mask, the first axis running fastest.
    at : (M, 3) array
        Where the atlas's own labelled voxels lie on the image's grid, in its voxels.
    """
    grid = labels.ravel(order="F")
    voxels = np.flatnonzero(grid)
    roi = _positions(grid[voxels], atlas.values)
    order = np.argsort(roi, kind="stable")
    voxels, roi = voxels[order], roi[order]
    kept = inside[voxels]
    reached = ((at >= -0.5) & (at <= np.array(labels.shape) - 0.5)).all(axis=1)
    own = _positions(atlas.data[atlas.data > 0], atlas.values)
    share = np.bincount(own, reached, minlength=len(atlas.values)) / np.bincount(own, minlength=len(atlas.values))
    return Placed(voxels[kept], roi[kept], np.bincount(roi, minlength=len(atlas.values)), share)


def average(
    volumes: Iterable[np.ndarray], n_volumes: int, placed: Sequence[Placed]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Means over ROIs, a volume at a time.

    Parameters
    ----------
    volumes : iterable of (N,) arrays
        The values of the voxels of all atlases, one atlas after the other.
    n_volumes : int
    placed : sequence of Placed

    Returns
    -------
    list
        For each atlas the means (T, R), and which of its voxels are always finite and which ever change (N,).
    """
    sizes = np.concatenate([place.count() for place in placed])
    n_voxels = int(sizes.sum())
    filled = sizes > 0  # the others have no voxel, and stay NaN
    starts, sizes = (np.cumsum(sizes) - sizes)[filled], sizes[filled]
    means = np.full((n_volumes, len(filled)), np.nan)
    finite, varies = np.ones(n_voxels, bool), np.zeros(n_voxels, bool)
    first: np.ndarray | None = None
    for t, values in enumerate(volumes):
        first = values if first is None else first
        varies |= values != first
        good = np.isfinite(values)
        if good.all():
            means[t, filled] = np.add.reduceat(values, starts, dtype=np.float64) / sizes
        else:
            finite &= good
            sums = np.add.reduceat(np.where(good, values, 0), starts, dtype=np.float64)
            with np.errstate(invalid="ignore"):  # not one finite voxel: NaN
                means[t, filled] = sums / np.add.reduceat(good, starts, dtype=np.int64)
    by_roi = np.cumsum([len(place.n_voxels) for place in placed])[:-1]
    by_voxel = np.cumsum([place.voxels.size for place in placed])[:-1]
    parts = np.split(means, by_roi, axis=1), np.split(finite, by_voxel), np.split(varies, by_voxel)
    return list(zip(*parts, strict=True))


def coverage_of(atlas: Atlas, place: Placed, finite: np.ndarray, varies: np.ndarray, threshold: float) -> pd.DataFrame:
    """`COVERAGE_COLUMNS` of an atlas, from which of its voxels are always finite and which ever change (N,)."""
    inside, n_voxels = place.inside, place.n_voxels
    good = place.count(finite & varies)
    coverage = inside * np.divide(good, n_voxels, out=np.zeros(len(good)), where=n_voxels > 0)
    return pd.DataFrame(
        {
            "value": atlas.values,
            "name": atlas.labels["name"].to_numpy(),
            "n_voxels": n_voxels,
            "inside": inside.round(4),
            "n_masked": n_voxels - place.count(),
            "n_nonfinite": place.count(~finite),
            "n_constant": place.count(finite & ~varies),
            "coverage": coverage.round(4),
            "covered": (coverage >= threshold) & (coverage > 0),
        }
    )


def _positions(labels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Index of each label among the sorted `values`, which hold every label (`load_atlas` makes sure of it)."""
    return np.searchsorted(values, labels)
