"""Normalised mutual information: similarity of two images whatever their contrasts."""

from __future__ import annotations

import numpy as np

BINS = 16
"""Bins per image in the joint histogram; few, so that small masks fill them."""
MIN_VOXELS = 1000
"""With fewer voxels, mutual information is high by chance."""


def normalised_mutual_information(a: np.ndarray, b: np.ndarray) -> float:
    """Return (H(a) + H(b)) / H(a, b) - 1, after Studholme et al. (1999, doi:10.1016/S0031-3203(98)00091-0).

    Parameters
    ----------
    a, b : (N,) array
        Intensities of the same voxels; clipped to the 1st and 99th percentile.

    Returns
    -------
    float
        0: independent; 1: each image determines the other. Also 0 if an image is constant or N < `MIN_VOXELS`.
    """
    if len(a) < MIN_VOXELS:
        return 0.0
    a, b = (np.clip(values, *np.quantile(values, [0.01, 0.99])) for values in (a, b))
    if a.min() == a.max() or b.min() == b.max():
        return 0.0
    bins = (np.minimum((BINS / np.ptp(v) * (v - v.min())).astype(int), BINS - 1) for v in (a, b))
    joint = np.bincount(next(bins) * BINS + next(bins), minlength=BINS**2).reshape(BINS, BINS) / len(a)
    return float((_entropy(joint.sum(axis=0)) + _entropy(joint.sum(axis=1))) / _entropy(joint) - 1)


def _entropy(shares: np.ndarray) -> float:
    filled = shares[shares > 0]
    return float(-(filled * np.log(filled)).sum())
