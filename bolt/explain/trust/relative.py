"""Importance relative to untrained models, which separates what a model has learned from where a volume is in a scan.

Windows overlap less at both ends of a scan, so that any model gives less importance there; and where a task rests at
the ends, importance seems higher during its blocks. Untrained models of the same architecture show this effect alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bolt.explain.trust.similarity import mean_of_others, scaled

LEAST = 0.1
"""Volumes with a smaller share of the mean importance under untrained models are ignored: hardly a window has them."""


def relative_to_untrained(
    weights: Sequence[NDArray[np.floating]], untrained: Sequence[NDArray[np.floating]]
) -> tuple[list[NDArray[np.floating]], list[NDArray[np.floating]]]:
    """Divide the importance of each scan by what untrained models give at the same place of a scan.

    Parameters
    ----------
    weights : sequence of (T,) arrays
        Importance of different scans under trained models; lengths may differ.
    untrained : sequence of (T,) arrays
        Importance of the same scans under untrained models. The mean curve of the other scans is used, see
        `bolt.explain.trust.similarity.mean_of_others`; for a single scan its own.

    Returns
    -------
    relative : list of (T,) arrays
        With mean 1; NaN for volumes below `LEAST`.
    expected : list of (T,) arrays
        The curves that weights were divided by, with mean 1.
    """
    single = [scaled(curve) for curve in untrained]
    means = zip(mean_of_others(single), single, strict=True)
    expected = [others if np.isfinite(others).all() else own for others, own in means]
    relative = []
    for curve, usual in zip(weights, expected, strict=True):
        divided = np.divide(curve, usual, out=np.full(len(curve), np.nan), where=usual >= LEAST)
        relative.append(divided / np.nanmean(divided))
    return relative, expected
