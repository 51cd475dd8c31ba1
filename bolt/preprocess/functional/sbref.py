"""The single-band reference (SBRef): a volume with more contrast, acquired before a multiband scan.

It takes the place of the scan's own reference in the coregistration only. Head motion is estimated against volumes of
the scan, whose contrast is theirs.
"""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np

from bolt.config import Registration
from bolt.io.errors import DataError
from bolt.io.streams import iter_volumes
from bolt.io.volumes import check_image
from bolt.preprocess import images
from bolt.preprocess.antspy import ants
from bolt.preprocess.functional.confounds import root_mean_square_displacement
from bolt.preprocess.registration import align, bias_correct

MIN_CORRELATION = 0.5
"""Least correlation with the scan's reference, within the brain, of an SBRef that shows the same brain."""


def align_sbref(
    path: str | Path, reference: ants.ANTsImage, mask: ants.ANTsImage, settings: Registration
) -> tuple[ants.ANTsImage, float]:
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
    sbref = _read(path)
    # whole heads without their bias fields: the edge of a mask that only one image has draws the other towards it
    fixed, moving = (bias_correct(image, settings) for image in (reference, sbref))
    aligned, matrix = align(fixed, moving, ants.iMath(mask, "MD", 2), settings, sbref)
    brain = mask.numpy() > 0.5
    centre = images.mask_centre(brain, images.affine_of(mask))
    r = np.corrcoef(aligned.numpy()[brain], reference.numpy()[brain])[0, 1]
    if not r >= MIN_CORRELATION:
        raise DataError(f"it does not show the brain of the scan (correlation {r:.2f})", where=path)
    return aligned, float(root_mean_square_displacement(np.stack([np.eye(4), matrix]), centre)[1])


def _read(path: str | Path) -> ants.ANTsImage:
    """Read a 3D image, or the mean of a 4D one, in the closest RAS order."""
    total, n = np.zeros(check_image(path).shape[:3]), 0
    for volume in iter_volumes(path):
        total, n = total + np.nan_to_num(volume), n + 1
    mean = nib.as_closest_canonical(nib.Nifti1Image(total / n, check_image(path).affine))
    return images.to_ants(np.asarray(mean.dataobj), mean.affine)
