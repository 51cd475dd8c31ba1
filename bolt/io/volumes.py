"""NIfTI files: checks that say what is wrong, and one-pass streams over the volumes of a 4D image.

A 4D image is never held: a volume is read, used and forgotten, so memory does not grow with the scan.
"""

from __future__ import annotations

import gzip
import re
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

import nibabel as nib
import numpy as np
from isal import igzip
from isal.igzip_lib import IsalError
from nibabel.arrayproxy import ArrayProxy

from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import atomic

GZIP_MAGIC = b"\x1f\x8b"
SECONDS = {0: 1.0, 8: 1.0, 16: 1e-3, 24: 1e-6}  # NIfTI's codes of time units: unknown, s, ms, us
LONGEST_TR = 30.0  # seconds; above it a header has lost its unit
TR_TOLERANCE = 0.01
AGAIN = "Copy or download the file again"


@dataclass(frozen=True)
class BoldInfo:
    """What the header of a 4D image says.

    Attributes
    ----------
    shape : (X, Y, Z)
    affine : (4, 4) array
        Voxel indices to mm.
    voxel_sizes : (3,) tuple, mm
    n_volumes : int
    tr : float, seconds
        The sidecar's where it says one.
    header_tr : float, seconds
        What the header says; NaN: nothing usable.
    """

    shape: tuple[int, int, int]
    affine: np.ndarray
    voxel_sizes: tuple[float, float, float]
    n_volumes: int
    tr: float
    header_tr: float

    @property
    def conflict(self) -> str:
        """What sidecar and header say of the repetition time, where they differ by more than 1 %; else ""."""
        if not abs(self.header_tr - self.tr) > TR_TOLERANCE * self.tr:
            return ""
        return f"TR is {self.header_tr:g} s in the header and {self.tr:g} s in the sidecar"


def check_image(path: str | Path) -> nib.Nifti1Image:
    """Open a NIfTI file by its header alone; no voxel is read.

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
        Where the file is missing, empty, cut off within the header (or, uncompressed, anywhere), not
        gzip although it is called so (a web page, say), or not NIfTI.
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
        raise DataError("the file is cut off within its header", where=path, hint=AGAIN) from None
    except (
        nib.filebasedimages.ImageFileError,
        nib.spatialimages.HeaderDataError,
        zlib.error,
        OSError,
        ValueError,
    ) as error:
        raise DataError(f"not a readable NIfTI image ({error})", where=path, hint=AGAIN) from None
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
        Seconds, from the BIDS sidecar; it wins over the header, and a difference of more than 1 % is warned of.

    Raises
    ------
    DataError
        Where `check_image` refuses the file, it is not 4D, has fewer than two volumes, no usable affine, or
        neither sidecar nor header gives a repetition time.
    """
    image = check_image(path)
    shape = _drop_trailing_ones(image.shape)
    if len(shape) != 4:
        kind = "one volume" if len(shape) < 4 else f"{len(shape)} dimensions"
        raise DataError(
            f"a 4D image is due, but this one has {kind} (shape {'×'.join(map(str, image.shape))})",
            where=path,
            hint="Give the functional time series, not an anatomical or a mean image",
        )
    affine = image.affine
    require_affine(affine, path)
    stated = _stated_tr(image.header)
    info = BoldInfo(
        shape=(shape[0], shape[1], shape[2]),
        affine=affine,
        voxel_sizes=tuple(float(size) for size in nib.affines.voxel_sizes(affine)),  # type: ignore[arg-type]
        n_volumes=shape[3],
        tr=_repetition_time(path, stated, float(image.header["pixdim"][4]), tr),
        header_tr=stated,
    )
    if info.conflict:
        warnings.warn(f"{path}: {info.conflict}; the sidecar's is used.", BoltWarning, stacklevel=2)
    return info


