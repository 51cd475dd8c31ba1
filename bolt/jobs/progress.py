"""The current step of a job, in memory that a parent can read even after its working child was killed."""

from __future__ import annotations

import mmap

SIZE = 256
_step = mmap.mmap(-1, SIZE)  # shared with forked children


def at_step(name: str) -> None:
    """Record the current step, such as ``anatomical.brain``."""
    _step[:] = name.encode()[:SIZE].ljust(SIZE, b"\0")


def step() -> str:
    """Return the last recorded step; empty before the first."""
    return _step[:].rstrip(b"\0").decode(errors="ignore")
