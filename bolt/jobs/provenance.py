"""What made a result: versions, commit, command, seeds, inputs, and what it cost; a file beside the result."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bolt import BEGUN, __version__
from bolt.config import ROOT
from bolt.io.credentials import without_credentials
from bolt.io.files import sha256
from bolt.jobs.process import cpu_seconds, device, job_facts, log_file, machine, peak_memory
from bolt.jobs.versions import versions

Inputs = Sequence[Path | Sequence[Path]]
LISTED = 50
"""Files of a group that are hashed one by one; the hashes of more are hashed together."""


def provenance(
    inputs: Inputs = (), *, attempt: int | None = None, begun: float = BEGUN, spent: float = 0.0, **facts: Any
) -> dict[str, Any]:
    """Facts about a job that is about to end, fit for a ``provenance.json``.

    Parameters
    ----------
    inputs : sequence of Path, or of sequences of Path
        Files whose sha256 is recorded. A sequence is a group: of a large one (`LISTED`) the hash of what ``sha256sum``
        prints of its files.
    attempt : int, optional
        Which try of the job this is.
    begun : float
        `time.monotonic` at its beginning.
    spent : float
        Processor seconds of a parent that are this job's as well.
    **facts
        Stage, seeds, settings and whatever else belongs to the result.
    """
    log = log_file()
    return {
        **facts,
        "command": without_credentials(shlex.join(["bolt", *sys.argv[1:]])),
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "job": job_facts(attempt),
        "log": None if log is None else os.path.relpath(log),
        "bolt": __version__,
        **commit(),
        "python": platform.python_version(),
        "machine": machine(),
        "device": device(),
        "packages": versions(),
        "inputs": hashes(inputs),
        "wall_seconds": round(time.monotonic() - begun, 2),
        "cpu_seconds": round(spent + cpu_seconds(), 2),
        "peak_memory_mb": round(peak_memory(), 1),
    }


def beside(result: Path) -> Path:
    """Where the provenance of a result lies whose folder holds those of others: ``scans.tsv`` →
    ``scans_provenance.json``, ``sub-01_status.json`` → ``sub-01_provenance.json``, ``status.json`` →
    ``provenance.json``."""
    if result.name.endswith("status.json"):
        return result.with_name(result.name.removesuffix("status.json") + "provenance.json")
    return result.with_name(f"{result.stem}_provenance.json")


def hashes(inputs: Inputs) -> dict[str, str | None]:
    """Path of each input to its sha256; None for one that is not there any more."""
    found: dict[str, str | None] = {}
    for one in inputs:
        files = {str(path): _hash(path) for path in ([one] if isinstance(one, Path) else sorted(one))}
        if len(files) > LISTED:
            lines = "".join(f"{value}  {path}\n" for path, value in files.items())
            where = os.path.commonpath(files)
            files = {f"{where} ({len(files)} files)": hashlib.sha256(lines.encode()).hexdigest()}
        found |= files
    return found


def _hash(path: Path) -> str | None:
    try:
        return sha256(path)
    except OSError:
        return None


@cache
def commit() -> dict[str, Any]:
    """Commit of the package's checkout, and whether its files were changed since: tracked ones, or new ones of
    `bolt`. Both are None where the package is no checkout, or git is not there."""
    unknown = {"commit": None, "changed": None}
    if not (ROOT / ".git").exists():
        return unknown
    # a checkout may be another user's; whoever runs its code need not fear its configuration
    git = ["git", "--no-optional-locks", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]

    def said(*arguments: str) -> str:
        return subprocess.run([*git, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout

    try:
        found, status = said("rev-parse", "HEAD").strip(), said("status", "--porcelain").splitlines()
    except (OSError, subprocess.SubprocessError):
        return unknown
    changed = any(not line.startswith("?? ") or line.startswith("?? bolt/") for line in status)
    return {"commit": found, "changed": changed}
