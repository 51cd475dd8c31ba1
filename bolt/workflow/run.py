"""One configured run of the workflow: which files are asked for, and what its rules depend on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from bolt import config as configuration
from bolt.config import Config, Model
from bolt.config.layout import ModelRun
from bolt.config.study import Study, paper_dataset, paper_table
from bolt.datasets.spaces import use_space_of_images
from bolt.experiments.checks import check_experiment_names
from bolt.experiments.entries import EXPLAINED_BY, available, entries, rows_of, trained_models
from bolt.explain.explainable import can_be_explained, sees_brain
from bolt.explain.weights import CONTROLS_FILE, IMPORTANCE_FILES
from bolt.io.errors import ConfigError
from bolt.io.files import read_json, sha256, write_text
from bolt.io.integrity import require_outputs, require_unaltered
from bolt.jobs.code_hash import fingerprint
from bolt.models.registry import fitted_at_once, has_epochs
from bolt.series.cache import FILES
from bolt.training import training_modules
from bolt.training.space import check_search
from bolt.workflow.lock import is_alone
from bolt.workflow.scan_files import ScanFiles
from bolt.workflow.snakemake import joined
from bolt.workflow.stage import STAGES
from bolt.workflow.watched import atlas_file, atlas_files, read_settings

RESERVED = {rule for stage in STAGES.values() for rule in stage.rules}
RESERVED |= {"all", "extras", "figures", "paper", "search", "series", "tables", "train"}
"""Names of the workflow's rules and targets, which no experiment can have."""
MANY_THREADS = (
    "Note: with 'preprocess: threads' above 1, a T1w that is normalised again gives other results "
    "(docs/preprocessing.md); with 1, the same to the last bit."
)
OTHER_LABEL = (
    "Note: dataset '{name}' predicts another label, or other classes, than '{paper}' ('paper' in its file): the "
    "paper's results are not shown beside its own."
)
MANY_SCANS = 2000
"""With more, trainings are jobs of their own on a cluster."""

InputFunction = Callable[[Any], list[Path]]


def named_files(**files: Any) -> list[str]:
    """Return the options by which a command is given the inputs and outputs that its rule declares by name."""
    words = []
    for kind, named in files.items():
        words.append(f"--{kind}")
        for name, value in named.items():
            words += [f"{name}={path}" for path in ([value] if isinstance(value, str | Path) else value)]
    return words


