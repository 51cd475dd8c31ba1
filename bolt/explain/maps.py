"""Numbers of ROIs as images: painted into the atlas, named and described as BIDS derivatives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from bolt.atlases.maps import weighted_sum
from bolt.io.errors import DataError
from bolt.io.files import atomic, write_json


def paint(image: nib.Nifti1Image, values: NDArray[np.integer], numbers: NDArray[np.generic]) -> nib.Nifti1Image:
    """Write a number into each ROI of a label image, and zero elsewhere.

    Parameters
    ----------
    image : label image (X, Y, Z)
        Or maps (X, Y, Z, R), of which the result is the sum, each map times its number, float32.
    values : int array (n,)
        Label values.
    numbers : array (n,)
        One per ROI; the result has their data type.
    """
    if len(image.shape) == 4:
        return _declared_like(image, weighted_sum(image, values.tolist(), numbers.tolist()))
    labels = np.asanyarray(image.dataobj).astype(np.int64)
    absent = np.setdiff1d(values, labels)
    if len(absent):
        raise DataError(
            f"the atlas's image has no voxel with the label value {absent[0]}",
            hint="Use the atlas that the cache was made with",
        )
    order = np.argsort(values)
    place = np.clip(np.searchsorted(values, labels, sorter=order), 0, len(values) - 1)
    nearest = order[place]
    painted = np.where(values[nearest] == labels, numbers[nearest], 0).astype(numbers.dtype)
    return _declared_like(image, nib.Nifti1Image(painted, image.affine))


def _declared_like(image: nib.Nifti1Image, result: nib.Nifti1Image) -> nib.Nifti1Image:
    """Declare the coordinate system of an image in a result on its grid."""
    result.header.set_xyzt_units("mm")
    for code, setter in (
        (image.header["sform_code"], result.set_sform),
        (image.header["qform_code"], result.set_qform),
    ):
        setter(image.affine, int(code) or 2)
    return result


MAPS = {
    "weight": ("stat-logodds_statmap", "log odds per standard deviation of the ROI, mean over folds; all ROIs"),
    "importance": ("stat-oddsratio_statmap", "odds ratio minus one; all ROIs"),
    "selected": ("desc-top_mask", "1: the ROI is among the top ROIs of the class"),
}
"""Column of `bolt.explain.regions.ROI_COLUMNS` to the end of its map's file name, and what the voxels hold."""


def map_names(classes: Sequence[str], atlas: str = "", space: str = "") -> list[dict[str, str]]:
    """Return the file names of each class's maps, in the style of BIDS derivatives, by the keys of `MAPS`.

    Only letters and digits are kept of a class's name. If nothing is left, or two names become equal ("-1" and "1"),
    the position of the class, from 1, is appended.
    """
    entities = (("space", _plain(space)), ("atlas", _plain(atlas)))
    plain = [_plain(name) for name in classes]
    folded = [name.casefold() for name in plain]  # some file systems ignore case
    taken = {name for name in folded if folded.count(name) == 1}
    names = []
    for position, (name, key) in enumerate(zip(plain, folded, strict=True), start=1):
        if not name or folded.count(key) > 1:
            name = f"{name}x{position}" if name else f"{position}"
            while name.casefold() in taken:
                name += "x"
            taken.add(name.casefold())
        start = "_".join(f"{entity}-{value}" for entity, value in (*entities, ("class", name)) if value)
        names.append({column: f"{start}_{ending}.nii.gz" for column, (ending, _) in MAPS.items()})
    return names


def _plain(name: str) -> str:
    """Remove all but letters and digits."""
    return re.sub(r"[^A-Za-z0-9]", "", name)


def write_map(image: nib.Nifti1Image, path: Path, about: Mapping[str, object]) -> None:
    """Write a map (``.nii.gz``) and its sidecar."""
    with atomic(path) as temporary:
        nib.save(image, temporary)
    write_json(about, path.with_name(path.name.replace(".nii.gz", ".json")))
