"""Similarity of two images relative to shifted and mirrored copies, which reveals misalignment and left-right flips.

The overlap of masks hardly falls when an image is displaced by a centimetre, and not at all when it is mirrored. The
comparison with displaced and mirrored copies calibrates the similarity to the contrast and noise of each pair. A T1w is
not compared with the mirrored template: a real one was only 1.08 times as similar to the template as its mirror image
after affine registration, and 1.05 times after SyN.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.preprocess import images, registration
from bolt.preprocess.antspy import ants
from bolt.preprocess.information import MIN_VOXELS, normalised_mutual_information

SHIFT = 10.0
"""mm by which copies are displaced."""
MIN_SHARED = 0.5
"""Voxels over which the mirror image must be comparable, as a share of those of the image itself."""


def shift_margin(fixed: np.ndarray, moving: np.ndarray, mask: np.ndarray, spacing: np.ndarray) -> float:
    """Return the similarity of two images relative to that after a shift by `SHIFT` mm, the best of 26 directions.

    Parameters
    ----------
    fixed, moving : (X, Y, Z) array
        On one grid.
    mask : (X, Y, Z) bool array
    spacing : (3,) array
        mm.

    Returns
    -------
    float
        Ratio of normalised mutual information; below 1, a shifted copy is more similar.
    """
    values, voxels = fixed[mask], np.argwhere(mask).T.astype(float)
    unshifted = normalised_mutual_information(values, moving[mask])
    shifted = 0.0
    for direction in itertools.product((-1, 0, 1), repeat=3):
        if any(direction):
            step = SHIFT * np.asarray(direction) / np.linalg.norm(direction) / spacing
            copy = ndimage.map_coordinates(moving, voxels - step[:, None], order=1, mode="nearest")
            shifted = max(shifted, normalised_mutual_information(values, copy))
    return unshifted / shifted if shifted else 0.0


def coregistration_numbers(
    bold: ants.ANTsImage,
    bold_mask: ants.ANTsImage,
    t1w: ants.ANTsImage,
    t1w_mask: ants.ANTsImage,
    matrix: np.ndarray,
    settings: Registration,
) -> dict[str, float]:
    """Compare a coregistered BOLD reference with the T1w: as it is, shifted by 10 mm, and mirrored.

    The mirror image is registered separately, starting from the position found, so that only the asymmetry of the head
    matters: if it is more similar than the image itself, left and right are exchanged in one of the images. If it does
    not align with the T1w (`MIN_SHARED`), the comparison is not informative.

    Parameters
    ----------
    bold, t1w, and their masks : ANTs image
    matrix : (4, 4) array
        RAS mm, T1w points to BOLD points.
    settings : Registration

    Returns
    -------
    dict
        ``coregistration_nmi``, ``coregistration_shift_margin``, ``coregistration_flip_margin`` (ratio of normalised
        mutual information, original over mirrored; only if informative). All 0 if the images do not overlap.
    """
    fixed = registration.clip_intensity(bold)
    resampled, brain = registration.resample_t1w(fixed, t1w, t1w_mask, matrix)
    inside = brain & (bold_mask.numpy() > 0.5)
    if inside.sum() < MIN_VOXELS:
        return dict.fromkeys(("coregistration_nmi", "coregistration_shift_margin", "coregistration_flip_margin"), 0.0)
    nmi = normalised_mutual_information(fixed.numpy()[inside], resampled[inside])
    mirror, mirror_mask = _mirrored(fixed), _mirrored(bold_mask)
    mirror_matrix = _register_mirrored(mirror, mirror_mask, t1w, t1w_mask, matrix, settings)
    mirror_resampled, brain = registration.resample_t1w(mirror, t1w, t1w_mask, mirror_matrix)
    mirror_inside = brain & (mirror_mask.numpy() > 0.5)
    mirror_nmi = normalised_mutual_information(mirror.numpy()[mirror_inside], mirror_resampled[mirror_inside])
    informative = mirror_nmi > 0 and mirror_inside.sum() >= MIN_SHARED * inside.sum()
    return {
        "coregistration_nmi": nmi,
        "coregistration_shift_margin": shift_margin(fixed.numpy(), resampled, inside, np.asarray(fixed.spacing)),
        **({"coregistration_flip_margin": nmi / mirror_nmi} if informative else {}),
    }


def _register_mirrored(
    mirror: ants.ANTsImage,
    mask: ants.ANTsImage,
    t1w: ants.ANTsImage,
    t1w_mask: ants.ANTsImage,
    matrix: np.ndarray,
    settings: Registration,
) -> np.ndarray:
    """Register a mirrored BOLD rigidly, starting from `matrix` of the original: T1w points to mirrored BOLD points."""
    centre = images.mask_centre(mask.numpy() > 0, images.affine_of(mask))
    flip_t1w = np.diag([-1.0, 1.0, 1.0, 1.0])
    flip_t1w[0, 3] = 2 * images.mask_centre(t1w_mask.numpy() > 0.5, images.affine_of(t1w_mask))[0]
    affine = images.affine_of(mirror)
    flip_voxels = np.diag([-1.0, 1.0, 1.0, 1.0])
    flip_voxels[0, 3] = mirror.shape[0] - 1
    # two reflections make a rigid motion
    start = flip_t1w @ np.linalg.inv(matrix) @ affine @ flip_voxels @ np.linalg.inv(affine)
    moving = images.resample_to_spacing(registration.clip_intensity(t1w) * t1w_mask, max(2.0, *t1w.spacing))
    registration.seed(settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "start.mat")
        images.write_matrix(start, path, centre)
        search_mask = ants.iMath(mask, "MD", 2)
        return np.linalg.inv(registration.rigid(mirror * mask, moving, search_mask, path))


def _mirrored(image: ants.ANTsImage) -> ants.ANTsImage:
    """Exchange left and right of an image on its own grid (RAS voxel order)."""
    return image.new_image_like(np.ascontiguousarray(image.numpy()[::-1]))
