"""Room on disk: asked for before hours of work, and named where it runs out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from bolt.io.errors import ConfigError

FEW = 500_000
"""Bytes: a disk with fewer to spare is full."""
HINT = "Free space, or move this folder or one above it to a larger disk and link it in its place; then go on"


def free_bytes(folder: str | Path) -> int:
    """Free bytes of the disk on which `folder` is or will be."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require_room(folder: str | Path, needed: float, what: str, key: str | None = None) -> None:
    """Refuse work whose files a disk cannot hold.

    Parameters
    ----------
    folder : path
        Where the files will be; it need not exist yet.
    needed : float
        Bytes.
    what : str
        What needs them, for the error.
    key : str, optional
        The key of ``paths`` below which `folder` lies: it can be set before there is anything to move.

    Raises
    ------
    ConfigError
        The whole run's to mend: no scan is to blame.
    """
    free = free_bytes(folder)
    if needed > free:
        hint = f"{HINT}. Before a first run, 'paths: {key}' may name another disk" if key else HINT
        raise ConfigError(
            f"too little room: {what} needs {gigabytes(needed)}, {gigabytes(free)} are free", where=folder, hint=hint
        )


def no_room_left(destination: Path) -> ConfigError:
    """The error of a disk that filled up while `destination` was written."""
    return ConfigError(f"no room left for {destination.name}", where=destination.parent, hint=HINT)


def full(folder: Path) -> ConfigError:
    """The error of a disk that is full; the whole run's to mend, and what was being done is done again then."""
    return ConfigError("no room left on the disk of this folder", where=folder.absolute(), hint=HINT)


def refuse_full(folder: str | Path) -> None:
    """Refuse what ITK has just written to a full disk: it leaves half files there without a word.

    Raises
    ------
    ConfigError
    """
    if free_bytes(folder) < FEW:
        raise full(Path(folder))


def tell_if_full(folders: Iterable[Path]) -> None:
    """Say at the end of a failed run which disk is full: a job's own log may have had no room for it."""
    for folder in folders:
        if free_bytes(folder) < FEW:
            print(f"bolt: {full(folder)}", file=sys.stderr)


def gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"
