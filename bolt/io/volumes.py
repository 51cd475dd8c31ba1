"""Checks of NIfTI files, by their headers alone."""

from __future__ import annotations

import re
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy

from bolt.io.errors import BoltWarning, DataError

GZIP_MAGIC = b"\x1f\x8b"
TIME_UNITS = {0: 1.0, 8: 1.0, 16: 1e-3, 24: 1e-6}
"""NIfTI's codes of time units in seconds: unknown, s, ms, µs."""
LONGEST_TR = 30.0
"""Seconds; a larger value has lost its unit."""
TR_TOLERANCE = 0.01
COPY_AGAIN = "Copy or download the file again"


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
        if not abs(self.header_tr - self.tr) > TR_TOLERANCE * self.tr:
            return ""
        return f"TR is {self.header_tr:g} s in the header and {self.tr:g} s in the sidecar"


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
        name (a web page, say), or not NIfTI.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("file not found", where=path, hint="Correct the path, or fetch the file")
    if not path.name.endswith((".nii", ".nii.gz")):
        raise DataError("not a .nii or .nii.gz file", where=path, hint="Convert the image to NIfTI")
    _check_first_bytes(path)
    try:
        image = nib.load(path)
    except EOFError:
        raise DataError("the file is cut off within its header", where=path, hint=COPY_AGAIN) from None
    except (
        nib.filebasedimages.ImageFileError,
        nib.spatialimages.HeaderDataError,
        zlib.error,
        OSError,
        ValueError,
    ) as error:
        raise DataError(f"not a readable NIfTI image ({error})", where=path, hint=COPY_AGAIN) from None
    if not isinstance(image, nib.Nifti1Image):
        raise DataError(f"not NIfTI but {type(image).__name__}", where=path, hint="Convert the image to NIfTI")
    if image.get_data_dtype().kind not in "iufb":
        raise DataError(f"voxels are {image.get_data_dtype()}, not real numbers", where=path, hint="Convert them")
    if path.suffix == ".nii":
        _check_size(path, image)
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
    shape = _drop_trailing_ones(image.shape)
    if len(shape) != 4:
        kind = "one volume" if len(shape) < 4 else f"{len(shape)} dimensions"
        raise DataError(
            f"expected a 4D image, but this one has {kind} (shape {'×'.join(map(str, image.shape))})",
            where=path,
            hint="Give the functional time series, not an anatomical or a mean image",
        )
    affine = image.affine
    require_affine(affine, path)
    header_tr = _header_tr(image.header)
    info = BoldInfo(
        shape=(shape[0], shape[1], shape[2]),
        affine=affine,
        voxel_sizes=tuple(float(size) for size in nib.affines.voxel_sizes(affine)),  # type: ignore[arg-type]
        n_volumes=shape[3],
        tr=_repetition_time(path, header_tr, float(image.header["pixdim"][4]), tr),
        header_tr=header_tr,
    )
    if info.conflict:
        warnings.warn(f"{path}: {info.conflict}; the sidecar's is used.", BoltWarning, stacklevel=2)
    return info


def require_affine(affine: np.ndarray, path: str | Path) -> None:
    """Refuse a (4, 4) affine that does not give each voxel a distinct place."""
    sizes = nib.affines.voxel_sizes(affine)
    if not np.isfinite(affine).all() or not sizes.all() or abs(np.linalg.det(affine[:3, :3] / sizes)) < 1e-3:
        raise DataError("the affine is singular or not finite", where=path, hint="Fix the sform or qform")


def space_of(path: str | Path) -> str | None:
    """Return the ``space-`` entity of a BIDS name, or None if it has none."""
    entity = re.search(r"(?:^|_)space-([A-Za-z0-9]+)", Path(path).name)
    return entity[1] if entity else None


def _check_first_bytes(path: Path) -> None:
    with path.open("rb") as stream:
        start = stream.read(512)
    if not start:
        raise DataError("the file is empty", where=path, hint=f"{COPY_AGAIN}, or see the status.json beside it")
    if start.lstrip()[:1] == b"<":
        raise DataError("this is a web page, not an image: the download failed", where=path, hint=COPY_AGAIN)
    if path.suffix == ".gz" and not start.startswith(GZIP_MAGIC):
        raise DataError("named .gz, but not compressed with gzip", where=path, hint=f"{COPY_AGAIN} or rename it")


def _check_size(path: Path, image: nib.Nifti1Image) -> None:
    expected = cast(ArrayProxy, image.dataobj).offset + int(np.prod(image.shape)) * image.get_data_dtype().itemsize
    size = path.stat().st_size
    if size < expected:
        raise DataError(f"the file is cut off: {size} bytes of {expected}", where=path, hint=COPY_AGAIN)


def _drop_trailing_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _header_tr(header: nib.Nifti1Header) -> float:
    """Return the header's repetition time in seconds; NaN if it is not usable."""
    unit = int(header["xyzt_units"]) & 0b111000
    tr = float(header["pixdim"][4]) * TIME_UNITS.get(unit, 0.0)  # Hz and ppm are not times
    # float32 in the header: 0.72 would become 0.7200000286
    return round(tr, 6) if 0 < tr <= LONGEST_TR else float("nan")


def _repetition_time(path: str | Path, header_tr: float, number: float, sidecar: float | None) -> float:
    """Return the sidecar's or the header's repetition time; `number` is the header's value without its unit."""
    if sidecar is not None:
        is_number = isinstance(sidecar, int | float) and not isinstance(sidecar, bool)
        if not (is_number and np.isfinite(sidecar) and sidecar > 0):
            raise DataError(
                f"RepetitionTime is {sidecar!r}, not a number of seconds",
                where=path,
                hint="Correct RepetitionTime (seconds) in the JSON sidecar",
            )
        if sidecar > LONGEST_TR:
            raise DataError(
                f"RepetitionTime is {sidecar:g} s, which looks like milliseconds",
                where=path,
                hint=f"Write seconds ({sidecar / 1000:g}) in the JSON sidecar",
            )
        return float(sidecar)
    if not np.isfinite(header_tr):
        stated = f": {number:g} is not a plausible number of seconds" if number > 0 else ""
        raise DataError(
            f"no repetition time in the header{stated}",
            where=path,
            hint="Give RepetitionTime in seconds in the JSON sidecar, or with --tr on the command line",
        )
    return header_tr
