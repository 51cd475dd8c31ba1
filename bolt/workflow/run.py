"""What the Snakefile needs to know: which files are asked for, and what a rule depends on."""

from __future__ import annotations

import os
import shlex
import sys
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from bolt import config as configuration
from bolt.config import ROOT, Config, Model
from bolt.config.layout import Layout, ModelRun
from bolt.experiments.checks import check_experiment, check_experiment_names, lacks_reference
from bolt.experiments.entries import available, entries, paper_table, rows_of, trained_models
from bolt.explain.explainable import can_be_explained
from bolt.io.errors import BoltError, ConfigError
from bolt.io.files import sha256, write_yaml
from bolt.jobs.limits import LIMITED
from bolt.jobs.outcome import ATTEMPTS
from bolt.models.registry import fitted_at_once
from bolt.training.tuning.space import check_search
from bolt.workflow.checks import check_names, check_room
from bolt.workflow.dependencies import code_of, files_of, settings_of
from bolt.workflow.disk_check import is_dry_run
from bolt.workflow.job_groups import joined
from bolt.workflow.lock import JOB
from bolt.workflow.scan_files import ScanFiles

MANY_SCANS = 2000
"""With more, trainings are jobs of their own on a cluster."""
RESERVED = frozenset(
    [
        "all",
        "anatomical",
        "cache",
        "choose",
        "download",
        "download_table",
        "evaluate",
        "experiment",
        "explain_fold",
        "explain_inner",
        "explanation",
        "faithfulness",
        "faithfulness_fold",
        "figures",
        "folds",
        "functional",
        "index",
        "inner_folds",
        "measure_complexity",
        "oracle_cache",
        "paper",
        "parcellate",
        "quality",
        "quality_pages",
        "regions",
        "regress_landmarks",
        "report",
        "resources",
        "sanity",
        "search",
        "search_fold",
        "series",
        "simulate",
        "stability",
        "tables",
        "take_spectra",
        "tasks",
        "template",
        "train",
        "train_fold",
        "train_folds",
        "train_inner",
        "train_permuted",
        "truth",
    ]
)
"""Names of the workflow's rules, which no experiment can have."""


