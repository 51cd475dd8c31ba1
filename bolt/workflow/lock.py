"""One run at a time in a folder of results, and one process at a time at a job.

A run notes who and where it is in ``.running.json`` and holds a lock of the system on that file, which the kernel frees
however the run ends. Snakemake's own lock knows neither, is one of the folder it is started in, and stays after a kill:
the profiles switch it off.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from bolt.io.disk_space import refuse_full
from bolt.io.errors import ConfigError
from bolt.io.files import is_alive
from bolt.io.resource_errors import in_words
from bolt.workflow.snakemake import is_dry_run

log = logging.getLogger("bolt")
NAME = ".running.json"
JOB = "BOLT_JOB"
"""Set in the environment of the workflow's jobs: each has a log of its own."""
LOOKING = {"--lint", "--dag", "--rulegraph", "--filegraph", "--summary", "-S", "--detailed-summary", "-D", "--report"}
LOOKING |= {
    "--list-conda-envs",
    "--list",
    "--list-rules",
    "-l",
    "--list-target-rules",
    "--lt",
    "--unlock",
    "--target-jobs",
}
"""Arguments of a `snakemake` that changes nothing of a run; the last is one job of a run that holds the lock for it."""
LOCKLESS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""What a file system says that knows no locks."""
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_held: dict[Path, IO[str]] = {}


@dataclass(frozen=True)
class Owner:
    """Who works in a folder."""

    user: str
    host: str
    pid: int
    since: str
    folder: str

    @classmethod
    def myself(cls) -> Owner:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a user without a name, as in containers
            user = str(os.getuid())
        return cls(user, platform.node(), os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S %z"), os.getcwd())

    @property
    def is_here(self) -> bool:
        return self.host == platform.node()

    def __str__(self) -> str:
        return f"{self.user} on {self.host} (process {self.pid}, since {self.since}, started in {self.folder})"


def hold(folders: Iterable[Path], arguments: list[str]) -> None:
    """Keep other runs out of some folders until this process ends; one that only looks may come in at any time.

    Parameters
    ----------
    folders : iterable of Path
        Made where they are not there.
    arguments : list of str
        Of the `snakemake` command.

    Raises
    ------
    SystemExit
        Another run is at work: one line says who, since when, and what to do. Or nothing can be written there.
    """
    if is_dry_run(arguments) or not LOOKING.isdisjoint(argument.split("=")[0] for argument in arguments):
        return
    try:
        for folder in folders:
            with in_words(folder):
                _hold_one(folder.resolve())
            refuse_full(folder)
    except OSError as error:
        if error.errno not in FORBIDDEN:
            raise
        raise SystemExit(f"bolt: {error.filename}: you may not write here. Set 'paths' to a folder of yours.") from None
    except ConfigError as error:
        sys.tracebacklimit = 0
        raise SystemExit(f"bolt: {error}") from None


def _hold_one(folder: Path) -> None:
    """Lock a folder's file, and write there who holds it."""
    path = folder / NAME
    if path in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        file = path.open("a+", encoding="utf-8")
        locked = _lock(file)
        if locked is None or _same(file, path):
            break
        file.close()  # the run before removed it just now
    owner = _read(file)
    if locked is None or (owner and not _is_over(owner, locked)):
        file.close()
        raise ConfigError(_busy(owner), where=folder, hint=_remedy(owner, path, locked))
    if owner:
        print(f"bolt: {folder}: goes on from a run that ended without a word: {owner}", file=sys.stderr)
    file.truncate(0)
    file.write(json.dumps(asdict(Owner.myself())) + "\n")
    file.flush()
    _held[path] = file
    atexit.register(_release, path, os.getpid())


def _lock(file: IO[str]) -> bool | None:
    """True: it is ours now; None: somebody else's; False: the file system knows no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in LOCKLESS:
            return False
        raise
    return True


def _same(file: IO[str], path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _read(file: IO[str]) -> Owner | None:
    """Who is noted in a file; None where nobody is, or a kill tore the note."""
    file.seek(0)
    try:
        return Owner(**json.loads(file.read()))
    except (ValueError, TypeError):
        return None


def _is_over(owner: Owner, locked: bool) -> bool:
    """Whether a run that is noted has ended: on this host the kernel knows, of others nobody can be sure."""
    return owner.is_here and (locked or not is_alive(owner.pid))


def _busy(owner: Owner | None) -> str:
    return f"another run works here: {owner}" if owner else "another run works here; it has just begun"


def _remedy(owner: Owner | None, path: Path, locked: bool | None) -> str:
    if owner is None or owner.is_here:
        stop = f", or stop it (Ctrl-C where it runs, or 'kill {owner.pid}')" if owner else ""
        return f"Wait until it has ended{stop}. A dry run (-n) may be made meanwhile"
    if locked is None:
        return f"Wait until it has ended, or stop it ('kill {owner.pid}' on {owner.host})"
    look = f"'ssh {owner.host} ps -p {owner.pid}'"
    return f"Wait until it has ended. If that host was switched off, or {look} finds nothing, delete {path}"


def _release(path: Path, pid: int) -> None:
    """Remove the note when the process ends that wrote it (not a copy of it that was forked)."""
    if os.getpid() == pid and path in _held:
        path.unlink(missing_ok=True)
        _held.pop(path).close()


def wait_for_job() -> None:
    """Wait until no other process works at this job of the workflow.

    A scheduler that is killed leaves its jobs alive, and the next run starts them again. What two of them write under
    one name is whole and alike; but they would share folders of intermediate files. Each job has a log of its own, so
    the lock is on that; the kernel frees it when the process ends.
    """
    if not os.environ.get(JOB):
        return
    try:
        if _lock_log(fcntl.LOCK_NB):
            return
        log.info("waiting: a process of a run that was killed is still at this job")
        _lock_log(0)
    except OSError:  # no file, or on a file system without locks
        return


def _lock_log(how: int) -> bool:
    try:
        fcntl.flock(1, fcntl.LOCK_EX | how)
    except BlockingIOError:
        return False
    return True
