"""Stages that train models, search their hyper-parameters and judge their predictions."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from bolt.config import Model, load_model, load_space, schema_line
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.experiments.entries import configurations
from bolt.io.errors import BoltError, ConfigError
from bolt.io.files import read_table, write_table, write_text
from bolt.jobs.outcome import Outcome
from bolt.models.registry import fitted_at_once
from bolt.workflow.job import Job
from bolt.workflow.stages.series import cached_contents

if TYPE_CHECKING:
    from bolt.training.outputs import Training
    from bolt.training.watching import Watch


def train(job: Job) -> None:
    """Train a model on some folds of a run."""
    from bolt.training.outputs import Training

    # in the last attempt every fold has a process of its own, so that a crash is recorded where it belongs
    apart = job.options.attempt >= Outcome.ATTEMPTS
    together, inputs, guarded = 1 if apart else len(job.options.fold), job.input.all("cache", "folds", "given"), []
    for fold, status in zip(job.options.fold, job.output.some("status"), strict=True):
        training = Training(fold, job.options.seed, status.parent)
        facts = {"fold": fold, "seed": training.seed, "folds_side_by_side": together}
        guarded.append((training, job.outcome(inputs, status, **facts)))
        guarded[-1][1].remove_reports()
    errors = [None] * len(guarded) if apart else _train(job, [training for training, _ in guarded])
    for (training, outcome), error in zip(guarded, errors, strict=True):

        def work(training: Training = training, error: BoltError | None = error) -> None:
            failed = _train(job, [training])[0] if apart else error
            if failed is not None:
                raise failed

        outcome.begun = time.monotonic() if apart else outcome.begun
        outcome.run(work)


def _train(job: Job, trainings: list[Training]) -> list[BoltError | None]:
    """Train folds side by side; return the error of each, or None."""
    from bolt.training.trainers import train_folds

    return train_folds(
        job.input.cache.parent,
        job.input.folds,
        job.model,
        job.dataset,
        trainings,
        device=job.config.device,
        threads=job.options.threads,
        watching=partial(_watched, job),
    )


def _watched(job: Job, training: Training) -> AbstractContextManager[Watch]:
    """Return what shows a training's epochs in the tools that the configuration names."""
    from bolt.training.watching import watched

    run = str(job.run.fold(training.fold).relative_to(job.layout.results / "runs"))
    settings = {"run": run, **job.model.model_dump(mode="json", include={"model", "hyper", "training"})}
    return watched(job.config.watch, job.layout.work / "watch", run, settings)


def evaluate(job: Job) -> None:
    """Write the metrics of a run."""
    from bolt.evaluate.balanced import write_balanced
    from bolt.evaluate.metrics import fold_predictions, write_metrics
    from bolt.training.outputs import Training

    predictions, out, n = job.input.some("predictions"), job.output.metrics.parent, job.config.folds.permutations
    folder, repeated = predictions[0].parents[1], None
    if n and job.dataset.classes and fitted_at_once(job.model.model):
        from bolt.training.features import permuted_aucs

        folders = {fold: file.parent for fold, file in zip(job.folds, predictions, strict=True)}
        finished = {fold: place for fold, place in folders.items() if fold_predictions(place)[0] == "ok"}
        trainings = [Training(fold, job.options.seed, place) for fold, place in finished.items()]
        if trainings:
            repeated = permuted_aucs(job.input.cache.parent, job.input.folds, job.model, job.dataset, trainings, n)
    write_metrics(folder, job.dataset.classes, job.folds, out, repeated, outer=job.config.folds.outer)
    scans = read_table(job.input.cache.with_name("index.tsv"), text=TEXT_COLUMNS)
    write_balanced(folder, job.dataset.classes, job.folds, scans, job.output.balanced)
    job.note(job.output.metrics, [job.input.cache, predictions], seed=job.options.seed)


