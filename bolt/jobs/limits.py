"""A job's own watch on its time and memory, because a job that the scheduler kills can record nothing."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from bolt import BEGUN
from bolt.io.errors import BoltError, MemoryShortage
from bolt.io.resource_errors import MORE_MEMORY

LIMITED = "BOLT_LIMITED"
"""Environment variable of jobs that a scheduler kills if they exceed what was requested."""
OVERHEAD = 500
"""Megabytes of the processes around a command: up to 480 for Snakemake."""
PAUSE = 0.02
"""Seconds between two checks; short, because memory can fill by gigabytes per second."""
SHARE = 0.95
"""Share of time and memory at which a job gives up before it is killed."""
MORE_TIME = "Give it more time ('--set-resources <rule>:runtime=…', minutes) or a faster machine, and run again"


@dataclass(frozen=True)
class Limits:
    """Memory and time of one job of the workflow.

    Parameters
    ----------
    megabytes : int
        `mem_mb` of its rule, in this attempt.
    minutes : int
        `runtime` of its rule.
    """

    megabytes: int
    minutes: int

    def passed(self, child: int) -> BoltError | None:
        """Return an error if this process and its child have nearly used up their time or memory, else None."""
        if _resident(os.getpid()) + _resident(child) > SHARE * self.megabytes - OVERHEAD:
            return MemoryShortage(
                f"needs more memory than the {self.megabytes} MB requested from the cluster", hint=MORE_MEMORY
            )
        if time.monotonic() - BEGUN > SHARE * 60 * self.minutes:
            return BoltError(f"takes longer than the {self.minutes} minutes requested from the cluster", hint=MORE_TIME)
        return None


def limits(given: list[int] | None) -> Limits | None:
    """Return a rule's limits (MB, minutes) if a scheduler enforces them, else None."""
    return Limits(*given) if given and os.environ.get(LIMITED) else None


def _resident(pid: int) -> float:
    """Return the resident megabytes of a process; 0 if it has ended, or without /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
