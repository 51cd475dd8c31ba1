"""Series of probabilistic atlases: least squares of each volume on the maps, as nilearn's NiftiMapsMasker.

(But for maps with negative weights: given a mask, nilearn leaves out voxels where no map is positive.)

Maps overlap, so a series is the weight of its map in the volume, beside all others. Only M'M and M'y are kept of the
maps M and the volumes y: memory does not grow with the scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import nibabel as nib
import numpy as np
import pandas as pd

from bolt.atlases.image import Atlas, resample
from bolt.atlases.maps import iter_maps
from bolt.io.volumes import BoldInfo
from bolt.series.averaged import Averaged

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SINGULAR = 1e-12
"""Smallest eigenvalue of M'M, relative to the largest, that is not taken for zero."""


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


class LeastSquares:
    """Fit maps to volumes, one at a time.

    Parameters
    ----------
    maps : MapVoxels
    n_volumes : int
    """

    def __init__(self, maps: MapVoxels, n_volumes: int) -> None:
        self.weights = maps.weights
        self.transposed = maps.weights.T.tocsr()
        self.projected = np.zeros((maps.weights.shape[1], n_volumes))
        self.lacking: dict[bytes, list[int]] = {}

    def add(self, t: int, values: np.ndarray) -> None:
        """Add volume `t`, the (N,) values of the voxels; those that are not finite are left out of its fit."""
        good = np.isfinite(values)
        if not good.all():
            self.lacking.setdefault(good.tobytes(), []).append(t)
            values = np.where(good, values, 0)
        self.projected[:, t] = self.transposed @ values.astype(np.float64)

    def solve(self) -> np.ndarray:
        """Return the (T, R) series; NaN for maps without weight in any finite voxel."""
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


def coverage_of_maps(atlas: Atlas, maps: MapVoxels, found: Averaged, threshold: float, signal: float) -> pd.DataFrame:
    """Return `bolt.series.rois.COVERAGE_COLUMNS`, where a map's coverage is the share of its weight."""
    dark = found.dark(signal)
    good = np.abs(maps.weights).T @ (found.usable & ~dark).astype(float)
    coverage = maps.inside * np.divide(good, maps.total, out=np.zeros(len(good)), where=maps.total > 0)
    return pd.DataFrame(
        {
            "value": atlas.values,
            "name": atlas.labels["name"].to_numpy(),
            "n_voxels": maps.n_voxels,
            "inside": maps.inside.round(4),
            "n_masked": maps.n_voxels - maps.count(),
            "n_nonfinite": maps.count(~found.finite),
            "n_constant": maps.count(found.finite & ~found.varies),
            "n_dark": maps.count(dark),
            "brightness": np.nan,
            "tsnr": np.nan,
            "coverage": coverage.round(4),
            "covered": (coverage >= threshold) & (coverage > 0),
        }
    )
