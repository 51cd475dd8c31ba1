"""Stages that train models, search their hyper-parameters and judge their predictions."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from bolt.workflow.stage import stage
from bolt.workflow.stages.series import NOT_OF_FOLDS, cached_contents

if TYPE_CHECKING:
    from bolt.config import Model
    from bolt.config.study import Study
    from bolt.io.errors import BoltError
    from bolt.training.outputs import Training
    from bolt.training.watching import Watch
    from bolt.workflow.job import Job


def training_settings(study: Study) -> list[Any]:
    """Return what every training reads of the configuration."""
    return [study.dataset.classes, study.dataset.crop, study.config.device]


def _train_options(parser: ArgumentParser) -> None:
    parser.add_argument("--fold", required=True, type=int, nargs="+")


@stage(
    options=_train_options,
    settings=training_settings,
    jobs={
        "train_fold": lambda plan: plan.n_trainings,
        "train_features": lambda plan: plan.n_fits,
    },
)
def train(job: Job) -> None:
    """Train a model on some folds of a run."""
    from bolt.jobs.outcome import Outcome
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


@stage(
    settings=lambda study: [study.config.folds.permutations, study.config.folds.outer],
    jobs=lambda plan: plan.n_evaluated,
)
def evaluate(job: Job) -> None:
    """Write the metrics of a run."""
    from bolt.datasets import TEXT_COLUMNS
    from bolt.evaluate.balanced import write_balanced
    from bolt.evaluate.metrics import fold_predictions, write_metrics
    from bolt.io.files import read_table
    from bolt.models.registry import fitted_at_once
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


@stage(
    settings=lambda study: [
        study.config.folds.model_dump(exclude=NOT_OF_FOLDS),
        study.config.explain.inner_folds,
    ],
    jobs=lambda plan: int(plan.n_inner > 0),
)
def inner_folds(job: Job) -> None:
    """Write the inner folds of every outer fold."""
    from bolt.folds.splits import FOLD_COLUMNS, make_inner_folds, strata
    from bolt.io.files import read_table, write_table

    settings, n_inner, tables = job.config.folds, job.config.explain.inner_folds, job.output.some("folds")
    folds = read_table(job.input.folds, text=("scan_id", "subject", "group"))
    scans = job.scans()
    scans = strata(scans[scans["scan_id"].isin(folds["scan_id"])], job.dataset)
    contents = cached_contents(job)
    for fold, table in zip(sorted(folds["fold"].unique()), tables, strict=True):
        write_table(make_inner_folds(folds, scans, fold, settings, n_inner, contents), table, FOLD_COLUMNS)
    job.note(tables[0].with_name("provenance.json"), job.input.all("folds", "scans", "caches"), seed=settings.seed)


@stage(settings=training_settings, jobs=lambda plan: plan.n_explained_folds * plan.n_inner)
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


def _search_settings(study: Study) -> list[Any]:
    from bolt.config import load_space

    settings = study.config.search
    return [
        training_settings(study),
        settings.model_dump(exclude={"models", "scheme", "use"}),
        *(["shared"] if settings.shared else []),
        load_space(settings.space),
    ]


@stage(settings=_search_settings, jobs=lambda plan: plan.n_searches)
def search_fold(job: Job) -> None:
    """Search on one fold."""
    from bolt.config import load_space
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


@stage(settings=lambda study: _search_settings(study)[1:], jobs=lambda plan: plan.n_choices)
def choose(job: Job) -> None:
    """Write a model with the values that the searches of a scheme chose."""
    from bolt.config import schema_line
    from bolt.io.files import write_text
    from bolt.training.choice import write_choice

    model, best, choice = _searched(job), job.input.some("best"), job.output.choice
    folds = job.config.folds_searched(model.name, job.options.scheme)
    studies = {fold: file.parent for fold, file in zip(folds, best, strict=True)}
    write_choice(studies, model, job.options.scheme, choice)
    write_text(schema_line("model", choice) + choice.read_text(encoding="utf-8"), choice)
    job.note(choice, best, seed=job.config.search.seed)


@stage(
    settings=lambda study: study.config.search.model_dump(exclude={"models", "use"}),
    jobs=lambda plan: plan.n_shared_choices,
)
def choose_shared(job: Job) -> None:
    """Write a model with the values that are near the best everywhere."""
    from bolt.config import schema_line
    from bolt.config.study import Study
    from bolt.experiments.entries import configurations
    from bolt.io.files import write_text
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
    from bolt.config import load_model
    from bolt.io.errors import ConfigError

    known = {model.name: model for model in map(load_model, job.config.searched)}
    if job.options.model not in known:
        raise ConfigError(
            f"model '{job.options.model}' is not among those that are searched",
            hint=f"Known: {', '.join(known)}; 'search: models' of the configuration names them",
        )
    return known[job.options.model]
