"""Coregistration of BOLD and T1w: by the boundary of cortex, and by a single-band reference.

After Greve and Fischl (2009, doi:10.1016/j.neuroimage.2009.06.060).

Mutual information is highest up to a millimetre away from where the cortex of the two images agrees. Where white matter
meets the cortex, BOLD is darker on the inner side: a second fit moves the boundary to where that contrast is strongest.

A single-band reference (SBRef) is a volume with more contrast, acquired before a multiband scan. It takes the place of
the scan's own reference here only. Head motion is estimated against volumes of the scan, whose contrast is theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
from scipy import ndimage, optimize

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.io.streams import iter_volumes
from bolt.io.volumes import check_image
from bolt.preprocess import images
from bolt.preprocess.functional.confounds import root_mean_square_displacement
from bolt.preprocess.images import Image, ants
from bolt.preprocess.quality.measures import HEAD_RADIUS
from bolt.preprocess.registration import agreement, align, bias_correct, clip_intensity, resample_t1w

SMOOTHING = 1.0
"""mm (SD) by which white matter is smoothed before its boundary is drawn."""
INNER, OUTER = 2.0, 1.5
"""mm from the boundary at which white matter and cortex are sampled."""
MIN_WHITE, MIN_GREY = 0.8, 0.5
"""Least probability of white matter and of grey matter there; elsewhere the boundary is not one of cortex."""
SLOPES = (0.05, 0.5)
"""Of the cost, for each per cent of contrast: smooth first, then the paper's, which counts where the contrast is right.
The latter keeps cerebrospinal fluid, brighter than cortex, from drawing the boundary outwards."""
POINTS = 60_000
"""Points of the boundary that are used, drawn at random; with a third of them the result varies by 0.1 mm."""
MIN_POINTS = 1000
STEP = 1e-4
"""mm by which a matrix is moved to find its derivatives."""
MAX_SHIFT = 4.0
"""mm; a fit that moves the boundary further in the mean is not trusted."""
RIM = 4.0
"""mm; thickness of the brain's rim."""
REACH = MAX_SHIFT + INNER
"""mm; no point of the boundary is sampled further away than this."""
NMI_TOLERANCE = 0.05
"""Share by which a fit may lower normalised mutual information."""
MIN_CORRELATION = 0.5
"""Least correlation with the scan's reference, within the brain, of an SBRef that shows the same brain."""


class Boundary(NamedTuple):
    """Points of the boundary between white matter and cortex, (N, 3) arrays in RAS mm of the T1w."""

    middle: np.ndarray
    inner: np.ndarray
    """In white matter."""
    outer: np.ndarray
    """In the cortex."""


def cortical_boundary(white: Image, grey: Image, excluded: Image | None = None) -> Boundary:
    """Find the boundary between white matter and cortex, where the smoothed probability of white matter is one half.

    Parameters
    ----------
    white, grey : ANTs image
        Tissue probabilities.
    excluded : ANTs image, optional
        Positive where the boundary is not one of cortex, such as around deep grey matter.
    """
    spacing, affine = np.asarray(white.spacing), images.affine_of(white)
    smooth = ndimage.gaussian_filter(white.numpy(), SMOOTHING / spacing)
    points = np.concatenate([_crossings(smooth, axis) for axis in range(3)])
    slope = np.stack(
        [_at(ndimage.sobel(smooth, axis), points) / size for axis, size in enumerate(spacing)], axis=1
    )  # towards white matter
    towards = slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), 1e-9) / spacing
    inner, outer = points + INNER * towards, points - OUTER * towards
    good = (_at(white.numpy(), inner) >= MIN_WHITE) & (_at(grey.numpy(), outer) >= MIN_GREY)
    if excluded is not None:
        good &= _at(excluded.numpy(), points) < 0.5
    return Boundary(*(images.apply(affine, place[good]) for place in (points, inner, outer)))


