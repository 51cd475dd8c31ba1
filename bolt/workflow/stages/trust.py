"""Stages that ask how far an explanation may be trusted: sanity checks and their models, faithfulness, stability."""

from __future__ import annotations

from typing import Any

from bolt.workflow.job import Job
from bolt.workflow.stages.explanation import explained


def train_permuted(job: Job) -> None:
    """Train one fold of a run on permuted labels."""
    from bolt.explain.trust.permuted import train_permuted

    job.require_classes()
    folds, fold = job.input.folds, job.config.explain.sanity.fold_of(job.folds)
    facts = {"fold": fold, "device": job.config.device, "threads": job.options.threads}
    outcome = job.outcome([job.input.cache, folds], fold=fold, seed=job.options.seed)
    outcome.run(lambda: train_permuted(job.run, folds, job.model, job.dataset, **facts))


def train_again(job: Job) -> None:
    """Train one fold of a run again with the next seed."""
    from bolt.training.trainers import train_fold

    job.require_classes()
    cache, folds, out = job.input.cache, job.input.folds, job.output.status.parent
    place = {"fold": job.config.explain.sanity.fold_of(job.folds), "seed": job.options.seed + 1}
    facts = {**place, "out": out, "device": job.config.device, "threads": job.options.threads}
    outcome = job.outcome([cache, folds], upstream=job.input.status, **place)
    outcome.run(lambda: train_fold(cache.parent, folds, job.model, job.dataset, **facts))


def sanity(job: Job) -> None:
    """Write the sanity checks of a run's importance."""
    from bolt.explain.trust.sanity import write_sanity

    job.require_classes()
    settings, out, (_, done) = job.config.explain.sanity, job.output.sanity, explained(job)
    retrained = [file.parent for file in job.input.all("retrained") if file.name == "status.json"]
    how = job.config.device, retrained, job.config.explain.gradient
    job.of_folds(done, lambda: write_sanity(job.series_cache(), job.run, done, settings, *how))
    job.note(out, job.importance_files(done), seed=job.options.seed)


def faithfulness_fold(job: Job) -> None:
    """Write the deletion and insertion curves of a fold."""
    from bolt.explain.trust.perturb import perturb_fold

    seed, checkpoint, importance = job.options.seed, job.input.checkpoint, job.input.importance
    facts = {"upstream": importance.with_name("explain_status.json"), "fold": job.options.fold, "seed": seed}
    inputs = [job.input.cache, checkpoint, importance.with_suffix(".npy")]
    outcome = job.outcome(inputs, job.output.index.with_name("faithfulness_status.json"), **facts)
    settings, device = job.config.explain.faithfulness, job.config.device
    outcome.run(lambda: perturb_fold(job.series_cache(), checkpoint.parent, settings, seed=seed, device=device))


def faithfulness(job: Job) -> None:
    """Write the faithfulness of a run's importance, over folds."""
    from bolt.explain.trust.faithfulness import finished_folds, write_faithfulness

    job.require_classes()
    given, out = dict(zip(job.folds, job.input.some("curves"), strict=True)), job.output.curves
    done = finished_folds(next(iter(given.values())).parents[1], job.folds)
    job.of_folds(done, lambda: write_faithfulness(job.run, job.folds))
    job.note(out, [given[fold].with_suffix(".npy") for fold in done], seed=job.options.seed)


def stability(job: Job) -> None:
    """Write the agreement of a run's maps over folds and seeds."""
    from bolt.explain.trust.stability import write_stability

    classes, explain, (_, done) = job.require_classes(), job.config.explain, explained(job)
    maps, out = sorted(job.input.some("coefficients")), job.output.stability
    where = job.run, {*job.config.seeds, job.options.seed}, job.folds, classes
    facts: dict[str, Any] = {"fraction": explain.top_rois, "tokens": explain.tokens}
    facts["permutations"] = explain.agreement.permutations
    job.of_folds(done, lambda: write_stability(job.series_cache(), *where, **facts))
    used = [file for fold, file in zip(job.folds, job.input.some("predictions"), strict=True) if fold in done]
    job.note(out, [*job.importance_files(done), used, *maps], seed=job.options.seed)