def inner_folds(job: Job) -> None:
    """Write the inner folds of every outer fold."""
    from bolt.folds.splits import FOLD_COLUMNS, make_inner_folds, strata

    settings, n_inner, tables = job.config.folds, job.config.explain.inner_folds, job.output.some("folds")
    folds = read_table(job.input.folds, text=("scan_id", "subject", "group"))
    scans = job.scans()
    scans = strata(scans[scans["scan_id"].isin(folds["scan_id"])], job.dataset)
    contents = cached_contents(job)
    for fold, table in zip(sorted(folds["fold"].unique()), tables, strict=True):
        write_table(make_inner_folds(folds, scans, fold, settings, n_inner, contents), table, FOLD_COLUMNS)
    job.note(tables[0].with_name("provenance.json"), job.input.all("folds", "scans", "caches"), seed=settings.seed)


def train_inner(job: Job) -> None:
    """Train one inner model of a fold."""
    from bolt.training.trainers import train_fold

    options, folds, out = job.options, job.input.folds, job.output.status.parent
    place = {"fold": options.inner, "seed": options.seed}

    def work() -> None:
        model, dataset = job.model.on(job.dataset)
        model = model.for_fold(options.fold)  # settings of the outer fold, by its own validation scans
        facts = {"device": job.config.device, "threads": options.threads}
        train_fold(job.input.cache.parent, folds, model, dataset, **place, out=out, **facts)

    job.outcome([job.input.cache, folds], outer=options.fold, **place).run(work)


def search_fold(job: Job) -> None:
    """Search on one fold."""
    from bolt.training.search import Objective, search_fold

    options, layout, settings, out = job.options, job.layout, job.config.search, job.output.best.parent
    model, dataset = _searched(job).on(job.dataset)
    data = job.input.cache.parent, job.input.folds, model, dataset
    objective = Objective(*data, options.fold, settings.seed, job.config.device, options.threads)
    study = layout.study(options.atlas, options.model, options.fold)
    scratch = layout.work / "search" / study.relative_to(layout.results / "search")
    space = load_space(settings.space)
    search_fold(objective, model, space, settings.n_trials, out, scratch, shared=settings.shared)
    inputs = [job.input.cache, job.input.folds]
    job.note(out / "provenance.json", inputs, fold=options.fold, seed=settings.seed)


def choose(job: Job) -> None:
    """Write a model with the values that the searches of a scheme chose."""
    from bolt.training.choice import write_choice

    model, best, choice = _searched(job), job.input.some("best"), job.output.choice
    folds = job.config.folds_searched(model.name, job.options.scheme)
    studies = {fold: file.parent for fold, file in zip(folds, best, strict=True)}
    write_choice(studies, model, job.options.scheme, choice)
    write_text(schema_line("model", choice) + choice.read_text(encoding="utf-8"), choice)
    job.note(choice, best, seed=job.config.search.seed)


def choose_shared(job: Job) -> None:
    """Write a model with the values that are near the best everywhere."""
    from bolt.training.choice import write_shared

    model, studies = _searched(job), {}
    for config in configurations(job.config.paths.results, job.config.dataset_name):
        for atlas in config.atlas_places if config.search.shared else []:
            fold = config.folds_searched(model.name, "shared")[0]
            study = Study.of(config).layout.study(atlas, model.name, fold)
            if (study / "best.json").is_file():
                studies[f"{config.dataset_name}, {atlas}"] = study
    choice = job.output.choice
    write_shared(studies, model, choice)
    write_text(schema_line("model", choice) + choice.read_text(encoding="utf-8"), choice)
    job.note(choice, [study / "trials.tsv" for study in studies.values()])


def _searched(job: Job) -> Model:
    """Return the model that is searched."""
    known = {model.name: model for model in map(load_model, job.config.searched)}
    if job.options.model not in known:
        raise ConfigError(
            f"model '{job.options.model}' is not among those that are searched",
            hint=f"Known: {', '.join(known)}; 'search: models' of the configuration names them",
        )
    return known[job.options.model]
