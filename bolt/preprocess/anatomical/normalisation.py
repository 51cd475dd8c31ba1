"""T1w images in the space of the template: averaging, brain extraction, normalisation, and checks of the result."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.images import ants
from bolt.preprocess.registration import align, clip_intensity, crop_to_brain, dice, register, seed, warp

MIN_CORRELATION = 0.8
"""Least correlation with the first image, within the head, of another image of the same head and contrast."""
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
GRID = 4.0
"""mm between the points at which a transform is checked."""
MAX_FOLDED = 0.005
"""Share of the brain in which a transform may fold."""
MIN_DICE = 0.85
"""Overlap of the warped brain mask with the template's below which a normalisation has failed."""
VOLUMES = (0.35, 1.6)
"""Plausible scaling of brain volume from T1w to template; the template is larger than nearly all brains."""
HINT = (
    "Check that the T1w shows a whole head in the right orientation with T1 contrast; or list more settings to try in "
    "'preprocess: registration'"
)


def aligned(image: ants.ANTsImage, first: ants.ANTsImage, settings: Registration) -> ants.ANTsImage:
    """Bring a bias-corrected T1w to the place and the intensity of another one, rigidly, by mutual information.

    Returns
    -------
    ANTs image
        On the grid of `first`, scaled to its intensity.

    Raises
    ------
    DataError
        The images differ: other contrast, artefacts, or another head.
    """
    mask = ants.threshold_image(first, "Otsu", 1)
    head = mask.numpy() > 0
    moved, _ = align(clip_intensity(first), clip_intensity(image), mask, settings, image)
    values, expected = moved.numpy()[head].astype(float), first.numpy()[head].astype(float)
    r = np.corrcoef(values, expected)[0, 1]
    if not r >= MIN_CORRELATION:
        raise DataError(f"it differs from the session's first T1w (correlation {r:.2f} within the head)")
    return moved * float(values @ expected / (values @ values))


def align_brain(
    t1w: ants.ANTsImage,
    template: ants.ANTsImage,
    template_mask: ants.ANTsImage,
    settings: Registration,
    folder: str | Path,
) -> tuple[ants.ANTsImage, Path, Path, Path]:
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

    Returns
    -------
    mask : ANTs image
    affine : path
        Matrix from T1w to template.
    bent, unbent : path
        Displacement fields to be applied after the affine from T1w to template, and before its inverse on the way back.

    Raises
    ------
    DataError
        The result is too small to be a brain.
    """

    def warped_mask(image: ants.ANTsImage, from_template: list[str]) -> ants.ANTsImage:
        share = ants.smooth_image(warp(image, template_mask, from_template), SMOOTH)
        return image.new_image_like(one_piece(share.numpy() > 0.5, image.spacing))

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
    affine, cropped = head["fwdtransforms"][1], []
    for image, mask in ((template, template_mask), (t1w, warped_mask(moving, head["invtransforms"]))):
        fine = images.resample_to_spacing(image, max(settings.mask_resolution, *t1w.spacing))
        near = ndimage.distance_transform_edt(mask.numpy() < 0.5, sampling=mask.spacing) <= MARGIN
        near = mask.new_image_like(near.astype(np.float32))
        cropped.append(crop_to_brain(fine * ants.resample_image_to_target(near, fine, "nearestNeighbor"), frame=FRAME))
    seed(settings)
    options = {"outprefix": f"{folder}/brain_", "initial_transform": affine, "reg_iterations": (60, 30)}
    brain = register(cropped[0], cropped[1], "SyNOnly", **options)
    transforms = affine, brain["fwdtransforms"][0], brain["invtransforms"][-1]
    return warped_mask(t1w, brain["invtransforms"]), *map(Path, transforms)


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


def normalise(
    brain: ants.ANTsImage,
    template_brain: ants.ANTsImage,
    affine: Path,
    bent: Path,
    unbent: Path,
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
    affine, bent, unbent : path
        Of `align_brain`.
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
    moving = warp(fixed, clip_intensity(brain), [bent, affine])
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
    matrix = ants.read_transform(str(affine))
    there, back = (next(path for path in refined[key] if "Warp" in path) for key in ("fwdtransforms", "invtransforms"))
    forward, inverse = Path(folder, "t1w_to_template.h5"), Path(folder, "template_to_t1w.h5")
    images.write_composite([_composed([there, bent], bent), matrix], forward)
    images.write_composite([matrix.invert(), _composed([unbent, back], unbent)], inverse)
    return forward, inverse


def _composed(fields: Sequence[str | Path], grid: Path) -> ants.ANTsTransform:
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
    inside, affine = coarse.numpy() > 0.5, images.affine_of(coarse)
    mapped = images.places_of_grid(inside.shape, affine, forward).astype(float)
    if not np.isfinite(mapped).all():
        raise DataError("normalisation to the template maps points to infinity", hint=HINT)
    slopes = np.stack(np.gradient(mapped, axis=(0, 1, 2)), axis=-1)
    folded = float(((np.linalg.det(slopes) / np.linalg.det(affine[:3, :3]))[inside] <= 0).mean())
    if folded > MAX_FOLDED:
        raise DataError(f"normalisation to the template folds space in {100 * folded:.1f} % of the brain", hint=HINT)
    points = np.c_[images.apply(affine, np.argwhere(inside)), np.ones(inside.sum())]
    volume = float(np.linalg.det(np.linalg.lstsq(points, mapped[inside], rcond=None)[0][:3]))
    if not VOLUMES[0] <= volume <= VOLUMES[1]:
        what = f"normalisation to the template makes the brain {volume:.2f} times the template's volume"
        raise DataError(what, hint=HINT)
    overlap = dice(warp(template_mask, mask, forward).numpy() > 0.5, template_mask.numpy() > 0.5)
    if overlap < MIN_DICE:
        what = f"normalisation to the template gives a brain-mask overlap (Dice) of only {overlap:.2f}"
        raise DataError(what, hint=HINT)