class Run(ScanFiles):
    """One configured run of the workflow, as the rules see it.

    Parameters
    ----------
    raw : dict
        The merged configuration that Snakemake read.
    """

    learns = True
    """Whether models are trained, which need labels and folds; else the run ends with series."""
    planned: pd.DataFrame | None = None
    """Usable scans, where they have been listed before the run."""

    def __init__(self, raw: dict[str, Any]) -> None:
        config = configuration.parse(Config, raw, "configuration")
        dataset = configuration.load_dataset(config.dataset)
        config, note = use_space_of_images(config, dataset)
        self.study = Study(config, dataset)
        self.notes = [note] if note else []
        if dataset.source in ("bids", "phantom") and config.preprocess.threads > 1:
            self.notes.append(MANY_THREADS)
        if dataset.paper is not None and not paper_dataset(dataset):
            self.notes.append(OTHER_LABEL.format(name=dataset.name, paper=dataset.paper))
        self.config, self.dataset, self.layout = self.study.config, self.study.dataset, self.study.layout
        self.models = self.study.models
        check_experiment_names(self.config, RESERVED)
        self.experiments = available(self.config)
        self.experiment_rows = {name: rows_of(experiment, self.config) for name, experiment in self.experiments.items()}
        self.experiment_models = trained_models(self.experiments, self.experiment_rows)

    def save_config(self) -> Path:
        """Write the merged configuration where every command reads it, if it changed.

        Called when a run has started: after Snakemake's lock, and never by a dry run, so that looking at another
        configuration does not change the jobs of a run under way.
        """
        data = self.config.model_dump(mode="json")
        path = self.layout.config
        if not path.is_file() or yaml.safe_load(path.read_text()) != data:
            if path.is_file() and not is_alone(self.layout.results):  # whose jobs read it, too
                hint = "Give the same options, wait until they have ended, or use another output folder"
                raise ConfigError("others are processed here with other settings", where=path, hint=hint)
            text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
            write_text(configuration.schema_line("config", path) + text, path)
        return path

    def where_to_look(self) -> list[str]:
        """Return lines that name what to open after a run: the excluded scans, and the report or else the results."""
        layout = self.layout
        listed = layout.exclusions.is_file() and len(layout.exclusions.read_text(encoding="utf-8").splitlines()) > 1
        excluded = [f"Excluded scans, with reasons: {layout.exclusions}"] if listed else []
        return [*excluded, f"The report: {layout.report}" if layout.report.is_file() else f"Results: {layout.results}"]

    # ---- what a rule takes from the record of its stage ----------------------------------------
    def params(self, name: str) -> dict[str, Any]:
        """Return the `params` of a stage's rules: its configuration and files, and what runs it again when it changes.

        The last are put together when the first job of the stage is planned: a job on a cluster, which plans itself
        alone, does not wait for those of others.
        """
        read = STAGES[name].settings
        settings = cache(lambda: repr(read_settings(self.study, read)))
        code = cache(lambda: self.code(name))
        params: dict[str, Any] = {
            "config": self.layout.config,
            "named": lambda wildcards, input, output: named_files(input=input, output=output),
        }
        if STAGES[name].code:
            params |= {"settings": lambda wildcards: settings(), "code": lambda wildcards: code()}
        about = {"model": self.model_code, "experiment": self.experiment_settings, "scan": self.scan_settings}
        about["atlas"] = partial(atlas_file, self.study)
        if (kind := STAGES[name].of) is not None:
            params[kind] = lambda wildcards: about[kind](wildcards[kind])
        return params

    def resources(self, name: str, times: int = 1) -> dict[str, Any]:
        """Return the `resources` of a stage's rule; each attempt asks for as much again.

        Parameters
        ----------
        name : str
        times : int
            Trainings in a job, one after the other; with more than one, it has twice the memory.
        """
        stage = STAGES[name]
        memory = (stage.memory_mb or 0) * (1 if times == 1 else 2)
        resources: dict[str, Any] = {}
        if stage.guarded:
            resources["attempt"] = lambda wildcards, attempt: attempt
        if stage.memory_mb:
            resources["mem_mb"] = lambda wildcards, attempt: memory * attempt
        if stage.minutes:
            minutes = stage.minutes
            resources["runtime"] = lambda wildcards, attempt: minutes * attempt
        elif stage.trains:
            resources["runtime"] = lambda wildcards, attempt: self.minutes(wildcards.model) * times * attempt
        if stage.trains:
            resources["trainings"] = 1  # of those that may run at once: --resources trainings=…
        if stage.trains or (stage.applies and self.config.device == "cuda"):
            resources["gres"] = lambda wildcards: self.gpu(getattr(wildcards, "model", None))
        return resources

    def code(self, name: str, *modules: str) -> str:
        """Return the fingerprint of a stage's code, and of further modules."""
        return fingerprint(*STAGES[name].modules(self.study), *modules)

    def model_code(self, name: str) -> str | list[str]:
        """Return the fingerprint of the code that trains a run's model, and of its file, if it has one.

        Of a model that is searched, also its settings.
        """
        if name in self.models | self.experiment_models:
            model = self.model(name)
            code = [self.code("train", *training_modules(model))]
            for part in model.parts:
                if part.by_dataset:  # the dataset's name, or its key `paper`, chooses among settings
                    here, dataset = part.on(self.dataset)
                    code += [here.training.model_dump_json(), str(dataset.crop)]
            code += [sha256(model.file)] if model.file else []
            return code if len(code) > 1 else code[0]
        model = self.searched[name]
        return [model.model_dump_json(), self.code("search_fold", f"bolt.models.{model.model}")]

    @cached_property
    def searched(self) -> dict[str, Model]:
        """Return the models of the target `search` by name; refuse those that cannot be searched."""
        return {model.name: model for model in check_search(self.config)}

    def experiment_settings(self, name: str) -> str:
        """Return what an experiment's file contains, what its models are called, and the paper's values of it."""
        table = paper_table(name)
        titles = [(row.row, model.title, model.family, model.fidelity) for row, model in self.experiment_rows[name]]
        about = [paper_dataset(self.dataset, self.config.folds.scheme), self.dataset.coloured]
        if self.experiments[name].kind == "complexity":  # which measures the models themselves
            models = [model for _, model in self.experiment_rows[name]]
            about += [[model.hash(), self.code("train", *training_modules(model))] for model in models]
            about.append(atlas_files(self.study))
        return repr([self.experiments[name], titles, sha256(table) if table.is_file() else None, about])

    # ---- models --------------------------------------------------------------------------------
    def model(self, run_name: str) -> Model:
        """Return a configured model, or one that an experiment trains."""
        return self.models.get(run_name) or self.experiment_models[run_name]

    def given(self, wildcards: Any) -> list[Path]:
        """Return the file that a model of others' vectors or predictions reads."""
        file = self.model(wildcards.model).file
        return [] if file is None else [file]

    def fitted_at_once(self, run_name: str) -> bool:
        """Return whether a model is fitted at once, in seconds, without epochs."""
        return fitted_at_once(self.model(run_name).model)

    def explained(self, run_name: str) -> bool:
        """Return whether a configured model has an explanation."""
        return can_be_explained(self.models[run_name], self.dataset)

    def gpu(self, run_name: str | None) -> str:
        """Return the request for a GPU; none where the configuration computes on the CPU or the model needs none."""
        if run_name is None:  # a job of several models
            return "gpu:1"
        model = self.searched.get(run_name) or self.model(run_name)
        return "" if self.config.device == "cpu" or not any(has_epochs(part.model) for part in model.parts) else "gpu:1"

    def minutes(self, run_name: str) -> int:
        """Return the minutes that one fold asks for in its first attempt."""
        return 30 if self.fitted_at_once(run_name) else 240

    @cached_property
    def trained_together(self) -> list[str]:
        """Return the runs (their names) whose folds are trained in one job.

        A model for which `folds: run` names folds of its own has a job per fold.
        """
        folds = self.config.folds
        return [
            name
            for name in self.models | self.experiment_models
            if folds.side_by_side or (self.fitted_at_once(name) and self.folds_of(name) == folds.of(""))
        ]

    @cached_property
    def trained_apart(self) -> list[str]:
        """Return the runs whose folds are trained in a job each."""
        return [name for name in self.models | self.experiment_models if name not in set(self.trained_together)]

    def training_group(self, workflow: Any, wildcards: Any) -> str | None:
        """Return with which others of its run a fold shares a job: as many as can share a GPU.

        With thousands of scans a fold takes long enough alone; and Snakemake, which walks all that is upstream of each
        job of a group, would plan for minutes.
        """
        if not self.layout.scans.is_file() or len(self.scans) > MANY_SCANS:
            return None
        place = f"{wildcards.atlas}_{wildcards.variant}_{wildcards.model}_{wildcards.seed}"
        return joined(workflow, "trainings", place, int(wildcards.fold))

    # ---- runs of models ------------------------------------------------------------------------
    def folds_of(self, run_name: str) -> list[int]:
        """Return the outer folds in which a model is trained."""
        return self.config.folds.of(self.model(run_name).name)

    def explained_runs(self) -> list[ModelRun]:
        """Return the configured runs whose model has an explanation."""
        return [run for run in self.study.runs if self.explained(run.model)]

    def connected_runs(self) -> list[ModelRun]:
        """Return the configured runs whose model predicts from brain data, so that connections go with it."""
        return [run for run in self.study.runs if sees_brain(self.models[run.model])]

    def experiment_runs(self, name: str) -> list[ModelRun]:
        """Return every run that an experiment needs, each once."""
        rows = [row for row in entries(self.config, self.experiments[name]) if not row.note]
        seeds = self.config.seeds
        return list(dict.fromkeys(self.layout.run(row.atlas, row.model, seed) for row in rows for seed in seeds))

    # ---- input functions of rules whose wildcards name a run -----------------------------------
    def run_of(self, wildcards: Any) -> ModelRun:
        """Return the run of a model that the wildcards of a rule name."""
        return self.layout.run(wildcards.atlas, wildcards.model, wildcards.seed, wildcards.get("variant"))

    def every_fold(self, name: str) -> InputFunction:
        """Return an input function: a file of every fold of the run."""
        return lambda wildcards: [self.run_of(wildcards).fold(fold) / name for fold in self.folds_of(wildcards.model)]

    def every_inner_fold(self, name: str) -> InputFunction:
        """Return an input function: a file of every inner model of the fold."""
        folds = [f"fold-{inner}" for inner in range(self.config.explain.inner_folds)]
        return lambda wildcards: [self.run_of(wildcards).inner(wildcards.fold) / fold / name for fold in folds]

    def every_seed(self, name: str) -> InputFunction:
        """Return an input function: a file of the explanation of every seed of the run."""
        configured = set(map(str, self.config.seeds))
        return lambda wildcards: [
            self.run_of(wildcards).with_seed(seed).explanation / name for seed in sorted({*configured, wildcards.seed})
        ]

    def compared_fold(self, name: str) -> Callable[[Any], Path]:
        """Return an input function: a file of the fold that permuted labels and another seed are compared with."""
        fold_of = self.config.explain.sanity.fold_of
        return lambda wildcards: self.run_of(wildcards).fold(fold_of(self.folds_of(wildcards.model))) / name

    def inner_importance(self, wildcards: Any) -> list[Path]:
        """Return the importance of training scans under inner models, of every fold; none without inner folds."""
        names = ("inner/importance.tsv", f"inner/{CONTROLS_FILE}") if self.config.explain.inner_folds else ()
        return [file for name in names for file in self.every_fold(name)(wildcards)]

    def untrained_importance(self, fold: Path) -> list[Path]:
        """Return the importance under untrained models in the folder of a fold, where scans may have events."""
        return [fold / f"importance_untrained.{kind}" for kind in ("npy", "tsv")] if self.dataset.has_tasks else []

    def permuted_model(self, wildcards: Any) -> list[Path]:
        """Return the model trained on permuted labels, where one is asked for."""
        asked = self.config.explain.sanity.permuted
        folder = self.run_of(wildcards).permuted
        return [folder / name for name in ("status.json", "checkpoint.safetensors")] if asked else []

    def retrained_models(self, wildcards: Any) -> list[Path]:
        """Return the models trained again with another seed, where they are asked for."""
        asked = self.config.explain.sanity.controlled
        folders = self.run_of(wildcards).trained_again(self.folds_of(wildcards.model), self.config.seeds)
        names = ("status.json", "checkpoint.safetensors")
        return [folder / name for folder in folders for name in names] if asked else []

    # ---- files of all configured runs ----------------------------------------------------------
    def of_caches(self, *names: str) -> list[Path]:
        """Return files of every cache."""
        return [self.layout.cache(atlas) / name for atlas in self.config.atlas_places for name in names]

    def caches(self) -> list[Path]:
        """Return all files of every cache."""
        return self.of_caches("manifest.json", *FILES)

    def kept(self) -> list[Path]:
        """Return what a finished run has besides its report: asked for, so that what is deleted is made again."""
        folds = [run.fold(fold) for run in self.study.runs for fold in self.folds_of(run.model)]
        names = ("predictions.tsv", "checkpoint.safetensors", "status.json")
        trained = [fold / name for fold in folds for name in names]
        explained = [run.fold(fold) for run in self.explained_runs() for fold in self.folds_of(run.model)]
        weights = [fold / name for fold in explained for name in IMPORTANCE_FILES]
        weights += [file for fold in explained for file in self.untrained_importance(fold)]
        return [*self.caches(), *trained, *self.metrics(), *weights, *self.explanations()]

    def check_results(self) -> None:
        """Refuse caches and trained folds that were altered since; what is missing is made again.

        Raises
        ------
        ConfigError
        """
        for atlas in self.config.atlas_places:
            manifest = self.layout.cache(atlas) / "manifest.json"
            if manifest.is_file():
                require_unaltered(manifest.parent, read_json(manifest).get("sha256", {}), manifest)
        for run in self.study.runs:
            for record in sorted(run.folder.glob("fold-*/**/*provenance.json")):
                require_outputs(record, newer=True)

    def predictions(self, runs: list[ModelRun] | None = None) -> list[Path]:
        """Return the predictions of every fold of some runs; by default of the configured ones."""
        runs = self.study.runs if runs is None else runs
        return [run.fold(fold) / "predictions.tsv" for run in runs for fold in self.folds_of(run.model)]

    def metrics(self, variant: str | None = None) -> list[Path]:
        """Return the metrics of every run, on the configured series or those of another variant."""
        return [run.with_variant(variant or run.variant).folder / "metrics.tsv" for run in self.study.runs]

    def regions(self, variant: str | None = None) -> list[Path]:
        """Return the ROI weights of every explained run, on the configured series or those of another variant."""
        runs = [run.with_variant(variant or run.variant) for run in self.explained_runs()]
        return [run.explanation / "roi_weights.tsv" for run in runs]

    def explanations(self) -> list[Path]:
        """Return everything that explains the configured runs."""
        explain = self.config.explain
        names = ["roi_weights.tsv", *["tasks.tsv"] * self.dataset.has_tasks, "stability.tsv"]
        names += ["sanity.tsv"] * explain.sanity.asked + ["faithfulness_areas.tsv"] * (explain.faithfulness.scans > 0)
        files = [run.explanation / name for run in self.explained_runs() for name in names]
        return [*files, *(run.explanation / "connections.tsv" for run in self.connected_runs())]

    def explanation_pages(self) -> list[Path]:
        """Return the pages of the explanation and of its tests, where a model can be explained."""
        return [self.layout.explanation_page, self.layout.trust_page] if self.explanations() else []

    def truth(self) -> list[Path]:
        """Return the truth table, where the dataset has a known answer."""
        known = self.dataset.source == "phantom" and bool(self.explained_runs())
        return [self.layout.tables / "truth.tsv"] if known else []

    # ---- experiments and search ----------------------------------------------------------------
    def experiment_inputs(self, wildcards: Any) -> list[Path]:
        """Return what the table of an experiment waits for, of this dataset."""
        name, layout = wildcards.experiment, self.layout
        kind, atlases = self.experiments[name].kind, self.config.atlas_places
        if self.experiments[name].explains is not None:
            return [run.explanation / EXPLAINED_BY[kind] for run in self.experiment_runs(name)]
        if kind == "complexity":
            return [layout.complexity(name, atlas) for atlas in atlases]
        if kind == "spectra":
            return [layout.spectra(name, atlas) for atlas in atlases]
        return self.predictions(self.experiment_runs(name))

    def asked(self, target: str) -> list[str]:
        """Return the configured experiments that a target makes: `paper` what the paper shows, `extras` the others.

        Explanations are of classes, and the timing of tasks is drawn where scans have events.
        """
        return [
            name
            for name in self.config.experiment_places
            if (self.experiments[name].paper is not None) == (target == "paper")
            and (self.dataset.classes is not None or self.experiments[name].explains is None)
            and (self.dataset.has_tasks or self.experiments[name].task_timing is None)
        ]

    def experiments_asked(self, words: Collection[str]) -> list[str]:
        """Return the experiments that a command line asks for: by their names or files, or by `paper` or `extras`."""
        folder = self.layout.paper.absolute()
        names = {Path(word).stem if folder in Path(word).absolute().parents else word for word in words}
        names = names.union(*(self.asked(target) for target in ("paper", "extras") if target in names))
        return [name for name in self.experiments if name in names]

    def tables_of(self, target: str) -> list[Path]:
        """Return the tables that the target `paper` or `extras` makes."""
        return [self.layout.experiment(name) for name in self.asked(target)]

    def choices(self) -> list[Path]:
        """Return what the target `search` writes."""
        if self.config.search.shared:
            return [self.layout.shared_choice(name) for name in self.searched]
        return [
            self.layout.choice(atlas, scheme, name)
            for atlas in self.config.atlas_places
            for scheme in self.config.search.schemes
            for name in self.searched
        ]

    def searched_folds(self, wildcards: Any) -> list[Path]:
        """Return the studies that a scheme chooses from: without one, those of all atlases, for a shared choice."""
        folds = self.config.folds_searched(wildcards.model, wildcards.get("scheme", "shared"))
        atlases = [wildcards.atlas] if wildcards.get("atlas") else self.config.atlas_places
        return [self.layout.study(atlas, wildcards.model, fold) / "best.json" for atlas in atlases for fold in folds]
