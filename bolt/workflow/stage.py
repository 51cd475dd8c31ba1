"""What a stage is: one record from which its command, rule settings, re-run triggers and cost estimate are made.

A stage is declared by `@stage(...)` on the function that does its work, in one of the modules of
`bolt.workflow.stages`. This module and those import nothing heavy, so that the command line starts at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from bolt.config.study import Study
    from bolt.workflow.job import Job

OF_RUN = ("atlas", "model", "seed")
"""Options that name one run of a model; `--variant` goes with them."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one job on one core, for the estimate of a dry run.

    Measured on an AMD EPYC (2.6 GHz): a 3T scan (T1w 0.7 mm, BOLD 80 × 80 × 35 × 156) and BolT on ABIDE-I. Benchmark
    files of finished jobs are used instead once a run has some.

    Attributes
    ----------
    job, scan : float
        Per job, and added for each scan of the dataset.
    phantom, phantom_scan : float
        The same for the phantom, whose images and model are smaller.
    """

    job: float
    scan: float = 0.0
    phantom: float = 0.0
    phantom_scan: float = 0.0


@dataclass(frozen=True)
class Stage:
    """One stage of the workflow.

    Attributes
    ----------
    name : str
        Of the function.
    command : str
        Of the command line: by default the name, with hyphens.
    help : str
        What the command does, in one line.
    work : callable
        Does one job.
    rules : tuple of str
        Names of its Snakemake rules, and so of their logs and benchmark files; none for commands without a rule.
    keys : tuple of str
        Required options of the command, one per wildcard of the rule.
    options : callable, optional
        Adds the command's other options to its parser.
    code : tuple of str, or callable
        Modules that compute; a change in them or in what they import runs the stage again. A callable gets the study.
    of : {"model", "experiment", "scan"}, optional
        Wildcard of the rule that names what a job is about, and is run again for if that is changed.
    settings : callable
        What the stage reads of a study's configuration; runs it again when it changes.
    jobs : mapping
        Functions that return the number of jobs of a `bolt.workflow.estimate.Plan`, for each rule (or kind of job).
    costs : mapping
        `Cost` of the same.
    memory_mb, minutes : int, optional
        What the first attempt asks a cluster for; each further attempt asks for as much again.
    trains : bool
        Whether it trains a model, which needs a GPU where there is one, and time by the kind of model.
    applies : bool
        Whether it applies or measures networks: on a GPU if `device: cuda` asks for it, else on what the node has.
    guarded : bool
        Whether a job records its own failure (`bolt.jobs.outcome`), so that one bad scan or fold stops nothing.
    """

    name: str
    command: str
    help: str
    work: Callable[[Job], None]
    rules: tuple[str, ...]
    jobs: Mapping[str, Callable[[Any], int]]
    costs: Mapping[str, Cost]
    keys: tuple[str, ...] = ()
    options: Callable[[ArgumentParser], None] | None = None
    code: tuple[str, ...] | Callable[[Study], tuple[str, ...]] = ()
    of: str | None = None
    settings: Callable[[Study], Any] = lambda study: None
    memory_mb: int | None = None
    minutes: int | None = None
    trains: bool = False
    applies: bool = False
    guarded: bool = False

    def modules(self, study: Study) -> tuple[str, ...]:
        """Return the modules whose code the stage runs."""
        return self.code(study) if callable(self.code) else self.code


STAGES: dict[str, Stage] = {}
"""Every declared stage by its name, in the order of the data; filled by importing `bolt.workflow.stages`."""
RECORDS = tomllib.loads(Path(__file__).with_name("stages.toml").read_text(encoding="utf-8"))
"""What needs no code of each stage."""


def stage(
    *, jobs: Callable[[Any], int] | Mapping[str, Callable[[Any], int]] = lambda plan: 0, **more: Any
) -> Callable[[Callable[[Job], None]], Callable[[Job], None]]:
    """Declare the decorated function to be a stage: what can be computed of it; ``stages.toml`` has the rest."""

    def declare(work: Callable[[Job], None]) -> Callable[[Job], None]:
        name = work.__name__
        record = RECORDS[name] | more
        rules = tuple(record.pop("rules", [name]))
        first, cost = (*rules, name)[0], record.pop("cost", {"job": 0})
        costs = {first: cost} if "job" in cost else cost
        record |= {key: tuple(record[key]) for key in ("keys", "code") if isinstance(record.get(key), list)}
        STAGES[name] = Stage(
            name=name,
            command=record.pop("command", name.replace("_", "-")),
            work=work,
            rules=rules,
            jobs=jobs if isinstance(jobs, Mapping) else {first: jobs},
            costs={kind: Cost(**seconds) for kind, seconds in costs.items()},
            **record,
        )
        return work

    return declare
