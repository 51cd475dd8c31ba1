"""What is looked at before hours of work: headers that say where a head lies, and voxels that can be a head.

Where a header can be read in two ways the reading is the field's: the sform, as nibabel, FSL and fMRIPrep take it, with
a warning. Where the two would put left on the right, the image is refused.
"""

from __future__ import annotations

import warnings
import zlib
from collections import Counter
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy

from bolt.io.errors import BoltWarning, DataError
from bolt.io.streams import iter_volumes
from bolt.io.volumes import BoldInfo, check_bold, check_image, require_affine
from bolt.preprocess.images import SHEAR_TOLERANCE

SMALLEST_FIELD, LARGEST_FIELD = 50.0, 600.0
"""mm; the longest side of a field that may hold a human head."""
FEWEST_T1W, FEWEST_BOLD = 20, 8
"""Voxels along an axis that registration needs."""
FEWEST_VOLUMES = 5
THICK = 3.0
"""Longest over shortest side of a voxel, beyond which slices are thick."""
TURNED = 30.0
"""Degrees between sform and qform, beyond which they show different heads."""
AGAIN = "Convert the image again from its source"


def check_t1w(path: Path) -> None:
    """Refuse what is no whole, finite 3D image of a head; warn of what is odd.

    Raises
    ------
    DataError
    """
    image = check_image(path)
    if len([n for n in image.shape if n > 1]) != 3:
        shape = "×".join(map(str, image.shape))
        raise DataError(f"a 3D T1w is due, but the shape is {shape}", where=path, hint="Give the anatomical image")
    check_geometry(image, path, FEWEST_T1W)
    try:
        data = np.asarray(image.dataobj, dtype=np.float32).reshape(image.shape[:3])
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"the file is cut off or damaged ({error})", where=path, hint="Copy it again") from None
    if not np.isfinite(data).all():
        raise DataError(
            f"{int((~np.isfinite(data)).sum())} voxels are NaN or infinite",
            where=path,
            hint="Convert the image again from its source, or set these voxels to zero",
        )
    if data.max() <= data.min():
        raise DataError(f"all voxels are {data.min():g}", where=path, hint="Copy or convert the image again")
    slices = _Slices()
    slices.add(data)
    slices.warn(path)
    _refuse_wrapped(Counter(_extremes(data, image)), image, path)


def check_voxels(path: Path, tr: float) -> BoldInfo:
    """What the header says; one pass that refuses a bad header, a cut-off stream, and voxels that cannot be a head.

    Raises
    ------
    DataError
    """
    info = check_bold(path, tr)
    image = check_image(path)
    check_geometry(image, path, FEWEST_BOLD)
    slices, extremes = _Slices(), Counter[str]()
    for t, volume in enumerate(iter_volumes(path)):
        if not np.isfinite(volume).all():
            raise DataError(
                f"volume {t} (counted from 0) has {int((~np.isfinite(volume)).sum())} voxels that are NaN or infinite",
                where=path,
                hint="Convert the scan again from its source, or remove it",
            )
        if volume.max() <= volume.min():
            raise DataError(
                f"volume {t} (counted from 0) is empty: all voxels are {volume.min():g}",
                where=path,
                hint="Convert the scan again from its source, or cut off the empty volumes",
            )
        slices.add(volume)
        extremes.update(_extremes(volume, image))
    if info.n_volumes < FEWEST_VOLUMES:
        raise DataError(
            f"{info.n_volumes} volumes; head motion, noise and ROI series need at least {FEWEST_VOLUMES}",
            where=path,
            hint="Leave the scan out: 'exclude' in the dataset's file",
        )
    slices.warn(path)
    _refuse_wrapped(extremes, image, path)
    return info


def check_geometry(image: nib.Nifti1Image, path: Path, fewest: int) -> None:
    """Refuse a header that does not say where the head lies; warn where it says so twice and differently.

    Parameters
    ----------
    image : nibabel image
    path : path
        For the error.
    fewest : int
        Voxels that are needed along each axis.

    Raises
    ------
    DataError
    """
    check_orientation(image, path)
    sizes = nib.affines.voxel_sizes(image.affine)
    field = sizes * image.shape[:3]
    said = "×".join(f"{side:.3g}" for side in field)
    if not SMALLEST_FIELD <= max(field) <= LARGEST_FIELD:
        raise DataError(
            f"the field is {said} mm, which fits no human head",
            where=path,
            hint="Correct the voxel sizes in the header; they are millimetres, not metres or micrometres",
        )
    if min(image.shape[:3]) < fewest:
        shape = "×".join(map(str, image.shape[:3]))
        raise DataError(
            f"{shape} voxels are too few: registration needs {fewest} along each axis",
            where=path,
            hint="Give an image of the whole head",
        )
    if max(sizes) > THICK * min(sizes):
        _warn(path, f"thick slices: voxels of {'×'.join(f'{s:.3g}' for s in sizes)} mm; look at the registration")


