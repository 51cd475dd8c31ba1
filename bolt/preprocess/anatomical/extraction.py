"""Brain extraction: alignment of a T1w with the template, whose brain mask is warped back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.antspy import ants
from bolt.preprocess.registration import clip_intensity, crop_to_brain, register, seed, warp

COARSE = 4.0
"""Voxel size (mm) at which whole heads are registered."""
MARGIN = 10.0
"""mm around the first mask that are kept for the second step."""
FRAME = 4.0
"""mm of background around the brain and its margin, in which the displacement fades out."""
SMOOTH = 1.5
"""mm (SD) by which a warped mask is smoothed."""
MIN_BRAIN = 3e5
"""mm³; below it the extraction has failed."""


class Alignment(NamedTuple):
    """Brain mask of a T1w, and the registration with the template that it comes from.

    Attributes
    ----------
    mask : ANTs image
    affine : path
        Matrix from T1w to template.
    forward, inverse : path
        Displacement fields to be applied after the affine from T1w to template, and before its inverse on the way back.
    """

    mask: ants.ANTsImage
    affine: Path
    forward: Path
    inverse: Path


def align_brain(
    t1w: ants.ANTsImage,
    template: ants.ANTsImage,
    template_mask: ants.ANTsImage,
    settings: Registration,
    folder: str | Path,
) -> Alignment:
    """Extract the brain by registering it with the template in two steps.

    First, whole heads are aligned at 4 mm (affine, then coarse SyN), and the template's mask is warped to the T1w at
    this resolution. Then both images are masked to the brain plus `MARGIN` mm, so that neck and face no longer
    interfere, and registered by SyN, starting from the affine, at ``settings.mask_resolution``. The warped mask is
    smoothed, thresholded at one half, reduced to its largest component, and its holes are filled.

    Parameters
    ----------
    t1w : ANTs image
        Bias-corrected.
    template, template_mask : ANTs image
    settings : Registration
    folder : path
        Where the transforms are written.

    Raises
    ------
    DataError
        The result is too small to be a brain.
    """
    template, t1w = clip_intensity(template), clip_intensity(t1w)
    fixed, moving = (images.resample_to_spacing(image, max(COARSE, *image.spacing)) for image in (template, t1w))
    seed(settings)
    head = register(
        fixed,
        moving,
        outprefix=f"{folder}/head_",
        aff_iterations=tuple(settings.affine_iterations),
        aff_shrink_factors=(4, 2, 1),
        aff_smoothing_sigmas=(2, 1, 0),
        reg_iterations=(60, 40, 0),
    )
    affine = head["fwdtransforms"][1]
    first = _warped_mask(moving, template_mask, head["invtransforms"])
    fine = max(settings.mask_resolution, *t1w.spacing)
    fixed, moving = (
        crop_to_brain(_near(mask, images.resample_to_spacing(image, fine)), frame=FRAME)
        for image, mask in ((template, template_mask), (t1w, first))
    )
    seed(settings)
    brain = register(
        fixed, moving, "SyNOnly", outprefix=f"{folder}/brain_", initial_transform=affine, reg_iterations=(60, 30)
    )
    mask = _warped_mask(t1w, template_mask, brain["invtransforms"])
    return Alignment(mask, Path(affine), Path(brain["fwdtransforms"][0]), Path(brain["invtransforms"][-1]))


def _warped_mask(image: ants.ANTsImage, template_mask: ants.ANTsImage, from_template: list[str]) -> ants.ANTsImage:
    share = ants.smooth_image(warp(image, template_mask, from_template), SMOOTH)
    return image.new_image_like(one_piece(share.numpy() > 0.5, image.spacing))


def _near(mask: ants.ANTsImage, image: ants.ANTsImage) -> ants.ANTsImage:
    """Set an image to zero farther than `MARGIN` from a mask, which may have another grid."""
    near = ndimage.distance_transform_edt(mask.numpy() < 0.5, sampling=mask.spacing) <= MARGIN
    return image * ants.resample_image_to_target(mask.new_image_like(near.astype(np.float32)), image, "nearestNeighbor")


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
