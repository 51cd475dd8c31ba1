"""Checks of NIfTI files, by their headers alone."""

from __future__ import annotations

import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy

from bolt.io.errors import BoltWarning, DataError, require_file

GZIP_MAGIC = b"\x1f\x8b"
TIME_UNITS = {0: ("s", 1.0), 8: ("s", 1.0), 16: ("ms", 1e-3), 24: ("µs", 1e-6)}
"""NIfTI's codes of time units, and their seconds; if unknown, seconds."""
LENGTH_UNITS = {1: "metres", 3: "micrometres"}
"""NIfTI's codes of units of length other than millimetres."""
SHORTEST_TR, LONGEST_TR = 0.05, 30.0
"""Seconds; a value beyond them has the wrong unit."""
TR_TOLERANCE = 0.01
MAX_FORM_ANGLE = 30.0
"""Degrees between sform and qform above which they describe different orientations of the head."""
BAD_HEADER = (nib.spatialimages.HeaderDataError, ValueError)
LARGEST = 10**10
"""Voxels of a 4D image beyond which its header cannot be right (the longest 7-T runs have 10^9)."""
COPY_AGAIN = "Copy or download the file again"
RECONVERT = "Convert the image again from its source"


@dataclass(frozen=True)
class BoldInfo:
    """Geometry and timing of a 4D image, by its header.

    Attributes
    ----------
    shape : (X, Y, Z)
    affine : (4, 4) array
        Voxel indices to mm.
    voxel_sizes : (3,) tuple, mm
    n_volumes : int
    tr : float, seconds
        From the sidecar if it has one, else from the header.
    header_tr : float, seconds
        From the header; NaN if it is not usable.
    """

    shape: tuple[int, int, int]
    affine: np.ndarray
    voxel_sizes: tuple[float, float, float]
    n_volumes: int
    tr: float
    header_tr: float

    @property
    def conflict(self) -> str:
        """Return a description of repetition times that differ by more than 1 %, else an empty string."""
        return describe_conflict(self.header_tr, self.tr)


def differ(tr: float, expected: float) -> bool:
    """Return whether two repetition times differ by more than 1 %; false where one is NaN."""
    return abs(tr - expected) > TR_TOLERANCE * expected


def describe_conflict(header_tr: float, tr: float) -> str:
    """Return a description of repetition times in header and sidecar that differ, else an empty string."""
    return f"TR is {header_tr:g} s in the header and {tr:g} s in the sidecar" if differ(header_tr, tr) else ""


def check_image(path: str | Path) -> nib.Nifti1Image:
    """Open a NIfTI file and check its header, without reading voxels.

    Parameters
    ----------
    path : path
        Ends in ``.nii`` or ``.nii.gz``.

    Returns
    -------
    nibabel image
        Its data are not loaded.

    Raises
    ------
    DataError
        The file is missing, empty, cut off within the header (or, if uncompressed, anywhere), not gzip despite its
        name (a web page, say), or not NIfTI; or its header gives an absurd size, no affine or a singular one, or an
        sform and qform that disagree about left and right.
    """
    path = Path(path)
    require_file(path, "Correct the path, or fetch the file")
    if not path.name.endswith((".nii", ".nii.gz")):
        raise DataError("not a .nii or .nii.gz file", where=path, hint="Convert the image to NIfTI")
    with path.open("rb") as stream:
        start = stream.read(512)
    if not start:
        raise DataError("the file is empty", where=path, hint=f"{COPY_AGAIN}, or see the status.json beside it")
    if start.lstrip()[:1] == b"<":
        raise DataError("this is a web page, not an image: the download failed", where=path, hint=COPY_AGAIN)
    if path.suffix == ".gz" and not start.startswith(GZIP_MAGIC):
        raise DataError("named .gz, but not compressed with gzip", where=path, hint=f"{COPY_AGAIN} or rename it")
    try:
        image = nib.load(path)
    except EOFError:
        raise DataError("the file is cut off within its header", where=path, hint=COPY_AGAIN) from None
    except (nib.filebasedimages.ImageFileError, *BAD_HEADER, zlib.error, OSError) as error:
        raise DataError(f"not a readable NIfTI image ({error})", where=path, hint=COPY_AGAIN) from None
    if not isinstance(image, nib.Nifti1Image):
        raise DataError(f"not NIfTI but {type(image).__name__}", where=path, hint="Convert the image to NIfTI")
    if image.get_data_dtype().kind not in "iufb":
        raise DataError(f"voxels are {image.get_data_dtype()}, not real numbers", where=path, hint="Convert them")
    shape = image.shape
    if min(shape, default=0) < 1 or len(shape) < 3 or np.prod(shape, dtype=float) > LARGEST:
        what = f"the header gives an impossible size ({'×'.join(map(str, shape)) or 'none'} voxels)"
        raise DataError(what, where=path, hint=COPY_AGAIN)
    unit = LENGTH_UNITS.get(int(image.header["xyzt_units"]) & 7)  # unknown in many files, which is accepted
    if unit is not None:
        raise DataError(f"the header gives lengths in {unit}, not in millimetres", where=path, hint=RECONVERT)
    _check_orientation(image, path)
    if path.suffix == ".nii":
        offset, itemsize = cast(ArrayProxy, image.dataobj).offset, image.get_data_dtype().itemsize
        size, expected = path.stat().st_size, offset + int(np.prod(shape)) * itemsize
        if size < expected:
            raise DataError(f"the file is cut off: {size} bytes of {expected}", where=path, hint=COPY_AGAIN)
    return image


