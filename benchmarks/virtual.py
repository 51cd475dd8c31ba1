"""Snakemake's own scheduler on a cluster whose jobs take no time: a virtual clock, and an executor that follows it.

Virtual time is the processor time that Snakemake itself takes, and all the waiting that is skipped: where the
scheduler would wait, the clock jumps to the next event (a job is submitted or ends, a status is asked for, a timer
runs out). Everything but the cluster is the real thing: Snakefile, profile, DAG, scheduler, records of jobs, deletion
of temporary files. Jobs make empty outputs when their time is over. Submission and status queries follow
snakemake-executor-plugin-slurm 2.6.1: threads that each wait some seconds before `sbatch`, and a query for all jobs
that comes later and later while nothing ends.
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
    """Processor seconds of this process and its children since the clock was made, and what was skipped."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._begin = self.spent()
        self.held: Callable[[], bool] = lambda: False
        """Whether something goes on in this process for which is really waited: a local job."""

    @staticmethod
    def spent() -> float:
        times = os.times()
        return time.process_time() + times.children_user + times.children_system

    def now(self) -> float:
        return self.spent() - self._begin + self._skipped

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a time; what is planned for one time is done in the order in which it was planned."""
        heapq.heappush(self._events, (when, next(self._number), action))

    def catch_up(self) -> None:
        """Do what was due while Snakemake computed."""
        while self._events and self._events[0][0] <= self.now():
            heapq.heappop(self._events)[2]()

    def skip(self) -> bool:
        """Jump to the next event, and do it; False where none is planned."""
        if not self._events:
            return False
        when, _, action = heapq.heappop(self._events)
        self._skipped += max(0.0, when - self.now())
        action()
        return True

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """For work that a compute node or the benchmark does in this process."""
        begin = self.spent()
        yield
        self._skipped -= self.spent() - begin


class Semaphore:
    """Takes the place of the one on which the scheduler waits; waiting for nothing planned is for a local job."""

    def __init__(self, clock: Clock, value: int = 0) -> None:
        self.clock, self.value, self.changed = clock, value, threading.Condition()

    def release(self) -> None:
        with self.changed:
            self.value += 1
            self.changed.notify()

    def acquire(self) -> None:
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
    """As `threading.Timer`."""

    def __init__(self, clock: Clock, delay: float, action: Callable[[], None]) -> None:
        self.clock, self.delay, self.action = clock, delay, action

    def start(self) -> None:
        self.clock.at(self.clock.now() + self.delay, self.action)


@dataclass
class Cluster:
    """A cluster, and what its jobs take.

    Parameters
    ----------
    seconds : callable
        Of a job, alone.
    submitters, submit_seconds
        Threads that call `sbatch`, and how long each is busy with one job.
    poll, poll_step, poll_longest, query_seconds
        Seconds before the first status query and after one that found a job ended; how much longer after each one
        that found none; at most; and of the query itself.
    queue_seconds
        From `sbatch` to the job's first second.
    start_seconds, member_start_seconds
        Of a cluster job, before its first rule begins; and of each rule in it beside its own seconds.
    spread
        Standard deviation of the logarithm of a job's seconds, whose mean stays.
    killed
        Share of cluster jobs that die at a random moment.
    copies
        Output of a job to the file that it really holds; others are empty.
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
        """Seconds of one job: the same in every simulation."""
        wildcards = sorted(job.wildcards_dict.items())
        normal = random.Random(f"{job.rule.name} {wildcards}").gauss(-(self.spread**2) / 2, self.spread)
        return self.seconds(job) * 2.718281828459045**normal

    def together(self, job: Any) -> float:
        """Seconds of a cluster job with one or several rules in it: level by level, as many at once as it has cores."""
        if not job.is_group():
            return self.drawn(job) + self.member_start_seconds
        total = 0.0
        for level in job.toposorted:
            cores = [0.0] * max(1, int(job.threads))
            for one in sorted(level, key=str):
                heapq.heapreplace(cores, cores[0] + self.drawn(one) + self.member_start_seconds)
            total += max(cores)
        return total

    def dies(self, job: Any) -> float:
        """After which share of its time a cluster job dies; 1: it does not."""
        chance = random.Random(f"{sorted(map(str, members(job)))} {job.attempt}")
        return chance.random() if chance.random() < self.killed else 1.0


@dataclass
class Submitted:
    """One cluster job, at virtual times."""

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
    """The jobs of a group, or the one job."""
    return list(job.jobs) if job.is_group() else [job]


class Executor(RemoteExecutor):
    """Submits to the virtual cluster. `clock` and `cluster` are set before Snakemake begins."""

    clock: Clock
    cluster: Cluster
    log: list[Submitted]
    queries: int

    def _wait_thread(self) -> None:
        """Status queries are events of the clock."""

    def __post_init__(self) -> None:
        self._free = [0.0] * self.cluster.submitters
        self._interval = self.cluster.poll
        self.clock.held = lambda: any(job.is_local for job in self.workflow.scheduler.running)
        self.clock.at(self.clock.now() + self.cluster.poll, self._query)

    def run_jobs(self, jobs: list[Any]) -> None:
        for job in jobs:
            work = sum(map(self.cluster.drawn, members(job)))
            entry = Submitted(job.name, len(members(job)), job.attempt, work, chosen=self.clock.now())
            begin = max(heapq.heappop(self._free), entry.chosen)
            heapq.heappush(self._free, begin + self.cluster.submit_seconds)
            self.clock.at(begin + self.cluster.submit_seconds, lambda job=job, entry=entry: self._submit(job, entry))

    def run_job(self, job: Any) -> None:
        self.run_jobs([job])

    def _submit(self, job: Any, entry: Submitted) -> None:
        self.format_job_exec(job)  # what `sbatch` would be given
        share, cluster = self.cluster.dies(job), self.cluster
        entry.begins = self.clock.now() + cluster.queue_seconds
        entry.ends = entry.begins + share * (cluster.start_seconds + cluster.together(job))
        entry.died = share < 1
        self.log.append(entry)
        self.report_job_submission(SubmittedJobInfo(job, aux={"entry": entry}))
        if not entry.died:
            self.clock.at(entry.ends, lambda: self._make_outputs(job))

    def _make_outputs(self, job: Any) -> None:
        with self.clock.not_counted():
            made = [path for one in members(job) for path in (*one.output, one.benchmark) if path is not None]
            for path in map(Path, map(str, made)):
                path.parent.mkdir(parents=True, exist_ok=True)
                source = self.cluster.copies.get(str(path))
                path.write_bytes(source.read_bytes() if source else b"")

    def _query(self) -> None:
        """A status query of all jobs, and the next one planned."""
        asked, self.active_jobs = self.active_jobs, []
        self.active_jobs = asyncio.run(listed(self.check_active_jobs(asked)))
        if asked:
            Executor.queries += 1
        longer = min(self._interval + self.cluster.poll_step, self.cluster.poll_longest)
        self._interval = longer if asked and len(self.active_jobs) == len(asked) else self.cluster.poll
        self.clock.at(self.clock.now() + self.cluster.query_seconds + self._interval, self._query)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
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
        pass


async def listed(items: AsyncIterator[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
    return [item async for item in items]


def install(cluster: Cluster) -> Clock:
    """Let the scheduler of this process follow a virtual clock, and its executor `virtual` use `cluster`."""
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
