"""Head motion: the rigid position of the head in every volume, to a robust reference.

Least squares between volumes of one contrast (Friston et al. 1995, doi:10.1002/hbm.460030303), solved by the
inverse-compositional Gauss-Newton scheme (Baker & Matthews 2004, doi:10.1023/B:VISI.0000011205.11775.fd): the
derivatives are those of the reference, so they are computed once a scan. Why not ANTs, as elsewhere: on copies of a
real volume moved by known amounts, its rigid mutual information erred by 0.07 mm at 3-mm voxels (0.2 at 6) and took
0.2 s a volume; this errs by 0.01 (0.02) and takes 0.02 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.preprocess import images
from bolt.preprocess.functional.resample import resample
from bolt.preprocess.registration import epi_mask

SMOOTHING = 2.0
"""Full width at half maximum, in voxels, of the smoothing that derivatives and noise ask for."""
BORDER = 2
"""Voxels from the edge of the field that are left out: the head moves them out of it."""
SMALLEST_STEP = 1e-3
"""mm (or mm at 50 mm from the centre); the search ends below it."""
MOTION_SAMPLES = 8000
"""At least so many voxels are looked at, whatever the sampling: coarse images have few."""
RADIUS = 50.0
"""mm; scales rotations to the size of translations."""


class HeadMotion:
    """Estimates the head's position in volumes of one scan.

    Parameters
    ----------
    reference, mask : (X, Y, Z) arrays
    affine : (4, 4) array
    settings : Registration
        `motion_sampling` is the share of the brain's voxels that is looked at, `motion_iterations` the most steps.
    """

    def __init__(self, reference: np.ndarray, mask: np.ndarray, affine: np.ndarray, settings: Registration) -> None:
        self.affine, self.iterations = affine, settings.motion_iterations
        self.centre = images.mask_centre(mask, affine)
        sizes = np.linalg.norm(affine[:3, :3], axis=0)
        self._sigma = SMOOTHING * sizes.mean() / sizes / 2.3548
        voxels = _sampled(mask, settings)
        self._points = images.apply(affine, voxels)
        smooth = self._smooth(reference)
        self._values = smooth[tuple(voxels.T)].astype(np.float64)
        gradient = np.stack([axis[tuple(voxels.T)] for axis in np.gradient(smooth.astype(np.float64))], axis=-1)
        gradient = gradient @ np.linalg.inv(affine[:3, :3])  # per mm in RAS
        arm = (self._points - self.centre) / RADIUS
        columns = [gradient, np.cross(arm, gradient), self._values[:, None]]  # the last: brightness may drift
        self._solve = np.linalg.pinv(np.concatenate(columns, axis=1))

    def position(self, volume: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Head position in a volume.

        Parameters
        ----------
        volume : (X, Y, Z) array
        start : (4, 4) array
            Where to begin: the volume before.

        Returns
        -------
        (4, 4) array
            RAS mm, points of the reference to points of the volume: the head's own displacement.
        """
        coefficients = ndimage.spline_filter(self._smooth(volume), order=3, output=np.float32)
        to_voxels, position = np.linalg.inv(self.affine), start
        for _ in range(self.iterations):
            places = images.apply(to_voxels @ position, self._points)
            values = ndimage.map_coordinates(coefficients, places.T, order=3, mode="nearest", prefilter=False)
            step = self._solve @ (values - self._values)
            turn = images.rigid_matrix(np.concatenate([step[:3], step[3:6] / RADIUS]), self.centre)
            position = position @ np.linalg.inv(turn)
            if np.abs(step[:6]).max() < SMALLEST_STEP:
                break
        return position

    def positions(self, volumes: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Positions in successive volumes, each begun at the last one's."""
        position = np.eye(4)
        for volume in volumes:
            position = self.position(volume, position)
            yield position

    def _smooth(self, volume: np.ndarray) -> np.ndarray:
        return ndimage.gaussian_filter(volume, self._sigma, mode="nearest", output=np.float32)


def motion_reference(
    volumes: list[np.ndarray], affine: np.ndarray, settings: Registration
) -> tuple[np.ndarray, np.ndarray]:
    """A reference that no single bad volume can spoil.

    The volume that resembles the others most is the first guess; the others are aligned to it, and the voxelwise
    median taken.

    Parameters
    ----------
    volumes : list of (X, Y, Z) arrays
        Spread over the scan.
    affine : (4, 4) array

    Returns
    -------
    reference, mask : (X, Y, Z) arrays
        float32; bool, the brain (as nilearn's `compute_epi_mask` finds it).
    """
    likeness = np.nan_to_num(np.corrcoef(np.stack([volume.ravel()[::4] for volume in volumes]))).mean(axis=0)
    guess = volumes[int(likeness.argmax())]
    estimator = HeadMotion(guess, epi_mask(guess, affine), affine, settings)
    positions = np.stack(list(estimator.positions(volumes)))
    centres = images.apply(affine, np.argwhere(np.ones(guess.shape, dtype=bool)))
    aligned = np.stack(list(resample(volumes, affine, positions, centres)))
    reference = np.median(aligned, axis=0).reshape(guess.shape).astype(np.float32)
    return reference, epi_mask(reference, affine)


def _sampled(mask: np.ndarray, settings: Registration) -> np.ndarray:
    """(N, 3) voxels of the mask away from the field's edge, evenly thinned to the settings' share."""
    inner = np.zeros_like(mask, dtype=bool)
    core = tuple(slice(BORDER, n - BORDER) if n > 4 * BORDER else slice(None) for n in mask.shape)
    inner[core] = mask[core] > 0
    voxels = np.argwhere(inner if inner.any() else mask > 0)
    wanted = min(len(voxels), max(MOTION_SAMPLES, int(settings.motion_sampling * len(voxels))))
    return voxels[np.linspace(0, len(voxels) - 1, wanted).astype(int)]
