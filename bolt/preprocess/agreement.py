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

BINS = 16
"""Of each image in the joint histogram; few, so that small masks fill them."""
FEWEST = 1000
"""Voxels below which mutual information says nothing: over few it is high by chance."""
SHIFT = 10.0
"""mm by which copies are displaced."""
SAME_FIELD = 0.5
"""Share of the voxels over which an image is compared that its mirror image must have to be its rival."""


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
    carried, inside = _carry(fixed, bold_mask, t1w, t1w_mask, matrix)
    if inside.sum() < FEWEST:
        return dict.fromkeys(("coregistration_nmi", "coregistration_shift_margin", "coregistration_flip_margin"), 0.0)
    fit = normalised_mutual_information(fixed.numpy()[inside], carried[inside])
    mirror, mirror_mask = _mirrored(fixed), _mirrored(bold_mask)
    found = _register_mirrored(mirror, mirror_mask, t1w, t1w_mask, matrix, settings)
    carried_mirror, inside_mirror = _carry(mirror, mirror_mask, t1w, t1w_mask, found)
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


def _carry(
    bold: ants.ANTsImage, mask: ants.ANTsImage, t1w: ants.ANTsImage, t1w_mask: ants.ANTsImage, matrix: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """T1w on the BOLD's grid, and the voxels that are brain in both: two (X, Y, Z) arrays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t1w_to_bold.mat")
        images.write_matrix(np.linalg.inv(matrix), path)
        carried, brain = (registration.warp(bold, image, [path]).numpy() for image in (t1w, t1w_mask))
    return carried, (brain > 0.5) & (mask.numpy() > 0.5)


def _entropy(shares: np.ndarray) -> float:
    filled = shares[shares > 0]
    return float(-(filled * np.log(filled)).sum())
