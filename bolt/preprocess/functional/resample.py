"""Resampling of BOLD volumes to the output grid in a single interpolation.

The position in the BOLD reference of every voxel of the output grid is computed once (template to T1w to BOLD); the
head's position in each volume then moves these points rigidly, and the volume is interpolated there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import ndimage

from bolt.io.streams import in_threads
from bolt.preprocess import images, registration
from bolt.preprocess.antspy import ants

FIELD_SHARE = 0.95
"""Share of the volumes in which a point must have been acquired to belong to the field of view."""
MARGIN = 6.0
"""mm around the brain that are kept; the output is zero beyond, which keeps files small and saves time."""


@dataclass(frozen=True)
class Target:
    """The grid to which a scan is resampled.

    Attributes
    ----------
    shape, affine
        The grid.
    points : (X, Y, Z, 3) float32 array
        Positions of its voxels in the BOLD reference, RAS mm.
    from_t1w : list of path
        Transforms that bring T1w images onto it.
    code : int
        Coordinate system (`images.SCANNER` or `images.MNI`).
    """

    shape: tuple[int, int, int]
    affine: np.ndarray
    points: np.ndarray
    from_t1w: list[str]
    code: int

    def resample_t1w(self, image: ants.ANTsImage) -> np.ndarray:
        """Resample an image in T1w space onto the grid, (X, Y, Z)."""
        empty = images.to_ants(np.zeros(self.shape), self.affine)
        return np.asarray(ants.apply_transforms(empty, image, self.from_t1w, interpolator="linear").numpy())


def template_target(template: str | Path, resolution: float, t1w_to_space: str, bold_to_t1w: str) -> Target:
    """Return the target that covers a template's field of view at `resolution` mm."""
    shape, affine = images.grid(template, resolution)
    points = images.places_of_grid(shape, affine, [t1w_to_space, bold_to_t1w])
    return Target(shape, affine, points, [t1w_to_space], images.MNI)


def native_target(
    shape: tuple[int, int, int], affine: np.ndarray, bold_to_t1w: str | Path, folder: str | Path
) -> Target:
    """Return the scan's own grid as a target; the inverse of `bold_to_t1w` is written into `folder`."""
    t1w_to_bold = Path(folder, "t1w_to_bold.txt")
    images.write_matrix(np.linalg.inv(images.read_matrix(bold_to_t1w)), t1w_to_bold)
    voxels = np.moveaxis(np.indices(shape, dtype=np.float32), 0, -1)
    points = images.apply(affine, voxels).astype(np.float32)
    return Target(shape, affine, points, [str(t1w_to_bold)], images.SCANNER)


def field_mask(
    points: np.ndarray, motion: np.ndarray, shape: tuple[int, int, int], affine: np.ndarray, share: float = FIELD_SHARE
) -> np.ndarray:
    """Select the points that at least a share of the volumes have acquired: one displaced volume takes no region away.

    Parameters
    ----------
    points : (N, 3) array
        Positions in the BOLD reference, mm.
    motion : (T, 4, 4) array
        Reference to volume.
    shape, affine
        The scanner's grid.
    share : float

    Returns
    -------
    (N,) bool array
    """
    inside = np.ones(len(points), dtype=bool)
    if not len(points):
        return inside
    upper = np.asarray(shape) - 0.5
    to_voxels = np.linalg.inv(affine)
    # a rigid motion moves no point further than the farthest corner of a box around all of them
    corners = np.stack(np.meshgrid(*zip(points.min(axis=0), points.max(axis=0), strict=True)), -1).reshape(-1, 3)
    start = images.apply(to_voxels @ motion[0], points)
    reach = np.zeros(3)
    for position in motion:
        moved = images.apply(to_voxels @ position, corners) - images.apply(to_voxels @ motion[0], corners)
        reach = np.maximum(reach, np.abs(moved).max(axis=0))
    doubtful = np.flatnonzero(((start - reach < -0.5) | (start + reach > upper)).any(axis=1))
    left, may_lack = np.zeros(len(points), dtype=int), int((1 - share) * len(motion) + 1e-9)
    for position in motion:
        voxels = images.apply(to_voxels @ position, points[doubtful])
        left[doubtful[((voxels < -0.5) | (voxels > upper)).any(axis=1)]] += 1
        doubtful = doubtful[left[doubtful] <= may_lack]
    inside[left > may_lack] = False
    return inside


def worst_volume(
    points: np.ndarray, motion: np.ndarray, shape: tuple[int, int, int], affine: np.ndarray
) -> tuple[int, float]:
    """Return the volume that lacks most of the points, counted from 0, and the share it lacks; see `field_mask`."""
    lost = [(~field_mask(points, motion[t : t + 1], shape, affine)).sum() for t in range(len(motion))]
    worst = int(np.argmax(lost))
    return worst, float(lost[worst]) / max(len(points), 1)


def resample(
    volumes: Iterable[np.ndarray], affine: np.ndarray, motion: np.ndarray, points: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the motion-corrected values of each volume at the points, by cubic-spline interpolation.

    Beyond its edges, the volume is continued as its mirror image.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
    affine : (4, 4) array
        The scanner's grid.
    motion : (T, 4, 4) array
        Reference to volume, mm.
    points : (N, 3) array
        Positions in the BOLD reference, mm.

    Yields
    ------
    (N,) float32 array
    """
    to_voxels, columns = np.linalg.inv(affine), np.ascontiguousarray(points.T, dtype=np.float64)

    def values(acquired: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        volume, position = acquired
        matrix = to_voxels @ position
        voxels = matrix[:3, :3] @ columns + matrix[:3, 3:]
        coefficients = ndimage.spline_filter(volume, order=3, output=np.float32, mode="mirror")
        return ndimage.map_coordinates(coefficients, voxels, np.float32, order=3, mode="mirror", prefilter=False)

    yield from in_threads(values, zip(volumes, motion, strict=True), registration.threads())


def output_area(brain: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Dilate an (X, Y, Z) bool brain mask by `MARGIN` mm."""
    sizes = np.linalg.norm(affine[:3, :3], axis=0)
    return ndimage.distance_transform_edt(~brain, sampling=sizes) <= MARGIN