def _crossings(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the (N, 3) points, in voxels, at which values between neighbours along an axis pass one half."""
    values = np.moveaxis(values, axis, 0) - 0.5
    below, above = values[:-1], values[1:]
    places = np.argwhere((below > 0) != (above > 0))
    first, second = (side[tuple(places.T)] for side in (below, above))
    points = places.astype(float)
    points[:, 0] += first / (first - second)
    return points[:, [*range(1, axis + 1), 0, *range(axis + 1, 3)]]


def _at(values: np.ndarray, points: np.ndarray, beyond: str = "nearest") -> np.ndarray:
    """Interpolate an (X, Y, Z) array linearly at (N, 3) points in voxels."""
    return np.asarray(ndimage.map_coordinates(values, points.T, np.float32, order=1, mode=beyond))


def _with_slope(values: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate as `_at`: values (N,), and their derivatives (N, 3) by the position in voxels, 0 beyond the edge."""
    within = np.clip(points, 0, np.array(values.shape) - 1)
    first = np.minimum(within.astype(int), np.array(values.shape) - 2)
    share = (within - first).T
    corners = np.lib.stride_tricks.sliding_window_view(values, (2, 2, 2))[tuple(first.T)].transpose(1, 2, 3, 0)
    along_z = corners[:, :, 0] + share[2] * (corners[:, :, 1] - corners[:, :, 0])
    along_y = along_z[:, 0] + share[1] * (along_z[:, 1] - along_z[:, 0])
    slope_z = corners[:, :, 1] - corners[:, :, 0]
    slope_z = slope_z[:, 0] + share[1] * (slope_z[:, 1] - slope_z[:, 0])
    slope_y = along_z[:, 1] - along_z[:, 0]
    slopes = along_y[1] - along_y[0], *(side[0] + share[0] * (side[1] - side[0]) for side in (slope_y, slope_z))
    return along_y[0] + share[0] * slopes[0], np.stack(slopes, axis=1) * (within == points)


def fit_boundary(
    bold: Image, bold_mask: Image, t1w_mask: Image, boundary: Boundary, matrix: np.ndarray
) -> tuple[np.ndarray, dict[str, Any]]:
    """Move the boundary, rigidly, to where the BOLD reference is brighter outside and darker inside.

    Parameters
    ----------
    bold : ANTs image
        Bias-corrected reference.
    bold_mask : ANTs image
        Where it has signal, on the same grid; the boundary is used away from where the brain has none.
    t1w_mask : ANTs image
        Brain in the T1w.
    boundary : Boundary
    matrix : (4, 4) array
        Where the search starts: RAS mm, T1w points to BOLD points.

    Returns
    -------
    matrix : (4, 4) array
    numbers : dict
        ``boundary_shift`` (mm by which the boundary moves, mean over its points), ``boundary_cost_before`` and
        ``boundary_cost`` (0: full contrast all along it; 1: none); ``boundary_refusal`` if it is not to be trusted.
    """
    to_voxels, values, spacing = np.linalg.inv(images.affine_of(bold)), bold.numpy(), bold.spacing
    # Near lost signal and the end of the field, contrast is accidental, and any fit would gain by moving the boundary
    # away. The rim of the brain does not count as lost: what is missing there is where the two masks differ.
    _, brain = resample_t1w(bold_mask, t1w_mask, t1w_mask, matrix)
    lost = (ndimage.distance_transform_edt(brain, sampling=spacing) > RIM) & (bold_mask.numpy() < 0.5)
    from_loss = ndimage.distance_transform_edt(~lost, sampling=spacing) if lost.any() else np.inf
    field = np.pad(np.ones(lost.shape, dtype=bool), 1)
    from_end = ndimage.distance_transform_edt(field, sampling=spacing)[1:-1, 1:-1, 1:-1]
    usable = ((from_loss > RIM + REACH) & (from_end > REACH)).astype(np.float32)
    seen = _at(usable, images.apply(to_voxels @ matrix, boundary.middle), "constant") > 0.5
    drawn = np.sort(np.random.default_rng(0).permutation(np.flatnonzero(seen))[:POINTS])
    boundary = Boundary(*(points[drawn] for points in boundary))
    if len(boundary.middle) < MIN_POINTS:
        refusal = f"only {len(boundary.middle)} points of the boundary have signal"
        return matrix, {"boundary_shift": 0.0, "boundary_refusal": refusal}
    centre = boundary.middle.mean(axis=0)
    units = np.array([1, 1, 1, *[1 / HEAD_RADIUS] * 3])  # steps of 1 mm, also where heads rotate

    def moved(steps: np.ndarray) -> np.ndarray:
        return matrix @ images.rigid_matrix(steps * units, centre)

    def cost(steps: np.ndarray, slope: float = SLOPES[-1]) -> tuple[float, np.ndarray]:
        """Return the cost and its gradient (6,)."""
        value, by_entry = boundary_cost(values, boundary, to_voxels @ moved(steps), slope)
        nudges = [to_voxels @ (moved(steps + h) - moved(steps - h)) / (2 * STEP) for h in STEP * np.eye(6)]
        return value, np.array([(by_entry * nudge[:3]).sum() for nudge in nudges])

    steps = np.zeros(6)
    for slope in SLOPES:
        steps = optimize.minimize(cost, steps, slope, jac=True, method="L-BFGS-B", options={"ftol": 1e-7}).x
    found = moved(steps)
    shift = images.apply(np.linalg.inv(matrix) @ found, boundary.middle) - boundary.middle
    distance, before, after = float(np.linalg.norm(shift, axis=1).mean()), cost(np.zeros(6))[0], cost(steps)[0]
    numbers: dict[str, Any] = {"boundary_shift": distance, "boundary_cost": after, "boundary_cost_before": before}
    if before >= 1 or after >= before:
        numbers["boundary_refusal"] = "the boundary has no contrast"
    elif distance > MAX_SHIFT:
        numbers["boundary_refusal"] = f"it moves the boundary by {distance:.1f} mm, more than {MAX_SHIFT:g}"
    return found, numbers


def boundary_cost(
    values: np.ndarray, boundary: Boundary, to_voxels: np.ndarray, slope: float
) -> tuple[float, np.ndarray]:
    """Compute the cost of a place of the boundary: 0 for full contrast all along it, 1 for none.

    Parameters
    ----------
    values : (X, Y, Z) array
        BOLD reference.
    boundary : Boundary
    to_voxels : (4, 4) array
        From the boundary's points to voxels of the reference.
    slope : float
        Of the cost, for each per cent of contrast.

    Returns
    -------
    cost : float
    gradient : (3, 4) array
        By the entries of `to_voxels`.
    """
    (white, by_white), (grey, by_grey) = (
        _with_slope(values, images.apply(to_voxels, points)) for points in (boundary.inner, boundary.outer)
    )
    total, ones = np.maximum(grey + white, 1e-6), np.ones(len(white))
    reached = np.tanh(slope * 200 * (grey - white) / total)
    weight = slope * (1 - reached**2) * 400 / total**2 / len(total)
    gradient = (by_white.T * weight * grey) @ np.c_[boundary.inner, ones]
    gradient -= (by_grey.T * weight * white) @ np.c_[boundary.outer, ones]
    return float(1 - reached.mean()), gradient


def refine(
    bold: Image, bold_mask: Image, t1w: Image, t1w_mask: Image, boundary: Boundary, start: np.ndarray
) -> tuple[np.ndarray, dict[str, Any]]:
    """Improve a coregistration by the boundary, unless that fit is not to be trusted or the images agree less after it.

    Parameters
    ----------
    bold : ANTs image
        Bias-corrected reference.
    bold_mask, t1w, t1w_mask : ANTs image
    boundary : Boundary
    start : (4, 4) array
        RAS mm, T1w points to BOLD points.

    Returns
    -------
    matrix : (4, 4) array
    numbers : dict
        ``coregistration_mask_dice`` (overlap of the brain masks within the acquired field of view),
        ``coregistration_nmi``; ``coregistration_method``: "boundary" or "mutual information", then with
        ``boundary_refusal``; ``boundary_shift`` (mm), ``boundary_cost``, ``boundary_cost_before`` and
        ``boundary_nmi_before`` of the fit that was tried.
    """
    clipped = clip_intensity(bold)
    found, numbers = fit_boundary(bold, bold_mask, t1w_mask, boundary, start)
    (dice_before, nmi_before), (dice, nmi) = (
        agreement(clipped, bold_mask, t1w, t1w_mask, matrix) for matrix in (start, found)
    )
    refusal = numbers.pop("boundary_refusal", "")
    if not refusal and nmi < (1 - NMI_TOLERANCE) * nmi_before:
        refusal = f"mutual information would fall from {nmi_before:.4f} to {nmi:.4f}"
    if refusal:
        found, dice, nmi = start, dice_before, nmi_before
        numbers |= {"coregistration_method": "mutual information", "boundary_refusal": refusal}
    else:
        numbers |= {"coregistration_method": "boundary", "boundary_nmi_before": nmi_before}
    return found, {**numbers, "coregistration_mask_dice": dice, "coregistration_nmi": nmi}


def align_sbref(path: str | Path, reference: Image, mask: Image, settings: Registration) -> tuple[Image, float]:
    """Bring an SBRef to the place of a scan's reference, rigidly, by mutual information.

    Parameters
    ----------
    path : path
        3D image, or 4D: then the mean of its volumes.
    reference, mask : ANTs image
        Motion reference of the scan, and its brain.
    settings : Registration

    Returns
    -------
    image : ANTs image
        On the grid of the reference.
    shift : float
        mm by which the head has moved between the two, root mean square over a sphere of 80 mm.

    Raises
    ------
    DataError
        The file cannot be used, or shows something else.
    """
    total, n = np.zeros(check_image(path).shape[:3]), 0
    for volume in iter_volumes(path):
        total, n = total + np.nan_to_num(volume), n + 1
    mean = nib.as_closest_canonical(nib.Nifti1Image(total / n, check_image(path).affine))
    sbref = images.to_ants(np.asarray(mean.dataobj), mean.affine)
    # whole heads without their bias fields: the edge of a mask that only one image has draws the other towards it
    fixed, moving = (bias_correct(image, settings) for image in (reference, sbref))
    aligned, matrix = align(fixed, moving, ants.iMath(mask, "MD", 2), settings, sbref)
    brain = mask.numpy() > 0.5
    centre = images.mask_centre(brain, images.affine_of(mask))
    r = np.corrcoef(aligned.numpy()[brain], reference.numpy()[brain])[0, 1]
    if not r >= MIN_CORRELATION:
        raise DataError(f"it does not show the brain of the scan (correlation {r:.2f})", where=path)
    return aligned, float(root_mean_square_displacement(np.stack([np.eye(4), matrix]), centre)[1])
