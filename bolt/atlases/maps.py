"""Probabilistic atlases: 4D images with one map of weights per ROI, which may overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np

from bolt.io.errors import DataError
from bolt.io.streams import iter_volumes
from bolt.io.volumes import check_image, require_one_place


def read_maps(path: Path, n_rois: int | None = None) -> nib.Nifti1Image:
    """Open a 4D image of maps, without reading voxels.

    Raises
    ------
    DataError
        It is not 4D, or has not as many maps as the table has ROIs.
    """
    image = check_image(path)
    require_one_place(image, path)
    if len(image.shape) != 4:
        raise DataError(
            f"expected a 4D image with a map per ROI, but the shape is {image.shape}",
            where=path,
            hint="Give the maps, or describe a label image with 'kind: image'",
        )
    if n_rois is not None and image.shape[3] != n_rois:
        raise DataError(
            f"{image.shape[3]} maps, but the table of labels has {n_rois} rows",
            where=path,
            hint="List the maps in their order, numbered from 1",
        )
    return image


def iter_maps(image: nib.Nifti1Image) -> Iterator[np.ndarray]:
    """Yield the (X, Y, Z) float32 maps of an image from `read_maps`, one at a time; weights not finite become 0."""
    for values in iter_volumes(str(image.get_filename())):
        yield np.where(np.isfinite(values), values, np.float32(0))


def strongest(image: nib.Nifti1Image) -> nib.Nifti1Image:
    """Return a label image of maps: each voxel has the number (from 1) of its strongest map, 0 where all are 0 or less.

    A map that is nowhere the strongest keeps its peak, so that no ROI is lost.
    """
    labels = np.zeros(image.shape[:3], np.int32)
    highest = np.zeros(image.shape[:3], np.float32)
    peaks = []
    for number, values in enumerate(iter_maps(image), 1):
        better = values > highest
        labels[better], highest[better] = number, values[better]
        peaks.append(np.unravel_index(values.argmax(), values.shape))
    for number in np.setdiff1d(np.arange(1, len(peaks) + 1), labels):
        labels[peaks[number - 1]] = number
    return nib.Nifti1Image(labels, image.affine)


def weighted_sum(image: nib.Nifti1Image, values: Sequence[int], numbers: Sequence[float]) -> nib.Nifti1Image:
    """Return the sum of maps, each times its number.

    Parameters
    ----------
    image : nibabel image
        From `read_maps`.
    values : sequence of int
        Numbers of the maps, from 1.
    numbers : sequence of float
        One per value.
    """
    of_map = dict(zip(values, numbers, strict=True))
    total = np.zeros(image.shape[:3], np.float32)
    for value, weights in enumerate(iter_maps(image), 1):
        if of_map.get(value, 0):
            total += np.float32(of_map[value]) * weights
    return nib.Nifti1Image(total, image.affine)
