"""Computation of the quality measures that `bolt.preprocess.quality.measures` defines.

The overlap of brain masks says little: after normalisation it is high by construction, because the mask comes from the
template; after coregistration it hardly falls when an image is displaced by a centimetre, and not at all when it is
mirrored. Hence the evidence from what does not contribute to the mask (ventricles, intensities within the brain), and
the similarity of two images relative to shifted and mirrored copies, which calibrates it to the contrast and noise of
each pair. A T1w is not compared with the mirrored template: a real one was only 1.08 times as similar to the template
as its mirror image after affine registration, and 1.05 times after SyN.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from bolt.config import Registration
from bolt.io.files import read_table
from bolt.io.streams import iter_volumes
from bolt.preprocess import images, registration, tissues
from bolt.preprocess.images import Image, ants
from bolt.preprocess.quality.measures import motion_numbers
from bolt.preprocess.registration import MIN_VOXELS, dice, normalised_mutual_information, warp

DEPTH = 26.0
"""mm below the brain surface; deeper fluid belongs to the ventricles and the cisterns around the midbrain."""
NEAR = 6.0
"""mm around the template's ventricles within which the subject's are searched."""
VENTRICLES = "ventricles.nii.gz"
"""File name in the template folder."""
SEGMENTED_AT = 2.0
"""Voxel size (mm) at which the template is segmented."""
SHIFT = 10.0
"""mm by which copies are displaced."""
MIN_SHARED = 0.5
"""Voxels over which the mirror image must be comparable, as a share of those of the image itself."""
AROUND_HEAD = 3
"""Voxels around the brain that are ignored as skull and scalp."""
JUMP = 10.0
"""Robust standard deviations by which a slice must differ from the volumes before and after."""


def anatomical_numbers(paths: Mapping[str, Path], template: Path) -> dict[str, Any]:
    """Compute the agreement with the template: masks, intensity within the brain, and ventricles.

    Parameters
    ----------
    paths : mapping
        See `bolt.config.derivatives.anatomical_names`.
    template : path
        Template folder.
    """
    brain = images.read(template / "brain_mask.nii.gz")
    inside = brain.numpy() > 0.5
    t1w, head = images.read(paths["warped"]).numpy(), images.read(template / "T1w.nii.gz").numpy()
    mask = images.read(paths["mask"])
    warped_mask = warp(brain, mask, [paths["forward"]]).numpy() > 0.5
    return {
        "template_mask_dice": dice(warped_mask, inside),
        "template_nmi": normalised_mutual_information(head[inside], t1w[inside]),
        "template_shift_margin": shift_margin(head, t1w, inside, np.asarray(brain.spacing)),
        **normalisation_evidence(paths, template),
        "brain_ml": float(mask.numpy().sum() * np.prod(mask.spacing) / 1000),
    }


def functional_numbers(
    paths: Mapping[str, Path], coregistration: Mapping[str, Any], template: Path, settings: Registration
) -> dict[str, Any]:
    """Compute motion, temporal signal-to-noise ratio, artefacts, and agreement with T1w and template.

    Parameters
    ----------
    paths : mapping
        confounds, tsnr and mask (on the output grid, in template space), bold_to_t1w: see
        `bolt.preprocess.functional.workflow.functional_names`; raw (the 4D image), native_reference, native_corrected,
        native_mask, t1w, t1w_mask.
    coregistration : mapping
        Numbers of `bolt.preprocess.functional.coregistration.refine`.
    template : path
        Template folder.
    settings : Registration
    """
    table = read_table(paths["confounds"])
    n_unsteady = sum(column.startswith("non_steady_state_outlier") for column in table)  # dropped from the series
    mask = images.read(paths["mask"])
    inside = mask.numpy() > 0
    brain = warp(mask, images.read(template / "brain_mask.nii.gz"), []).numpy() > 0.5
    reference, native_brain = images.load(paths["native_reference"])[0], images.load(paths["native_mask"])[0] > 0
    ghost = ghost_ratio(reference, native_brain)
    ports = ("native_corrected", "native_mask", "t1w", "t1w_mask")
    bold, bold_mask, t1w, t1w_mask = (images.read(paths[port]) for port in ports)
    return {
        "n_volumes": len(table),
        **motion_numbers(table),
        "slice_jumps": slice_jumps(itertools.islice(iter_volumes(paths["raw"]), n_unsteady, None), native_brain),
        **({} if ghost is None else {"ghost_ratio": ghost}),
        "median_tsnr": float(np.median(images.read(paths["tsnr"]).numpy()[inside])),
        **coregistration,
        **coregistration_numbers(bold, bold_mask, t1w, t1w_mask, images.read_matrix(paths["bold_to_t1w"]), settings),
        "template_brain_covered": float((inside & brain).sum() / brain.sum()),
    }


def normalisation_evidence(paths: Mapping[str, Path], template: Path) -> dict[str, float]:
    """Measure how well a subject's tissues match the template's.

    Parameters
    ----------
    paths : mapping
        t1w, csf, forward: see `bolt.config.derivatives.anatomical_names`.
    template : path
        Template folder.

    Returns
    -------
    dict
        ``ventricle_dice``: overlap of the ventricles (those written by `stage_ventricles`, or else found now);
        ``template_correlation``: of intensities within the template's brain.
    """
    brain = images.read(template / "brain_mask.nii.gz")
    inside = brain.numpy() > 0.5
    head = images.read(template / "T1w.nii.gz")
    transforms = [paths["forward"]]
    t1w = warp(brain, images.read(paths["t1w"]), transforms).numpy()
    fluid = warp(brain, images.read(paths["csf"]), transforms).numpy() > 0.5
    staged = template / VENTRICLES
    known = images.read(staged).numpy() > 0.5 if staged.is_file() else ventricles(head, brain)
    near = ndimage.distance_transform_edt(~known, sampling=brain.spacing) <= NEAR
    correlation = float(np.corrcoef(t1w[inside], head.numpy()[inside])[0, 1])
    return {"ventricle_dice": dice(ndimage.binary_opening(fluid & near), known), "template_correlation": correlation}


def stage_ventricles(template: Path) -> None:
    """Write the template's `ventricles` beside it, because segmenting them takes longer than judging a subject."""
    brain = images.read(template / "brain_mask.nii.gz")
    mask = ventricles(images.read(template / "T1w.nii.gz"), brain)
    images.write(brain.new_image_like(mask.astype(np.float32)), template / VENTRICLES, "uint8", code=images.MNI)


