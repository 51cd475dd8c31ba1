"""Full disks and short memory, recognised in the errors of any library.

Neither is a scan's fault. A full disk ends the job with a one-line error; the next run repeats the job. After short
memory, another attempt is given more; the last attempt is recorded as failed.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bolt.io.disk_space import free_bytes, full_disk_error, is_full
from bolt.io.errors import BoltError, ConfigError, MemoryShortage

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


def disk_shortage(error: BaseException | None, folders: Iterable[Path]) -> ConfigError | None:
    """Return the error of a full disk, or None if `error` has another cause.

    Parameters
    ----------
    error : exception or None
        Checked together with the errors that led to it; None if a process died without one.
    folders : iterable of Path
        Where the work is written; the folder of temporary files is checked as well.
    """
    checked = sorted({*map(Path, folders), *_temporary_folder()})
    full = [folder for folder in checked if is_full(folder)]  # explains an error whatever its text
    causes = [cause for cause in _chain(error) if _is_disk_error(cause)]
    if not full and not causes:
        return None
    named = [Path(str(cause.filename)).parent for cause in causes if isinstance(cause, OSError) and cause.filename]
    return full_disk_error([*full, *named, min(checked, key=free_bytes)][0])


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


def _temporary_folder() -> list[Path]:
    """Return the folder of temporary files; nothing if no candidate is writable."""
    try:
        return [Path(tempfile.gettempdir())]
    except FileNotFoundError:
        return []


def _is_disk_error(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in DISK_CODES:
        return True
    return any(words in str(error) for words in DISK_WORDS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, then its causes and the errors that were being handled when it was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
