"""Registration building blocks shared by both halves of preprocessing, and BOLD-to-T1w coregistration.

All registrations are seeded and give the same numbers each time on one thread. Transforms follow ITK: the transform
from A to B resamples images of A onto the grid of B, and hence maps *points* of B to points of A.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nilearn.masking import compute_epi_mask

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.io.resource_errors import refuse_full
from bolt.preprocess import images
from bolt.preprocess.images import Image, ants

FRAME = 12.0
"""mm kept around the brain when only the brain is registered."""
MAX_QUANTILE = 0.999
"""Quantile of positive intensities above which an image is clipped before registration (vessels, fat)."""
BACKGROUND = 0.01
"""Share of the highest intensity below which a voxel does not belong to the head."""
GOOD_DICE = 0.9
"""Dice of the brain masks above which a coregistration that starts from the header's geometry is accepted."""
DICE_TOLERANCE = 0.1
"""A candidate is rejected if the Dice of its masks is lower than another candidate's by more than this."""
BINS = 16
"""Bins per image in the joint histogram; few, so that small masks fill them."""
MIN_VOXELS = 1000
"""With fewer voxels, mutual information is high by chance."""


def seed(settings: Registration) -> None:
    """Seed ANTs for the registrations that follow (the number of threads is left to the environment)."""
    ants.config.set_ants_deterministic(on=False, seed_value=settings.seed)


def bias_correct(image: Image, settings: Registration) -> Image:
    """Correct intensity non-uniformity within the head by N4 (Tustison et al. 2010, doi:10.1109/TMI.2010.2046908).

    N4 works on logarithms: a few voxels of almost zero at the edge of the head would stop it at once, without a word.
    They are not in its mask.
    """
    image = clip_intensity(image)
    coarse = images.resample_to_spacing(image, max(settings.n4_resolution, *image.spacing))
    head = ants.iMath(ants.threshold_image(coarse, "Otsu", 1), "MD", 1)
    head = head * ants.threshold_image(coarse, BACKGROUND * float(coarse.max()))
    field = ants.n4_bias_field_correction(
        coarse,
        mask=head,
        shrink_factor=1,
        convergence={"iters": list(settings.n4_iterations), "tol": 1e-5},
        return_bias_field=True,
    )
    steps = np.divide(image.spacing, field.spacing)
    return image.new_image_like(image.numpy() / images.interpolated(field.numpy(), steps, image.shape))


def clip_intensity(image: Image) -> Image:
    """Clip negative values and the brightest per mille."""
    data = image.numpy()
    positive = data[data > 0]
    if positive.size == 0:
        raise DataError("the image has no positive voxel", hint="Check the conversion from DICOM")
    return image.new_image_like(np.clip(data, 0, np.quantile(positive, MAX_QUANTILE)))


def brain_box(brain: Image, frame: float = FRAME) -> tuple[list[int], list[int]]:
    """Return the first and the last (exclusive) voxel of a box around the positive voxels and a frame (mm)."""
    inside = brain.numpy() > 0
    ends = [np.flatnonzero(inside.any(axis=axes))[[0, -1]] for axes in ((1, 2), (0, 2), (0, 1))]
    width = np.ceil(frame / np.asarray(brain.spacing)).astype(int)
    start = [max(int(first - n), 0) for (first, _), n in zip(ends, width, strict=True)]
    stop = [min(int(last + 1 + n), size) for (_, last), n, size in zip(ends, width, brain.shape, strict=True)]
    return start, stop


def crop_to_brain(image: Image, frame: float = FRAME) -> Image:
    """Crop a skull-stripped image to the brain plus a frame (mm), which saves most of the computing time.

    Beyond the frame, a transform to the image is purely affine.
    """
    return ants.crop_indices(image, *brain_box(image, frame))


def register(fixed: Image, moving: Image, kind: str = "SyN", **options: Any) -> dict[str, Any]:
    """Call `ants.registration`; raise a DataError if ANTs fails."""
    try:
        return dict(ants.registration(fixed, moving, kind, **options))
    except (RuntimeError, ValueError) as error:
        hint = "Inspect the T1w; or list more settings to try in 'preprocess: registration'"
        raise DataError(f"ANTs could not register the T1w and the template ({error})", hint=hint) from None
    finally:
        refuse_full(Path(options["outprefix"]).parent if "outprefix" in options else tempfile.gettempdir())


