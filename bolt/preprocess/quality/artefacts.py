"""Hints of artefacts in the scanner's own voxels: ghosts, and slices that jump for one volume."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import ndimage

AROUND_HEAD = 3
"""Voxels around the brain that are taken for scalp and skull, and left out."""
JUMP = 10.0
"""Robust standard deviations by which a slice differs from the volumes before and after."""


def ghost_ratio(reference: np.ndarray, brain: np.ndarray) -> float | None:
    """Ghost-to-signal ratio (Giannelli et al. 2010, doi:10.1120/jacmp.v11i4.3237).

    A ghost is the head's image moved by half the field of view along the phase-encoding axis. Which one that is, the
    header does not say, so the larger of the two axes of a slice counts.

    Parameters
    ----------
    reference : (X, Y, Z) array
        Mean or median volume in the scanner's voxels, slices along the last axis.
    brain : (X, Y, Z) bool array

    Returns
    -------
    float or None
        Mean brightness of where a ghost would be, above the rest of the background, as a share of the brain's; None
        where the field of view leaves no background.
    """
    head = ndimage.binary_dilation(brain, iterations=AROUND_HEAD)
    signal = float(np.median(reference[brain]))
    ratios = []
    for axis in (0, 1):
        ghost = np.roll(brain, brain.shape[axis] // 2, axis) & ~head
        rest = ~np.roll(head, brain.shape[axis] // 2, axis) & ~head
        if ghost.sum() >= 100 and rest.sum() >= 100 and signal > 0:
            ratios.append(float(reference[ghost].mean() - reference[rest].mean()) / signal)
    return max(ratios, default=None)


def slice_jumps(volumes: Iterable[np.ndarray], brain: np.ndarray) -> int:
    """Slices (counted over all volumes) that jump for one volume and go back, while the rest of the head does not.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
        In the scanner's voxels, slices along the last axis.
    brain : (X, Y, Z) bool array
    """
    weight = brain.sum(axis=(0, 1))
    used = weight >= 10
    means = np.stack([(volume * brain).sum(axis=(0, 1))[used] / weight[used] for volume in volumes])
    if len(means) < 3 or not used.any():
        return 0
    jump = means[1:-1] - (means[:-2] + means[2:]) / 2
    jump -= np.median(jump, axis=1, keepdims=True)  # what all slices do is the head's or the scanner's
    spread = 1.4826 * np.median(np.abs(jump), axis=0)
    return int((np.abs(jump) > JUMP * np.maximum(spread, 1e-6)).sum())
