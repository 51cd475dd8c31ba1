"""Mutual information of two images: what one tells of the other, whatever their contrasts."""

from __future__ import annotations

import numpy as np

BINS = 16
"""Of each image in the joint histogram; few, so that small masks fill them."""
FEWEST = 1000
"""Voxels below which mutual information says nothing: over few it is high by chance."""


def normalised_mutual_information(a: np.ndarray, b: np.ndarray) -> float:
    """(H(a) + H(b)) / H(a, b) - 1, after Studholme et al. (1999, doi:10.1016/S0031-3203(98)00091-0).

    Parameters
    ----------
    a, b : (N,) array
        Brightness of the same voxels; cut at the first and last percentile.

    Returns
    -------
    float
        0: independent; 1: one tells the other. 0 as well where an image is constant, and for less than `FEWEST` voxels.
    """
    if len(a) < FEWEST:
        return 0.0
    a, b = (np.clip(values, *np.quantile(values, [0.01, 0.99])) for values in (a, b))
    if a.min() == a.max() or b.min() == b.max():
        return 0.0
    joint = np.histogram2d(a, b, BINS)[0] / len(a)
    both = _entropy(joint)
    return float((_entropy(joint.sum(axis=0)) + _entropy(joint.sum(axis=1))) / both - 1)


def _entropy(shares: np.ndarray) -> float:
    filled = shares[shares > 0]
    return float(-(filled * np.log(filled)).sum())