def rigid(
    fixed: Image, moving: Image, mask: Image, start: np.ndarray | None, centre: np.ndarray | None = None
) -> np.ndarray:
    """Register rigidly by mutual information, from images smoothed by 12 mm to images smoothed by 1 mm.

    The step sizes of ``ants.registration`` are so large that it leaves images that are almost aligned; hence the same
    program is called with explicit arguments. Smoothing in mm, whatever the voxel size, keeps the search from
    ending in a local optimum near its start.

    Parameters
    ----------
    fixed, moving : ANTs image
    mask : ANTs image
        On the fixed image.
    start : (4, 4) array, optional
        Initial transform, RAS mm; default: align the centres of mass.
    centre : (3,) array, optional
        Centre of rotation of a search that begins at `start`.

    Returns
    -------
    (4, 4) array
        RAS mm, points of `fixed` to points of `moving`.
    """
    pair = f"{ants.internal.get_pointer_string(fixed)},{ants.internal.get_pointer_string(moving)}"
    with tempfile.TemporaryDirectory() as folder:
        initial = f"[{pair},1]"
        if start is not None:
            initial = f"{folder}/start.mat"
            images.write_matrix(start, initial, centre)
        command = ["--dimensionality", "3", "--float", "1", "--random-seed", str(ants.config._random_seed or 1)]
        command += ["--initial-moving-transform", initial, "--metric", f"MI[{pair},1,32,Regular,1]"]
        command += ["--transform", "Rigid[0.1]", "--convergence", "[100x50x50x50,1e-7,10]"]
        command += ["--shrink-factors", "2x2x1x1", "--smoothing-sigmas", "12x6x3x1mm"]
        command += ["--masks", f"[{ants.internal.get_pointer_string(mask)},NA]", "--output", f"{folder}/rigid_"]
        ants.registration(command, None)
        return images.read_matrix(f"{folder}/rigid_0GenericAffine.mat")


def align(fixed: Image, moving: Image, mask: Image, settings: Registration, image: Image) -> tuple[Image, np.ndarray]:
    """Register images of one head rigidly (`rigid`), starting from the places in their headers.

    Returns
    -------
    image : ANTs image
        `image`, which lies where `moving` does, on the grid of `fixed`.
    matrix : (4, 4) array
        RAS mm, points of `fixed` to points of `moving`.
    """
    seed(settings)
    matrix = rigid(fixed, moving, mask, np.eye(4), images.mask_centre(mask.numpy() > 0.5, images.affine_of(mask)))
    with tempfile.TemporaryDirectory() as folder:
        images.write_matrix(matrix, f"{folder}/found.mat")
        return ants.apply_transforms(fixed, image, [f"{folder}/found.mat"], interpolator="bSpline"), matrix


