"""Errors of registrations and head positions against the truth, in mm and degrees."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
from nilearn.image import resample_img

from bolt.preprocess import images
from bolt.preprocess.quality.measures import HEAD_RADIUS


class NormalisationError(NamedTuple):
    """Median over grey matter of the distance between estimated and true places of the tissue, mm."""

    found: float
    affine_part: float
    nothing: float


def normalisation_error(true: nib.Nifti1Image, grey: nib.Nifti1Image, transform: Path) -> NormalisationError:
    """Compare a transform from T1w to template with the truth.

    Parameters
    ----------
    true : image, (X, Y, Z, 3)
        True place of the template's tissue in the subject, RAS mm.
    grey : image
        Probability of grey matter in the template.
    transform : path
        ITK transform, T1w to template.

    Returns
    -------
    NormalisationError
        Of the transform, of the affine map that fits it best, and of no registration.
    """
    shape = (true.shape[0], true.shape[1], true.shape[2])
    resampled = resample_img(grey, true.affine, shape, interpolation="linear", copy_header=True, force_resample=True)
    inside = np.asarray(resampled.dataobj) > 0.5
    places = true.get_fdata()[inside]
    estimated = images.places_of_grid(shape, true.affine, [transform])[inside]
    unregistered = images.apply(true.affine, np.argwhere(inside).astype(float))
    design = np.column_stack([unregistered, np.ones(len(unregistered))])
    linear = design @ np.linalg.lstsq(design, estimated, rcond=None)[0]
    return NormalisationError(*(_distance(guess, places) for guess in (estimated, linear, unregistered)))


def position_errors(estimated: np.ndarray, true: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors of head positions, volume by volume.

    The estimate may have another reference than the truth: the median difference over volumes is subtracted.

    Parameters
    ----------
    estimated, true : (T, 4, 4) arrays
        Reference to volume, RAS mm.
    centre : (3,) array
        Centre of the head, about which rotations are expressed.

    Returns
    -------
    translation : (T, 3) array
        Errors along x, y and z, mm.
    rotation : (T, 3) array
        Errors of the three angles, degrees.
    """
    wrong = [images.rigid_parameters(np.linalg.inv(t) @ e, centre) for e, t in zip(estimated, true, strict=True)]
    errors = np.stack(wrong) - np.median(wrong, axis=0)
    return errors[:, :3], np.degrees(errors[:, 3:])


def sphere_error(estimated: np.ndarray, true: np.ndarray, centre: np.ndarray) -> float:
    """Return the displacement (mm) of a 50-mm sphere about `centre` that was not corrected, median over volumes.

    `estimated` and `true` as in `position_errors`; here too the median over volumes is subtracted.
    """
    sphere = _sphere(centre)
    places = np.stack([images.apply(m, sphere) for m in estimated @ np.linalg.inv(estimated[0])])
    return away(places - np.stack([images.apply(m, sphere) for m in true]))


def coregistration_error(
    t1w_to_bold: np.ndarray, positions: np.ndarray, true: np.ndarray, true_motion: np.ndarray, centre: np.ndarray
) -> float:
    """Return the displacement (mm) of a 50-mm sphere in the BOLD volumes, mean over the sphere, median over volumes.

    Parameters
    ----------
    t1w_to_bold, true : (4, 4) array
        T1w points to points of the BOLD reference, and of the first volume; RAS mm.
    positions, true_motion : (T, 4, 4) array
        From the reference, and from the first volume, to each volume.
    centre : (3,) array
        Centre of the brain in the T1w.
    """
    sphere = _sphere(centre)
    places = np.stack([images.apply(m, sphere) for m in positions @ t1w_to_bold])
    expected = np.stack([images.apply(m, sphere) for m in true_motion @ true])
    return float(np.median(np.linalg.norm(places - expected, axis=2).mean(axis=1)))


def _sphere(centre: np.ndarray) -> np.ndarray:
    directions = np.random.default_rng(0).standard_normal((200, 3))
    return centre + HEAD_RADIUS * directions / np.linalg.norm(directions, axis=1, keepdims=True)


def away(difference: np.ndarray) -> float:
    """Return the median over volumes of the mean length of (T, points, 3) differences, minus their median over time."""
    return float(np.median(np.linalg.norm(difference - np.median(difference, axis=0), axis=2).mean(axis=1)))


def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation of the columns of two (T, R) arrays; NaN if one is constant or not covered."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.mean((a - a.mean(0)) / a.std(0) * ((b - b.mean(0)) / b.std(0)), axis=0)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the median distance between points."""
    return float(np.median(np.linalg.norm(a - b, axis=1)))
