"""Brain extraction: the template's brain mask, registered to the T1w in two steps."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import ants
import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.registration import clip_intensity, crop_to_brain, register, seed, warp

COARSE = 4.0
"""Voxel size (mm) at which whole heads are registered."""
MARGIN = 10.0
"""mm around the first mask that are kept for the second step."""
SMOOTH = 1.5
"""mm (SD) by which a warped mask is smoothed."""
MIN_BRAIN = 3e5
"""mm³; below it the extraction has failed."""


def brain_mask(
    t1w: ants.ANTsImage, template: ants.ANTsImage, template_mask: ants.ANTsImage, settings: Registration
) -> ants.ANTsImage:
    """Extract the brain by registering the template twice.

    First, whole heads are aligned at 4 mm (affine, then coarse SyN), and the template's mask is warped to the T1w. Then
    both images are masked to the brain plus `MARGIN` mm, so that neck and face no longer interfere, and refined
    nonlinearly, starting from the affine, at ``settings.mask_resolution``. The warped mask is smoothed, thresholded at
    one half, reduced to its largest component, and its holes are filled.

    Raises
    ------
    DataError
        The result is too small to be a brain.
    """
    template = clip_intensity(template)
    with tempfile.TemporaryDirectory() as folder:
        coarse = max(COARSE, *t1w.spacing)
        heads = [images.resample_to_spacing(image, coarse) for image in (t1w, template)]
        seed(settings)
        nonlinear, affine = register(
            *heads,
            outprefix=f"{folder}/head_",
            aff_iterations=tuple(settings.affine_iterations[:3]),
            aff_shrink_factors=(4, 2, 1),
            aff_smoothing_sigmas=(2, 1, 0),
            reg_iterations=(60, 40, 5),
        )["fwdtransforms"]
        first = _warped_mask(t1w, template_mask, [nonlinear, affine])
        fine = max(settings.mask_resolution, *t1w.spacing)
        fixed, moving = (
            images.resample_to_spacing(crop_to_brain(image * _dilated(mask)), fine)
            for image, mask in ((t1w, first), (template, template_mask))
        )
        seed(settings)
        refined = register(
            fixed,
            moving,
            "SyNOnly",
            outprefix=f"{folder}/brain_",
            initial_transform=affine,
            reg_iterations=(60, 40, 10),
        )
        return _warped_mask(t1w, template_mask, refined["fwdtransforms"])


def _warped_mask(t1w: ants.ANTsImage, template_mask: ants.ANTsImage, transforms: list[str]) -> ants.ANTsImage:
    share = ants.smooth_image(warp(t1w, template_mask, transforms), SMOOTH)
    return t1w.new_image_like(one_piece(share.numpy() > 0.5, t1w.spacing))


def _dilated(mask: ants.ANTsImage) -> ants.ANTsImage:
    near = ndimage.distance_transform_edt(mask.numpy() < 0.5, sampling=mask.spacing) <= MARGIN
    return mask.new_image_like(near.astype(np.float32))


def one_piece(mask: np.ndarray, spacing: Iterable[float]) -> np.ndarray:
    """Return the mask's largest component with holes filled, (X, Y, Z) float32; a DataError if it is too small."""
    components, count = ndimage.label(mask)
    sizes = np.bincount(components.ravel())[1:] if count else np.zeros(1)
    volume = sizes.max() * float(np.prod(list(spacing)))
    if volume < MIN_BRAIN:
        raise DataError(
            f"brain extraction found only {volume / 1000:.0f} ml, too little for a brain",
            hint="Check that the T1w shows a whole head and that the orientation in its header is correct",
        )
    return ndimage.binary_fill_holes(components == sizes.argmax() + 1).astype(np.float32)
