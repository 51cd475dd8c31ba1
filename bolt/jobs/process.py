"""Facts about the current process: where and with which packages it runs, and the time and memory it has used."""

from __future__ import annotations

import fcntl
import os
import platform
import resource
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MEGABYTE = 1e6
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes."""
PACKAGES = ("antspyx", "nibabel", "nilearn", "nipype", "numpy", "pandas", "scikit-learn", "snakemake", "torch")
"""On which results depend."""


def job_facts(attempt: int | None = None) -> dict[str, Any]:
    """Return the host, the SLURM job if there is one, and the attempt (0: from the command line; None: unknown)."""
    facts: dict[str, Any] = {"host": platform.node()}
    if slurm := os.environ.get("SLURM_JOB_ID"):
        facts["slurm_job"] = slurm
    return facts if attempt is None else facts | {"attempt": attempt}


@cache
def versions() -> dict[str, str]:
    """Return the version of each installed package of `PACKAGES`."""
    installed = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def machine() -> str:
    """Return operating system, architecture and processor."""
    processor = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # no /proc, or a processor without a name
        pass
    return f"{platform.system()} {platform.machine()}, {processor or 'unknown processor'}"


def log_file() -> Path | None:
    """Return the file that receives this process's standard error, or None if it goes elsewhere."""
    log = path_of(2)
    return log if log and log.is_file() else None  # a terminal, a pipe or a removed file


def path_of(descriptor: int) -> Path | None:
    """Return the path of an open file, also after it was removed; None where the system does not tell it."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if sys.platform == "darwin":
            return Path(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
        return Path(os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)"))
    except OSError:  # closed, or no /proc
        return None


def peak_memory() -> float:
    """Return the peak megabytes of the largest process of this job: this one or a finished child."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * MAXRSS_UNIT
    try:  # first here: `ru_maxrss` survives an exec, so it may describe the process that started this one
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # no /proc, or a kernel without this line
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT
    return max(own, children) / MEGABYTE


def cpu_seconds() -> float:
    """Return the processor time of this process and its finished children."""
    return sum(os.times()[:4])


def device() -> str:
    """Return the device of this process: a GPU by name if torch has used it, else ``cpu``."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"cuda: {torch.cuda.get_device_name()}"
    return "cpu"
