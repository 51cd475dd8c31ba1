"""How far a registration or a head position is from the truth, mm and degrees."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
from nilearn.image import resample_img

from bolt.preprocess import images
from bolt.preprocess.functional import confounds
from bolt.preprocess.functional.resample import places_of_grid


class NormalisationError(NamedTuple):
    """Median over grey matter of the distance between where its tissue was found and where it is, mm."""

    found: float
    affine_part: float
    nothing: float


def normalisation_error(true: nib.Nifti1Image, grey: nib.Nifti1Image, transform: Path) -> NormalisationError:
    """Judge a transform from T1w to template.

    Parameters
    ----------
    true : image, (X, Y, Z, 3)
        Where the template's tissue lies in the subject, RAS mm.
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
    found = places_of_grid(shape, true.affine, [transform])[inside]
    where = images.apply(true.affine, np.argwhere(inside).astype(float))
    design = np.column_stack([where, np.ones(len(where))])
    linear = design @ np.linalg.lstsq(design, found, rcond=None)[0]
    return NormalisationError(*(_distance(guess, places) for guess in (found, linear, where)))


def position_errors(found: np.ndarray, true: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is wrong with head positions, volume by volume.

    The estimate's reference need not be the truth's: the median difference over volumes is taken off.

    Parameters
    ----------
    found, true : (T, 4, 4) arrays
        Reference to volume, RAS mm.
    centre : (3,) array
        The head's, about which rotations are expressed.

    Returns
    -------
    translation : (T, 3) array
        Errors along x, y and z, mm.
    rotation : (T, 3) array
        Errors of the three angles, degrees.
    """
    wrong = [images.rigid_parameters(np.linalg.inv(t) @ f, centre) for f, t in zip(found, true, strict=True)]
    errors = np.stack(wrong) - np.median(wrong, axis=0)
    return errors[:, :3], np.degrees(errors[:, 3:])


def sphere_error(found: np.ndarray, true: np.ndarray, centre: np.ndarray) -> float:
    """Displacement (mm) of a 50-mm sphere about `centre` that was not found: median over volumes.

    `found` and `true` as in `position_errors`; here too the median over volumes is forgiven.
    """
    directions = np.random.default_rng(0).standard_normal((200, 3))
    sphere = centre + confounds.HEAD_RADIUS * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    places = np.stack([images.apply(m, sphere) for m in found @ np.linalg.inv(found[0])])
    return away(places - np.stack([images.apply(m, sphere) for m in true]))


def away(difference: np.ndarray) -> float:
    """Median over volumes of the mean length of (T, points, 3) differences, their median over time taken off."""
    return float(np.median(np.linalg.norm(difference - np.median(difference, axis=0), axis=2).mean(axis=1)))


def correlation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pearson correlation of the columns of two (T, R) arrays; NaN where one is constant or not covered."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.mean((a - a.mean(0)) / a.std(0) * ((b - b.mean(0)) / b.std(0)), axis=0)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.median(np.linalg.norm(a - b, axis=1)))
