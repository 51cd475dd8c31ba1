"""How well two images fit, by measures that notice when one is in the wrong place or the wrong way round.

The overlap of masks hardly falls when an image is displaced by a centimetre, and not at all when it is mirrored. So
the fit is compared with that of displaced and mirrored copies: the images tell themselves what a bad fit is, whatever
their contrast and noise.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import ants
import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.preprocess import images, registration
from bolt.preprocess.information import FEWEST, normalised_mutual_information

SHIFT = 10.0
"""mm by which copies are displaced."""
SAME_FIELD = 0.5
"""Share of the voxels over which an image is compared that its mirror image must have to be its rival."""


def shift_margin(fixed: np.ndarray, moving: np.ndarray, mask: np.ndarray, spacing: np.ndarray) -> float:
    """How many times better an image fits where it is than `SHIFT` mm away, in the best of 26 directions.

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
        Ratio of normalised mutual information; below 1 the displaced copy fits better.
    """
    values = fixed[mask]
    here = normalised_mutual_information(values, moving[mask])
    away = 0.0
    for direction in itertools.product((-1, 0, 1), repeat=3):
        if any(direction):
            step = SHIFT * np.asarray(direction) / np.linalg.norm(direction) / spacing
            moved = ndimage.shift(moving, step, order=1, mode="nearest")
            away = max(away, normalised_mutual_information(values, moved[mask]))
    return here / away if away else 0.0


def coregistration_numbers(
    bold: ants.ANTsImage,
    bold_mask: ants.ANTsImage,
    t1w: ants.ANTsImage,
    t1w_mask: ants.ANTsImage,
    matrix: np.ndarray,
    settings: Registration,
) -> dict[str, float]:
    """Fit of a BOLD reference to the T1w: as it is, against copies 10 mm away, and against its mirror image.

    The mirror image is registered on its own, from where the found position puts it, so that only the head's
    asymmetry decides: where it fits better than the image itself, left and right are exchanged in one of the two. Where
    it is not brought onto the T1w (`SAME_FIELD`), it tells nothing.

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
        mutual information, as it is over mirrored; only where the mirror image tells). All 0 where the two do not meet.
    """
    fixed = registration.cut_bright(bold)
    carried, brain = registration.carry(fixed, t1w, t1w_mask, matrix)
    inside = brain & (bold_mask.numpy() > 0.5)
    if inside.sum() < FEWEST:
        return dict.fromkeys(("coregistration_nmi", "coregistration_shift_margin", "coregistration_flip_margin"), 0.0)
    fit = normalised_mutual_information(fixed.numpy()[inside], carried[inside])
    mirror, mirror_mask = _mirrored(fixed), _mirrored(bold_mask)
    found = _register_mirrored(mirror, mirror_mask, t1w, t1w_mask, matrix, settings)
    carried_mirror, brain = registration.carry(mirror, t1w, t1w_mask, found)
    inside_mirror = brain & (mirror_mask.numpy() > 0.5)
    other = normalised_mutual_information(mirror.numpy()[inside_mirror], carried_mirror[inside_mirror])
    tells = other > 0 and inside_mirror.sum() >= SAME_FIELD * inside.sum()
    return {
        "coregistration_nmi": fit,
        "coregistration_shift_margin": shift_margin(fixed.numpy(), carried, inside, np.asarray(fixed.spacing)),
        **({"coregistration_flip_margin": fit / other} if tells else {}),
    }


def _register_mirrored(
    mirror: ants.ANTsImage,
    mask: ants.ANTsImage,
    t1w: ants.ANTsImage,
    t1w_mask: ants.ANTsImage,
    matrix: np.ndarray,
    settings: Registration,
) -> np.ndarray:
    """Best rigid position of a mirrored BOLD, from where `matrix`, of the BOLD as it is, puts it: T1w to mirror."""
    centre = images.mask_centre(mask.numpy() > 0, images.affine_of(mask))
    across = np.diag([-1.0, 1.0, 1.0, 1.0])
    across[0, 3] = 2 * images.mask_centre(t1w_mask.numpy() > 0.5, images.affine_of(t1w_mask))[0]
    affine = images.affine_of(mirror)
    turned = np.diag([-1.0, 1.0, 1.0, 1.0])
    turned[0, 3] = mirror.shape[0] - 1
    start = across @ np.linalg.inv(matrix) @ affine @ turned @ np.linalg.inv(affine)  # two mirrors: a rigid motion
    moving = images.resample_to_spacing(registration.cut_bright(t1w) * t1w_mask, max(2.0, *t1w.spacing))
    registration.seed(settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "start.mat")
        images.write_matrix(start, path, centre)
        area = ants.iMath(mask, "MD", 2)
        return np.linalg.inv(registration.rigid(mirror * mask, moving, area, path))


def _mirrored(image: ants.ANTsImage) -> ants.ANTsImage:
    """The image with left and right exchanged on its own grid (RAS voxel order)."""
    return image.new_image_like(np.ascontiguousarray(image.numpy()[::-1]))
