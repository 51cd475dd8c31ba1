"""One execution of a stage: its options, its study, and what stages share."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bolt import config as configuration
from bolt.cohort.exclusions import refuse_bad_scans
from bolt.config import ROOT, Model
from bolt.config.layout import ModelRun
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.experiments.entries import experiment_models
from bolt.io.errors import DataError
from bolt.io.files import WRITTEN, atomic, read_table, write_json
from bolt.io.places import folder_of_run
from bolt.jobs.outcome import Outcome, repeat_command
from bolt.jobs.provenance import Inputs, provenance, provenance_path

if TYPE_CHECKING:
    from bolt.atlases.image import Atlas
    from bolt.series.cache import SeriesCache

log = logging.getLogger("bolt")

PREPARES = "BOLT_PREPARES"
"""Environment variable that is set where a run ends with series: nothing is learned."""
CONFIG = Path("config/config.yaml")
"""In the working folder, or else in the folder that comes with BolT."""


def chosen_config(given: Path | None) -> Path:
    """Return the configuration file that a command reads: the given one, that of the working folder, or the shipped."""
    return given or (CONFIG if CONFIG.is_file() else ROOT / CONFIG)


class Files:
    """The files that a rule declares as its inputs, or as its outputs, by their names there.

    Parameters
    ----------
    kind : str
        ``input`` or ``output``.
    given : sequence of tuple
        Names and paths; those of a list have one name.
    """

    def __init__(self, kind: str, given: Sequence[tuple[str, Path]]) -> None:
        self._kind, self._given = kind, given

    def all(self, *names: str) -> list[Path]:
        """Return the files of one or more lists, which may be empty; without names, all files."""
        return [path for name, path in self._given if name in names or not names]

    def get(self, name: str) -> Path | None:
        """Return a file that only some jobs have."""
        return next(iter(self.all(name)), None)

    def some(self, name: str) -> list[Path]:
        """Return the files of a list that is never empty."""
        paths = self.all(name)
        if not paths:
            what = f"the file '{name}' is needed, and --{self._kind} does not name it"
            hint = f"Add '--{self._kind} {name}=FILE'. Snakemake prints the whole command of a job with its option -p"
            raise DataError(what, hint=hint)
        return paths

    def __getattr__(self, name: str) -> Path:
        """Return a file."""
        return self.some(name)[0]


class Job:
    """What the function of a stage is given.

    Parameters
    ----------
    options : Namespace
        Options of the command; `stage` is the name of its stage.

    Attributes
    ----------
    stage : str
        The name of the stage.
    input, output : Files
        What the job reads and writes, as its rule declares it.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        WRITTEN.clear()  # what an earlier job of this process wrote is not this one's
        file = chosen_config(options.config)
        folder = folder_of_run(file)
        files = {kind: getattr(options, kind, None) or [] for kind in ("input", "output")}
        if folder != Path.cwd():  # go where the relative paths of the configuration begin; those of options begin here
            file = file.absolute()
            for name, value in vars(options).items():
                if isinstance(value, Path):
                    setattr(options, name, value.absolute())
            files = {kind: [(name, path.absolute()) for name, path in given] for kind, given in files.items()}
            os.chdir(folder)
        self.input, self.output = Files("input", files["input"]), Files("output", files["output"])
        self.options, self.config_file, self.stage = options, file, str(options.stage)
        self.config = configuration.load_config(self.config_file)
        self.dataset = configuration.load_dataset(self.config.dataset)
        self.study = Study(self.config, self.dataset)
        self.layout = self.study.layout

    @property
    def learns(self) -> bool:
        """Return whether models are trained after this job, which need labels and folds."""
        return self.dataset.label is not None and PREPARES not in os.environ

    # ---- what the options name -----------------------------------------------------------------
    @cached_property
    def run(self) -> ModelRun:
        """Return the run of a model that the options name."""
        options = self.options
        return self.layout.run(options.atlas, options.model, options.seed, options.variant)

    @cached_property
    def model(self) -> Model:
        """Return the model of that run: a configured one, or one that an experiment trains."""
        name, models = self.options.model, self.study.models
        known = models if name in models else models | experiment_models(self.config)
        if name not in known:
            raise DataError(f"no run of model '{name}' is configured", hint=f"Configured: {', '.join(known)}")
        return known[name]

    def require_classes(self) -> list[str]:
        """Return the classes of the dataset; refuse labels that are numbers."""
        if self.dataset.classes is None:
            raise DataError(f"'{self.stage}' needs classes, but the label of this dataset is a number")
        return self.dataset.classes

    @property
    def folds(self) -> list[int]:
        """Return the outer folds in which that model is trained."""
        return self.config.folds.of(self.model.name)

    @cached_property
    def scan(self) -> pd.Series:
        """Return the row of the scan table that the options name."""
        scans = self.scans().set_index("scan_id", drop=False)
        if self.options.scan not in scans.index:
            raise DataError(
                f"no scan '{self.options.scan}'", where=self.layout.scans, hint="Give a scan_id listed there"
            )
        return scans.loc[self.options.scan]

    # ---- tables and files that several stages read ---------------------------------------------
    def scans(self) -> pd.DataFrame:
        """Read the scan table."""
        return read_table(self.layout.scans, text=TEXT_COLUMNS)

    def atlas(self, name: str) -> Atlas:
        """Load a configured atlas in the space of the images."""
        from bolt.atlases.image import atlas_of  # jobs that need no image start without nibabel

        return atlas_of(self.study, name)

    def series_cache(self) -> SeriesCache:
        """Open the series that a model reads: the input `cache` is the manifest of their cache."""
        from bolt.series.cache import SeriesCache

        return SeriesCache(self.input.cache.parent)

    # ---- how a job ends ------------------------------------------------------------------------
    def outcome(
        self, inputs: Inputs, status: Path | None = None, upstream: Path | None = None, **facts: Any
    ) -> Outcome:
        """Return the guard of a job of one scan or fold; if that fails, the outputs beside its status are left empty.

        Parameters
        ----------
        inputs : sequence of Path
            What its provenance hashes.
        status : Path, optional
            Its status file; by default the output of that name.
        upstream : Path, optional
            The status file of the job on whose success it depends.
        **facts
            What its provenance holds besides, such as seeds.
        """
        status, outputs = status or self.output.status, self.output.all()
        outcome = Outcome(self.stage, status, self.options.attempt)
        outcome.limits = self.options.limits
        outcome.inputs = [self.config_file, *inputs]
        outcome.facts = facts
        outcome.upstream = upstream
        outcome.empty = [file for file in outputs if file.parent == status.parent and file != status]
        outcome.command = repeat_command(status if status in outputs else outputs[0], self.layout.config)
        return outcome

    def note(self, result: Path, inputs: Inputs, **facts: Any) -> None:
        """Write the provenance of a stage's result: the last thing that a stage over many scans or folds does."""
        place = result if result.name.endswith("provenance.json") else provenance_path(result)
        write_json(provenance([self.config_file, *inputs], place=place, stage=self.stage, **facts), place)

    def of_folds(self, done: Sequence[object], work: Callable[[], None]) -> None:
        """Work on the folds of a run that have what is needed; where none has, leave the outputs empty.

        A run that failed as a whole so keeps no other run from the report; the status files of its folds say why.
        """
        if done:
            work()
            return
        log.warning("nothing to do: no fold of this run finished; see the status.json of its folds")
        for output in self.output.all():
            with atomic(output) as temporary:
                temporary.touch()

    def refuse_bad(self, excluded: pd.DataFrame) -> None:
        """Stop at bad scans where the configuration asks for that.

        No re-run trigger but the report's reads that key: changing it on a finished run renews the report alone.
        """
        refuse_bad_scans(excluded, self.layout.bad_scans, refuse=self.config.bad_scans == "refuse")

    def importance_files(self, folds: Sequence[int]) -> Inputs:
        """Return the inputs of stages that read the importance weights of some folds of a run."""
        given = zip(self.folds, self.input.some("importance"), strict=True)
        files = [index.with_suffix(suffix) for fold, index in given if fold in folds for suffix in (".npy", ".tsv")]
        return [self.input.cache, files]
