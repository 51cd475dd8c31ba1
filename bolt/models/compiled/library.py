"""The compiled library: BolT's attention (`attention.native`) and masks of dropout (`parts.masks`) in C++ for the CPU.

It contains the code for several instruction sets and uses the best that the processor has. A wheel brings it; otherwise
it is compiled on first use (about ten seconds) and kept in the user's cache folder. Without it, on other devices or
with ``BOLT_NATIVE=0`` in the environment, torch computes the same. ``BOLT_NATIVE=avx2`` or ``baseline`` chooses an
instruction set.
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bolt.io.errors import ConfigError
from bolt.models.compiled import build

log = logging.getLogger(__name__)
PACKAGE = Path(__file__).parent


class Kernel(NamedTuple):
    """The loaded library, and the place of the chosen instruction set among those it was compiled for."""

    library: ctypes.CDLL
    level: int


@cache
def library() -> Kernel | None:
    """Load the kernel, compiling it if needed; None if that is impossible or disabled.

    Raises
    ------
    ConfigError
        ``BOLT_NATIVE`` names an instruction set that this processor lacks.
    """
    wanted = os.environ.get("BOLT_NATIVE", "")
    if wanted == "0":
        return None
    for path in _candidates():
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError as error:
            log.warning("the compiled library %s cannot be loaded: %s", path, error)
            continue
        kernel = Kernel(loaded, _level(loaded, wanted))
        log.info("attention and dropout are computed by %s, %s", path, levels(loaded)[kernel.level])
        return kernel
    return None


def levels(loaded: ctypes.CDLL) -> list[str]:
    """Return the names of the instruction sets of a library, best first, whether or not this processor has them."""
    loaded.levels.restype = ctypes.c_char_p
    return loaded.levels().decode().split()


def _level(loaded: ctypes.CDLL, wanted: str) -> int:
    """Return the place of the best instruction set of this processor, or of the one that the user wants."""
    usable = {name: i for i, name in enumerate(levels(loaded)) if loaded.supported(ctypes.c_int64(i))}
    if wanted in ("", "1"):
        return min(usable.values())
    if wanted not in usable:
        raise ConfigError(
            f"this processor cannot compute with BOLT_NATIVE={wanted}",
            hint=f"Set it to one of 0, {', '.join(usable)}, or unset it",
        )
    return usable[wanted]


def _candidates() -> Iterator[Path]:
    """Yield the library of these sources: the package's, the cache's, or a new one."""
    shipped = PACKAGE / build.file_name()
    if shipped.exists():
        yield shipped
    folder = _cache_folder()
    if (folder / shipped.name).exists():
        yield folder / shipped.name
    compiler = build.find_compiler()
    if compiler is None:
        log.info("no C++ compiler found, torch computes attention and dropout several times slower")
        return
    try:
        yield build.build(compiler, folder)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        log.warning("the library does not compile, torch computes several times slower: %s", reason)


def _cache_folder() -> Path:
    """Return the user's cache folder, or a new private folder for this process if that is not writable."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "bolt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="bolt-"))