def epi_mask(volume: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return the (X, Y, Z) bool brain mask of an EPI volume; raise a DataError if no brain is found."""
    try:
        mask = compute_epi_mask(nib.Nifti1Image(volume, affine))
    except ValueError as error:  # nilearn raises its MaskWarning if the mask is empty
        raise DataError(f"no brain found in the BOLD image ({error})", hint="Inspect the scan") from None
    return np.asarray(mask.dataobj) > 0


def warp(target: Image, image: Image, transforms: Sequence[str | Path]) -> Image:
    """Resample an image onto the target's grid by linear interpolation; the last transform is applied first."""
    return ants.apply_transforms(target, image, [str(t) for t in transforms], interpolator="linear")


def coregister(bold: Image, bold_mask: Image, t1w: Image, t1w_mask: Image, settings: Registration) -> np.ndarray:
    """Register a BOLD reference to the T1w, rigidly, by mutual information within the brain.

    The BOLD is the fixed image because its field of view is smaller; all its voxels are used because with sparse
    sampling the search stops at once. It starts from the header's geometry (same session, same scanner). If the masks
    then overlap poorly, it is repeated from aligned centres of mass, and the candidate with the higher mutual
    information is kept unless its masks overlap much less (`DICE_TOLERANCE`).

    Returns
    -------
    (4, 4) array
        RAS mm, T1w points to BOLD points.
    """
    fixed = clip_intensity(bold) * bold_mask
    moving = images.resample_to_spacing(clip_intensity(t1w) * t1w_mask, max(2.0, *t1w.spacing))
    search_mask = ants.iMath(bold_mask, "MD", 2)
    centre = images.mask_centre(bold_mask.numpy() > 0, images.affine_of(bold_mask))
    seed(settings)
    candidates: list[tuple[np.ndarray, float, float]] = []
    for start in (np.eye(4), None):
        matrix = np.linalg.inv(rigid(fixed, moving, search_mask, start, centre))
        overlap, nmi = agreement(fixed, bold_mask, moving, t1w_mask, matrix)
        candidates.append((matrix, overlap, nmi))
        if overlap >= GOOD_DICE:
            break
    min_overlap = max(overlap for _, overlap, _ in candidates) - DICE_TOLERANCE
    eligible = (candidate for candidate in candidates if candidate[1] >= min_overlap)
    return max(eligible, key=lambda candidate: (candidate[2], candidate[1]))[0]


def agreement(bold: Image, bold_mask: Image, t1w: Image, t1w_mask: Image, matrix: np.ndarray) -> tuple[float, float]:
    """Compare a coregistered pair: Dice of the brain masks in the acquired field, and NMI where they overlap.

    `matrix` is (4, 4), RAS mm, T1w points to BOLD points.
    """
    resampled, t1w_brain = resample_t1w(bold, t1w, t1w_mask, matrix)
    bold_brain = bold_mask.numpy() > 0.5
    both = bold_brain & t1w_brain
    return dice(bold_brain, t1w_brain), normalised_mutual_information(bold.numpy()[both], resampled[both])


def resample_t1w(bold: Image, t1w: Image, t1w_mask: Image, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Resample the T1w and its brain mask onto the BOLD grid: (X, Y, Z) float and bool arrays."""
    with tempfile.TemporaryDirectory() as folder:
        images.write_matrix(np.linalg.inv(matrix), f"{folder}/t1w_to_bold.mat")
        resampled, brain = (warp(bold, image, [f"{folder}/t1w_to_bold.mat"]).numpy() for image in (t1w, t1w_mask))
    return resampled, brain > 0.5


def dice(a: np.ndarray, b: np.ndarray) -> float:
    """Return the Dice coefficient of two masks: twice their intersection over the sum of their sizes."""
    total = a.sum() + b.sum()
    return float(2 * (a & b).sum() / total) if total else 0.0


def normalised_mutual_information(a: np.ndarray, b: np.ndarray) -> float:
    """Return (H(a) + H(b)) / H(a, b) - 1, after Studholme et al. (1999, doi:10.1016/S0031-3203(98)00091-0).

    Parameters
    ----------
    a, b : (N,) array
        Intensities of the same voxels; clipped to the 1st and 99th percentile.

    Returns
    -------
    float
        0: independent; 1: each image determines the other. Also 0 if an image is constant or N < `MIN_VOXELS`.
    """
    if len(a) < MIN_VOXELS:
        return 0.0
    a, b = (np.clip(values, *np.quantile(values, [0.01, 0.99])) for values in (a, b))
    if a.min() == a.max() or b.min() == b.max():
        return 0.0
    bins = (np.minimum((BINS / np.ptp(v) * (v - v.min())).astype(int), BINS - 1) for v in (a, b))
    joint = np.bincount(next(bins) * BINS + next(bins), minlength=BINS**2).reshape(BINS, BINS) / len(a)
    return float((_entropy(joint.sum(axis=0)) + _entropy(joint.sum(axis=1))) / _entropy(joint) - 1)


def _entropy(shares: np.ndarray) -> float:
    filled = shares[shares > 0]
    return float(-(filled * np.log(filled)).sum())