def ventricles(head: Image, brain: Image) -> np.ndarray:
    """Segment the lateral ventricles and the cisterns around the midbrain: deep fluid, without thin sulci.

    Parameters
    ----------
    head, brain : ANTs image
        A template's T1w and brain mask.

    Returns
    -------
    (X, Y, Z) bool array
    """
    deep = ndimage.distance_transform_edt(brain.numpy() > 0.5, sampling=brain.spacing) > DEPTH
    fluid = tissues.segment(head, brain, SEGMENTED_AT)["csf"].numpy() > 0.5
    return np.asarray(ndimage.binary_opening(fluid & deep))


def shift_margin(fixed: np.ndarray, moving: np.ndarray, mask: np.ndarray, spacing: np.ndarray) -> float:
    """Return the similarity of two images relative to that after a shift by `SHIFT` mm, the best of 26 directions.

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
        Ratio of normalised mutual information; below 1, a shifted copy is more similar.
    """
    values, voxels = fixed[mask], np.argwhere(mask).T.astype(float)
    unshifted = normalised_mutual_information(values, moving[mask])
    shifted = 0.0
    for direction in itertools.product((-1, 0, 1), repeat=3):
        if any(direction):
            step = SHIFT * np.asarray(direction) / np.linalg.norm(direction) / spacing
            copy = ndimage.map_coordinates(moving, voxels - step[:, None], order=1, mode="nearest")
            shifted = max(shifted, normalised_mutual_information(values, copy))
    return unshifted / shifted if shifted else 0.0


def coregistration_numbers(
    bold: Image, bold_mask: Image, t1w: Image, t1w_mask: Image, matrix: np.ndarray, settings: Registration
) -> dict[str, float]:
    """Compare a coregistered BOLD reference with the T1w: as it is, shifted by 10 mm, and mirrored.

    The mirror image is registered separately, starting from the position found, so that only the asymmetry of the head
    matters: if it is more similar than the image itself, left and right are exchanged in one of the images. If it does
    not align with the T1w (`MIN_SHARED`), the comparison is not informative.

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
        mutual information, original over mirrored; only if informative). All 0 if the images do not overlap.
    """
    fixed = registration.clip_intensity(bold)
    resampled, brain = registration.resample_t1w(fixed, t1w, t1w_mask, matrix)
    inside = brain & (bold_mask.numpy() > 0.5)
    if inside.sum() < MIN_VOXELS:
        return dict.fromkeys(("coregistration_nmi", "coregistration_shift_margin", "coregistration_flip_margin"), 0.0)
    nmi = normalised_mutual_information(fixed.numpy()[inside], resampled[inside])
    mirror, mirror_mask = _mirrored(fixed), _mirrored(bold_mask)
    mirror_matrix = _register_mirrored(mirror, mirror_mask, t1w, t1w_mask, matrix, settings)
    mirror_resampled, brain = registration.resample_t1w(mirror, t1w, t1w_mask, mirror_matrix)
    mirror_inside = brain & (mirror_mask.numpy() > 0.5)
    mirror_nmi = normalised_mutual_information(mirror.numpy()[mirror_inside], mirror_resampled[mirror_inside])
    informative = mirror_nmi > 0 and mirror_inside.sum() >= MIN_SHARED * inside.sum()
    return {
        "coregistration_nmi": nmi,
        "coregistration_shift_margin": shift_margin(fixed.numpy(), resampled, inside, np.asarray(fixed.spacing)),
        **({"coregistration_flip_margin": nmi / mirror_nmi} if informative else {}),
    }