def check_bold(path: str | Path, tr: float | None = None) -> BoldInfo:
    """Check the header of a 4D functional image.

    Parameters
    ----------
    path : path
    tr : float, optional
        Seconds, from the BIDS sidecar; it takes precedence over the header, with a `BoltWarning` if they differ by more
        than 1 %.

    Raises
    ------
    DataError
        `check_image` refuses the file, it is not 4D, has fewer than two volumes, no usable affine, or neither sidecar
        nor header gives a repetition time.
    """
    image = check_image(path)
    shape = image.shape
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) != 4:
        kind = "one volume" if len(shape) < 4 else f"{len(shape)} dimensions"
        what = f"expected a 4D image, but this one has {kind} (shape {'×'.join(map(str, image.shape))})"
        raise DataError(what, where=path, hint="Give the functional time series, not an anatomical or a mean image")
    affine = image.affine
    unit, seconds = TIME_UNITS.get(int(image.header["xyzt_units"]) & 0b111000, ("", 0.0))  # or none of time: Hz, ppm
    number = float(image.header["pixdim"][4])
    # float32 in the header: 0.72 would become 0.7200000286
    header_tr = round(number * seconds, 6) if SHORTEST_TR <= number * seconds <= LONGEST_TR else float("nan")
    if tr is None and np.isnan(header_tr):
        stated = f": {number:g} {unit} is not plausible" if number > 0 else ""
        hint = "Give RepetitionTime in seconds in the JSON sidecar, or with --tr on the command line"
        raise DataError(f"no repetition time in the header{stated}", where=path, hint=hint)
    info = BoldInfo(
        shape=(shape[0], shape[1], shape[2]),
        affine=affine,
        voxel_sizes=tuple(float(size) for size in nib.affines.voxel_sizes(affine)),  # type: ignore[arg-type]
        n_volumes=shape[3],
        tr=header_tr if tr is None else require_tr(tr, path),
        header_tr=header_tr,
    )
    if info.conflict:
        warnings.warn(f"{path}: {info.conflict}; the sidecar's is used.", BoltWarning, stacklevel=2)
    return info


def require_one_place(image: nib.Nifti1Image, path: str | Path) -> None:
    """Refuse an image in a reference space whose sform and qform differ by more than a voxel.

    (Before registration such a difference does not matter.)
    """
    distance, angle = compare_forms(image)
    if distance > max(nib.affines.voxel_sizes(image.affine)):
        raise DataError(
            f"sform and qform differ by up to {distance:.1f} mm and {angle:.0f}°, so the place of the brain is unknown",
            where=path,
            hint="Find out which is correct and write it to both",
        )


def compare_forms(image: nib.Nifti1Image) -> tuple[float, float]:
    """Return by how much sform and qform differ: mm at the farthest corner, degrees; zeros if only one is valid."""
    qform = _qform(image)
    if qform is None:
        return 0.0, 0.0
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in image.shape[:3]])).reshape(3, -1)
    difference = image.affine - qform
    distance = np.linalg.norm(difference[:3, :3] @ corners + difference[:3, 3:], axis=0).max()
    return float(distance), _form_angle(image.affine, qform)


def _check_orientation(image: nib.Nifti1Image, path: Path) -> None:
    """Refuse a missing or singular affine, and an sform and qform that disagree about left and right."""
    header = image.header
    if not (header["sform_code"] or header["qform_code"]):
        what = "neither sform nor qform is set, so left and right are unknown"
        raise DataError(what, where=path, hint=f"{RECONVERT} with a converter that keeps the orientation (dcm2niix)")
    sizes = nib.affines.voxel_sizes(image.affine)
    finite = np.isfinite(image.affine).all() and sizes.all()
    if not finite or abs(np.linalg.det(image.affine[:3, :3] / sizes)) < 1e-3:
        raise DataError("the affine is singular or not finite", where=path, hint="Fix the sform or qform")
    qform = _qform(image)
    if qform is not None and _form_angle(image.affine, qform) > MAX_FORM_ANGLE:
        raise DataError(
            f"sform ({''.join(nib.aff2axcodes(image.affine))}) and qform ({''.join(nib.aff2axcodes(qform))}) "
            "disagree about the orientation of the head",
            where=path,
            hint="Find out which is correct (from a marker or the scanner's own images) and write it to both",
        )


def _qform(image: nib.Nifti1Image) -> np.ndarray | None:
    """Return the (4, 4) qform where the sform is used as well, unless it is not a valid rotation."""
    if not (image.header["sform_code"] and image.header["qform_code"]):
        return None
    try:
        return image.header.get_qform()
    except BAD_HEADER:
        return None


def _form_angle(sform: np.ndarray, qform: np.ndarray) -> float:
    """Return the angle between two orientations in degrees; 180 if one is the mirror image of the other."""
    axes, other = (form[:3, :3] / nib.affines.voxel_sizes(form) for form in (sform, qform))
    rotation = axes.T @ other
    if np.linalg.det(rotation) < 0:
        return 180.0
    return float(np.degrees(np.arccos(np.clip((np.trace(rotation) - 1) / 2, -1, 1))))


def require_tr(value: object, where: str | Path) -> float:
    """Return a repetition time in seconds from a sidecar, a table or the configuration.

    Raises
    ------
    DataError
        It is not a number, or cannot be in seconds.
    """
    hint = "Correct RepetitionTime (seconds) in the JSON sidecar, or TR where you gave it"
    if not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value) or value <= 0:
        raise DataError(f"RepetitionTime is {value!r}, not a number of seconds", where=where, hint=hint)
    if value > LONGEST_TR:
        what = f"RepetitionTime is {value:g} s, which looks like milliseconds"
        raise DataError(what, where=where, hint=f"Write seconds ({value / 1000:g}) in the JSON sidecar")
    if value < SHORTEST_TR:
        raise DataError(f"RepetitionTime is {value:g} s, shorter than any scanner's", where=where, hint=hint)
    return float(value)
