"""What a cluster was asked for a job, watched from inside: a job that the scheduler kills can record nothing."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from bolt import BEGUN
from bolt.io.errors import BoltError, MemoryShortage
from bolt.io.resource_errors import MORE_MEMORY

LIMITED = "BOLT_LIMITED"
"""Variable of jobs that a scheduler kills where they take more than was asked for."""
OVERHEAD = 500
"""Megabytes of what runs around a command: Snakemake, up to 480 of them."""
PAUSE = 0.02
"""Seconds between two looks: short, since memory fills by gigabytes a second, and a scheduler does not wait."""
SHARE = 0.95
"""Of time and memory, at which a job gives up before it is killed."""
MORE_TIME = "Give it more time ('--set-resources <rule>:runtime=…', minutes), or a quicker machine, and run again"


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
        """What to say where this process and a child of it have (nearly) used up what they have; else None."""
        if _resident(os.getpid()) + _resident(child) > SHARE * self.megabytes - OVERHEAD:
            return MemoryShortage(
                f"needs more memory than the {self.megabytes} MB that the cluster was asked for",
                hint=MORE_MEMORY,
            )
        if time.monotonic() - BEGUN > SHARE * 60 * self.minutes:
            return BoltError(
                f"takes longer than the {self.minutes} minutes that the cluster was asked for",
                hint=MORE_TIME,
            )
        return None


def limits(given: list[int] | None) -> Limits | None:
    """Those that a rule gives, where a scheduler enforces them; at one's own machine there are none."""
    return Limits(*given) if given and os.environ.get(LIMITED) else None


def _resident(pid: int) -> float:
    """Megabytes of a process in memory; 0 where it has ended, or the system has no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
