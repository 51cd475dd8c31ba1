"""Disk space, checked before hours of work; full disks and short memory, recognised in the errors of any library.

Neither is a scan's fault. A full disk ends the job with a one-line error; the next run repeats the job. After short
memory, another attempt is given more; the last attempt is recorded as failed.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bolt.io.errors import BoltError, ConfigError, MemoryShortage

FULL_BELOW = 500_000
"""Bytes: a disk with less free space counts as full."""
HINT = "Free some space, or move this folder or a parent to a larger disk and link it in its place; then run again"
DISK_CODES = {errno.ENOSPC, errno.EDQUOT}
DISK_WORDS = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "disk is full")
GPU_MEMORY_WORDS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "DEVICE_ALLOCATION_FAILED",  # cuDNN 9
)
MEMORY_WORDS = (
    *("DefaultCPUAllocator", "std::bad_alloc", "Unable to allocate", os.strerror(errno.ENOMEM)),
    "HOST_ALLOCATION_FAILED",  # cuDNN 9
)
MORE_MEMORY = (
    "Give the job more memory (on a cluster '--set-resources <rule>:mem_mb=…'), or run fewer jobs at once "
    "(--cores); for a training, lower 'training: batch_size' in the model's configuration"
)


def free_bytes(folder: str | Path) -> int:
    """Return the free bytes of the disk on which `folder` is or will be."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def is_full(folder: str | Path) -> bool:
    """Return whether the disk of `folder` is full."""
    return free_bytes(folder) < FULL_BELOW


def require_space(folder: str | Path, needed: float, what: str, key: str | None = None) -> None:
    """Refuse work whose files do not fit on the disk.

    Parameters
    ----------
    folder : path
        Where the files will be; it need not exist yet.
    needed : float
        Bytes.
    what : str
        What needs them, for the error.
    key : str, optional
        The key of ``paths`` that sets `folder` or a parent of it, for the hint.

    Raises
    ------
    ConfigError
        A full disk concerns the whole run, not one scan.
    """
    free = free_bytes(folder)
    if needed > free:
        hint = f"{HINT}. Before a first run, you can also set 'paths: {key}' to another disk" if key else HINT
        what = f"not enough disk space: {what} needs {gigabytes(needed)}, {gigabytes(free)} are free"
        raise ConfigError(what, where=folder, hint=hint)


def full_disk_error(folder: Path, file: str = "") -> ConfigError:
    """Return the error of a full disk; it concerns the whole run, which can be repeated once there is space.

    Parameters
    ----------
    folder : Path
        A folder on that disk.
    file : str, optional
        Name of the file that could not be written.
    """
    what = f"no space left for {file}" if file else "no space left on the disk of this folder"
    return ConfigError(what, where=folder.absolute(), hint=HINT)


def refuse_full(folder: str | Path) -> None:
    """Refuse files that ITK has just written to a full disk: it truncates them silently.

    Raises
    ------
    ConfigError
    """
    if is_full(folder):
        raise full_disk_error(Path(folder))


def report_full_disks(folders: Iterable[Path]) -> None:
    """Print which disks are full, at the end of a failed run: the job's own log may have had no space for it."""
    for folder in folders:
        if is_full(folder):
            print(f"bolt: {full_disk_error(folder)}", file=sys.stderr)


def gigabytes(n_bytes: float) -> str:
    """Format bytes as GB, or as MB below 0.1 GB."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def disk_shortage(error: BaseException | None, folders: Iterable[Path]) -> ConfigError | None:
    """Return the error of a full disk, or None if `error` has another cause.

    Parameters
    ----------
    error : exception or None
        Checked together with the errors that led to it; None if a process died without one.
    folders : iterable of Path
        Where the work is written; the folder of temporary files is checked as well.
    """
    checked = set(map(Path, folders))
    with suppress(FileNotFoundError):  # no candidate is writable
        checked.add(Path(tempfile.gettempdir()))
    full = [folder for folder in sorted(checked) if is_full(folder)]  # explains an error whatever its text
    causes = [
        cause
        for cause in _chain(error)
        if getattr(cause, "errno", None) in DISK_CODES or any(words in str(cause) for words in DISK_WORDS)
    ]
    if not full and not causes:
        return None
    named = [Path(str(cause.filename)).parent for cause in causes if isinstance(cause, OSError) and cause.filename]
    return full_disk_error([*full, *named, min(sorted(checked), key=free_bytes)][0])


def memory_shortage(error: BaseException) -> MemoryShortage | None:
    """Return the error of short memory, or None if `error` has another cause."""
    if isinstance(error, MemoryShortage):
        return error
    if any(map(is_shortage, _chain(error))):
        text = " ".join(str(error).split())[:200]
        return MemoryShortage(f"out of memory ({text or type(error).__name__})", hint=MORE_MEMORY)
    return None


def is_shortage(error: BaseException) -> bool:
    """Return whether an error reports that the memory of the computer or of a GPU did not suffice."""
    words = any(words in str(error) for words in MEMORY_WORDS)
    return words or isinstance(error, MemoryError) or is_gpu_shortage(error)


def is_gpu_shortage(error: BaseException) -> bool:
    """Return whether an error reports that the memory of a GPU did not suffice: torch's own, or a library's text."""
    names = {kind.__name__ for kind in type(error).__mro__}  # importing torch for its class would take seconds
    return "OutOfMemoryError" in names or any(words in str(error) for words in GPU_MEMORY_WORDS)


@contextmanager
def explain_shortages(*folders: Path) -> Iterator[None]:
    """Turn a shortage within the block into an error that describes what ran out, and how to fix it.

    Raises
    ------
    ConfigError, MemoryShortage
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        shortage: BoltError | None = disk_shortage(error, folders) or memory_shortage(error)
        if shortage is None or shortage is error:
            raise
        raise shortage from None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, then its causes and the errors that were being handled when it was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
