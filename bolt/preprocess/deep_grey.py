"""Where deep grey matter is: as bright as white matter in a T1w, it is segmented as such.

Thalamus and pallidum are called white with a probability of 0.5 to 0.9. Their signal is neuronal and their edge is none
of cortex, so they are kept out of the noise mask of white matter and out of the boundary to which BOLD is fitted.
"""

from __future__ import annotations

from pathlib import Path

import ants
import numpy as np

from bolt.preprocess import images

ELLIPSOIDS = {
    "caudate": ((13.2, 10.3, 8.1), (11.5, 25.0, 25.0)),
    "putamen": ((25.9, 3.2, 1.1), (12.5, 24.0, 16.5)),
    "pallidum": ((19.5, -1.2, -1.1), (11.5, 13.5, 9.0)),
    "thalamus": ((11.9, -18.8, 6.7), (13.0, 17.0, 14.5)),
}
"""Centre and half axes (mm) in MNI space, right side: mean and 2.5 standard deviations of the structures' voxels."""
SPACING = 2.0
"""mm of the grid on which they are drawn."""


def deep_grey(t1w: ants.ANTsImage, to_t1w: str | Path) -> ants.ANTsImage:
    """Return a mask (0 or 1) of both sides' deep grey matter and what is near it, on the grid of a T1w.

    Parameters
    ----------
    t1w : ANTs image
    to_t1w : path
        Transform from template space (any of the MNI family) to the T1w.
    """
    centres, axes = (np.array(values) for values in zip(*ELLIPSOIDS.values(), strict=True))
    low, high = (centres - axes).min(axis=0) - SPACING, (centres + axes).max(axis=0) + SPACING
    low[0] = -high[0]
    shape = np.ceil((high - low) / SPACING).astype(int) + 1
    affine = np.diag([SPACING, SPACING, SPACING, 1.0])
    affine[:3, 3] = low
    points = images.apply(affine, np.moveaxis(np.indices(shape), 0, -1))
    points[..., 0] = np.abs(points[..., 0])
    inside = [(((points - centre) / axis) ** 2).sum(axis=-1) <= 1 for centre, axis in zip(centres, axes, strict=True)]
    drawn = images.to_ants(np.any(inside, axis=0), affine)
    carried = ants.apply_transforms(t1w, drawn, [str(to_t1w)], interpolator="linear")
    return t1w.new_image_like((carried.numpy() > 0.5).astype(np.float32))
