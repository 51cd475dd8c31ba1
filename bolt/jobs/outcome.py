"""The outcome of work on one scan or fold: ok, failed with a reason, or a crash that is tried again."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from bolt import BEGUN
from bolt.io.errors import BoltError, BoltWarning, ConfigError, MemoryShortage, show_exception
from bolt.io.files import atomic, read_json, write_json, write_status
from bolt.io.integrity import require_outputs
from bolt.io.places import snakemake_command
from bolt.io.resource_errors import MORE_MEMORY, disk_shortage, explain_shortages, memory_shortage
from bolt.jobs.crash_report import report_path, write_report
from bolt.jobs.process import cpu_seconds
from bolt.jobs.progress import at_step
from bolt.jobs.provenance import Inputs, provenance, provenance_path

log = logging.getLogger("bolt")
ATTEMPTS = "BOLT_ATTEMPTS"
"""Environment variable with the number of attempts at each job of the workflow."""
CONFIGURATION = 2
"""Exit code of a child process that raised a `ConfigError`."""
LIMITED = "BOLT_LIMITED"
"""Environment variable of jobs that a scheduler kills if they exceed what was requested."""
OVERHEAD = 500
"""Megabytes of the processes around a command: up to 480 for Snakemake."""
PAUSE = 0.02
"""Seconds between two checks of limits; short, because memory can fill by gigabytes per second."""
SHARE = 0.95
"""Share of time and memory at which a job gives up before it is killed."""
MORE_TIME = "Give it more time ('--set-resources <rule>:runtime=…', minutes) or a faster machine, and run again"


def exceeded(child: int, megabytes: int, minutes: int) -> BoltError | None:
    """Return an error if this process and its child have nearly used up their memory or time, else None.

    It is a job's own watch on them, because one that the scheduler kills can record nothing.
    """
    resident = 0.0
    for pid in (os.getpid(), child):
        with suppress(OSError, IndexError, ValueError):  # it has ended, or there is no /proc
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            resident += pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    if resident > SHARE * megabytes - OVERHEAD:
        what = f"needs more memory than the {megabytes} MB requested from the cluster"
        return MemoryShortage(what, hint=MORE_MEMORY)
    if time.monotonic() - BEGUN > SHARE * 60 * minutes:
        return BoltError(f"takes longer than the {minutes} minutes requested from the cluster", hint=MORE_TIME)
    return None


class Outcome:
    """Run the work of one scan or fold and write its ``status.json``.

    Bad data (`BoltError`) is recorded as failed with its reason and a crash report beside the status, and the outputs
    are left empty. Any other exception, or a kill, is a crash: Snakemake tries again, and the last attempt records it.
    A `ConfigError` concerns the whole run and is always raised.

    Parameters
    ----------
    stage : str
        Name of the stage, for the status file.
    status : Path
        The status file.
    attempt : int
        Number of this attempt, from 1; 0 from the command line, where crashes are always raised.

    Attributes
    ----------
    empty : list of Path
        Outputs that are left empty after a failure.
    command : str
        Repeats this job.
    transient : bool
        Whether bad data may be temporary (downloads), so that the hint includes that command.
    limits : sequence of int, optional
        Megabytes and minutes of the attempt (`mem_mb` and `runtime` of the rule), where a scheduler enforces them.
    upstream : Path, optional
        The status file of the stage on which this one depends.
    inputs, facts
        Files and further facts for the provenance.
    begun, spent : float
        As in `provenance`.
    """

    ATTEMPTS = int(os.environ.get(ATTEMPTS, "2"))
    """1 + `retries` of the run."""

    def __init__(self, stage: str, status: Path, attempt: int) -> None:
        self.stage, self.status, self.attempt = stage, status, attempt
        self.empty: list[Path] = []
        self.upstream: Path | None = None
        self.upstream_warnings: list[dict[str, Any]] = []
        self.command = ""
        self.limits: Sequence[int] | None = None
        self.transient = False
        self.inputs: Inputs = []
        self.facts: dict[str, Any] = {}
        self.begun, self.spent = BEGUN, 0.0

    def run(self, work: Callable[[], None]) -> None:
        """Do the work and record how it ends; a failure upstream is passed on instead."""
        if self.upstream is not None:
            upstream = read_json(self.upstream)
            if upstream["state"] != "ok":
                self.remove_reports()
                self._leave_empty()
                write_json(upstream, self.status)
                log.warning("skipped, because %s failed: %s", upstream["stage"], upstream["reason"])
                return
            require_outputs(provenance_path(self.upstream))
            self.upstream_warnings = upstream.get("warnings", [])
        if self.attempt >= self.ATTEMPTS:
            self._try_in_child(work)
        else:
            self._try(work)

    def _try_in_child(self, work: Callable[[], None]) -> None:
        """Work in a child process, so that even a kill (out of memory, say) can be recorded."""
        sys.stdout.flush()
        sys.stderr.flush()
        spent = cpu_seconds()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.spent = spent
                with explain_shortages(self.status.parent):
                    self._try(work)
                code = 0
            except ConfigError as error:
                print(error, file=sys.stderr)
                code = CONFIGURATION
            except BaseException:
                show_exception(*sys.exc_info())  # type: ignore[arg-type]
            finally:
                sys.stderr.flush()
                os._exit(code)
        code, passed = self._wait(child)
        if code == CONFIGURATION:
            raise ConfigError("the run cannot continue, see above")
        if not code:
            return
        if passed is None:
            full = disk_shortage(None, [self.status.parent])
            if full is not None:
                raise full
            how = f"was killed by signal {-code}" if code < 0 else "crashed"
            what = f"the job {how} in {self.attempt} attempts; see its log"
            passed = BoltError(what, hint="Read the end of the log in the crash report")
            if code == -signal.SIGKILL:
                what = f"{what}. The system sends this signal when memory runs out"
                passed = MemoryShortage(what, hint=MORE_MEMORY)
        self._fail(passed, repeatable=True)

    def _wait(self, child: int) -> tuple[int, BoltError | None]:
        """Wait for a child; stop it shortly before it exceeds a limit, as a scheduler would kill this process, too.

        Returns its exit status, and the limit for which it was stopped.
        """
        passed = None
        while self.limits and os.environ.get(LIMITED) and passed is None:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status), None
            passed = exceeded(child, *self.limits)
            time.sleep(PAUSE)
        if passed is not None:
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), passed

    def _try(self, work: Callable[[], None]) -> None:
        try:
            self.remove_reports()
            at_step(self.stage)
            warned = [{"stage": self.stage, "warning": text} for text in warnings_in(work)]
            place = provenance_path(self.status)
            facts: dict[str, Any] = {"attempt": self.attempt, "begun": self.begun, "spent": self.spent, **self.facts}
            write_json(provenance(self.inputs, place=place, stage=self.stage, **facts), place)
            write_status(self.status, "ok", self.stage, warnings=[*self.upstream_warnings, *warned])
        except ConfigError:
            raise  # no scan is to blame
        except Exception as error:
            full, short = disk_shortage(error, [self.status.parent]), memory_shortage(error)
            if full is not None:
                raise full from None  # no scan is to blame
            if short is not None and self.attempt >= self.ATTEMPTS:
                self._fail(short, repeatable=True)
            elif short is not None or not isinstance(error, BoltError):
                raise  # another attempt may succeed, or is given more memory
            else:
                self._fail(error, repeatable=self.transient)

    def remove_reports(self) -> None:
        """Remove the crash report and provenance of an earlier run of this job.

        A job that writes results before `run` does this first: a kill must not leave new results beside old provenance,
        which would refuse them in the next run.
        """
        for path in (report_path(self.status), provenance_path(self.status)):
            path.unlink(missing_ok=True)

    def _fail(self, error: BoltError, repeatable: bool) -> None:
        if repeatable and self.command:
            hint = f"{error.hint}. To repeat this job: {self.command}"
            error = type(error)(error.what, where=error.where or None, hint=hint)
        self._leave_empty()
        log.error("%s failed: %s", self.stage, error)
        write_report(report_path(self.status), self.stage, error, self.attempt)
        write_status(self.status, "failed", self.stage, error, report=report_path(self.status))

    def _leave_empty(self) -> None:
        """Write each output without content: no bytes, or no rows."""
        for path in self.empty:
            with atomic(path) as temporary:
                if path.suffix == ".npy":
                    np.save(temporary, np.empty((0, 0), np.float32))
                else:
                    temporary.touch()


def repeat_command(output: Path, config: Path) -> str:
    """Return the command that repeats the job behind an output, without the jobs that depend on it."""
    return snakemake_command(config.absolute(), "--force", str(output), folder=Path.cwd())


def warnings_in(work: Callable[[], None]) -> list[str]:
    """Do the work and return the different texts of its `BoltWarning`; all warnings are still shown."""
    texts: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("always", BoltWarning)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *args: Any, **options: Any) -> None:
            if issubclass(category, BoltWarning):
                texts.setdefault(str(message))
            show(message, category, *args, **options)

        warnings.showwarning = note
        work()
    return list(texts)
