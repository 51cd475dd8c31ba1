"""Checks of raw images before hours of work: usable geometry in the header, and voxels that can be a head.

An ambiguous header is read as nibabel, FSL and fMRIPrep read it (the sform takes precedence), with a warning. An image
whose sform and qform disagree about left and right is refused.
"""

from __future__ import annotations

import warnings
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy

from bolt.io.errors import BoltWarning, DataError, readable
from bolt.io.streams import iter_volumes
from bolt.io.volumes import RECONVERT, BoldInfo, check_bold, check_image, compare_forms
from bolt.preprocess.images import refuse_shear

MIN_FIELD, MAX_FIELD = 50.0, 600.0
"""mm; limits of the longest side of a field of view that can hold a human head."""
MIN_VOXELS_T1W, MIN_VOXELS_BOLD = 20, 8
"""Voxels along each axis that registration needs."""
MIN_VOLUMES = 5
MAX_ANISOTROPY = 3.0
"""Ratio of longest to shortest voxel side above which slices count as thick."""


def check_t1w(path: Path) -> None:
    """Refuse an image that is not a whole, finite 3D image of a head; warn of oddities.

    Raises
    ------
    DataError
    """
    image = check_image(path)
    if len([n for n in image.shape if n > 1]) != 3:
        what = f"expected a 3D T1w image, but the shape is {_times(image.shape)}"
        raise DataError(what, where=path, hint="Provide the anatomical image")
    _check_geometry(image, path, MIN_VOXELS_T1W)
    what, kinds = "the file is truncated or damaged", (OSError, EOFError, ValueError, zlib.error)
    with readable(path, *kinds, what=what, hint="Copy it again", text=False):
        data = np.asarray(image.dataobj, dtype=np.float32).reshape(image.shape[:3])
    _check_volumes([data], image, path)


def check_voxels(path: Path, tr: float) -> BoldInfo:
    """Check the header of a 4D image and, in one pass, its voxels; return what the header states.

    Raises
    ------
    DataError
        The header is unusable, the file is truncated, or the voxels cannot be a head.
    """
    info = check_bold(path, tr)
    image = check_image(path)
    _check_geometry(image, path, MIN_VOXELS_BOLD)
    if info.n_volumes < MIN_VOLUMES:
        raise DataError(
            f"only {info.n_volumes} volumes: head motion correction, denoising and ROI series need at least "
            f"{MIN_VOLUMES}",
            where=path,
            hint="Exclude the scan: 'exclude' in the dataset's file",
        )
    _check_volumes(iter_volumes(path), image, path)
    return info


def check_together(bold: Path, t1w: Path) -> None:
    """Warn if a scan and its T1w image do not overlap according to their headers."""
    boxes = []
    for image in map(check_image, (bold, t1w)):
        corners = np.array(np.meshgrid(*[(0, n - 1) for n in image.shape[:3]])).reshape(3, -1).T
        places = nib.affines.apply_affine(image.affine, corners)
        boxes.append((places.min(axis=0), places.max(axis=0)))
    low, high = zip(*boxes, strict=True)
    if (np.minimum(*high) <= np.maximum(*low)).any():
        gap = np.linalg.norm(np.subtract(*np.add(low, high)) / 2)
        _warn(
            bold,
            f"according to their headers, T1w and BOLD do not overlap (centres {gap:.0f} mm apart); they will be "
            "aligned by their centres of mass: check the coregistration",
        )


