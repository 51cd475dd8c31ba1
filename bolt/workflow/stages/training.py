"""Stages that train models, search their hyper-parameters and judge their predictions."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from bolt.workflow.stage import OF_FOLD, OF_RUN, Cost, stage
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
    "Train a model on one fold, or on several in one process, and predict.",
    rules=("train_fold", "train_folds"),
    keys=OF_RUN,
    options=_train_options,
    code=("bolt.training.runner",),
    settings=training_settings,
    jobs={
        "train_fold": lambda plan: plan.n_trainings,
        "train_features": lambda plan: plan.n_fits,
    },
    cost={"train_fold": Cost(20, 1.2, phantom=10), "train_features": Cost(5, 0.01, phantom=5)},
    memory_mb=8000,
    trains=True,
    guarded=True,
)
def train(job: Job) -> None:
    """Train a model on some folds of a run."""
    from bolt.jobs.outcome import Outcome

    folds = sorted(set(job.options.fold))
    # in the last attempt every fold has a process of its own, so that a crash is recorded where it belongs
    apart = job.options.attempt >= Outcome.ATTEMPTS
    inputs, outcomes = [job.run.cache / "manifest.json", job.layout.folds], {}
    for fold in folds:
        folder, side_by_side = job.run.fold(fold), 1 if apart else len(folds)
        facts = {"fold": fold, "seed": job.options.seed, "folds_side_by_side": side_by_side}
        outcomes[fold] = job.outcome(folder / "status.json", inputs, **facts)
        outcomes[fold].empty = [folder / "checkpoint.safetensors", folder / "predictions.tsv"]
        outcomes[fold].remove_reports()
    together = {} if apart else _train(job, folds)
    for fold, outcome in outcomes.items():

        def work(fold: int = fold) -> None:
            error = (_train(job, [fold]) if apart else together)[fold]
            if error is not None:
                raise error

        outcome.begun = time.monotonic() if apart else outcome.begun
        outcome.run(work)


def _train(job: Job, folds: list[int]) -> dict[int, BoltError | None]:
    """Train folds side by side; return the error of each, or None."""
    from bolt.training.outputs import Training
    from bolt.training.trainers import train_folds

    errors = train_folds(
        job.run.cache,
        job.layout.folds,
        job.model,
        job.dataset,
        [Training(fold, job.options.seed, job.run.fold(fold)) for fold in folds],
        device=job.config.device,
        threads=job.options.threads,
        watching=partial(_watched, job),
    )
    return dict(zip(folds, errors, strict=True))


def _watched(job: Job, training: Training) -> AbstractContextManager[Watch]:
    """Return what shows a training's epochs in the tools that the configuration names."""
    from bolt.training.watching import watched

    run = job.run.folder.relative_to(job.layout.results / "runs") / f"fold-{training.fold}"
    settings = {"run": str(run), **job.model.model_dump(mode="json", include={"model", "hyper", "training"})}
    return watched(job.config.watch, job.layout.work / "watch", str(run), settings)


@stage(
    "Compute metrics per fold and over folds.",
    keys=OF_RUN,
    code=("bolt.evaluate.metrics", "bolt.training.features"),
    settings=lambda study: [study.config.folds.permutations, study.config.folds.outer],
    jobs=lambda plan: plan.n_evaluated,
    cost=Cost(2, phantom=1),
)
def evaluate(job: Job) -> None:
    """Write the metrics of a run."""
    from bolt.evaluate.metrics import fold_predictions, write_metrics
    from bolt.models.registry import fitted_at_once
    from bolt.training.outputs import Training

    folder, n, repeated = job.run.folder, job.config.folds.permutations, None
    if n and job.dataset.classes and fitted_at_once(job.model.model):
        from bolt.training.features import permuted_aucs

        finished = [fold for fold in job.folds if fold_predictions(job.run.fold(fold))[0] == "ok"]
        trainings = [Training(fold, job.options.seed, job.run.fold(fold)) for fold in finished]
        if trainings:
            repeated = permuted_aucs(job.run.cache, job.layout.folds, job.model, job.dataset, trainings, n)
    write_metrics(folder, job.dataset.classes, job.folds, folder, repeated, outer=job.config.folds.outer)
    predictions = [job.run.fold(fold) / "predictions.tsv" for fold in job.folds]
    job.note(folder / "metrics.tsv", predictions, seed=job.options.seed)


@stage(
    "Split the training side of every fold again, and audit the split for leaks.",
    code=("bolt.folds.inner", "bolt.folds.check"),
    settings=lambda study: [
        study.config.folds.model_dump(exclude=NOT_OF_FOLDS),
        study.config.explain.inner_folds,
    ],
    jobs=lambda plan: int(plan.n_inner > 0),
)
def inner_folds(job: Job) -> None:
    """Write the inner folds of every outer fold."""
    from bolt.folds.inner import make_inner_folds
    from bolt.folds.splits import FOLD_COLUMNS, strata
    from bolt.io.files import read_table, write_table

    layout, settings, n_inner = job.layout, job.config.folds, job.config.explain.inner_folds
    folds = read_table(layout.folds, text=("scan_id", "subject", "group"))
    scans = job.scans()
    scans = strata(scans[scans["scan_id"].isin(folds["scan_id"])], job.dataset)
    contents = cached_contents(job)
    for fold in sorted(folds["fold"].unique()):
        table = make_inner_folds(folds, scans, fold, settings, n_inner, contents)
        write_table(table, layout.inner_folds(fold), FOLD_COLUMNS)
    manifests = [layout.cache(atlas) / "manifest.json" for atlas in job.config.atlas_places]
    inputs = [layout.folds, layout.scans, *manifests]
    job.note(layout.inner_folds(0).with_name("provenance.json"), inputs, seed=settings.seed)


