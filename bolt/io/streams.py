"""One-pass reading and writing of 4D images, volume by volume, so that memory does not grow with the scan."""

from __future__ import annotations

import gzip
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import nibabel as nib
import numpy as np
from isal import igzip
from isal.igzip_lib import IsalError
from nibabel.arrayproxy import ArrayProxy

from bolt.io.errors import DataError
from bolt.io.files import atomic
from bolt.io.volumes import COPY_AGAIN, RECONVERT, check_image

T = TypeVar("T")
R = TypeVar("R")
LARGEST_VALUE = 1e30
"""No scanner makes larger values."""
HEADER_BYTES = 1024
"""Of an image that is written, with what follows its 348 bytes up to the first voxel."""


def iter_volumes(path: str | Path, voxels: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield the volumes of an image in order, in one sequential pass and constant memory.

    Parameters
    ----------
    path : path
        3D (one volume) or 4D, ``.nii`` or ``.nii.gz``.
    voxels : (N,) int array, optional
        Indices of the voxels to return, counted with the first axis running fastest; the others are not converted.

    Yields
    ------
    (X, Y, Z) or (N,) float32 array
        Slope and intercept are applied.

    Raises
    ------
    DataError
        Names the volume at which the file is cut off or damaged; a wrong checksum is only noticed at the end.
    """
    path = Path(path)
    image = check_image(path)
    shape = image.shape[:3]
    n_volumes = int(np.prod(image.shape[3:]))
    proxy = cast(ArrayProxy, image.dataobj)
    dtype, slope, inter = image.get_data_dtype(), proxy.slope, proxy.inter
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    done = 0
    with cast(BinaryIO, igzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")) as stream:
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
                with np.errstate(over="ignore"):
                    narrow = volume.astype(np.float32)
                large = np.abs(narrow) > LARGEST_VALUE  # infinite values are left to the caller
                if large.any() and np.isfinite(value := volume[large].ravel()[0]):
                    what = f"a voxel of volume {done} (counted from 0) is {value:g}"
                    what += ": the file is damaged, or its scaling is wrong"
                    raise DataError(what, where=path, hint=RECONVERT)
                yield narrow
                done += 1
            while stream.read(1 << 20):  # gzip compares its checksum only at the end of the stream
                pass
        except EOFError:
            # half a megabyte is decompressed at a time, so the end may be noticed that much too early
            place = f"at volume {done} of {n_volumes} or soon after" if done < n_volumes else "after the last volume"
            raise DataError(f"the file is cut off {place} (counted from 0)", where=path, hint=COPY_AGAIN) from None
        except (IsalError, gzip.BadGzipFile) as error:  # type: ignore[misc]  # its stub declares an instance
            wrong_checksum = isinstance(error, gzip.BadGzipFile)  # which does not tell where the damage is
            place = f"at volume {done} of {n_volumes} or soon after"
            place = f"in one of its {n_volumes} volumes" if wrong_checksum else place
            raise DataError(f"the file is damaged {place} ({error})", where=path, hint=COPY_AGAIN) from None


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items in order while the next one is made in another thread, as decompression allows."""
    end = cast(T, object())
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = thread.submit(next, items, end)
            yield item


def in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield ``function(item)`` in the order of the items while the next ones are computed in other threads.

    At most ``threads + 1`` results are held at a time.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def volume_writer(
    path: str | Path,
    affine: np.ndarray,
    shape: tuple[int, int, int],
    tr: float,
    dtype: str = "float32",
    *,
    code: int,
) -> Iterator[Callable[[np.ndarray], None]]:
    """Write a 4D ``.nii.gz`` volume by volume; the file appears under its name once it is complete.

    The header is a gzip member of its own, stored uncompressed: its length never changes, so the number of volumes is
    filled in at the end. It is padded, because the BIDS validator opens the first 1024 bytes of a file and refuses a
    second member there. Equal input gives equal bytes.

    Parameters
    ----------
    path : path
        Ends in ``.nii.gz``.
    affine : (4, 4) array
    shape : (X, Y, Z)
    tr : float, seconds
    dtype : str
        For an integer type values are rounded, and those beyond its range are an error.
    code : int
        NIfTI's coordinate system: 1 the scanner's, 4 MNI.

    Yields
    ------
    function
        Appends an (X, Y, Z) volume.
    """
    kind, n_volumes = np.dtype(dtype).newbyteorder("<"), 0
    header = nib.Nifti1Header(endianness="<")
    header.set_data_dtype(kind)

    def header_bytes() -> bytes:
        header.set_data_shape((*shape, max(n_volumes, 1)))
        header.set_zooms((*nib.affines.voxel_sizes(affine), tr))
        header.set_xyzt_units("mm", "sec")
        header.set_sform(affine, code)
        header.set_qform(affine, code)
        header["vox_offset"], header["magic"] = HEADER_BYTES, b"n+1"
        header["scl_slope"], header["scl_inter"] = 1, 0
        return gzip.compress(header.binaryblock.ljust(HEADER_BYTES, b"\0"), compresslevel=0, mtime=0)

    def append(volume: np.ndarray) -> None:
        nonlocal n_volumes
        if volume.shape != tuple(shape):
            raise ValueError(f"{path}: volume {n_volumes} has shape {volume.shape}, not {shape}")
        if kind.kind in "iu":
            volume = np.rint(volume)
            limits = np.iinfo(kind)
            if volume.min() < limits.min or volume.max() > limits.max:
                raise ValueError(f"{path}: volume {n_volumes} exceeds the range of {kind}")
        packed.write(volume.astype(kind).tobytes(order="F"))
        n_volumes += 1

    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(header_bytes())
        with igzip.IGzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
            yield append
        if not n_volumes:
            raise ValueError(f"{path}: no volume was appended")
        file.seek(0)
        file.write(header_bytes())
