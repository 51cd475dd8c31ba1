"""Run Snakemake's own scheduler on a simulated cluster: a virtual clock, and an executor that follows it.

Virtual time is Snakemake's own CPU time plus the skipped waiting: where the scheduler would wait, the clock jumps to
the next event (a job is submitted or ends, a status query, a timer). Everything except the cluster is real: Snakefile,
profile, DAG, scheduler, job records, deletion of temporary files. Jobs create empty outputs when their time is up.
Submission and status queries follow snakemake-executor-plugin-slurm 2.6.1: threads that each wait some seconds before
`sbatch`, and one query for all jobs at intervals that grow while no job ends.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from snakemake.scheduling import job_scheduler
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry
from snakemake_interface_executor_plugins.settings import CommonSettings

common_settings = CommonSettings(non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False)


class Clock:
    """CPU seconds of this process and its children since the clock was created, plus skipped time."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._begin = self.spent()
        self.held: Callable[[], bool] = lambda: False
        """Whether the process must really wait, because a local job is running."""

    @staticmethod
    def spent() -> float:
        """Return the CPU seconds of this process and its children."""
        times = os.times()
        return time.process_time() + times.children_user + times.children_system

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self.spent() - self._begin + self._skipped

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Schedule an action; actions at the same time run in the order in which they were scheduled."""
        heapq.heappush(self._events, (when, next(self._number), action))

    def catch_up(self) -> None:
        """Run the actions that became due while Snakemake was computing."""
        while self._events and self._events[0][0] <= self.now():
            heapq.heappop(self._events)[2]()

    def skip(self) -> bool:
        """Jump to the next event and run it; return False if there is none."""
        if not self._events:
            return False
        when, _, action = heapq.heappop(self._events)
        self._skipped += max(0.0, when - self.now())
        action()
        return True

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """Stop the clock for work that belongs to a compute node or the benchmark."""
        begin = self.spent()
        yield
        self._skipped -= self.spent() - begin


class Semaphore:
    """Replacement for the semaphore on which the scheduler waits; with no event scheduled, it waits for a local job."""

    def __init__(self, clock: Clock, value: int = 0) -> None:
        self.clock, self.value, self.changed = clock, value, threading.Condition()

    def release(self) -> None:
        """Increase the counter and wake a waiting thread."""
        with self.changed:
            self.value += 1
            self.changed.notify()

    def acquire(self) -> None:
        """Skip through events until the counter is positive, then decrease it."""
        while True:
            self.clock.catch_up()
            with self.changed:
                if self.value:
                    self.value -= 1
                    return
            if self.clock.held() or not self.clock.skip():
                with self.changed:
                    self.changed.wait_for(lambda: self.value, timeout=1)


class Timer:
    """Virtual counterpart of `threading.Timer`."""

    def __init__(self, clock: Clock, delay: float, action: Callable[[], None]) -> None:
        self.clock, self.delay, self.action = clock, delay, action

    def start(self) -> None:
        """Schedule the action after the delay."""
        self.clock.at(self.clock.now() + self.delay, self.action)


@dataclass
class Cluster:
    """A cluster and the durations of its jobs.

    Parameters
    ----------
    seconds : callable
        Duration of a job running alone.
    submitters, submit_seconds
        Number of threads that call `sbatch`, and how long each is busy per job.
    poll, poll_step, poll_longest, query_seconds
        Seconds before the first status query and after one that found an ended job; increase after each query that
        found none; maximum; duration of the query itself.
    queue_seconds
        Time from `sbatch` to the start of the job.
    start_seconds, member_start_seconds
        Overhead of a cluster job before its first rule, and of each rule in it.
    spread
        Standard deviation of the logarithm of a job's duration; the mean is kept.
    killed
        Share of cluster jobs that die at a random time.
    copies
        Real files for selected job outputs; all other outputs are empty.
    """

    seconds: Callable[[Any], float]
    submitters: int = 2
    submit_seconds: float = 5.0
    poll: float = 40.0
    poll_step: float = 10.0
    poll_longest: float = 180.0
    query_seconds: float = 0.0
    queue_seconds: float = 0.0
    start_seconds: float = 0.0
    member_start_seconds: float = 0.0
    spread: float = 0.0
    killed: float = 0.0
    copies: dict[str, Path] = field(default_factory=dict)

    def drawn(self, job: Any) -> float:
        """Return the seconds of one job, the same in every simulation."""
        wildcards = sorted(job.wildcards_dict.items())
        normal = random.Random(f"{job.rule.name} {wildcards}").gauss(-(self.spread**2) / 2, self.spread)
        return self.seconds(job) * 2.718281828459045**normal

    def together(self, job: Any) -> float:
        """Return the seconds of a cluster job; the rules of a group run level by level on its cores."""
        if not job.is_group():
            return self.drawn(job) + self.member_start_seconds
        total = 0.0
        for level in job.toposorted:
            cores = [0.0] * max(1, int(job.threads))
            for member in sorted(level, key=str):
                heapq.heapreplace(cores, cores[0] + self.drawn(member) + self.member_start_seconds)
            total += max(cores)
        return total

    def dies(self, job: Any) -> float:
        """Return the share of its time after which a cluster job dies; 1 if it survives."""
        chance = random.Random(f"{sorted(map(str, members(job)))} {job.attempt}")
        return chance.random() if chance.random() < self.killed else 1.0


@dataclass
class Submitted:
    """One cluster job and its virtual times."""

    name: str
    jobs: int
    attempt: int
    work: float
    chosen: float
    begins: float = 0.0
    ends: float = 0.0
    noticed: float = 0.0
    died: bool = False


def members(job: Any) -> list[Any]:
    """Return the jobs of a group, or the single job."""
    return list(job.jobs) if job.is_group() else [job]


class Executor(RemoteExecutor):
    """Executor that submits to the virtual cluster; `clock` and `cluster` are set before Snakemake starts."""

    clock: Clock
    cluster: Cluster
    log: list[Submitted]
    queries: int

    def _wait_thread(self) -> None:
        """Do nothing: status queries are events of the clock."""

    def __post_init__(self) -> None:
        """Schedule the first status query."""
        self._free = [0.0] * self.cluster.submitters
        self._interval = self.cluster.poll
        self.clock.held = lambda: any(job.is_local for job in self.workflow.scheduler.running)
        self.clock.at(self.clock.now() + self.cluster.poll, self._query)

    def run_jobs(self, jobs: list[Any]) -> None:
        """Queue jobs for the next free submission thread."""
        for job in jobs:
            work = sum(map(self.cluster.drawn, members(job)))
            entry = Submitted(job.name, len(members(job)), job.attempt, work, chosen=self.clock.now())
            begin = max(heapq.heappop(self._free), entry.chosen)
            heapq.heappush(self._free, begin + self.cluster.submit_seconds)
            self.clock.at(begin + self.cluster.submit_seconds, lambda job=job, entry=entry: self._submit(job, entry))

    def run_job(self, job: Any) -> None:
        """Queue one job."""
        self.run_jobs([job])

    def _submit(self, job: Any, entry: Submitted) -> None:
        """Submit a job: set its times and schedule its outputs."""
        self.format_job_exec(job)  # the command that `sbatch` would get
        share, cluster = self.cluster.dies(job), self.cluster
        entry.begins = self.clock.now() + cluster.queue_seconds
        entry.ends = entry.begins + share * (cluster.start_seconds + cluster.together(job))
        entry.died = share < 1
        self.log.append(entry)
        self.report_job_submission(SubmittedJobInfo(job, aux={"entry": entry}))
        if not entry.died:
            self.clock.at(entry.ends, lambda: self._make_outputs(job))

    def _make_outputs(self, job: Any) -> None:
        """Create the outputs and benchmark files of a job."""
        with self.clock.not_counted():
            outputs = [
                path for member in members(job) for path in (*member.output, member.benchmark) if path is not None
            ]
            for path in map(Path, map(str, outputs)):
                path.parent.mkdir(parents=True, exist_ok=True)
                source = self.cluster.copies.get(str(path))
                path.write_bytes(source.read_bytes() if source else b"")

    def _query(self) -> None:
        """Query the status of all jobs and schedule the next query."""
        asked, self.active_jobs = self.active_jobs, []
        self.active_jobs = asyncio.run(listed(self.check_active_jobs(asked)))
        if asked:
            Executor.queries += 1
        longer = min(self._interval + self.cluster.poll_step, self.cluster.poll_longest)
        self._interval = longer if asked and len(self.active_jobs) == len(asked) else self.cluster.poll
        self.clock.at(self.clock.now() + self.cluster.query_seconds + self._interval, self._query)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """Report ended jobs and yield the others."""
        now = self.clock.now()
        for info in active_jobs:
            entry = info.aux["entry"]
            if entry.ends > now:
                yield info
                continue
            entry.noticed = now
            if entry.died:
                self.report_job_error(info, msg="killed")
            else:
                self.report_job_success(info)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Do nothing: there are no real jobs to cancel."""


async def listed(items: AsyncIterator[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
    """Collect an asynchronous iterator in a list."""
    return [item async for item in items]


def install(cluster: Cluster) -> Clock:
    """Make this process's scheduler follow a virtual clock and register the executor `virtual` for `cluster`."""
    clock = Clock()
    Executor.clock, Executor.cluster, Executor.log, Executor.queries = clock, cluster, [], 0
    ExecutorPluginRegistry().register_plugin("snakemake_executor_plugin_virtual", sys.modules[__name__])
    job_scheduler.time = SimpleNamespace(time=clock.now)
    job_scheduler.threading = SimpleNamespace(
        Lock=threading.Lock,
        Semaphore=lambda value: Semaphore(clock, value),
        Timer=lambda delay, action: Timer(clock, delay, action),
    )
    return clock
