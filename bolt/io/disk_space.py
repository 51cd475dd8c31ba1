"""Disk space: checked before hours of work, and reported where it runs out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from bolt.io.errors import ConfigError

FULL_BELOW = 500_000
"""Bytes: a disk with less free space counts as full."""
HINT = "Free some space, or move this folder or a parent to a larger disk and link it in its place; then run again"


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
        raise ConfigError(
            f"not enough disk space: {what} needs {gigabytes(needed)}, {gigabytes(free)} are free",
            where=folder,
            hint=hint,
        )


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
