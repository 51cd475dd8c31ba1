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

from bolt.io.errors import BoltWarning, DataError
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
        raise DataError(
            f"expected a 3D T1w image, but the shape is {_times(image.shape)}",
            where=path,
            hint="Provide the anatomical image",
        )
    _check_geometry(image, path, MIN_VOXELS_T1W)
    try:
        data = np.asarray(image.dataobj, dtype=np.float32).reshape(image.shape[:3])
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"the file is truncated or damaged ({error})", where=path, hint="Copy it again") from None
    _check_values(data, "the image", path)
    slices = _Slices()
    slices.add(data)
    slices.warn(path)
    _refuse_wrapped(Counter(_extremes(data, image)), image, path)


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
    slices, extremes = _Slices(), Counter[str]()
    for t, volume in enumerate(iter_volumes(path)):
        _check_values(volume, f"volume {t} (counted from 0)", path)
        slices.add(volume)
        extremes.update(_extremes(volume, image))
    if info.n_volumes < MIN_VOLUMES:
        raise DataError(
            f"only {info.n_volumes} volumes: head motion correction, denoising and ROI series need at least "
            f"{MIN_VOLUMES}",
            where=path,
            hint="Exclude the scan: 'exclude' in the dataset's file",
        )
    slices.warn(path)
    _refuse_wrapped(extremes, image, path)
    return info


def check_together(bold: Path, t1w: Path) -> None:
    """Warn if a scan and its T1w image do not overlap according to their headers."""
    low, high = zip(*(_box(check_image(path)) for path in (bold, t1w)), strict=True)
    if (np.minimum(*high) <= np.maximum(*low)).any():
        gap = np.linalg.norm(np.subtract(*np.add(low, high)) / 2)
        _warn(
            bold,
            f"according to their headers, T1w and BOLD do not overlap (centres {gap:.0f} mm apart); they will be "
            "aligned by their centres of mass: check the coregistration",
        )


def _check_geometry(image: nib.Nifti1Image, path: Path, min_voxels: int) -> None:
    """Refuse an image whose header describes no head; warn of an ambiguous orientation and of thick slices.

    Parameters
    ----------
    image : nibabel image
    path : path
        Named in errors.
    min_voxels : int
        Voxels needed along each axis.
    """
    refuse_shear(image.affine, path)
    _warn_of_forms(image, path)
    sizes = nib.affines.voxel_sizes(image.affine)
    field = sizes * image.shape[:3]
    if not MIN_FIELD <= max(field) <= MAX_FIELD:
        raise DataError(
            f"a field of view of {_times(field)} mm does not fit a human head",
            where=path,
            hint="Correct the voxel sizes in the header; they are in millimetres, not metres or micrometres",
        )
    if min(image.shape[:3]) < min_voxels:
        raise DataError(
            f"only {_times(image.shape[:3])} voxels: registration needs at least {min_voxels} along each axis",
            where=path,
            hint="Provide an image of the whole head",
        )
    if max(sizes) > MAX_ANISOTROPY * min(sizes):
        _warn(path, f"thick slices (voxels of {_times(sizes)} mm): check the registration")


def _warn_of_forms(image: nib.Nifti1Image, path: Path) -> None:
    """Warn of an sform and qform that differ by more than a voxel, or of a qform that is none."""
    if image.header["sform_code"] and image.header["qform_code"]:
        try:
            image.header.get_qform()
        except (nib.spatialimages.HeaderDataError, ValueError):
            _warn(path, "the qform is not a valid rotation; the sform is used")
    distance, angle = compare_forms(image)
    if distance > max(nib.affines.voxel_sizes(image.affine)):
        _warn(path, f"sform and qform differ by up to {distance:.1f} mm and {angle:.0f}°; the sform is used")


def _box(image: nib.Nifti1Image) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest corner of an image's field of view, RAS mm."""
    corners = nib.affines.apply_affine(image.affine, _corners(image))
    return corners.min(axis=0), corners.max(axis=0)


