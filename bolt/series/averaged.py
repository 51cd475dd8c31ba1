"""What one pass over an image finds in the voxels of an atlas: their series, and whether they have signal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BASELINE = 3.0
"""Median of mean over SD below which an image has lost its mean (denoised, z-scored), which says nothing of signal."""


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

    @property
    def usable(self) -> np.ndarray:
        """Return which voxels are always finite and ever change, (N,) bool."""
        return self.finite & self.varies

    @property
    def level(self) -> float | None:
        """Return the median brightness of the usable voxels; None if the image has lost its mean."""
        usable = self.usable & (self.sd > 0)
        if not usable.any() or np.median(self.mean[usable] / self.sd[usable]) < BASELINE:
            return None
        return float(np.median(self.mean[usable]))

    def dark(self, signal: float) -> np.ndarray:
        """Return which usable voxels are darker than a share of the `level`, (N,) bool: signal dropout."""
        level = self.level
        return self.usable & (self.mean < signal * level) if level is not None else np.zeros_like(self.usable)
