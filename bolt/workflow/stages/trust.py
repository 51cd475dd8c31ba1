"""Stages that ask how far an explanation may be trusted: sanity checks and their models, faithfulness, stability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bolt.workflow.stage import OF_FOLD, OF_RUN, Cost, stage
from bolt.workflow.stages.explanation import folds_with_importance
from bolt.workflow.stages.training import training_settings

if TYPE_CHECKING:
    from bolt.workflow.job import Job


@stage(
    "Train a model on permuted labels, as a check of the explanation.",
    keys=OF_RUN,
    code=("bolt.explain.trust.permuted",),
    settings=lambda study: [*training_settings(study), study.config.explain.sanity.fold],
    jobs=lambda plan: plan.n_checked * plan.permuted,
    cost=Cost(20, 1.2, phantom=10),
    memory_mb=8000,
    trains=True,
    guarded=True,
)
def train_permuted(job: Job) -> None:
    """Train one fold of a run on permuted labels."""
    from bolt.explain.trust.permuted import train_permuted

    job.require_classes()
    folder, options = job.run.permuted, job.options
    fold = job.config.explain.sanity.fold_of(job.folds)
    inputs = [job.run.cache / "manifest.json", job.layout.folds]
    outcome = job.outcome(folder / "status.json", inputs, fold=fold, seed=options.seed)
    outcome.empty = [folder / "checkpoint.safetensors", folder / "predictions.tsv"]
    facts = {"fold": fold, "device": job.config.device, "threads": options.threads}
    outcome.run(lambda: train_permuted(job.run, job.layout.folds, job.model, job.dataset, **facts))


@stage(
    "Train a model again with another seed, the positive control of the sanity checks.",
    keys=OF_RUN,
    code=("bolt.training.runner",),
    settings=lambda study: [*training_settings(study), study.config.explain.sanity.fold],
    jobs=lambda plan: plan.n_retrained,
    cost=Cost(20, 1.2, phantom=10),
    memory_mb=8000,
    trains=True,
    guarded=True,
)
def train_again(job: Job) -> None:
    """Train one fold of a run again with the next seed."""
    from bolt.training.trainers import train_fold

    job.require_classes()
    folder, options, (cache, folds) = job.run.retrained, job.options, (job.run.cache, job.layout.folds)
    fold = job.config.explain.sanity.fold_of(job.folds)
    place = {"fold": fold, "seed": options.seed + 1}
    outcome = job.outcome(folder / "status.json", [cache / "manifest.json", folds], **place)
    outcome.depends_on(job.run.fold(fold) / "status.json")
    outcome.empty = [folder / "checkpoint.safetensors", folder / "predictions.tsv"]
    facts = {"device": job.config.device, "threads": options.threads}
    outcome.run(lambda: train_fold(cache, folds, job.model, job.dataset, **place, out=folder, **facts))


@stage(
    "Check that importance vanishes when the weights are randomised, or labels permuted.",
    keys=OF_RUN,
    code=("bolt.explain.trust.sanity",),
    settings=lambda study: [
        study.config.explain.sanity.model_dump(exclude={"fold"}),
        study.config.device,
        study.config.explain.gradient,
    ],
    jobs=lambda plan: plan.n_checked * plan.sanity,
    cost=Cost(10, 1, phantom=5),
    memory_mb=4000,
    minutes=240,
    applies=True,
)
def sanity(job: Job) -> None:
    """Write the sanity checks of a run's importance."""
    from bolt.explain.trust.sanity import write_sanity

    job.require_classes()
    run, settings, done = job.run, job.config.explain.sanity, folds_with_importance(job)
    out, retrained = run.explanation / "sanity.tsv", run.trained_again(job.folds, job.config.seeds)
    how = job.config.device, retrained, job.config.explain.gradient
    job.of_folds(done, [out], lambda: write_sanity(job.series_cache(), run, done, settings, *how))
    job.note(out, job.importance_files(done), seed=job.options.seed)


@stage(
    "Delete and insert volumes in a fold's test scans, and follow the prediction.",
    keys=OF_FOLD,
    code=("bolt.explain.trust.faithfulness",),
    settings=lambda study: [study.config.explain.faithfulness, study.config.device],
    jobs=lambda plan: plan.n_checked_folds * plan.faithfulness,
    cost=Cost(10, 2.4, phantom=8),
    memory_mb=4000,
    minutes=240,
    applies=True,
    guarded=True,
)
def faithfulness_fold(job: Job) -> None:
    """Write the deletion and insertion curves of a fold."""
    from bolt.explain.trust.perturb import perturb_fold

    options, cache, folder = job.options, job.run.cache, job.run.fold(job.options.fold)
    inputs = [cache / "manifest.json", folder / "checkpoint.safetensors", folder / "importance.npy"]
    curves = folder / "faithfulness_curves.tsv"
    facts = {"fold": options.fold, "seed": options.seed}
    outcome = job.outcome(folder / "faithfulness_status.json", inputs, curves, **facts)
    outcome.depends_on(folder / "explain_status.json")
    outcome.empty = [folder / "faithfulness_curves.npy", curves]
    settings, device = job.config.explain.faithfulness, job.config.device
    outcome.run(lambda: perturb_fold(job.series_cache(), folder, settings, seed=options.seed, device=device))


@stage(
    "Test whether removing important volumes changes predictions more than removing others.",
    keys=OF_RUN,
    code=("bolt.explain.trust.faithfulness",),
    jobs=lambda plan: plan.n_checked * plan.faithfulness,
    cost=Cost(3, phantom=2),
    memory_mb=2000,
)
def faithfulness(job: Job) -> None:
    """Write the faithfulness of a run's importance, over folds."""
    from bolt.explain.trust.faithfulness import finished_folds, write_faithfulness

    job.require_classes()
    run, done = job.run, finished_folds(job.run.folder, job.folds)
    outputs = [run.explanation / name for name in ("faithfulness.tsv", "faithfulness_areas.tsv")]
    job.of_folds(done, outputs, lambda: write_faithfulness(run, job.folds))
    curves = [run.fold(fold) / "faithfulness_curves.npy" for fold in done]
    job.note(outputs[0], curves, seed=job.options.seed)


@stage(
    "Compare maps and importance between folds and between seeds.",
    keys=OF_RUN,
    code=("bolt.explain.trust.stability",),
    settings=lambda study: study.config.explain.model_dump(include={"top_rois", "tokens", "agreement"}),
    jobs=lambda plan: plan.n_checked,
    cost=Cost(5, 0.02, phantom=3),
    memory_mb=4000,
)
def stability(job: Job) -> None:
    """Write the agreement of a run's maps over folds and seeds."""
    from bolt.explain.trust.stability import write_stability

    classes = job.require_classes()
    run, folds, explain = job.run, job.folds, job.config.explain
    seeds = {*job.config.seeds, job.options.seed}
    done, out = folds_with_importance(job), run.explanation / "stability.tsv"
    facts: dict[str, Any] = {"fraction": explain.top_rois, "tokens": explain.tokens}
    facts["permutations"] = explain.agreement.permutations
    job.of_folds(done, [out], lambda: write_stability(job.series_cache(), run, seeds, folds, classes, **facts))
    maps = sorted(run.with_seed(seed).explanation / "coefficients.npy" for seed in seeds)
    job.note(out, [*job.importance_files(done), *maps], seed=job.options.seed)
