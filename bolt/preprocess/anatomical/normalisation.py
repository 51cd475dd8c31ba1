"""Normalisation of a T1w brain to the template, and plausibility checks of the result."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.anatomical.extraction import Alignment
from bolt.preprocess.antspy import ants
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
    brain: ants.ANTsImage,
    template_brain: ants.ANTsImage,
    alignment: Alignment,
    settings: Registration,
    folder: str | Path,
) -> tuple[Path, Path]:
    """Refine the alignment of a T1w brain with the template's, now without skull.

    The brain is warped by the alignment that brain extraction has found, and registered again by SyN (Avants et al.
    2008, doi:10.1016/j.media.2007.06.004); both displacements are then composed.

    Parameters
    ----------
    brain, template_brain : ANTs image
        Zero outside the brain.
    alignment : Alignment
    settings : Registration
    folder : path
        Where the transforms are written.

    Returns
    -------
    forward, inverse : path
        Composite transforms (``.h5``) from T1w to template and back: an affine and one displacement field each.

    Raises
    ------
    DataError
        ANTs fails.
    """
    spacing = settings.normalisation_resolution or max(template_brain.spacing)
    fixed = crop_to_brain(clip_intensity(template_brain))
    if max(fixed.spacing) < spacing - 0.05:
        fixed = images.resample_to_spacing(fixed, spacing)
    moving = warp(fixed, clip_intensity(brain), [alignment.forward, alignment.affine])
    seed(settings)
    refined = register(
        fixed,
        moving,
        "SyNOnly",
        outprefix=f"{folder}/refined_",
        initial_transform="Identity",
        reg_iterations=tuple(settings.syn_iterations),
        syn_metric=settings.syn_metric,
        syn_sampling=32 if settings.syn_metric == "mattes" else 4,
    )
    affine = ants.read_transform(str(alignment.affine))
    there, back = (next(path for path in refined[key] if "Warp" in path) for key in ("fwdtransforms", "invtransforms"))
    forward, inverse = Path(folder, "t1w_to_template.h5"), Path(folder, "template_to_t1w.h5")
    displacement = _composed(alignment.forward, [there, alignment.forward])
    images.write_composite([displacement, affine], forward)
    displacement = _composed(alignment.inverse, [alignment.inverse, back])
    images.write_composite([affine.invert(), displacement], inverse)
    return forward, inverse


def _composed(grid: Path, fields: Sequence[str | Path]) -> ants.ANTsTransform:
    """Compose displacement fields, the first applied first to points, into one on the grid of another."""
    like = ants.image_read(str(grid)).split_channels()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = ants.apply_transforms(like, like, [str(field) for field in fields], compose=f"{folder}/")
        return ants.transform_from_displacement_field(ants.image_read(path))


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
