"""A disk of a few megabytes, and what fills it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BALLAST = "ballast"


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own in `folder`, for root; else the test is skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.getuid() or not shutil.which("mount") or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / BALLAST).open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while size := os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize:
            file.write(bytes(size))


@contextlib.contextmanager
def filled_once_there(disk: Path, name: str) -> Iterator[None]:
    """Within the block the disk is kept full from when a file called `name` is there; emptied of it afterwards."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set() and not any(disk.rglob(name)):
            time.sleep(0.02)
        while not ended.is_set():
            fill(disk)
            time.sleep(0.005)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        (disk / BALLAST).unlink(missing_ok=True)