class Run(ScanFiles):
    """One configured run of the workflow, as the rules see it.

    Parameters
    ----------
    raw : dict
        The merged configuration that Snakemake read.
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        self.config = configuration.parse(Config, raw, "configuration")
        self.dataset = configuration.load_dataset(self.config.dataset)
        self.models = {m.run_name: m for m in map(configuration.load_model, self.config.models)}
        self.layout = Layout(self.config)
        check_experiment_names(self.config, RESERVED)
        self.experiments = available(self.config)
        self.experiment_rows = {name: rows_of(one, self.config) for name, one in self.experiments.items()}
        self.experiment_models = trained_models(self.experiments, self.experiment_rows)

    def save_config(self) -> Path:
        """Write the merged configuration where every command reads it, if it changed.

        Called when a run has started: after Snakemake's lock, and never by a dry run, so that looking at another
        configuration does not change the jobs of a run under way.
        """
        data = self.config.model_dump(mode="json")
        path = self.layout.config
        if not path.is_file() or yaml.safe_load(path.read_text()) != data:
            write_yaml(data, path)
        return path

    # ---- what a rule depends on besides its input files --------------------------------------
    def code(self, stage: str, *modules: str) -> str:
        return code_of(stage, *modules)

    def settings(self, stage: str) -> dict[str, Any]:
        """Where a stage finds its configuration, what it reads there, and its code; a rule that lists them runs again
        when they change.

        What it reads is put together when the first job of the stage is planned. For some stages models must be
        imported; a job on a cluster, which plans itself alone, does not wait for those of others.
        """
        more = ["bolt.series.native_space"] if stage == "parcellate" and self.layout.native else []
        found = cache(lambda: repr(settings_of(self.config, self.dataset, stage)))
        return {"config": self.layout.config, "settings": lambda wildcards: found(), "code": self.code(stage, *more)}

    def files(self) -> str:
        """Names, sizes and times of a dataset's images and sidecars: a scan that was mended is indexed anew."""
        return files_of(self.dataset)

    def model_code(self, run_name: str) -> str:
        runner = ["bolt.training.features"] if self.fitted_at_once(run_name) else []
        return self.code("train", f"bolt.models.{self.model(run_name).model}", *runner)

    @cached_property
    def searched(self) -> dict[str, Model]:
        """Models of the target `search` by name; refused here where they cannot be searched."""
        return {model.name: model for model in check_search(self.config)}

    def searched_code(self, name: str) -> list[str]:
        """What a model that is searched is, and its code."""
        model = self.searched[name]
        return [model.model_dump_json(), self.code("search", f"bolt.models.{model.model}")]

    def choices(self) -> list[Path]:
        """What the target `search` writes."""
        schemes = self.config.search.schemes
        return [
            self.layout.choice(atlas, scheme, name)
            for atlas in self.config.atlas_places
            for scheme in schemes
            for name in self.searched
        ]

    def model(self, run_name: str) -> Model:
        """A configured model, or one that an experiment trains."""
        return self.models.get(run_name) or self.experiment_models[run_name]

    def fitted_at_once(self, run_name: str) -> bool:
        """Whether a model learns without epochs, in seconds."""
        return fitted_at_once(self.model(run_name).model)

    # ---- what a training asks a cluster for --------------------------------------------------
    def gpu(self, run_name: str) -> str:
        """A GPU, unless the configuration trains on the CPU, or the model learns in one go."""
        model = self.searched.get(run_name) or self.model(run_name)
        return "" if self.config.device == "cpu" or fitted_at_once(model.model) else "gpu:1"

    def minutes(self, run_name: str) -> int:
        """Time for one fold, first try."""
        return 30 if self.fitted_at_once(run_name) else 240

    def training_group(self, workflow: Any, wildcards: Any) -> str | None:
        """With which others of its run a fold shares a job: as many as take seconds, or as can share a GPU.

        With thousands of scans a fold takes long enough alone; and Snakemake, which walks all that is upstream of each
        job of a group, would plan for minutes.
        """
        if not self.layout.scans.is_file() or len(self.scans) > MANY_SCANS:
            return None
        place = f"{wildcards.atlas}_{wildcards.variant}_{wildcards.model}_{wildcards.seed}"
        name = "quick_trainings" if self.fitted_at_once(wildcards.model) else "trainings"
        return joined(workflow, name, place, int(wildcards.fold))

    # ---- which files are asked for ------------------------------------------------------------
    def run_of(self, wildcards: Any) -> ModelRun:
        """Return the run of a model that the wildcards of a rule name."""
        return self.layout.run(wildcards.atlas, wildcards.model, wildcards.seed, wildcards.get("variant"))

    def fold_files(self, wildcards: Any, name: str) -> list[Path]:
        """A file of every fold of a run."""
        run = self.run_of(wildcards)
        return [run.fold(fold) / name for fold in self.folds_of(run.model)]

    def inner_files(self, wildcards: Any, name: str) -> list[Path]:
        """A file of every inner model of a fold."""
        folder = self.run_of(wildcards).inner(wildcards.fold)
        return [folder / f"fold-{inner}" / name for inner in range(self.config.explain.inner_folds)]

    def inner_importance(self, wildcards: Any) -> list[Path]:
        """What inner models explain, of every fold; none where there are none."""
        return self.fold_files(wildcards, "inner/importance.tsv") if self.config.explain.inner_folds else []

    def permuted(self, wildcards: Any) -> list[Path]:
        """The model trained on permuted labels, where one is asked for."""
        folder = self.run_of(wildcards).permuted
        asked = self.config.explain.sanity.permuted
        return [folder / name for name in ("status.json", "checkpoint.safetensors")] if asked else []

    def permuted_fold(self, wildcards: Any, name: str) -> Path:
        """A file of the fold with which the model trained on permuted labels is compared."""
        fold = self.config.explain.sanity.fold_of(self.folds_of(wildcards.model))
        return self.run_of(wildcards).fold(fold) / name

    def seed_files(self, wildcards: Any, name: str) -> list[Path]:
        """A file of the explanation of every seed of a run."""
        seeds = sorted({*map(str, self.config.seeds), wildcards.seed})
        return [self.run_of(wildcards).with_seed(seed).explanation / name for seed in seeds]

    def predictions(self, runs: list[tuple[str, str, int]] | None = None) -> list[Path]:
        """What every fold of some runs predicts; by default of those that are configured."""
        runs = self.runs() if runs is None else runs
        folds = [(run, fold) for run in runs for fold in self.folds_of(run[1])]
        return [self.layout.run(*run).fold(fold) / "predictions.tsv" for run, fold in folds]

    def in_every_fold(self, name: str) -> list[Path]:
        """A file of every fold of a run, for a rule that trains all of them."""
        run = self.layout.run("{atlas}", "{model}", "{seed}", "{variant}")
        return [run.fold(fold) / name for fold in self.config.folds.of("")]

    def folds_of(self, run_name: str) -> list[int]:
        return self.config.folds.of(self.model(run_name).name)

    def runs(self) -> list[tuple[str, str, int]]:
        """Every (atlas, model, seed) that is configured; experiments have more."""
        return [(a, m, s) for a in self.config.atlas_places for m in self.models for s in self.config.seeds]

    def experiment_runs(self, name: str) -> list[tuple[str, str, int]]:
        """Every (atlas, model, seed) that an experiment needs, each once."""
        rows = [row for row in entries(self.config, self.experiments[name]) if not row.note]
        return list(dict.fromkeys((row.atlas, row.model.run_name, s) for row in rows for s in self.config.seeds))

    def experiment_inputs(self, name: str) -> list[Path]:
        """What the table of an experiment waits for, of this dataset."""
        kind, atlases = self.experiments[name].kind, self.config.atlas_places
        if kind == "landmarks":
            return [self.layout.run(*run).explanation / "landmarks.tsv" for run in self.experiment_runs(name)]
        if kind == "complexity":
            return [self.layout.complexity(name, atlas) for atlas in atlases]
        if kind == "spectra":
            return [self.layout.spectra(name, atlas) for atlas in atlases]
        return self.predictions(self.experiment_runs(name))

    def paper(self) -> list[Path]:
        """What the target `paper` makes; landmarks are of classes, and left out where the label is a number."""
        names = [n for n in self.config.experiment_places if self.experiments[n].kind != "landmarks"]
        if self.dataset.classes is not None:
            names = list(self.config.experiment_places)
        return [self.layout.experiment(name) for name in names]

    def experiment_settings(self, name: str) -> str:
        """What an experiment's file says, what its models are called, and the paper's own table of it."""
        theirs = paper_table(name)
        called = [(row.row, model.title, model.family) for row, model in self.experiment_rows[name]]
        return repr([self.experiments[name], called, sha256(theirs) if theirs.is_file() else None])

    def metrics(self, variant: str | None = None) -> list[Path]:
        return [self.layout.run(a, m, s, variant).folder / "metrics.tsv" for a, m, s in self.runs()]

    def regions(self, variant: str | None = None) -> list[Path]:
        """The regions of every explained run, which come last of what the truth is compared with."""
        runs = [one for one in self.runs() if self.explained(one[1])]
        return [self.layout.run(*one, variant).explanation / "roi_weights.tsv" for one in runs]

    def explanations(self, variant: str | None = None) -> list[Path]:
        names = ["roi_weights.tsv"]
        names += ["tasks.tsv"] if self.has_tasks and variant is None else []
        if variant is None:
            names += ["stability.tsv"] + ["sanity.tsv"] * self.config.explain.sanity.asked
            names += ["faithfulness_areas.tsv"] * (self.config.explain.faithfulness.scans > 0)
        return [
            self.layout.run(a, m, s, variant).explanation / name
            for a, m, s in self.runs()
            if self.explained(m)
            for name in names
        ]

    @property
    def has_tasks(self) -> bool:
        """Whether scans may have tables of events beside them."""
        return self.dataset.source == "bids" or (self.dataset.source == "hcp" and self.dataset.tasks != ["REST"])

    def explanation_page(self) -> list[Path]:
        """The page that tells them, where a model can be explained."""
        return [self.layout.explanation_page] if self.explanations() else []

    def explained(self, run_name: str) -> bool:
        """Whether a configured model has an explanation."""
        return can_be_explained(self.models[run_name], self.dataset)

    def truth(self) -> list[Path]:
        """The truth table, where the dataset has a known answer."""
        judged = self.dataset.source == "phantom" and any(map(self.explained, self.models))
        return [self.layout.tables / "truth.tsv"] if judged else []


