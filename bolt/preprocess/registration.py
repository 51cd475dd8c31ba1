"""What registrations share, and BOLD to T1w: functions over ANTs images, without files of their own.

Everything is seeded and, on one thread, gives the same numbers each time. Transforms follow ITK: the transform
from A to B resamples images of A on the grid of B, and so maps *points* of B to points of A.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ants
import nibabel as nib
import numpy as np
from ants.internal import get_pointer_string
from nilearn.masking import compute_epi_mask

from bolt.config import Registration
from bolt.io.disk_space import refuse_full
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.information import normalised_mutual_information

FRAME = 12.0
"""mm kept around the brain where only the brain is registered."""
TRUNCATE = 0.999
"""Share of voxels below the brightness to which an image is cut before registration (vessels, fat)."""
SAME_PLACE = 0.9
"""Dice of the masks above which a BOLD-to-T1w registration from the header's geometry is believed."""

COMPARABLE = 0.1
"""Dice of the masks by which a registration may be worse than another and still be the better one."""


def seed(settings: Registration) -> None:
    """Seed ANTs for the registrations that follow (threads are left as the environment sets them)."""
    ants.config.set_ants_deterministic(on=False, seed_value=settings.seed)


def bias_correct(image: ants.ANTsImage, settings: Registration, shrink: int | None = None) -> ants.ANTsImage:
    """N4 (Tustison et al. 2010, doi:10.1109/TMI.2010.2046908) inside the head.

    Parameters
    ----------
    image : ANTs image
    settings : Registration
    shrink : int, optional
        In place of ``settings.n4_shrink``.
    """
    image = cut_bright(image)
    head = ants.threshold_image(image, "Otsu", 1)
    head = ants.iMath(head, "MD", 2)
    return ants.n4_bias_field_correction(
        image,
        mask=head,
        shrink_factor=shrink or settings.n4_shrink,
        convergence={"iters": list(settings.n4_iterations), "tol": 1e-5},
    )


def cut_bright(image: ants.ANTsImage) -> ants.ANTsImage:
    """The image without negative values, and without the brightest per mille."""
    data = image.numpy()
    positive = data[data > 0]
    if positive.size == 0:
        raise DataError("the image has no positive voxel", hint="Check the conversion from DICOM")
    return image.new_image_like(np.clip(data, 0, np.quantile(positive, TRUNCATE)))


def around_brain(image: ants.ANTsImage) -> ants.ANTsImage:
    """Cut off the zeros around a brain, up to `FRAME`: most of a head's field, and most of the time.

    Beyond the frame a transform to the image is affine alone.
    """
    where = np.argwhere(image.numpy() > 0)
    frame = np.ceil(FRAME / np.asarray(image.spacing))
    start = np.maximum(where.min(axis=0) - frame, 0)
    stop = np.minimum(where.max(axis=0) + 1 + frame, image.shape)
    return ants.crop_indices(image, [int(n) for n in start], [int(n) for n in stop])


def register(fixed: ants.ANTsImage, moving: ants.ANTsImage, kind: str = "SyN", **options: Any) -> dict[str, Any]:
    """`ants.registration`; a DataError where ANTs gives up."""
    where = Path(options["outprefix"]).parent if "outprefix" in options else Path(tempfile.gettempdir())
    try:
        found = dict(ants.registration(fixed, moving, kind, **options))
        refuse_full(where)
        return found
    except (RuntimeError, ValueError) as error:
        refuse_full(where)
        raise DataError(
            f"ANTs could not register the T1w and the template ({error})",
            hint="Look at the T1w; or name more settings to be tried in 'preprocess: registration'",
        ) from None


