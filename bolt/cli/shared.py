"""What stages share: the configuration of the run, and the tables and files that several of them ask for."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bolt import config as configuration
from bolt.config import Config, Dataset
from bolt.config.layout import Layout
from bolt.datasets import TEXT_COLUMNS
from bolt.experiments.entries import experiment_models
from bolt.io.errors import DataError
from bolt.io.files import atomic, read_table, write_json, write_table
from bolt.jobs.limits import limits
from bolt.jobs.outcome import Outcome, command_again
from bolt.jobs.provenance import Inputs, provenance

log = logging.getLogger("bolt")

CONFIG = Path("config/config.yaml")


class Shared:
    """The base of all stages."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.config_file: Path = options.config or CONFIG
        self.config: Config = configuration.load_config(self.config_file)
        name = getattr(options, "dataset", None) or self.config.dataset
        self.dataset: Dataset = configuration.load_dataset(name)
        self.layout = Layout(self.config)
        self.models = {m.run_name: m for m in map(configuration.load_model, self.config.models)}

    def _refuse_bad(self, excluded: pd.DataFrame) -> None:
        """Stop at bad scans where the configuration says so. No other stage reads that key: changing it on a finished
        run makes the report anew, and nothing else."""
        from bolt.cohort.exclusions import refuse_bad_scans

        refuse_bad_scans(excluded, self.layout.bad_scans, refuse=self.config.bad_scans == "refuse")

    def _compare_cohort(self, scans: pd.DataFrame) -> None:
        """Write the cohort beside the paper's, where the dataset's file says what that is."""
        from bolt.cohort.published import COHORT_COLUMNS, compare_cohort

        if self.dataset.paper is None:
            self.layout.cohort.unlink(missing_ok=True)
            self.layout.cohort.with_suffix(".json").unlink(missing_ok=True)
            return
        cohort = compare_cohort(scans, self.dataset.paper)
        write_table(cohort, self.layout.cohort, COHORT_COLUMNS)
        for measure, found, due in cohort.itertuples(index=False):
            log.info("%s: %d (the paper: %d)", measure, found, due)

    def _outcome(self, stage: str, status: Path, inputs: Inputs, output: Path | None = None) -> Outcome:
        """How one job ends; `inputs` are what its provenance hashes, `output` is an output of its rule, where the
        status is none."""
        outcome = Outcome(stage, status, self.options.attempt)
        outcome.limits = limits(self.options.limits)
        outcome.inputs = [self.config_file, *inputs]
        outcome.again = command_again(output or status, self.layout.config)
        return outcome

    def _note(self, place: Path, inputs: Inputs, **facts: Any) -> None:
        """Write the provenance of a stage over many scans or folds, its last work; `beside` names a place for it."""
        stage = self.options.command.replace("-", "_")
        write_json(provenance([self.config_file, *inputs], stage=stage, **facts), place)

    def _of_folds(self, done: Sequence[object], outputs: Sequence[Path], work: Callable[[], None]) -> None:
        """Work on those folds of a run that have what is asked for; where none has, leave the outputs empty.

        So a run that failed as a whole keeps no other from the report. The status files of its folds say why.
        """
        if done:
            work()
            return
        log.warning("nothing to do: no fold of this run finished; see the status.json of its folds")
        for output in outputs:
            with atomic(output) as temporary:
                temporary.touch()

    def _importance(self, folds: Sequence[int]) -> Inputs:
        """What stages that read a run's importance weights are made of."""
        options = self.options
        run = self.layout.run(options.atlas, options.model, options.seed, options.variant).folder
        files = [run / f"fold-{fold}" / f"importance.{kind}" for fold in folds for kind in ("npy", "tsv")]
        return [self.layout.cache(options.atlas, options.variant) / "manifest.json", files]

    def _scans(self) -> pd.DataFrame:
        return read_table(self.layout.scans, text=TEXT_COLUMNS)

    def _strata(self, scans: pd.DataFrame) -> pd.DataFrame:
        """Scans as their folds are stratified: by class, or by quarter of a label that is a number."""
        from bolt.folds.splits import quarters

        return scans if self.dataset.classes else scans.assign(label=quarters(scans["label"]))

    def _scan(self) -> pd.Series:
        scans = self._scans().set_index("scan_id", drop=False)
        if self.options.scan not in scans.index:
            raise DataError(
                f"no scan '{self.options.scan}'", where=self.layout.scans, hint="Give a scan_id listed there"
            )
        return scans.loc[self.options.scan]

    def _download_status(self, scan_id: str) -> Path:
        from bolt.datasets import source_of

        return source_of(self.dataset).download_folder(self.dataset, self.config) / scan_id / "status.json"

    def _atlas(self, name: str):
        from bolt.atlases.image import load_atlas

        paths = self.config.paths
        place = self.config.atlas_places[name]
        return load_atlas(place, atlas_dir=paths.atlas_dir, templateflow_home=paths.templateflow_home)

    def _model(self) -> configuration.Model:
        name = self.options.model
        known = self.models if name in self.models else self.models | experiment_models(self.config)
        if name not in known:
            raise DataError(f"no run of model '{name}' is configured", hint=f"Configured: {', '.join(known)}")
        return known[name]

    def _fold(self, fold: int) -> Path:
        options = self.options
        return self.layout.run(options.atlas, options.model, options.seed, options.variant).fold(fold)

    def _folds(self) -> list[int]:
        return self.config.folds.of(self._model().name)
