"""What a run shows of itself: one line per stage with jobs done and time left; Snakemake's own messages go to its log.

In a terminal a line below the finished stages is rewritten after every job. In a file there are whole lines alone.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from bolt.io.credentials import without_credentials
from bolt.io.errors import FINAL
from bolt.workflow.stages import STAGES

INTERVAL = 60.0
"""Seconds between two lines about the same stage in a file; a job that is expected to take longer is announced."""
TAIL = 15
"""Lines of a failed job's log that are shown."""
LISTED = 20
"""Failures that the last lines repeat."""
SHOWN_MODULES = {"conda", "singularity", "containerize"}
"""Modules of Snakemake whose messages are shown: they install environments, for minutes."""
SHOWN_STARTS = ("Nothing to be done", "Shutting down", "Will exit", "Terminating", "Unlocked")
"""Starts of messages that are shown, whichever module they are from."""
SHOWS_ITS_LOG = "; exit 1)"
"""End of the commands of rules that write their log to the terminal when they fail (`LOGGED` in the Snakefile)."""
ENDED_BY_SCHEDULER = re.compile(r"slurmstepd\S*: error|oom.kill|DUE TO TIME LIMIT|DUE TO PREEMPTION")
SHOWN_TWICE = "RuleException:\nCalledProcessError"
"""Start of Snakemake's message about a job that is shown as a failure."""
COSTLESS = 1.0
"""Seconds of a job of unknown cost."""
ENOUGH = 0.02
"""Share of the expected work that must be done before the time left is told from it."""


@dataclass(frozen=True)
class Started:
    """A job that was started or submitted: its rule, what it works on, and the status files it writes."""

    rule: str
    name: str
    statuses: tuple[str, ...]


@dataclass
class StageProgress:
    """Jobs of one rule: when the first one started, how many have finished, and when a line was last written."""

    begun: float
    done: int = 0
    written: float = 0.0


