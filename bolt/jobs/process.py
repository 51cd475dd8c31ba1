"""The process that does a job: where it runs, and what it has used so far."""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

MEGABYTE = 1e6
MAXRSS = 1 if sys.platform == "darwin" else 1024
"""Bytes in the unit of `ru_maxrss`."""


def job_facts(attempt: int | None = None) -> dict[str, Any]:
    """Host, SLURM's job where there is one, and which attempt this is (0: by hand; None: not told)."""
    facts: dict[str, Any] = {"host": platform.node()}
    if slurm := os.environ.get("SLURM_JOB_ID"):
        facts["slurm_job"] = slurm
    return facts if attempt is None else facts | {"attempt": attempt}


def machine() -> str:
    """Operating system, architecture and processor."""
    found = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        found = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # a system without /proc, or a processor without a name
        pass
    return f"{platform.system()} {platform.machine()}, {found or 'unknown processor'}"


def log_file() -> Path | None:
    """The file that this process's standard error goes to; None where it goes elsewhere."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        log = Path(os.readlink("/proc/self/fd/2"))
    except OSError:  # closed, or a system without /proc
        return None
    return log if log.is_file() else None  # a terminal, a pipe, a file that has been removed


def peak_memory() -> float:
    """Megabytes that the largest process of this job had in memory at once: this one, or one that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * MAXRSS
    return max(_own_peak(), children) / MEGABYTE


def _own_peak() -> int:
    """Bytes. The kernel's `ru_maxrss` outlives an exec: it may be that of the process that started this one."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):  # a system without /proc, or a kernel that does not say
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS


def cpu_seconds() -> float:
    """Processor time of this process, and of those it has waited for."""
    return sum(os.times()[:4])


def device() -> str:
    """What this process has computed on: a GPU by its name, once torch has used it; else the processor."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"cuda: {torch.cuda.get_device_name()}"
    return "cpu"
