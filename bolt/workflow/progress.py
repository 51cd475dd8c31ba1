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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from bolt.io.errors import FINAL, without_credentials
from bolt.workflow.stage import STAGES

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
        self.jobs: dict[int, tuple[str, str, list[Path]]] = {}  # rule, what it works on, and its status files
        self.attempts: Counter[int] = Counter()
        self.failed: list[str] = []
        self.begun = clock()
        self._live_line = ""

    # ---- log records -------------------------------------------------------------------------------
    def emit(self, record: logging.LogRecord) -> None:
        """Show a record, if it is worth it; a message that is no progress if it warns, fails or takes long."""
        try:
            event, text = str(getattr(record, "event", None) or ""), record.getMessage()
            react = getattr(self, f"_on_{event}", None) if event else None
            if record.levelno >= logging.WARNING:
                shown = not text.startswith(SHOWN_TWICE)
            else:
                shown = not event and (record.module in SHOWN_MODULES or text.startswith(SHOWN_STARTS))
            if react is not None:
                react(record)
            elif shown:
                self._clear()
                self.default.handle(record)
        except Exception:
            self.handleError(record)

    def _on_job_info(self, record: Any) -> None:
        if not record.shellcmd:
            return  # a target, which has no work
        rule = str(record.rule_name)
        names = dict.fromkeys(str(value) for value in record.wildcards.values())
        statuses = [Path(path) for path in record.output if path.endswith("status.json")]
        self.jobs[record.jobid] = rule, " ".join(names), statuses
        if rule not in self.totals:
            self.totals = self.counts()
        if rule not in self.stages:
            self.stages[rule] = StageProgress(self.clock())
            if not self.live and self.seconds(rule) >= INTERVAL:
                self._write_stage(rule)
        self._draw(rule)

    def _on_progress(self, record: Any) -> None:
        """Count the jobs again where their number has changed: the index adds those of all scans."""
        if record.total != self.n_planned:
            self.totals, self.n_planned = self.counts(), record.total

    def _on_job_finished(self, record: Any) -> None:
        rule, name, statuses = self.jobs.pop(record.job_id, ("", "", []))
        if not rule:  # nothing was said of its start, as with SLURM: its rule alone is known
            named = re.search(r"\(Rule: (\w+)\)", record.getMessage())
            if not named or named[1] not in self.totals:
                return  # a target
            rule = named[1]
        for path in statuses:  # a scan or fold may have failed although its job ended well
            status: Any = None
            with suppress(OSError, ValueError):
                status = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(status, dict) and status.get("state") == "failed":
                stage = STAGES.get(str(status.get("stage")))
                if stage is None or rule in stage.rules:  # else it failed in an earlier stage
                    self.failed.append(f"{rule} {name}")
                    reason = status.get("reason", "")
                    self._write(f"{_now()}  {self.failed[-1]}: failed: {reason}\n  its status: {path}")
        stage_progress = self.stages.setdefault(rule, StageProgress(self.begun))
        stage_progress.done += 1
        is_over = stage_progress.done == self.totals.get(rule, 0)
        since = self.clock() - max(stage_progress.written, stage_progress.begun)
        if is_over or (not self.live and since >= INTERVAL):
            self._write_stage(rule)
        self._draw(rule)

    def _on_job_error(self, record: Any) -> None:
        """Show at once which job failed, where its log is, and how that ends."""
        if not record.shellcmd:
            return
        rule, works_on, _ = self.jobs.get(record.jobid, (str(record.rule_name), "", []))
        name = f"{rule} {works_on}".strip()
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
        self.totals, self.begun = self.counts(), self.clock()
        n = sum(self.totals.values())
        self._write(f"BolT: {n} job{'s' * (n != 1)} {where}; results in {place}")
        self._write("".join(f"Full log: {log}" for log in logs))

    def conclude(self, lines: Iterable[str], logs: Iterable[str]) -> None:
        """Write the last lines of a run: how long it took and what failed, some more, and where the full log is."""
        done = sum(stage.done for stage in self.stages.values())
        self._write(f"{_now()}  {done} job{'s' * (done != 1)} done in {duration(self.clock() - self.begun)}")
        more = [f"{len(self.failed) - LISTED} more"] if len(self.failed) > LISTED else []
        failed = [f"  failed: {name}" for name in [*self.failed[:LISTED], *more]]
        for line in [*failed, *lines, "".join(f"Full log: {log}" for log in logs)]:
            self._write(line)
        self.live = False

    def _write_stage(self, rule: str) -> None:
        self.stages[rule].written = self.clock()
        self._write(f"{_now()}  {'   '.join(self._texts(rule))}")

    def _texts(self, rule: str) -> tuple[str, str]:
        """Return jobs and time of a stage, and of the run: what is done took as long as its share of the cost."""
        stage = self.stages[rule]
        n, spent = max(self.totals.get(rule, 0), stage.done), self.clock() - stage.begun
        if stage.done == n:
            ends = f"in {duration(spent)}"
        else:
            ends = f"about {duration(spent / stage.done * (n - stage.done))} left" if stage.done else "started"
        done = {name: one.done for name, one in self.stages.items()}
        total = {name: max(planned, done.get(name, 0)) for name, planned in self.totals.items()}
        cost = sum(jobs * (self.seconds(name) or COSTLESS) for name, jobs in done.items())
        left = sum((jobs - done.get(name, 0)) * (self.seconds(name) or COSTLESS) for name, jobs in total.items())
        run = f"run: {sum(done.values())} of {sum(total.values())} jobs"
        if left and cost and cost >= ENOUGH * (cost + left):
            run += f", about {duration((self.clock() - self.begun) * left / cost)} left"
        return f"{rule:18} {stage.done:>5} of {n:<5} {ends:20}", run

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
            words = f"{_now()}  {'; '.join(self._texts(rule))}".split()
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


def _tail(path: Path, n_lines: int) -> list[str]:
    """Return the last lines of a log, or those in which a scheduler says why it has ended the job."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(line for line in lines if ENDED_BY_SCHEDULER.search(line)))[:n_lines] or lines[-n_lines:]