def require_affine(affine: np.ndarray, path: str | Path) -> None:
    """Refuse a (4, 4) affine that gives voxels no place of their own."""
    sizes = nib.affines.voxel_sizes(affine)
    if not np.isfinite(affine).all() or not sizes.all() or abs(np.linalg.det(affine[:3, :3] / sizes)) < 1e-3:
        raise DataError("the affine maps voxels to no place in space", where=path, hint="Mend the sform or qform")


def iter_volumes(path: str | Path, voxels: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield the volumes of an image in order, in one sequential pass and constant memory.

    Parameters
    ----------
    path : path
        3D (one volume) or 4D, ``.nii`` or ``.nii.gz``.
    voxels : (N,) int array, optional
        Only these, counted with the first axis running fastest: the rest is never converted.

    Yields
    ------
    (X, Y, Z) or (N,) float32 array
        Slope and intercept are applied.

    Raises
    ------
    DataError
        Names the volume at which the file is cut off or damaged; a wrong checksum is only known at the end.
    """
    path = Path(path)
    image = check_image(path)
    shape = image.shape[:3]
    n_volumes = int(np.prod(image.shape[3:]))
    proxy = cast(ArrayProxy, image.dataobj)
    dtype, slope, inter = image.get_data_dtype(), proxy.slope, proxy.inter
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    done = 0
    with _open(path) as stream:
        try:
            stream.seek(proxy.offset)
            while done < n_volumes:
                buffer = stream.read(n_bytes)
                if len(buffer) < n_bytes:
                    raise EOFError
                volume = np.frombuffer(buffer, dtype)
                volume = volume.reshape(shape, order="F") if voxels is None else volume.take(voxels)
                if (slope, inter) != (1, 0):
                    volume = volume * np.float64(slope) + np.float64(inter)
                yield volume.astype(np.float32)
                done += 1
            while stream.read(1 << 20):  # gzip compares its checksum only at the end of the stream
                pass
        except EOFError:
            # decompressed half a megabyte at a time: the end may be missed that much too early
            place = f"at volume {done} of {n_volumes} or soon after" if done < n_volumes else "after the last volume"
            raise DataError(f"the file is cut off {place} (counted from 0)", where=path, hint=AGAIN) from None
        except (IsalError, gzip.BadGzipFile) as error:  # type: ignore[misc]  # its stub says an instance
            whole = isinstance(error, gzip.BadGzipFile)  # the checksum says that something is wrong, not where
            place = f"in one of its {n_volumes} volumes" if whole else f"at volume {done} of {n_volumes} or soon after"
            raise DataError(f"the file is damaged {place} ({error})", where=path, hint=AGAIN) from None


class VolumeWriter:
    """Write a 4D ``.nii.gz`` volume by volume; the file appears under its name when it is whole.

    The header is a gzip member of its own, stored uncompressed: its length never changes, so the number of
    volumes is filled in at the end. Equal input gives equal bytes.

    Parameters
    ----------
    path : path
        Ends in ``.nii.gz``.
    affine : (4, 4) array
    shape : (X, Y, Z)
    tr : float, seconds
    dtype : str
        An integer type rounds; values beyond its range are an error.

    Examples
    --------
    >>> with VolumeWriter(path, affine, (91, 109, 91), tr=2.0) as writer:  # doctest: +SKIP
    ...     writer.append(volume)
    """

    def __init__(
        self, path: str | Path, affine: np.ndarray, shape: tuple[int, int, int], tr: float, dtype: str = "float32"
    ) -> None:
        if not str(path).endswith(".nii.gz"):
            raise ValueError(f"{path}: VolumeWriter writes .nii.gz")
        self.path, self.affine, self.shape, self.tr = Path(path), np.asarray(affine), tuple(shape), tr
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.n_volumes = 0

    def __enter__(self) -> VolumeWriter:
        self._stack = ExitStack()
        temporary = self._stack.enter_context(atomic(self.path))
        self._file = self._stack.enter_context(temporary.open("wb"))
        self._file.write(self._header())
        self._gzip = gzip.GzipFile("", "wb", compresslevel=1, fileobj=self._file, mtime=0)
        return self

    def append(self, volume: np.ndarray) -> None:
        """Add an (X, Y, Z) volume."""
        if volume.shape != self.shape:
            raise ValueError(f"{self.path}: volume {self.n_volumes} has shape {volume.shape}, not {self.shape}")
        if self.dtype.kind in "iu":
            volume = np.rint(volume)
            limits = np.iinfo(self.dtype)
            if volume.min() < limits.min or volume.max() > limits.max:
                raise ValueError(f"{self.path}: volume {self.n_volumes} exceeds the range of {self.dtype}")
        self._gzip.write(volume.astype(self.dtype).tobytes(order="F"))
        self.n_volumes += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack.pop_all() as stack:
            if kind is not None:
                stack.__exit__(kind, error, trace)  # the temporary file goes, nothing takes its place
                return
            if not self.n_volumes:
                raise ValueError(f"{self.path}: no volume was appended")
            self._gzip.close()
            self._file.seek(0)
            self._file.write(self._header())

    def _header(self) -> bytes:
        header = nib.Nifti1Header(endianness="<")
        header.set_data_dtype(self.dtype)
        header.set_data_shape((*self.shape, max(self.n_volumes, 1)))
        header.set_zooms((*nib.affines.voxel_sizes(self.affine), self.tr))
        header.set_xyzt_units("mm", "sec")
        code = "mni" if (space_of(self.path) or "").startswith("MNI") else "scanner"
        header.set_sform(self.affine, code)
        header.set_qform(self.affine, code)
        header["vox_offset"], header["magic"] = 352, b"n+1"
        header["scl_slope"], header["scl_inter"] = 1, 0
        return gzip.compress(header.binaryblock + bytes(4), compresslevel=0, mtime=0)


def space_of(path: str | Path) -> str | None:
    """The ``space-`` entity of a BIDS name, or None where it declares none."""
    found = re.search(r"(?:^|_)space-([A-Za-z0-9]+)", Path(path).name)
    return found.group(1) if found else None


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, igzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb"))


def _check_first_bytes(path: Path) -> None:
    with path.open("rb") as stream:
        start = stream.read(512)
    if not start:
        raise DataError("the file is empty", where=path, hint=AGAIN + ", or see the status.json beside it")
    if start.lstrip()[:1] == b"<":
        raise DataError("this is a web page, not an image: the download failed", where=path, hint=AGAIN)
    if path.suffix == ".gz" and not start.startswith(GZIP_MAGIC):
        raise DataError("named .gz but not compressed with gzip", where=path, hint=AGAIN + ", or rename it to .nii")


def _check_size(path: Path, image: nib.Nifti1Image) -> None:
    due = cast(ArrayProxy, image.dataobj).offset + int(np.prod(image.shape)) * image.get_data_dtype().itemsize
    if path.stat().st_size < due:
        raise DataError(f"the file is cut off: {path.stat().st_size} bytes of {due}", where=path, hint=AGAIN)


def _drop_trailing_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _stated_tr(header: nib.Nifti1Header) -> float:
    """Seconds; NaN where the header has no usable repetition time."""
    unit = int(header["xyzt_units"]) & 0b111000
    stated = float(header["pixdim"][4]) * SECONDS.get(unit, 0.0)  # Hz and ppm are no times
    # float32 in the header: 0.72 would come out as 0.7200000286
    return round(stated, 6) if 0 < stated <= LONGEST_TR else float("nan")


def _repetition_time(path: str | Path, stated: float, number: float, sidecar: float | None) -> float:
    if sidecar is not None:
        usable = isinstance(sidecar, int | float) and not isinstance(sidecar, bool)
        if not (usable and np.isfinite(sidecar) and sidecar > 0):
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
    if not np.isfinite(stated):
        said = f": it says {number:g}, which is no number of seconds" if number > 0 else ""
        raise DataError(
            f"no repetition time in the header{said}",
            where=path,
            hint="Give RepetitionTime in seconds in the JSON sidecar, or by hand with --tr",
        )
    return stated
