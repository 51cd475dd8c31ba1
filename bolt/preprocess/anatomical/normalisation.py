"""Normalisation of a T1w brain to the template's, and whether its result can be right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ants
import numpy as np

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.functional.resample import places_of_grid
from bolt.preprocess.registration import around_brain, cut_bright, dice, register, seed, warp

GRID = 4.0
"""mm between the points at which a transform is checked."""
FOLDED = 0.005
"""Share of the brain where a transform may fold; more, and it has failed."""
LEAST_DICE = 0.85
"""Overlap of the carried brain mask and the template's below which a normalisation has failed."""
VOLUMES = (0.35, 1.6)
"""Volume of a person's brain over the template's, which is larger than nearly all: what an affine may say."""


def normalise(
    brain: ants.ANTsImage, template_brain: ants.ANTsImage, settings: Registration, folder: str | Path
) -> tuple[Path, Path]:
    """T1w brain to template brain: affine, then SyN (Avants et al. 2008, doi:10.1016/j.media.2007.06.004).

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
        Where ANTs gives up.
    """
    levels = len(settings.affine_iterations)
    spacing = settings.normalisation_resolution or max(template_brain.spacing)
    fixed, moving = (
        images.resample_to_spacing(image, spacing) if max(image.spacing) < spacing - 0.05 else image
        for image in (around_brain(cut_bright(template_brain)), around_brain(cut_bright(brain)))
    )
    seed(settings)
    found = register(
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
    return Path(found["fwdtransforms"]), Path(found["invtransforms"])


def check_transform(forward: Sequence[str | Path], template_mask: ants.ANTsImage, mask: ants.ANTsImage) -> None:
    """Refuse a normalisation that cannot be right, whatever the images show.

    Parameters
    ----------
    forward : sequence of path
        Transforms from T1w to template.
    template_mask, mask : ANTs image
        Brains of the template and of the T1w.

    Raises
    ------
    DataError
        Where points go to infinity, space folds, brains grow or shrink beyond what people's do, or the
        masks do not meet.
    """
    coarse = images.resample_to_spacing(template_mask, max(GRID, *template_mask.spacing))
    inside = coarse.numpy() > 0.5
    affine = images.affine_of(coarse)
    places = places_of_grid(inside.shape, affine, forward).astype(float)
    if not np.isfinite(places).all():
        raise _failed("sends points to infinity")
    folded = float((_jacobian(places, affine)[inside] <= 0).mean())
    if folded > FOLDED:
        raise _failed(f"folds space in {100 * folded:.1f} % of the brain")
    points = np.c_[images.apply(affine, np.argwhere(inside)), np.ones(inside.sum())]
    volume = float(np.linalg.det(np.linalg.lstsq(points, places[inside], rcond=None)[0][:3]))
    if not VOLUMES[0] <= volume <= VOLUMES[1]:
        raise _failed(f"makes the brain {volume:.2f} times the template's volume")
    overlap = dice(warp(template_mask, mask, forward).numpy() > 0.5, template_mask.numpy() > 0.5)
    if overlap < LEAST_DICE:
        raise _failed(f"brings brain masks to an overlap (Dice) of only {overlap:.2f}")


def _jacobian(places: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """(X, Y, Z) determinants of a map of grid points, (X, Y, Z, 3) in mm, by the change of volume of voxels."""
    slopes = np.stack(np.gradient(places, axis=(0, 1, 2)), axis=-1)
    return np.asarray(np.linalg.det(slopes) / np.linalg.det(affine[:3, :3]))


def _failed(how: str) -> DataError:
    return DataError(
        f"normalisation to the template {how}",
        hint="Look at the T1w: a whole head, right orientation, T1 contrast; or name more settings to be tried in "
        "'preprocess: registration'",
    )
