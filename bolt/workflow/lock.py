"""Lock of a folder of results, so that one run works in it at a time, and of a job.

A run notes who and where it is in ``.running.json`` and holds a system lock on that file, which the kernel releases
however the run ends. Snakemake's own lock records neither, belongs to the folder in which snakemake is started, and
survives a kill: the profiles switch it off.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import getpass
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from bolt.io.errors import ConfigError
from bolt.io.files import is_alive
from bolt.io.resource_errors import explain_shortages, refuse_full
from bolt.jobs.process import path_of
from bolt.workflow.snakemake import is_dry_run

log = logging.getLogger("bolt")
NAME = ".running.json"
JOB = "BOLT_JOB"
"""Set in the environment of the workflow's jobs: each has a log of its own."""
SHARED = "BOLT_SHARED_RUN"
"""Set in the environment of runs of single participants, which may work in one folder at the same time."""
LOOKING = {"--lint", "--dag", "--rulegraph", "--filegraph", "--summary", "-S", "--detailed-summary", "-D", "--report"}
LOOKING |= {"--list-conda-envs", "--list", "--list-rules", "-l", "--list-target-rules", "--lt", "--unlock"}
LOOKING |= {"--target-jobs"}
"""Arguments of a `snakemake` that changes nothing; the last is one job of a run that holds the lock."""
LOCKLESS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of a file system without locks."""
PATIENCE = 0.5
"""Seconds for which a lock without an owner is waited for: a run that shared the folder holds it when it ends."""
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_held: dict[Path, IO[str]] = {}


OWNER = "{user} on {host} (process {pid}, since {since}, started in {folder})"


def myself() -> dict[str, Any]:
    """Return who works here, as it is noted in a folder."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        user = str(os.getuid())
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return {"user": user, "host": platform.node(), "pid": os.getpid(), "since": since, "folder": os.getcwd()}


def changes_nothing(arguments: list[str]) -> bool:
    """Return whether a `snakemake` command only looks."""
    return is_dry_run(arguments) or not LOOKING.isdisjoint(argument.split("=")[0] for argument in arguments)


def hold(folders: Iterable[Path], arguments: list[str]) -> None:
    """Keep other runs out of some folders until this process ends; commands that only look may always enter.

    Parameters
    ----------
    folders : iterable of Path
        Made if they are missing.
    arguments : list of str
        Of the `snakemake` command.

    Raises
    ------
    SystemExit
        Another run is active: one line names who, since when, and what to do. Or nothing can be written there.
    """
    if changes_nothing(arguments):
        return
    try:
        for folder in folders:
            with explain_shortages(folder):
                _hold_one(folder.resolve(), shared=bool(os.environ.get(SHARED)))
            refuse_full(folder)
    except OSError as error:
        if error.errno not in FORBIDDEN:
            raise
        raise SystemExit(
            f"bolt: {error.filename}: no permission to write here. Set 'paths' to a folder of your own."
        ) from None
    except ConfigError as error:
        sys.tracebacklimit = 0
        raise SystemExit(f"bolt: {error}") from None


def is_alone(folder: Path) -> bool:
    """Return whether no other run is in a folder that this one shares."""
    file = _held.get(folder.resolve() / NAME)
    if file is None or SHARED not in os.environ:
        return True
    alone = _lock(file, fcntl.LOCK_EX) is not None
    _lock(file, fcntl.LOCK_SH)
    return alone


def _hold_one(folder: Path, *, shared: bool) -> None:
    """Lock a folder's file, and write there who holds it; several may share it, and then nobody writes."""
    path = folder / NAME
    if path in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    patient_until = time.monotonic() + PATIENCE
    while True:
        file = path.open("a+", encoding="utf-8")
        locked = _lock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        ending = locked is None and _read(file) is None and time.monotonic() < patient_until
        if not ending and (locked is None or _same(file, path)):
            break
        file.close()  # an ending run has just removed it, or is about to
        time.sleep(0.02 if ending else 0)
    if shared and locked:
        _held[path] = file
        atexit.register(_release, path, os.getpid())
        return
    owner = _read(file)
    # on this host the kernel knows whether a noted run has ended; about others nobody can be sure
    is_here = owner is not None and owner["host"] == platform.node()
    is_over = owner is not None and is_here and (locked or not is_alive(owner["pid"]))
    if locked is None or (owner and not is_over):
        file.close()
        if owner is None or is_here:
            stop = f", or stop it (Ctrl-C where it runs, or 'kill {owner['pid']}')" if owner else ""
            hint = f"Wait until it has ended{stop}. A dry run (-n) is possible meanwhile"
        elif locked is None:
            hint = f"Wait until it has ended, or stop it ('kill {owner['pid']}' on {owner['host']})"
        else:
            look = f"'ssh {owner['host']} ps -p {owner['pid']}'"
            hint = f"Wait until it has ended. If that host was switched off, or {look} finds nothing, delete {path}"
        who = f": {OWNER.format(**owner)}" if owner else "; it has just begun"
        raise ConfigError(f"another run is active here{who}", where=folder, hint=hint)
    if owner:
        print(f"bolt: {folder}: resuming after an interrupted run: {OWNER.format(**owner)}", file=sys.stderr)
    file.truncate(0)
    file.write(json.dumps(myself()) + "\n")
    file.flush()
    _held[path] = file
    atexit.register(_release, path, os.getpid())


def _lock(file: IO[str], how: int = fcntl.LOCK_EX) -> bool | None:
    """Try to lock a file: True if it is ours now, None if somebody else's, False if the file system has no locks."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in LOCKLESS:
            return False
        raise
    return True


def _same(file: IO[str], path: Path) -> bool:
    """Return whether an open file still has that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _read(file: IO[str]) -> dict[str, Any] | None:
    """Return the owner noted in a file; None if there is none, or a kill cut the note short."""
    file.seek(0)
    try:
        owner: dict[str, Any] = json.loads(file.read())
        OWNER.format(**owner)
    except (ValueError, TypeError, KeyError):
        return None
    return owner


def _release(path: Path, pid: int) -> None:
    """Remove the note when the process that wrote it ends (not a forked copy of it), unless others share it."""
    if os.getpid() == pid and path in _held:
        if _lock(_held[path]) is not None:
            path.unlink(missing_ok=True)
        _held.pop(path).close()


def wait_for_job() -> None:
    """Wait until no other process works on this job of the workflow.

    A scheduler that is killed leaves its jobs alive, and the next run starts them again. What two of them write under
    one name is identical in the end, but not while they write, and they would share folders of intermediate files. The
    lock is a file of its own beside the job's log: Snakemake removes the log when it starts a job again.
    """
    printed = path_of(1)
    if not os.environ.get(JOB) or printed is None or printed.suffix != ".log":
        return
    path = printed.with_suffix(".lock")
    try:
        while True:
            file = path.open("a+", encoding="utf-8")
            if _lock(file) is None:
                log.info("waiting: a process of an earlier, killed run still works on this job")
                fcntl.flock(file, fcntl.LOCK_EX)
            if _same(file, path):
                break
            file.close()  # the other has ended and removed it
    except OSError:  # no permission, or a file system without locks
        return
    _held[path] = file
    atexit.register(_release, path, os.getpid())