def check_orientation(image: nib.Nifti1Image, path: Path) -> None:
    """The affine: there is one, it can be inverted and does not shear, and sform and qform agree on left and right."""
    header = image.header
    if not (header["sform_code"] or header["qform_code"]):
        raise DataError(
            "neither sform nor qform is set: left and right are unknown",
            where=path,
            hint=f"{AGAIN} with a converter that keeps the orientation (dcm2niix)",
        )
    require_affine(image.affine, path)
    axes = image.affine[:3, :3] / nib.affines.voxel_sizes(image.affine)
    if np.abs(axes.T @ axes - np.eye(3)).max() > SHEAR_TOLERANCE:
        raise DataError("the affine shears the image", where=path, hint="Resample it to an orthogonal grid")
    if header["sform_code"] and header["qform_code"]:
        _compare_forms(image, axes, path)


def _compare_forms(image: nib.Nifti1Image, axes: np.ndarray, path: Path) -> None:
    try:
        qform = image.header.get_qform()
    except (nib.spatialimages.HeaderDataError, ValueError):
        _warn(path, "the qform is no rotation; the sform is used")
        return
    other = qform[:3, :3] / nib.affines.voxel_sizes(qform)
    turn = axes.T @ other
    angle = np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1)))
    if np.linalg.det(turn) < 0 or angle > TURNED:
        raise DataError(
            f"sform ({''.join(nib.aff2axcodes(image.affine))}) and qform ({''.join(nib.aff2axcodes(qform))}) "
            "contradict each other about left, right, front or back",
            where=path,
            hint="Find out which is right (by a marker, or the scanner's own images) and write it to both",
        )
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in image.shape[:3]])).reshape(3, -1)
    apart = np.linalg.norm((image.affine - qform)[:3, :3] @ corners + (image.affine - qform)[:3, 3:], axis=0).max()
    if apart > max(nib.affines.voxel_sizes(image.affine)):
        _warn(path, f"sform and qform are up to {apart:.1f} mm and {angle:.0f}° apart; the sform is used")


def check_together(bold: Path, t1w: Path) -> None:
    """Warn where the headers say that a scan and its T1w image show different places."""
    low, high = zip(*(_box(check_image(path)) for path in (bold, t1w)), strict=True)
    if (np.minimum(*high) <= np.maximum(*low)).any():
        gap = np.linalg.norm(np.subtract(*np.add(low, high)) / 2)
        _warn(
            bold,
            f"by the headers, T1w and BOLD do not overlap (centres {gap:.0f} mm apart); they are brought together by "
            "their centres of mass: look at the coregistration",
        )


def _box(image: nib.Nifti1Image) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest corner of an image's field, RAS mm."""
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in image.shape[:3]])).reshape(3, -1).T
    places = nib.affines.apply_affine(image.affine, corners)
    return places.min(axis=0), places.max(axis=0)


class _Slices:
    """Which slices are all zero, in which volumes."""

    def __init__(self) -> None:
        self._filled: list[list[np.ndarray]] = [[], [], []]

    def add(self, volume: np.ndarray) -> None:
        for axis in range(3):
            self._filled[axis].append(np.any(volume, axis=tuple({0, 1, 2} - {axis})))

    def warn(self, path: Path) -> None:
        """Say which slices within the image's filled part are empty."""
        for axis, filled in enumerate(map(np.array, self._filled)):
            ever = np.flatnonzero(filled.any(axis=0))
            volumes, slices = np.nonzero(~filled[:, ever[0] : ever[-1] + 1])
            if volumes.size:
                where = f", such as slice {ever[0] + slices[0]} of axis {axis}"
                where += f" in volume {volumes[0]}" if len(filled) > 1 else ""
                n = f"{len(set(slices))} slice(s), in {len(set(volumes))} of {len(filled)} volumes"
                _warn(path, f"all zero: {n}{where} (from 0)")


def _extremes(volume: np.ndarray, image: nib.Nifti1Image) -> dict[str, int]:
    """How many voxels lie in the ranges that tell of a wrong sign; nothing unless they are plain integers."""
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
    """Refuse integers whose sign was lost: a signed image at both ends of its range, or an unsigned one that has
    voxels near zero and at the top of its range, and nothing between."""
    dtype = image.get_data_dtype()
    if counts["bottom"] and counts["top"]:
        what, due = f"values above {np.iinfo(dtype).max} have become negative", f"u{dtype.name}"
    elif dtype.kind == "u" and dtype.itemsize > 1 and counts["top"] > 1e-3 * counts["all"] and not counts["upper"]:
        what, due = "negative values have become huge", dtype.name[1:]
    else:
        return
    raise DataError(
        f"{what}: the header says {dtype.name}, the voxels are {due}",
        where=path,
        hint=f"{AGAIN}, or correct 'datatype' in its header",
    )


def _warn(path: Path, what: str) -> None:
    warnings.warn(f"{path}: {what}", BoltWarning, stacklevel=3)
