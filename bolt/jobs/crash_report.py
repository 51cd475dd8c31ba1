"""Crash reports: a text file beside a failed status, with step, command, versions and the end of the log."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import deque
from pathlib import Path

from bolt import __version__
from bolt.io.errors import BoltError, without_credentials
from bolt.io.files import write_text
from bolt.jobs.process import job_facts, log_file, versions
from bolt.jobs.progress import step

LOG_LINES = 40
"""Lines from the end of the log."""


def report_path(status: Path) -> Path:
    """Return the path of a status file's report: ``sub-01_status.json`` → ``sub-01_crash.txt``."""
    return status.with_name(status.name.replace("status.json", "crash.txt"))


def write_report(path: Path, stage: str, error: BoltError, attempt: int = 0) -> None:
    """Write what failed, in which step and command, and the end of the log.

    Parameters
    ----------
    path : path
        `report_path` of the status file.
    stage : str
    error : BoltError
    attempt : int
        0: from the command line.
    """
    log = log_file()
    facts = {
        "stage": stage,
        "step": step() or stage,
        "reason": f"{error.where}: {error.what}" if error.where else error.what,
        "hint": error.hint or "none",
        "command": shlex.join(["python", "-m", "bolt", *sys.argv[1:]]),
        "folder": os.getcwd(),
        "job": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in job_facts(attempt or None).items()),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "versions": ", ".join(f"{name} {number}" for name, number in {"BolT": __version__, **versions()}.items()),
        "log": str(log) if log else "not kept: the command did not write to a file",
    }
    width = max(map(len, facts))
    text = "\n".join(f"{name:<{width}}  {value}" for name, value in facts.items())
    end = ""
    if log:
        with log.open(encoding="utf-8", errors="replace") as lines:
            end = "".join(deque(lines, LOG_LINES)).rstrip()
    write_text(without_credentials(f"{text}\n\nLast lines of the log:\n\n{end}\n"), path)