def _register_mirrored(
    mirror: Image, mask: Image, t1w: Image, t1w_mask: Image, matrix: np.ndarray, settings: Registration
) -> np.ndarray:
    """Register a mirrored BOLD rigidly, starting from `matrix` of the original: T1w points to mirrored BOLD points."""
    centre = images.mask_centre(mask.numpy() > 0, images.affine_of(mask))
    flip_t1w = np.diag([-1.0, 1.0, 1.0, 1.0])
    flip_t1w[0, 3] = 2 * images.mask_centre(t1w_mask.numpy() > 0.5, images.affine_of(t1w_mask))[0]
    affine = images.affine_of(mirror)
    flip_voxels = np.diag([-1.0, 1.0, 1.0, 1.0])
    flip_voxels[0, 3] = mirror.shape[0] - 1
    # two reflections make a rigid motion
    start = flip_t1w @ np.linalg.inv(matrix) @ affine @ flip_voxels @ np.linalg.inv(affine)
    moving = images.resample_to_spacing(registration.clip_intensity(t1w) * t1w_mask, max(2.0, *t1w.spacing))
    registration.seed(settings)
    return np.linalg.inv(registration.rigid(mirror * mask, moving, ants.iMath(mask, "MD", 2), start, centre))


def _mirrored(image: Image) -> Image:
    """Exchange left and right of an image on its own grid (RAS voxel order)."""
    return image.new_image_like(np.ascontiguousarray(image.numpy()[::-1]))


def ghost_ratio(reference: np.ndarray, brain: np.ndarray) -> float | None:
    """Compute the ghost-to-signal ratio (Giannelli et al. 2010, doi:10.1120/jacmp.v11i4.3237).

    A ghost is the image of the head shifted by half the field of view along the phase-encoding axis. The header does
    not state this axis, so the larger value of the two in-plane axes is taken.

    Parameters
    ----------
    reference : (X, Y, Z) array
        Mean or median volume in native voxels, slices along the last axis.
    brain : (X, Y, Z) bool array

    Returns
    -------
    float or None
        Mean intensity where a ghost would be, minus that of the remaining background, relative to the brain's; None
        if the field of view has no background.
    """
    head = ndimage.binary_dilation(brain, iterations=AROUND_HEAD)
    signal = float(np.median(reference[brain]))
    ratios = []
    for axis in (0, 1):
        ghost = np.roll(brain, brain.shape[axis] // 2, axis) & ~head
        rest = ~np.roll(head, brain.shape[axis] // 2, axis) & ~head
        if ghost.sum() >= 100 and rest.sum() >= 100 and signal > 0:
            ratios.append(float(reference[ghost].mean() - reference[rest].mean()) / signal)
    return max(ratios, default=None)


def slice_jumps(volumes: Iterable[np.ndarray], brain: np.ndarray) -> int:
    """Count slices, over all volumes, whose signal jumps for one volume and returns while that of the others does not.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
        In native voxels, slices along the last axis.
    brain : (X, Y, Z) bool array
    """
    weight = brain.sum(axis=(0, 1))
    used = weight >= 10  # slices with enough brain
    means = np.stack([(volume * brain).sum(axis=(0, 1))[used] / weight[used] for volume in volumes])
    if len(means) < 3 or not used.any():
        return 0
    jump = means[1:-1] - (means[:-2] + means[2:]) / 2
    jump -= np.median(jump, axis=1, keepdims=True)  # a change common to all slices is not a slice artefact
    spread = 1.4826 * np.median(np.abs(jump), axis=0)
    return int((np.abs(jump) > JUMP * np.maximum(spread, 1e-6)).sum())
