"""Which step is being done: known to a parent also when the child that works is killed."""

from __future__ import annotations

import mmap

SIZE = 256
_step = mmap.mmap(-1, SIZE)  # memory that a forked child shares


def at_step(name: str) -> None:
    """Note a step, such as ``anatomical.brain``."""
    _step[:] = name.encode()[:SIZE].ljust(SIZE, b"\0")


def step() -> str:
    """The step that was noted last; empty before the first."""
    return _step[:].rstrip(b"\0").decode(errors="ignore")
