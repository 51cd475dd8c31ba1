"""Artefacts in native voxels: ghosts, and slices whose signal jumps for one volume."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import ndimage

AROUND_HEAD = 3
"""Voxels around the brain that are ignored as skull and scalp."""
JUMP = 10.0
"""Robust standard deviations by which a slice must differ from the volumes before and after."""


def ghost_ratio(reference: np.ndarray, brain: np.ndarray) -> float | None:
    """Compute the ghost-to-signal ratio (Giannelli et al. 2010, doi:10.1120/jacmp.v11i4.3237).

    A ghost is the image of the head shifted by half the field of view along the phase-encoding axis. The header does
    not state this axis, so the larger value of the two in-plane axes is taken.

    Parameters
    ----------
    reference : (X, Y, Z) array
        Mean or median volume in native voxels, slices along the last axis.
    brain : (X, Y, Z) bool array

    Returns
    -------
    float or None
        Mean intensity where a ghost would be, minus that of the remaining background, relative to the brain's; None
        if the field of view has no background.
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
    """Count slices, over all volumes, whose signal jumps for one volume and returns while that of the others does not.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
        In native voxels, slices along the last axis.
    brain : (X, Y, Z) bool array
    """
    weight = brain.sum(axis=(0, 1))
    used = weight >= 10  # slices with enough brain
    means = np.stack([(volume * brain).sum(axis=(0, 1))[used] / weight[used] for volume in volumes])
    if len(means) < 3 or not used.any():
        return 0
    jump = means[1:-1] - (means[:-2] + means[2:]) / 2
    jump -= np.median(jump, axis=1, keepdims=True)  # a change common to all slices is not a slice artefact
    spread = 1.4826 * np.median(np.abs(jump), axis=0)
    return int((np.abs(jump) > JUMP * np.maximum(spread, 1e-6)).sum())