def _check_geometry(image: nib.Nifti1Image, path: Path, min_voxels: int) -> None:
    """Refuse an image whose header describes no head; warn of an ambiguous orientation and of thick slices."""
    refuse_shear(image.affine, path)
    sizes = nib.affines.voxel_sizes(image.affine)
    if image.header["sform_code"] and image.header["qform_code"]:
        try:
            image.header.get_qform()
        except (nib.spatialimages.HeaderDataError, ValueError):
            _warn(path, "the qform is not a valid rotation; the sform is used")
    distance, angle = compare_forms(image)
    if distance > max(sizes):
        _warn(path, f"sform and qform differ by up to {distance:.1f} mm and {angle:.0f}°; the sform is used")
    field = sizes * image.shape[:3]
    if not MIN_FIELD <= max(field) <= MAX_FIELD:
        what = f"a field of view of {_times(field)} mm does not fit a human head"
        hint = "Correct the voxel sizes in the header; they are in millimetres, not metres or micrometres"
        raise DataError(what, where=path, hint=hint)
    if min(image.shape[:3]) < min_voxels:
        what = f"only {_times(image.shape[:3])} voxels: registration needs at least {min_voxels} along each axis"
        raise DataError(what, where=path, hint="Provide an image of the whole head")
    if max(sizes) > MAX_ANISOTROPY * min(sizes):
        _warn(path, f"thick slices (voxels of {_times(sizes)} mm): check the registration")


def _check_volumes(volumes: Iterable[np.ndarray], image: nib.Nifti1Image, path: Path) -> None:
    """Refuse volumes that are not finite or constant, and integers of the wrong sign; warn of empty slices within."""
    dtype, proxy = image.get_data_dtype(), cast(ArrayProxy, image.dataobj)
    unscaled = dtype.kind in "iu" and (proxy.slope, proxy.inter) == (1, 0)
    top = np.iinfo(dtype).max if unscaled else np.inf
    ranges: Counter[str] = Counter()
    filled: list[list[np.ndarray]] = [[], [], []]
    for t, volume in enumerate(volumes):
        name = "the image" if image.ndim == 3 or image.shape[3] == 1 else f"volume {t} (counted from 0)"
        if n_bad := int((~np.isfinite(volume)).sum()):
            what = f"{name} has {n_bad} NaN or infinite voxels"
            raise DataError(what, where=path, hint=f"{RECONVERT}, or set these voxels to zero")
        if volume.max() <= volume.min():
            what = f"{name} is empty: all voxels are {volume.min():g}"
            raise DataError(what, where=path, hint=f"{RECONVERT}, or remove empty volumes")
        for axis in range(3):
            filled[axis].append(np.any(volume, axis=tuple({0, 1, 2} - {axis})))
        if unscaled:
            ranges["bottom"] += int((volume < -0.9 * top).sum())
            ranges["upper"] += int(((volume > 0.5 * top) & (volume <= 0.9 * top)).sum())
            ranges["top"] += int((volume > 0.9 * top).sum())
            ranges["all"] += volume.size
    for axis, slices in enumerate(map(np.array, filled)):
        ever = np.flatnonzero(slices.any(axis=0))  # those beyond it, at the edge of the image, may be empty
        empty, numbers = np.nonzero(~slices[:, ever[0] : ever[-1] + 1])
        if empty.size:
            where = f"slice {ever[0] + numbers[0]} of axis {axis}"
            where += f" in volume {empty[0]}" if len(slices) > 1 else ""
            counts = f"{len(set(numbers))} all-zero slice(s) in {len(set(empty))} of {len(slices)} volumes"
            _warn(path, f"{counts}, such as {where} (counted from 0)")
    # signed images with voxels at both ends of the range; unsigned ones near zero and at the top, but none in between
    if ranges["bottom"] and ranges["top"]:
        problem, actual = f"values above {top} have become negative", f"u{dtype.name}"
    elif dtype.kind == "u" and dtype.itemsize > 1 and ranges["top"] > 1e-3 * ranges["all"] and not ranges["upper"]:
        problem, actual = "negative values have become huge", dtype.name[1:]
    else:
        return
    what = f"{problem}: the header declares {dtype.name}, but the voxels are {actual}"
    raise DataError(what, where=path, hint=f"{RECONVERT}, or correct 'datatype' in its header")


def _times(sizes: Iterable[float]) -> str:
    """Join sizes as in ``64×64×36``."""
    return "×".join(f"{size:.4g}" for size in sizes)


def _warn(path: Path, problem: str) -> None:
    warnings.warn(f"{path}: {problem}", BoltWarning, stacklevel=3)
