"""What is asked of Snakemake's own objects beyond its language, and of the machine or cluster that runs the jobs.

Checked against Snakemake 9.27.1.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, suppress
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from bolt.workflow.progress import Progress
from bolt.workflow.stage import STAGES


def plan_quickly() -> None:
    """Spare the planning of thousands of jobs what Snakemake and Python repeat for each.

    Snakemake inspects the parameters of a function whenever it calls it, and Python searches millions of objects that
    all stay in use for cycles: an eighth of the time each.
    """
    from snakemake import common, rules

    common.get_function_params = rules.get_function_params = lru_cache(10_000)(common.get_function_params)
    gc.set_threshold(200_000, 50, 100)


def plan_anew_after_a_checkpoint() -> None:
    """Let a checkpoint that changed nothing run nothing after it: a touched file would train all models again.

    Snakemake compares the direct inputs of what waits for a checkpoint with their checksums, but keeps the reasons of
    all further jobs from the plan before it.
    """
    from snakemake.dag import DAG

    plan = DAG.update_needrun

    async def anew(dag: Any, *args: Any, **kwargs: Any) -> None:
        for job, reason in dag._reason.items():
            if not dag.finished(job):
                reason.clear()
        await plan(dag, *args, **kwargs)

    DAG.update_needrun = anew


INTERRUPTED = threading.Event()
"""Set by Ctrl-C; a run that finishes all the same clears it."""
LOG_NAMES = {
    **{name: f"{{{name}}}" for name in ("experiment", "atlas", "variant", "scheme", "model")},
    **{name: f"{name}-{{{name}}}" for name in ("seed", "fold", "inner", "batch")},
    **{name: f"{{{name}}}" for name in ("folder", "prefix", "scan")},
}
"""How a wildcard of a rule's outputs is written in the names of its logs, in this order."""
FLAGS = "DFSafhklptv"
"""Short options of `snakemake` that have no value, so that others may follow each in one word; and `n`, a dry run."""
SHARE_ONE = 2
"""Trainings of one GPU at a time: more would compete for its memory."""


def announce_interruption() -> None:
    """Make the last line after Ctrl-C say how to go on; Snakemake's own lines about jobs come before it."""
    previous = signal.getsignal(signal.SIGINT)
    # only the main thread may set a handler; a run in the background may ignore the signal, and goes on doing so
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        return

    def interrupt(number: int, frame: Any) -> None:
        INTERRUPTED.set()
        previous(number, frame)

    def say() -> None:
        if INTERRUPTED.is_set():
            print("Interrupted. The same command resumes where this run stopped.", file=sys.stderr, flush=True)

    signal.signal(signal.SIGINT, interrupt)
    atexit.register(say)