def start(raw: dict[str, Any], *, checked: bool = False) -> Run:
    """Check the configuration before anything else; a problem ends Snakemake with one line.

    Parameters
    ----------
    raw : dict
        The merged configuration that Snakemake read.
    checked : bool
        Whether it is known to be right, as in a job on a cluster. To check, all models are imported: seconds.
    """
    try:
        run = Run(raw)
        if not checked:
            _check(run)
        return run
    except BoltError as error:
        sys.tracebacklimit = 0
        raise SystemExit(f"bolt: {error}") from None


def _check(run: Run) -> None:
    check_names(run.config, run.dataset)
    check_search(run.config)
    for name, experiment in run.experiments.items():
        check_experiment(experiment, run.experiment_rows[name])
        if lacks_reference(experiment, run.experiment_rows[name]) and is_dry_run(sys.argv):
            print(f"Note: experiment '{name}' has no row '{experiment.reference}', so no tests.", file=sys.stderr)
    _check_room(run)


def _check_room(run: Run) -> None:
    """Refuse downloads that the disk cannot hold; of a dry run, warn."""
    try:
        check_room(run.config, run.dataset)
    except ConfigError as error:
        if not is_dry_run(sys.argv):
            raise
        print(f"Warning: {error}", file=sys.stderr)


def shell_prefix() -> str:
    """Let every job find this package, also where Snakemake clears PYTHONPATH for a conda environment."""
    exported = f"PYTHONPATH={shlex.quote(str(ROOT))} TEMPLATEFLOW_AUTOUPDATE=false {JOB}=1"
    return f"set -euo pipefail; export {exported}; "


def tell_jobs(retries: int, *, limited: bool) -> None:
    """Let every job know how often a crash is tried again, so that the last attempt can record it; and whether a
    scheduler kills what takes more than it was given."""
    os.environ[ATTEMPTS] = str(1 + retries)
    if limited:
        os.environ[LIMITED] = "1"


def use_own_interpreter() -> None:
    """Run jobs with the interpreter that runs Snakemake; a conda environment takes precedence over it."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
