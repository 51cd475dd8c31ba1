"""Normalisation of a T1w brain to the template, and plausibility checks of the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ants
import numpy as np

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.registration import clip_intensity, crop_to_brain, dice, register, seed, warp

GRID = 4.0
"""mm between the points at which a transform is checked."""
MAX_FOLDED = 0.005
"""Share of the brain in which a transform may fold."""
MIN_DICE = 0.85
"""Overlap of the warped brain mask with the template's below which a normalisation has failed."""
VOLUMES = (0.35, 1.6)
"""Plausible scaling of brain volume from T1w to template; the template is larger than nearly all brains."""


def normalise(
    brain: ants.ANTsImage, template_brain: ants.ANTsImage, settings: Registration, folder: str | Path
) -> tuple[Path, Path]:
    """Register a T1w brain to the template's: affine, then SyN (Avants et al. 2008, doi:10.1016/j.media.2007.06.004).

    Parameters
    ----------
    brain, template_brain : ANTs image
        Zero outside the brain.
    settings : Registration
    folder : path
        Where the transforms are written.

    Returns
    -------
    forward, inverse : path
        Composite transforms (``.h5``) from T1w to template and back.

    Raises
    ------
    DataError
        ANTs fails.
    """
    levels = len(settings.affine_iterations)
    spacing = settings.normalisation_resolution or max(template_brain.spacing)
    fixed, moving = (
        images.resample_to_spacing(image, spacing) if max(image.spacing) < spacing - 0.05 else image
        for image in (crop_to_brain(clip_intensity(template_brain)), crop_to_brain(clip_intensity(brain)))
    )
    seed(settings)
    result = register(
        fixed,
        moving,
        outprefix=f"{folder}/t1w_to_template_",
        aff_iterations=tuple(settings.affine_iterations),
        aff_shrink_factors=(6, 4, 2, 1)[-levels:],
        aff_smoothing_sigmas=(3, 2, 1, 0)[-levels:],
        reg_iterations=tuple(settings.syn_iterations),
        syn_metric=settings.syn_metric,
        syn_sampling=32 if settings.syn_metric == "mattes" else 4,
        write_composite_transform=True,
    )
    return Path(result["fwdtransforms"]), Path(result["invtransforms"])


def check_transform(forward: Sequence[str | Path], template_mask: ants.ANTsImage, mask: ants.ANTsImage) -> None:
    """Refuse an implausible normalisation.

    Parameters
    ----------
    forward : sequence of path
        Transforms from T1w to template.
    template_mask, mask : ANTs image
        Brain masks of the template and of the T1w.

    Raises
    ------
    DataError
        Points map to infinity, space folds, the brain is scaled beyond human variation, or the masks do not overlap.
    """
    coarse = images.resample_to_spacing(template_mask, max(GRID, *template_mask.spacing))
    inside = coarse.numpy() > 0.5
    affine = images.affine_of(coarse)
    mapped = images.places_of_grid(inside.shape, affine, forward).astype(float)
    if not np.isfinite(mapped).all():
        raise _failed("maps points to infinity")
    folded = float((_jacobian(mapped, affine)[inside] <= 0).mean())
    if folded > MAX_FOLDED:
        raise _failed(f"folds space in {100 * folded:.1f} % of the brain")
    points = np.c_[images.apply(affine, np.argwhere(inside)), np.ones(inside.sum())]
    volume = float(np.linalg.det(np.linalg.lstsq(points, mapped[inside], rcond=None)[0][:3]))
    if not VOLUMES[0] <= volume <= VOLUMES[1]:
        raise _failed(f"makes the brain {volume:.2f} times the template's volume")
    overlap = dice(warp(template_mask, mask, forward).numpy() > 0.5, template_mask.numpy() > 0.5)
    if overlap < MIN_DICE:
        raise _failed(f"gives a brain-mask overlap (Dice) of only {overlap:.2f}")


def _jacobian(mapped: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return the (X, Y, Z) Jacobian determinants of a map, given as the (X, Y, Z, 3) images of grid points in mm."""
    slopes = np.stack(np.gradient(mapped, axis=(0, 1, 2)), axis=-1)
    return np.asarray(np.linalg.det(slopes) / np.linalg.det(affine[:3, :3]))


def _failed(how: str) -> DataError:
    return DataError(
        f"normalisation to the template {how}",
        hint="Check that the T1w shows a whole head in the right orientation with T1 contrast; or list more settings "
        "to try in 'preprocess: registration'",
    )
