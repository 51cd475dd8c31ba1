"""SLURM's queue after a run that was stopped."""

from __future__ import annotations

import atexit
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def cancel_at_exit(logs: Iterable[str]) -> None:
    """Cancel, when this process ends, what a run has left in SLURM's queue.

    The executor cancels the jobs of a run that is stopped, except those whose state it is querying or that it is about
    to submit. It has finished both when the process ends.

    Parameters
    ----------
    logs : iterable of str
        Snakemake's log files of this run. Nothing happens if they show no SLURM run.
    """
    name = _run_of(logs)
    if name is not None:
        atexit.register(_cancel, name)


def _run_of(logs: Iterable[str]) -> str | None:
    """Return the name of all jobs of this run, as the executor logs it."""
    for path in filter(Path.is_file, map(Path, logs)):
        found = re.search(r"^SLURM run ID: (\S+)$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if found:
            return found[1]
    return None


def _cancel(name: str) -> None:
    try:
        done = subprocess.run(["scancel", "--name", name], capture_output=True, text=True, check=False, timeout=60)
        trouble = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = str(error)
    if trouble:
        print(f"bolt: jobs may be left in the queue ({trouble}). Cancel them: scancel --name {name}", file=sys.stderr)