def _corners(image: nib.Nifti1Image) -> np.ndarray:
    """Return the (8, 3) voxel indices of an image's corners."""
    return np.array(np.meshgrid(*[(0, n - 1) for n in image.shape[:3]])).reshape(3, -1).T


def _check_values(volume: np.ndarray, name: str, path: Path) -> None:
    """Refuse a volume that is not finite or is constant."""
    n_bad = int((~np.isfinite(volume)).sum())
    if n_bad:
        raise DataError(
            f"{name} has {n_bad} NaN or infinite voxels",
            where=path,
            hint=f"{RECONVERT}, or set these voxels to zero",
        )
    if volume.max() <= volume.min():
        raise DataError(
            f"{name} is empty: all voxels are {volume.min():g}",
            where=path,
            hint=f"{RECONVERT}, or remove empty volumes",
        )


class _Slices:
    """Record of which slices are all zero, in which volumes."""

    def __init__(self) -> None:
        self._filled: list[list[np.ndarray]] = [[], [], []]

    def add(self, volume: np.ndarray) -> None:
        for axis in range(3):
            self._filled[axis].append(np.any(volume, axis=tuple({0, 1, 2} - {axis})))

    def warn(self, path: Path) -> None:
        """Warn of empty slices within the part of the image that is ever filled."""
        for axis, filled in enumerate(map(np.array, self._filled)):
            ever = np.flatnonzero(filled.any(axis=0))
            volumes, slices = np.nonzero(~filled[:, ever[0] : ever[-1] + 1])
            if volumes.size:
                where = f"slice {ever[0] + slices[0]} of axis {axis}"
                where += f" in volume {volumes[0]}" if len(filled) > 1 else ""
                counts = f"{len(set(slices))} all-zero slice(s) in {len(set(volumes))} of {len(filled)} volumes"
                _warn(path, f"{counts}, such as {where} (counted from 0)")


def _extremes(volume: np.ndarray, image: nib.Nifti1Image) -> dict[str, int]:
    """Count the voxels in the ranges that reveal a wrong sign; empty unless voxels are unscaled integers."""
    dtype = image.get_data_dtype()
    proxy = cast(ArrayProxy, image.dataobj)
    if dtype.kind not in "iu" or (proxy.slope, proxy.inter) != (1, 0):
        return {}
    top = np.iinfo(dtype).max
    return {
        "bottom": int((volume < -0.9 * top).sum()),
        "top": int((volume > 0.9 * top).sum()),
        "upper": int(((volume > 0.5 * top) & (volume <= 0.9 * top)).sum()),
        "all": volume.size,
    }


def _refuse_wrapped(counts: Counter[str], image: nib.Nifti1Image, path: Path) -> None:
    """Refuse integers declared with the wrong sign.

    These are signed images with voxels at both ends of the range, and unsigned images with voxels near zero and at the
    top of the range but none in between.
    """
    dtype = image.get_data_dtype()
    if counts["bottom"] and counts["top"]:
        problem, actual = f"values above {np.iinfo(dtype).max} have become negative", f"u{dtype.name}"
    elif dtype.kind == "u" and dtype.itemsize > 1 and counts["top"] > 1e-3 * counts["all"] and not counts["upper"]:
        problem, actual = "negative values have become huge", dtype.name[1:]
    else:
        return
    raise DataError(
        f"{problem}: the header declares {dtype.name}, but the voxels are {actual}",
        where=path,
        hint=f"{RECONVERT}, or correct 'datatype' in its header",
    )


def _times(sizes: Iterable[float]) -> str:
    """Join sizes as in ``64×64×36``."""
    return "×".join(f"{size:.4g}" for size in sizes)


def _warn(path: Path, problem: str) -> None:
    warnings.warn(f"{path}: {problem}", BoltWarning, stacklevel=3)
