"""How the work on one scan or one fold ends: whole, failed with a reason, or to be tried again."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bolt import BEGUN
from bolt.config import ROOT
from bolt.io.credentials import show_exception
from bolt.io.errors import BoltError, BoltWarning, ConfigError, MemoryShortage
from bolt.io.files import atomic, read_json, write_json, write_status
from bolt.io.resource_errors import MORE_MEMORY, full_disk, in_words, short_memory
from bolt.jobs.crash_report import report_path, write_report
from bolt.jobs.limits import PAUSE, Limits
from bolt.jobs.process import cpu_seconds
from bolt.jobs.progress import at_step
from bolt.jobs.provenance import Inputs, beside, provenance

log = logging.getLogger("bolt")
ATTEMPTS = "BOLT_ATTEMPTS"
"""Variable that tells the workflow's jobs how often each is tried."""
CONFIGURATION = 2
"""Exit code of a child whose configuration was wrong."""


class Outcome:
    """Runs the work of one scan or fold and writes its ``status.json``.

    Bad data (`BoltError`) is recorded as failed with the reason, a crash report beside the status names step, command
    and the log's end, and the outputs are left empty. Any other exception, or a kill, is a crash: Snakemake tries
    again, until the last attempt records it. A `ConfigError` is the whole run's, and always raised.

    Parameters
    ----------
    stage : str
        Name of the stage, for the status file.
    status : Path
        The status file.
    attempt : int
        Which attempt this is, from 1; 0 by hand, where a crash is always shown.
    """

    ATTEMPTS = int(os.environ.get(ATTEMPTS, "2"))
    """1 + `retries` of the run."""

    def __init__(self, stage: str, status: Path, attempt: int) -> None:
        self.stage, self.status, self.attempt = stage, status, attempt
        self.empty: list[Path] = []
        self.upstream: Path | None = None
        self.carried: list[dict[str, Any]] = []
        self.again = ""  # the command that asks for this job again
        self.limits: Limits | None = None  # what the last attempt must not take
        self.passing = False  # whether bad data may mend by itself (downloads): its remedy has that command then
        self.inputs: Inputs = []  # whose hashes the provenance of a result holds
        self.facts: dict[str, Any] = {}  # what else it holds
        self.begun, self.spent = BEGUN, 0.0

    def after(self, status: Path) -> None:
        """Name the status file of the stage this one builds on."""
        self.upstream = status

    def of(self, work: Callable[[], None]) -> None:
        if self.upstream is not None:
            before = read_json(self.upstream)
            if before["state"] != "ok":
                self._forget()
                self._leave_empty()
                write_json(before, self.status)
                log.warning("not done, because %s failed before: %s", before["stage"], before["reason"])
                return
            self.carried = before.get("warnings", [])
        if self.attempt >= self.ATTEMPTS:
            self._survive(work)
            return
        self._try(work)

    def _survive(self, work: Callable[[], None]) -> None:
        """Work in a process of its own, so that even its being killed (out of memory, say) can be recorded."""
        sys.stdout.flush()
        sys.stderr.flush()
        spent = cpu_seconds()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.spent = spent
                with in_words(self.status.parent):
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
        code, passed = self._watch(child)
        if code == CONFIGURATION:
            raise ConfigError("the run cannot go on like this, see above")
        if code:
            self._fail(passed or self._died(code), again=True)

    def _watch(self, child: int) -> tuple[int, BoltError | None]:
        """Wait for a child; its exit status, and the limit for which it was stopped: a scheduler would kill both."""
        passed = None
        while self.limits and passed is None:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status), None
            passed = self.limits.passed(child)
            time.sleep(PAUSE)
        if passed is not None:
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), passed

    def _died(self, code: int) -> BoltError:
        """What to say of a child that ended with this exit status; a full disk is no scan's fault, and raised."""
        full = full_disk(None, [self.status.parent])
        if full is not None:
            raise full
        how = f"was killed by signal {-code}" if code < 0 else "crashed"
        what = f"the job {how} in {self.attempt} attempts; its log has the rest"
        if code == -signal.SIGKILL:
            return MemoryShortage(f"{what}. The system kills so where memory runs out", hint=MORE_MEMORY)
        return BoltError(what, hint="Read the end of the log in the crash report")

    def _try(self, work: Callable[[], None]) -> None:
        try:
            self._forget()
            at_step(self.stage)
            own = [{"stage": self.stage, "warning": text} for text in warnings_in(work)]
            self._note_provenance()
            write_status(self.status, "ok", self.stage, warnings=[*self.carried, *own])
        except ConfigError:
            raise  # the run is set up wrongly; no scan is to blame
        except Exception as error:
            full, short = full_disk(error, [self.status.parent]), short_memory(error)
            if full is not None:
                raise full from None  # nor is it here
            if short is not None and self.attempt >= self.ATTEMPTS:
                self._fail(short, again=True)
            elif short is not None or not isinstance(error, BoltError):
                raise  # another attempt is given more memory, or may go better
            else:
                self._fail(error, again=self.passing)

    def _forget(self) -> None:
        """Remove what tells of a result, or a failure, before this one."""
        for path in (report_path(self.status), beside(self.status)):
            path.unlink(missing_ok=True)

    def _note_provenance(self) -> None:
        found = provenance(
            self.inputs, attempt=self.attempt, begun=self.begun, spent=self.spent, stage=self.stage, **self.facts
        )
        write_json(found, beside(self.status))

    def _fail(self, error: BoltError, again: bool) -> None:
        if again and self.again:
            hint = f"{error.hint}. To ask for it again: {self.again}"
            error = type(error)(error.what, where=error.where or None, hint=hint)
        self._leave_empty()
        log.error("%s failed: %s", self.stage, error)
        write_report(report_path(self.status), self.stage, error, self.attempt)
        write_status(self.status, "failed", self.stage, error, report=report_path(self.status))

    def _leave_empty(self) -> None:
        """Leave each output in the form that says 'nothing here': no bytes, or no rows."""
        for path in self.empty:
            with atomic(path) as temporary:
                if path.suffix == ".npy":
                    np.save(temporary, np.empty((0, 0), np.float32))
                else:
                    temporary.touch()


def command_again(output: Path, config: Path) -> str:
    """The command that makes a rule's output, and all that is made with it, once more; and nothing that follows."""
    snakefile = "" if Path("Snakefile").resolve() == ROOT / "Snakefile" else f"--snakefile {ROOT / 'Snakefile'} "
    return f"snakemake --cores 1 {snakefile}--configfile {config} --force {output}"


def warnings_in(work: Callable[[], None]) -> list[str]:
    """Do the work; what it warns of a scan (`BoltWarning`), each once. All warnings are shown at once, as ever."""
    said: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("always", BoltWarning)
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, BoltWarning):
                said.setdefault(str(message))
            show(message, category, *rest, **more)

        warnings.showwarning = note
        work()
    return list(said)