def follow_progress(workflow: Any, seconds: Callable[[str], float], *, runs: bool) -> Progress:
    """Show the progress of a run in place of Snakemake's messages about each job, which its log file keeps.

    Those stay where the command line asks for more (``-p``, ``--verbose``, ``--debug-dag``), less (``--quiet``) or
    other output (``--logger``), in dry runs and in jobs on a cluster.

    Parameters
    ----------
    workflow : snakemake.workflow.Workflow
    seconds : callable
        Returns the expected seconds of one job of a rule.
    runs : bool
        Whether the command runs jobs.
    """
    from snakemake.logging import logger

    def counts() -> Counter[str]:
        jobs = {*workflow.dag.needrun_jobs(), *workflow.dag.finished_jobs}
        return Counter(job.rule.name for job in jobs if job.rule.shellcmd)

    def give_up(number: int) -> None:
        for job in workflow.dag.jobs:
            if workflow.dag.jobid(job) == number:
                job._attempt = job.restart_times + 1  # Snakemake has no word for it

    settings = workflow.output_settings
    asked = settings.quiet or settings.verbose or settings.printshellcmds or settings.debug_dag
    default = next((handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"), None)
    shown = logging.StreamHandler(StringIO()) if settings.quiet or default is None else default
    progress = Progress(shown, counts, seconds, give_up=give_up)  # type: ignore[arg-type]
    if runs and default is not None and not asked and plans_the_run(workflow):
        logger.removeHandler(default)
        logger.addHandler(progress)
    return progress


def announce(progress: Progress, workflow: Any, results: Path) -> None:
    """Show where a run works, as it starts."""
    n, progress.retries, progress.is_local = jobs_at_once(workflow), retries(workflow), not has_scheduler(workflow)
    where = f"on {n} core{'s' * (n > 1)}" if progress.is_local else f"on the cluster, at most {n} at once"
    progress.announce(results, where, log_files(workflow))


def remedy() -> list[str]:
    """Return what to do after a run in which jobs failed; after Ctrl-C the last line says it."""
    return [] if INTERRUPTED.is_set() else ["Fix the cause; the same command resumes where this run stopped."]


def log_files(workflow: Any) -> list[str]:
    """Return Snakemake's own log files of this run."""
    return [os.path.relpath(file) for file in workflow.logger_manager.get_logfile()]


def has_configfile(workflow: Any) -> bool:
    """Return whether the command line gives a configuration file."""
    return bool(workflow.overwrite_configfiles)


def has_workdir(workflow: Any) -> bool:
    """Return whether the command line gives a folder to work in."""
    return workflow.overwrite_workdir is not None


def configfiles(workflow: Any) -> list[str]:
    """Return the configuration files that are read; a later one has precedence."""
    return [str(file) for file in workflow.configfiles]


def plans_the_run(workflow: Any) -> bool:
    """Return whether this process plans a run, and is not one of its jobs on a cluster."""
    return bool(workflow.is_main_process)


def targets(arguments: list[str]) -> set[str]:
    """Return the rules and files that the `snakemake` command asks for; none: the first rule's."""
    from snakemake.cli import get_argument_parser

    with suppress(SystemExit), redirect_stderr(StringIO()):  # not the command line of Snakemake
        return set(get_argument_parser().parse_known_args(arguments)[0].targets)
    return set()


def retries(workflow: Any) -> int:
    """Return how often a job that crashed is tried again."""
    return int(workflow.execution_settings.retries)


def has_scheduler(workflow: Any) -> bool:
    """Return whether jobs run under a scheduler, which kills what takes more than it asked for."""
    return bool(workflow.non_local_exec)


def complete_rules(workflow: Any, run: Any) -> None:
    """Give the rules of all stages what each has: its log, its benchmark file, and the params of its stage."""
    stages = {rule: stage for stage in STAGES.values() for rule in stage.rules}
    for rule in workflow.rules:
        if rule.name in stages:
            rule.log_modifier = rule.benchmark_modifier = workflow.modifier.path_modifier
            place = "/".join(text for name, text in LOG_NAMES.items() if name in rule.wildcard_names) or "all"
            rule.set_log(run.layout.log(rule.name, place))
            rule.set_params(**run.params(stages[rule.name].name))
            if rule.output:
                rule.benchmark = run.layout.benchmark(rule.name, place)


def limit(workflow: Any, resource: str, value: int | None) -> None:
    """Limit a resource of all jobs together, unless the command line does, or the value is None."""
    from snakemake.resources import Resource  # jobs, whose environments lack snakemake, import this module too

    if value is not None and resource not in workflow.global_resources:
        workflow.register_resource(resource, Resource(resource, value))


def jobs_at_once(workflow: Any) -> int:
    """Return how many jobs may run at once."""
    settings = workflow.resource_settings
    return max(settings.cores or 1, settings.nodes or 1)


def joined(workflow: Any, name: str, place: str, position: int) -> str:
    """Return the group of the `position`-th job of its kind at a place; a cluster runs a group as one job.

    Snakemake's own chunks (`group-components`) grow each time it looks at the DAG anew, as it does when a run
    resumes, and a job of two chunks is submitted twice. A group that has its name from the start stays as it is.

    Parameters
    ----------
    workflow : snakemake.workflow.Workflow
    name : str
        Key of `group-components`: how many jobs are joined; without it, none.
    place : str
        What joined jobs have in common, such as a model and a seed.
    position : int
    """
    settings = workflow.group_settings
    size = settings.group_components.get(name, 1) if settings else 1
    group = "_".join(filter(None, [name, place, str(position // size)]))
    workflow.parent_groupids[group] = name
    return group


def is_dry_run(arguments: list[str]) -> bool:
    """Return whether the `snakemake` command asks for a dry run.

    Its own parser, which `bolt check` does without, takes a second to import.
    """
    return any(re.fullmatch(rf"-[{FLAGS}]*n.*|--dry-?run", argument) for argument in arguments)


def trainings_at_once(device: str, devices: Path = Path("/dev")) -> int | None:
    """Return how many trainings may run at once on this machine; None: as many as there are cores.

    It is asked without torch, whose import takes seconds.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        The configured one.
    devices : Path
        Folder of device files.
    """
    gpus = len(list(devices.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus and visible is not None:  # numbers or names; those of parts of a GPU, too
        gpus = sum(name.strip() not in ("", "-1") for name in visible.split(","))
    return SHARE_ONE * gpus if gpus and device != "cpu" else None


def cancel_at_exit(logs: Iterable[str]) -> None:
    """Cancel, when this process ends, what a run has left in SLURM's queue.

    The executor cancels the jobs of a run that is stopped, except those whose state it is querying or that it is about
    to submit. It has finished both when the process ends.

    Parameters
    ----------
    logs : iterable of str
        Snakemake's log files of this run, in which the executor names all its jobs. Nothing happens if they show no
        SLURM run.
    """
    named = r"^SLURM run ID: (\S+)$"
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in map(Path, logs) if path.is_file())
    found = next(filter(None, (re.search(named, text, re.MULTILINE) for text in texts)), None)
    if found is not None:
        atexit.register(_cancel, found[1])


def _cancel(name: str) -> None:
    try:
        done = subprocess.run(["scancel", "--name", name], capture_output=True, text=True, check=False, timeout=60)
        trouble = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = str(error)
    if trouble:
        print(f"bolt: jobs may be left in the queue ({trouble}). Cancel them: scancel --name {name}", file=sys.stderr)
