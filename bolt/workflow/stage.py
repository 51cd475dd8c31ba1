"""What a stage is: one record from which its command, rule settings, re-run triggers and cost estimate are made.

A stage has a table in ``stages.toml``, under the name of the module of `bolt.workflow.stages` in which a function of
its name does the work. This module imports nothing heavy and none of those, so that the command line starts at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bolt.config.study import Study
    from bolt.workflow.job import Job

OF_RUN = ["atlas", "model", "seed"]
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
    name, module : str
        Of the function, and of the module of `bolt.workflow.stages` that has it.
    command : str
        Of the command line: by default the name, with hyphens.
    help : str
        What the command does, in one line.
    rules : list of str
        Names of its Snakemake rules, and so of their logs and benchmark files; none for commands without a rule.
    keys : list of str
        Required options of the command, one per wildcard of the rule.
    options : mapping
        The command's other options, as in `bolt/cli/commands.toml`.
    code, native_code : list of str
        Modules that compute; a change in them or in what they import runs the stage again. The second are run for
        output in the scans' own voxels alone.
    of : {"atlas", "model", "experiment", "scan"}, optional
        Wildcard of the rule that names what a job is about, and is run again for if that is changed.
    settings : optional
        What the stage reads of a study's configuration (`bolt.workflow.watched.read_settings`); runs it again when it
        changes.
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
    module: str
    command: str
    help: str
    rules: list[str]
    keys: list[str] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    code: list[str] = field(default_factory=list)
    native_code: list[str] = field(default_factory=list)
    of: str | None = None
    settings: Any = None
    memory_mb: int | None = None
    minutes: int | None = None
    trains: bool = False
    applies: bool = False
    guarded: bool = False

    @property
    def work(self) -> Callable[[Job], None]:
        """Return the function that does one job."""
        function: Callable[[Job], None] = getattr(import_module(f"bolt.workflow.stages.{self.module}"), self.name)
        return function

    def modules(self, study: Study) -> list[str]:
        """Return the modules whose code the stage runs."""
        return [*self.code, *(self.native_code if study.layout.native else [])]


STAGES: dict[str, Stage] = {}
"""Every stage by its name, in the order of the data."""
COSTS: dict[str, Cost] = {}
"""Costs by rule; trainings of models with and without epochs (`train_features`) are counted apart."""
for _module, _records in tomllib.loads(Path(__file__).with_name("stages.toml").read_text(encoding="utf-8")).items():
    for _name, _record in _records.items():
        _cost = _record.pop("cost", {"job": 0})
        _record = {"command": _name.replace("_", "-"), "rules": [_name]} | _record
        STAGES[_name] = Stage(name=_name, module=_module, **_record)
        COSTS |= {kind: Cost(**seconds) for kind, seconds in ({_name: _cost} if "job" in _cost else _cost).items()}