class Progress(logging.Handler):
    """Handle the log records of a run in place of Snakemake's handler of the terminal.

    Parameters
    ----------
    default : logging.StreamHandler
        Snakemake's: its stream is written to, and it shows what is neither progress nor the failure of a job.
    counts : callable
        Returns the number of jobs of each rule that the run needs, finished ones included; targets are no jobs.
    seconds : callable
        Returns the expected seconds of one job of a rule.
    clock : callable
        Returns seconds, for durations.
    give_up : callable
        Called with the number of a job that would fail again.

    Attributes
    ----------
    retries : int
        How often a failed job is tried again; set, as `is_local`, when the run starts.
    is_local : bool
        Whether jobs write to this terminal, too: some show their whole log when they fail.
    failed : list of str
        Rule and name of jobs that failed in every attempt, and of scans and folds whose status is failed.
    """

    retries = 0
    is_local = True

    def __init__(
        self,
        default: logging.StreamHandler[TextIO],
        counts: Callable[[], Mapping[str, int]],
        seconds: Callable[[str], float],
        clock: Callable[[], float] = time.monotonic,
        give_up: Callable[[int], None] = lambda number: None,
    ) -> None:
        super().__init__(default.level)
        self.name = "BoltProgress"
        self.default, self.stream = default, default.stream
        self.live = self.stream.isatty()
        self.counts, self.seconds, self.clock, self.give_up = counts, seconds, clock, give_up
        self.totals: Mapping[str, int] = {}
        self.n_planned = -1
        self.stages: dict[str, StageProgress] = {}
        self.jobs: dict[int, Started] = {}
        self.attempts: Counter[int] = Counter()
        self.failed: list[str] = []
        self.begun = clock()
        self._live_line = ""
        self._reactions: dict[str, Callable[[Any], None]] = {
            "job_info": self._on_start,
            "job_finished": self._on_finish,
            "job_error": self._on_error,
            "group_error": self._on_group_error,
            "progress": lambda record: self._recount(record.total),
        }

    # ---- log records -------------------------------------------------------------------------------
    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, if it is worth it."""
        try:
            event = str(getattr(record, "event", None) or "")
            if event in self._reactions:
                self._reactions[event](record)
            elif _is_shown(record, event):
                self._clear()
                self.default.handle(record)
        except Exception:
            self.handleError(record)

    def _on_start(self, record: Any) -> None:
        if not record.shellcmd:
            return  # a target, which has no work
        rule = str(record.rule_name)
        names = dict.fromkeys(str(value) for value in record.wildcards.values())
        statuses = tuple(path for path in record.output if path.endswith("status.json"))
        self.jobs[record.jobid] = Started(rule, " ".join(names), statuses)
        if rule not in self.totals:
            self._recount()
        if rule not in self.stages:
            self.stages[rule] = StageProgress(self.clock())
            if not self.live and self.seconds(rule) >= INTERVAL:
                self._write_stage(rule)
        self._draw(rule)

    def _on_finish(self, record: Any) -> None:
        job = self.jobs.pop(record.job_id, None) or self._unannounced(record)
        if job is None:
            return
        self._show_failures(job)
        stage = self.stages.setdefault(job.rule, StageProgress(self.begun))
        stage.done += 1
        is_over = stage.done == self.totals.get(job.rule, 0)
        if is_over or (not self.live and self.clock() - max(stage.written, stage.begun) >= INTERVAL):
            self._write_stage(job.rule)
        self._draw(job.rule)

    def _unannounced(self, record: Any) -> Started | None:
        """Return a job of whose start nothing was said, as with SLURM: its rule alone; None for a target."""
        named = re.search(r"\(Rule: (\w+)\)", record.getMessage())
        return Started(named[1], "", ()) if named and named[1] in self.totals else None

    def _show_failures(self, job: Started) -> None:
        """Show the reason of a scan or fold that failed in this job, although that ended well."""
        for path in job.statuses:
            status = _read_status(Path(path))
            stage = STAGES.get(str(status.get("stage")))
            is_passed_on = stage is not None and job.rule not in stage.rules  # it failed in an earlier stage
            if status.get("state") == "failed" and not is_passed_on:
                self.failed.append(f"{job.rule} {job.name}")
                self._write(f"{_now()}  {self.failed[-1]}: failed: {status.get('reason', '')}\n  its status: {path}")

    def _on_error(self, record: Any) -> None:
        """Show at once which job failed, where its log is, and how that ends."""
        if not record.shellcmd:
            return
        job = self.jobs.get(record.jobid) or Started(str(record.rule_name), "", ())
        name = f"{job.rule} {job.name}".strip()
        self.attempts[record.jobid] += 1
        is_final = any(FINAL in _tail(Path(path), 1) for path in record.log or ())
        if is_final:
            self.give_up(record.jobid)
        again = self.attempts[record.jobid] <= self.retries and not is_final
        if not again:
            self.failed.append(name)
        self._write(f"{_now()}  {name}: the job failed{'; it is tried again' if again else ''}")
        shown = record.indent or (self.is_local and SHOWS_ITS_LOG in record.shellcmd)
        self._write_logs(record.log or (), 0 if shown else TAIL)

    def _on_group_error(self, record: Any) -> None:
        """Show the scheduler's log of jobs that were joined; each of them is shown after it."""
        self._write(f"{_now()}  group {record.groupid}: the job failed")
        self._write_logs(record.aux_logs, TAIL)

    def _write_logs(self, paths: Iterable[str], n_lines: int) -> None:
        for path in paths:
            lines = _tail(Path(path), n_lines) if n_lines else []
            self._write(f"  its log: {path}" + "".join(f"\n  | {line}" for line in lines))

    # ---- lines -------------------------------------------------------------------------------------
    def announce(self, place: Path, where: str, logs: Iterable[str]) -> None:
        """Write how many jobs there are, and where results and the full log are, as the run starts."""
        self._recount()
        self.begun = self.clock()
        n = sum(self.totals.values())
        self._write(f"BolT: {n} job{'s' * (n != 1)} {where}; results in {place}")
        self._write("".join(f"Full log: {log}" for log in logs))

    def conclude(self, lines: Iterable[str], logs: Iterable[str]) -> None:
        """Write the last lines of a run: how long it took and what failed, some more, and where the full log is."""
        done = sum(stage.done for stage in self.stages.values())
        self._write(f"{_now()}  {done} job{'s' * (done != 1)} done in {duration(self.clock() - self.begun)}")
        for name in self.failed[:LISTED]:
            self._write(f"  failed: {name}")
        if len(self.failed) > LISTED:
            self._write(f"  failed: {len(self.failed) - LISTED} more")
        for line in lines:
            self._write(line)
        self._write("".join(f"Full log: {log}" for log in logs))
        self.live = False

    def _recount(self, n_planned: int | None = None) -> None:
        """Count the jobs again where their number has changed: the index adds those of all scans."""
        if n_planned is None or n_planned != self.n_planned:
            self.totals = self.counts()
            self.n_planned = self.n_planned if n_planned is None else n_planned

    def _write_stage(self, rule: str) -> None:
        stage = self.stages[rule]
        stage.written = self.clock()
        self._write(f"{_now()}  {self._stage_text(rule)}   {self._run_text()}")

    def _stage_text(self, rule: str) -> str:
        stage, total = self.stages[rule], max(self.totals.get(rule, 0), self.stages[rule].done)
        spent = self.clock() - stage.begun
        if stage.done == total:
            ends = f"in {duration(spent)}"
        elif stage.done:
            ends = f"about {duration(spent / stage.done * (total - stage.done))} left"
        else:
            ends = "started"
        return f"{rule:18} {stage.done:>5} of {total:<5} {ends:20}"

    def _run_text(self) -> str:
        """Return jobs and time of the whole run: what is done so far took as long as its share of the expected cost."""
        done = {rule: stage.done for rule, stage in self.stages.items()}
        total = {rule: max(n, done.get(rule, 0)) for rule, n in self.totals.items()}
        spent = sum(n * (self.seconds(rule) or COSTLESS) for rule, n in done.items())
        remaining = sum((n - done.get(rule, 0)) * (self.seconds(rule) or COSTLESS) for rule, n in total.items())
        left = (self.clock() - self.begun) * remaining / spent if spent else 0.0
        text = f"run: {sum(done.values())} of {sum(total.values())} jobs"
        is_known = remaining and spent >= ENOUGH * (spent + remaining)
        return f"{text}, about {duration(left)} left" if is_known else text

    def _write(self, text: str) -> None:
        """Write lines; secrets in them are masked."""
        if text:
            self._clear()
            self.stream.write(without_credentials(text) + "\n")
            self.stream.flush()

    def _draw(self, rule: str) -> None:
        """Rewrite the last line of a terminal."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            words = f"{_now()}  {self._stage_text(rule)}; {self._run_text()}".split()
            self._live_line = " ".join(words).replace(" ;", ";")[:width]
            self.stream.write(f"\r\033[K{self._live_line}")
            self.stream.flush()

    def _clear(self) -> None:
        if self._live_line:
            self.stream.write("\r\033[K")
            self._live_line = ""


def duration(seconds: float) -> str:
    """Return a duration in words: ``8 s``, ``12 min``, ``3 h 20 min``, ``2 d 4 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _is_shown(record: logging.LogRecord, event: str) -> bool:
    """Return whether a message that is no progress is shown: what warns, fails or takes long without a job."""
    if record.levelno >= logging.WARNING:
        return not record.getMessage().startswith(SHOWN_TWICE)
    return not event and (record.module in SHOWN_MODULES or record.getMessage().startswith(SHOWN_STARTS))


def _read_status(path: Path) -> dict[str, Any]:
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def _tail(path: Path, n_lines: int) -> list[str]:
    """Return the last lines of a log, or those in which a scheduler says why it has ended the job."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(line for line in lines if ENDED_BY_SCHEDULER.search(line)))[:n_lines] or lines[-n_lines:]