@stage(
    "Train on the training side of a fold without one of its inner parts.",
    keys=(*OF_FOLD, "inner"),
    code=("bolt.training.runner",),
    settings=training_settings,
    jobs=lambda plan: plan.n_explained_folds * plan.n_inner,
    cost=Cost(20, 0.8, phantom=10),
    memory_mb=8000,
    trains=True,
    guarded=True,
)
def train_inner(job: Job) -> None:
    """Train one inner model of a fold."""
    from bolt.training.trainers import train_fold

    options = job.options
    folder, folds = job.run.inner(options.fold) / f"fold-{options.inner}", job.layout.inner_folds(options.fold)
    place = {"fold": options.inner, "seed": options.seed}

    def work() -> None:
        model, dataset = job.model.on(job.dataset)
        model = model.for_fold(options.fold)  # settings of the outer fold, by its own validation scans
        facts = {"device": job.config.device, "threads": options.threads}
        train_fold(job.run.cache, folds, model, dataset, **place, out=folder, **facts)

    inputs = [job.run.cache / "manifest.json", folds]
    outcome = job.outcome(folder / "status.json", inputs, outer=options.fold, **place)
    outcome.empty = [folder / "checkpoint.safetensors", folder / "predictions.tsv"]
    outcome.run(work)


def _search_options(parser: ArgumentParser) -> None:
    parser.add_argument("--scheme", choices=["per-fold", "paper"], default="per-fold", help="[per-fold]")
    parser.add_argument("--fold", type=int, help="search on this fold alone [all folds of the scheme, then choose]")


def _search_settings(study: Study) -> list[Any]:
    from bolt.config import load_space

    settings = study.config.search
    return [
        training_settings(study),
        settings.model_dump(exclude={"models", "scheme", "use"}),
        *(["shared"] if settings.shared else []),
        load_space(settings.space),
    ]


@stage(
    "Search hyper-parameters by validation scans; resumes where it was stopped.",
    rules=("search_fold", "choose"),
    keys=("atlas", "model"),
    options=_search_options,
    code=("bolt.training.tuning.search", "bolt.training.tuning.choice"),
    settings=_search_settings,
    jobs={"search_fold": lambda plan: plan.n_searches, "choose": lambda plan: plan.n_choices},
    cost={"search_fold": Cost(10, phantom=10), "choose": Cost(3, phantom=3)},
    memory_mb=8000,
    minutes=1440,
    trains=True,
)
def search(job: Job) -> None:
    """Search on one fold; or, without one, on all that a scheme needs, and write what they chose."""
    from bolt.config import load_space, schema_line
    from bolt.io.files import write_text
    from bolt.training.tuning.choice import write_choice
    from bolt.training.tuning.search import Objective, search_fold
    from bolt.training.tuning.space import check_search

    options, layout, settings = job.options, job.layout, job.config.search
    check_search(job.config)
    (model, dataset), cache = _searched(job).on(job.dataset), layout.cache(options.atlas)
    needed = job.config.folds_searched(model.name, options.scheme)
    studies = {fold: layout.study(options.atlas, model.name, fold) for fold in needed}
    for fold in needed if options.fold is None else [options.fold]:
        objective = Objective(
            cache, layout.folds, model, dataset, fold, settings.seed, job.config.device, options.threads
        )
        out = layout.study(options.atlas, model.name, fold)
        scratch = layout.work / "search" / out.relative_to(layout.results / "search")
        space = load_space(settings.space)
        search_fold(objective, model, space, settings.n_trials, out, scratch, shared=settings.shared)
        if options.fold is not None or not (out / "provenance.json").is_file():  # else it was searched before
            inputs = [cache / "manifest.json", layout.folds]
            job.note(out / "provenance.json", inputs, fold=fold, seed=settings.seed)
    if options.fold is None:
        choice = layout.choice(options.atlas, options.scheme, model.name)
        write_choice(studies, _searched(job), options.scheme, choice)
        write_text(schema_line("model", choice) + choice.read_text(encoding="utf-8"), choice)
        job.note(choice, [study / "best.json" for study in studies.values()], seed=settings.seed)


@stage(
    "Choose hyper-parameters for all datasets and atlases that were searched (scheme: shared).",
    keys=("model",),
    code=("bolt.training.tuning.choice",),
    settings=lambda study: study.config.search.model_dump(exclude={"models", "use"}),
    jobs=lambda plan: plan.n_shared_choices,
    cost=Cost(3, phantom=3),
)
def choose_shared(job: Job) -> None:
    """Write a model with the values that are near the best everywhere."""
    from bolt.config import schema_line
    from bolt.config.study import Study
    from bolt.experiments.entries import configurations
    from bolt.io.files import write_text
    from bolt.training.tuning.choice import write_shared

    model, studies = _searched(job), {}
    for config in configurations(job.config.paths.results, job.config.dataset_name):
        for atlas in config.atlas_places if config.search.shared else []:
            fold = config.folds_searched(model.name, "shared")[0]
            study = Study.of(config).layout.study(atlas, model.name, fold)
            if (study / "best.json").is_file():
                studies[f"{config.dataset_name}, {atlas}"] = study
    choice = job.layout.shared_choice(model.name)
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
