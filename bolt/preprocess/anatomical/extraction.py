"""Brain extraction: the template's brain mask, carried to the T1w in two steps."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import ants
import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.registration import around_brain, cut_bright, register, seed, warp

COARSE = 4.0
"""Voxel size (mm) at which the head is registered to find the brain."""
WIDER = 10.0
"""mm around the first mask within which the second step looks."""
SMOOTH = 1.5
"""mm (SD) by which a carried mask is smoothed."""
SMALLEST_BRAIN = 3e5
"""mm³; below it the extraction has failed."""


def brain_mask(
    t1w: ants.ANTsImage, template: ants.ANTsImage, template_mask: ants.ANTsImage, settings: Registration
) -> ants.ANTsImage:
    """Brain mask by registration of the template, twice.

    First whole heads are aligned at 4 mm (affine, then coarse SyN), and the template's mask carried to the T1w. Then
    both images are cut to their masks and what lies `WIDER` mm around them, so that neck and face no longer pull, and
    bent anew from the affine on at ``settings.mask_resolution``. What is carried is smoothed, cut at one half, reduced
    to its largest component, and filled.

    Raises
    ------
    DataError
        Where what is found is too small to be a brain.
    """
    template = cut_bright(template)
    with tempfile.TemporaryDirectory() as folder:
        coarse = max(COARSE, *t1w.spacing)
        heads = [images.resample_to_spacing(image, coarse) for image in (t1w, template)]
        seed(settings)
        bend, affine = register(
            *heads,
            outprefix=f"{folder}/head_",
            aff_iterations=tuple(settings.affine_iterations[:3]),
            aff_shrink_factors=(4, 2, 1),
            aff_smoothing_sigmas=(2, 1, 0),
            reg_iterations=(60, 40, 5),
        )["fwdtransforms"]
        first = _carried(t1w, template_mask, [bend, affine])
        fine = max(settings.mask_resolution, *t1w.spacing)
        pairs = ((t1w, first), (template, template_mask))
        fixed, moving = (images.resample_to_spacing(around_brain(image * _wider(mask)), fine) for image, mask in pairs)
        seed(settings)
        found = register(
            fixed,
            moving,
            "SyNOnly",
            outprefix=f"{folder}/brain_",
            initial_transform=affine,
            reg_iterations=(60, 40, 10),
        )
        return _carried(t1w, template_mask, found["fwdtransforms"])


def _carried(t1w: ants.ANTsImage, template_mask: ants.ANTsImage, transforms: list[str]) -> ants.ANTsImage:
    share = ants.smooth_image(warp(t1w, template_mask, transforms), SMOOTH)
    return t1w.new_image_like(one_piece(share.numpy() > 0.5, t1w.spacing))


def _wider(mask: ants.ANTsImage) -> ants.ANTsImage:
    """The mask and what lies within `WIDER` mm."""
    near = ndimage.distance_transform_edt(mask.numpy() < 0.5, sampling=mask.spacing) <= WIDER
    return mask.new_image_like(near.astype(np.float32))


def one_piece(mask: np.ndarray, spacing: Iterable[float]) -> np.ndarray:
    """The mask's largest component, holes filled, (X, Y, Z) float32; a DataError where it is too small."""
    parts, count = ndimage.label(mask)
    sizes = np.bincount(parts.ravel())[1:] if count else np.zeros(1)
    volume = sizes.max() * float(np.prod(list(spacing)))
    if volume < SMALLEST_BRAIN:
        raise DataError(
            f"brain extraction found {volume / 1000:.0f} ml, no brain",
            hint="Check that the T1w shows a whole head and that its header orientation is right",
        )
    return ndimage.binary_fill_holes(parts == sizes.argmax() + 1).astype(np.float32)
