"""Room on disk, or memory, that was not enough: told from the error of any library.

Neither is a scan's fault. A full disk ends the job in one line and leaves it to be done again; of memory another
attempt is given more, and the last is recorded as failed.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bolt.io.disk_space import FEW, free_bytes, full
from bolt.io.errors import BoltError, ConfigError, MemoryShortage

FULL = {errno.ENOSPC, errno.EDQUOT}
WORDS_OF_DISKS = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "disk is full")
WORDS_OF_MEMORY = ("DefaultCPUAllocator", "std::bad_alloc", "Unable to allocate", os.strerror(errno.ENOMEM))
MORE_MEMORY = (
    "Give the job more memory (on a cluster '--set-resources <rule>:mem_mb=…'), or run fewer jobs side by side "
    "(--cores); of a training, lower 'training: batch_size' in the model's configuration"
)


def full_disk(error: BaseException | None, folders: Iterable[Path]) -> ConfigError | None:
    """What to say where a disk filled up; None where the error is another.

    Parameters
    ----------
    error : exception or None
        Looked through with all that led to it; None: a process died without a word.
    folders : iterable of Path
        Where the work is written; that of temporary files is asked as well.
    """
    everywhere = sorted({*map(Path, folders), *_temporary()})
    filled = [folder for folder in everywhere if free_bytes(folder) < FEW]  # whatever a library says that failed then
    said = [one for one in _chain(error) if _is_of_disk(one)]
    if not filled and not said:
        return None
    named = [Path(str(one.filename)).parent for one in said if isinstance(one, OSError) and one.filename]
    return full([*filled, *named, min(everywhere, key=free_bytes)][0])


def short_memory(error: BaseException) -> MemoryShortage | None:
    """What to say where memory was not enough; None where the error is another."""
    if isinstance(error, MemoryShortage):
        return error
    if any(map(is_shortage, _chain(error))):
        said = " ".join(str(error).split())[:200]
        return MemoryShortage(f"memory was not enough ({said or type(error).__name__})", hint=MORE_MEMORY)
    return None


def is_shortage(error: BaseException) -> bool:
    """Whether an error says that memory, a GPU's or the computer's, was not enough."""
    names = {kind.__name__ for kind in type(error).__mro__}  # torch is not imported here: it takes seconds
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or any(words in str(error) for words in WORDS_OF_MEMORY)


@contextmanager
def in_words(*folders: Path) -> Iterator[None]:
    """Turn a shortage within the block into an error that says what ran out, and how to mend it.

    Raises
    ------
    ConfigError, MemoryShortage
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        told: BoltError | None = full_disk(error, folders) or short_memory(error)
        if told is None or told is error:
            raise
        raise told from None


def _temporary() -> list[Path]:
    """The folder of temporary files; none where all of those that come into question are full."""
    try:
        return [Path(tempfile.gettempdir())]
    except FileNotFoundError:
        return []


def _is_of_disk(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return any(words in str(error) for words in WORDS_OF_DISKS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and all that were handled when it was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
