"""Static functional connectivity: correlation of the series of two ROIs over a whole scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bolt.series.cache import SeriesCache

LARGEST = 1 - 1e-6
"""Largest absolute correlation before Fisher's transform, which is infinite at ±1."""


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
    cache: SeriesCache,
    ids: Sequence[int],
    *,
    fisher_z: bool = False,
    part: Callable[[NDArray[np.floating]], NDArray[np.floating]] | None = None,
) -> NDArray[np.float32]:
    """Compute the connectivity of scans of a cache, each over its full length or a part of it.

    Parameters
    ----------
    cache : SeriesCache
    ids : sequence of int
        Rows of the cache's index.
    fisher_z : bool
    part : callable, optional
        Returns the part of a (T, R) series that is used.

    Returns
    -------
    (len(ids), R (R - 1) / 2) float32 array
    """
    features = np.empty((len(ids), n_pairs(cache.n_rois)), np.float32)
    for row, i in enumerate(ids):
        series = cache.finite_series(int(i))
        features[row] = connectivity(part(series) if part else series, fisher_z=fisher_z)
    return features


def connectivity_of_crops(
    cache: SeriesCache, ids: Sequence[int], length: int, random: np.random.Generator, *, fisher_z: bool = False
) -> NDArray[np.float32]:
    """Compute the connectivity of scans as `connectivity_of`, each over a random crop of `length` volumes at most."""

    def crop(series: NDArray[np.floating]) -> NDArray[np.floating]:
        start = random.integers(max(len(series) - length, 0) + 1)
        return series[start : start + length]

    return connectivity_of(cache, ids, fisher_z=fisher_z, part=crop)
