"""Provenance of a result: versions, commit, command, seeds, inputs and cost, in a file beside it."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from bolt import BEGUN, __version__
from bolt.config import ROOT
from bolt.io.errors import without_credentials
from bolt.io.files import WRITTEN, sha256
from bolt.jobs.process import cpu_seconds, device, job_facts, log_file, machine, peak_memory, versions

Inputs = Sequence[Path | Sequence[Path]]
LISTED = 50
"""Largest group whose files are listed one by one; the hashes of a larger group are hashed together."""


def provenance(
    inputs: Inputs = (),
    *,
    place: Path | None = None,
    attempt: int | None = None,
    begun: float = BEGUN,
    spent: float = 0.0,
    **facts: Any,
) -> dict[str, Any]:
    """Return the content of a ``provenance.json``, at the end of a job.

    Parameters
    ----------
    inputs : sequence of Path, or of sequences of Path
        Files whose sha256 is recorded. A sequence is a group; for more than `LISTED` files, the hash of the output of
        ``sha256sum`` is recorded instead.
    place : Path, optional
        The ``provenance.json``: the sha256 of what this process has written in its folder or below is recorded.
    attempt : int, optional
        Number of this attempt at the job.
    begun : float
        `time.monotonic` at the start of the job.
    spent : float
        Processor seconds that a parent process spent on this job.
    **facts
        Stage, seeds, settings and other facts about the result.
    """
    log, outputs = log_file(), dict[str, str]()
    words, option = list[str](), ""
    for word in sys.argv[1:]:
        option = word.partition("=")[0] if word.startswith("--") else option
        words += [] if option in ("--input", "--output") else [word]  # thousands of files, which are listed below
    if place is not None:  # without status files: those are written last
        folder = place.parent.absolute()
        for path in sorted(path.absolute() for path in WRITTEN):
            about_job = path.name.endswith(("status.json", "provenance.json"))
            if path.is_relative_to(folder) and path.is_file() and not about_job:
                outputs[str(path.relative_to(folder))] = sha256(path)
    return {
        **facts,
        "command": without_credentials(shlex.join(["bolt", *words])),
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
        **({} if place is None else {"outputs": outputs}),
        "wall_seconds": round(time.monotonic() - begun, 2),
        "cpu_seconds": round(spent + cpu_seconds(), 2),
        "peak_memory_mb": round(peak_memory(), 1),
    }


def provenance_path(result: Path) -> Path:
    """Return the path of a result's provenance.

    ``scans.tsv`` → ``scans_provenance.json``, ``sub-01_status.json`` → ``sub-01_provenance.json``, ``status.json`` →
    ``provenance.json``.
    """
    if result.name.endswith("status.json"):
        return result.with_name(result.name.removesuffix("status.json") + "provenance.json")
    return result.with_name(f"{result.stem}_provenance.json")


def hashes(inputs: Inputs) -> dict[str, str | None]:
    """Return the sha256 of each input by path; None for a file that no longer exists."""
    digests: dict[str, str | None] = {}
    for entry in inputs:
        group: dict[str, str | None] = {}
        for path in [entry] if isinstance(entry, Path) else sorted(entry):
            group[str(path)] = None
            with suppress(OSError):
                group[str(path)] = sha256(path)
        if len(group) > LISTED:
            lines = "".join(f"{digest}  {path}\n" for path, digest in group.items())
            folder = os.path.commonpath(group)
            group = {f"{folder} ({len(group)} files)": hashlib.sha256(lines.encode()).hexdigest()}
        digests |= group
    return digests


@cache
def commit() -> dict[str, Any]:
    """Return the commit of the package's checkout, and whether tracked files or new ones in `bolt` differ from it.

    Both are None if the package is not a git checkout, or git is missing.
    """
    unknown = {"commit": None, "changed": None}
    if not (ROOT / ".git").exists():
        return unknown
    # safe.directory: the checkout may be another user's, but its code is being run anyway
    command = ["git", "--no-optional-locks", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]

    def git(*arguments: str) -> str:
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout

    try:
        head, status = git("rev-parse", "HEAD").strip(), git("status", "--porcelain").splitlines()
    except (OSError, subprocess.SubprocessError):
        return unknown
    changed = any(not line.startswith("?? ") or line.startswith("?? bolt/") for line in status)
    return {"commit": head, "changed": changed}