def rigid(fixed: ants.ANTsImage, moving: ants.ANTsImage, mask: ants.ANTsImage, start: str | Path | None) -> np.ndarray:
    """Rigid registration by mutual information, in three levels.

    ``ants.registration`` steps so far that it leaves images that almost fit; so the same program is called with its
    own words.

    Parameters
    ----------
    fixed, moving : ANTs image
    mask : ANTs image
        On the fixed image.
    start : path, optional
        Transform to start from; default: align the centres of mass.

    Returns
    -------
    (4, 4) array
        RAS mm, points of `fixed` to points of `moving`.
    """
    pair = f"{get_pointer_string(fixed)},{get_pointer_string(moving)}"
    with tempfile.TemporaryDirectory() as folder:
        command = ["--dimensionality", "3", "--float", "1", "--random-seed", str(ants.config._random_seed or 1)]
        command += ["--initial-moving-transform", str(start) if start else f"[{pair},1]"]
        command += ["--metric", f"MI[{pair},1,32,Regular,1]", "--transform", "Rigid[0.1]"]
        command += ["--convergence", "[200x100x50,1e-6,5]", "--shrink-factors", "2x1x1", "--smoothing-sigmas", "2x1x0"]
        command += ["--masks", f"[{get_pointer_string(mask)},NA]"]
        command += ["--output", f"{folder}/rigid_"]
        ants.registration(command, None)
        return images.read_matrix(f"{folder}/rigid_0GenericAffine.mat")


def epi_mask(volume: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Brain of an EPI volume, (X, Y, Z) bool; a DataError where there is none."""
    try:
        mask = compute_epi_mask(nib.Nifti1Image(volume, affine))
    except ValueError as error:  # nilearn's MaskWarning is an exception where nothing is left
        raise DataError(f"no brain found in the BOLD image ({error})", hint="Look at the scan") from None
    return np.asarray(mask.dataobj) > 0


def warp(target: ants.ANTsImage, image: ants.ANTsImage, transforms: Sequence[str | Path]) -> ants.ANTsImage:
    """The image on the target's grid, linearly interpolated; the last transform is applied first."""
    return ants.apply_transforms(target, image, [str(t) for t in transforms], interpolator="linear")


def coregister(
    bold: ants.ANTsImage,
    bold_mask: ants.ANTsImage,
    t1w: ants.ANTsImage,
    t1w_mask: ants.ANTsImage,
    settings: Registration,
) -> tuple[np.ndarray, float]:
    """BOLD reference to T1w, rigid, by mutual information within the brain.

    Compared are the BOLD's own voxels, since its field of view is the smaller; all of them, because sparse ones let
    the search end at once. The start is the header's geometry (one session, one scanner). Where the masks then do
    not meet, the centres of mass are tried; of the two the one is kept that fits better by mutual information, unless
    its masks meet much less (`COMPARABLE`).

    Returns
    -------
    matrix : (4, 4) array
        RAS mm, T1w points to BOLD points.
    dice : float
        Overlap of the two brain masks within the acquired field.
    """
    fixed = cut_bright(bold) * bold_mask
    moving = images.resample_to_spacing(cut_bright(t1w) * t1w_mask, max(2.0, *t1w.spacing))
    area = ants.iMath(bold_mask, "MD", 2)
    ours = bold_mask.numpy() > 0.5
    centre = images.mask_centre(bold_mask.numpy() > 0, images.affine_of(bold_mask))
    seed(settings)
    found: list[tuple[np.ndarray, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder, "start.mat")
        images.write_matrix(np.eye(4), start, centre)
        for begin in (start, None):
            matrix = np.linalg.inv(rigid(fixed, moving, area, begin))
            carried, brain = carry(fixed, moving, t1w_mask, matrix)
            both, overlap = ours & brain, dice(ours, brain)
            found.append((matrix, overlap, normalised_mutual_information(fixed.numpy()[both], carried[both])))
            if overlap >= SAME_PLACE:
                break
    enough = max(overlap for _, overlap, _ in found) - COMPARABLE
    matrix, overlap, _ = max((one for one in found if one[1] >= enough), key=lambda one: (one[2], one[1]))
    return matrix, overlap


def carry(
    bold: ants.ANTsImage, t1w: ants.ANTsImage, t1w_mask: ants.ANTsImage, matrix: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """T1w and its brain (so: within the acquired field) on the BOLD's grid, (X, Y, Z) float and bool arrays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t1w_to_bold.mat")
        images.write_matrix(np.linalg.inv(matrix), path)
        carried, brain = (warp(bold, image, [path]).numpy() for image in (t1w, t1w_mask))
    return carried, brain > 0.5


def dice(a: np.ndarray, b: np.ndarray) -> float:
    """Twice the intersection of two masks over the sum of their sizes."""
    total = a.sum() + b.sum()
    return float(2 * (a & b).sum() / total) if total else 0.0
