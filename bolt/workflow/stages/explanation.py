"""Stages that explain models: importance, landmarks, regions and the course of tasks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bolt.io.errors import BoltError
from bolt.io.files import holds_something, read_json
from bolt.io.integrity import require_outputs
from bolt.jobs.provenance import provenance_path
from bolt.workflow.job import Job

log = logging.getLogger("bolt")


def explained(job: Job) -> tuple[Path, list[int]]:
    """Return the folder of the run whose importance a job reads, and its folds that have some."""
    from bolt.explain.weights import explained_folds

    folder = job.input.some("importance")[0].parents[1]
    return folder, explained_folds(folder, job.folds)


def explain_fold(job: Job) -> None:
    """Write the importance weights of every scan of a fold; of tasks, also under untrained models."""
    from bolt.explain.importance import explain_fold, explain_untrained

    checkpoint, folder = job.input.checkpoint, job.input.checkpoint.parent

    def work() -> None:
        how = job.config.device, job.config.explain.gradient
        explain_fold(job.series_cache(), folder, *how)
        if job.output.get("untrained"):
            explain_untrained(job.series_cache(), folder, *how)

    inputs = [job.input.cache, checkpoint, checkpoint.with_suffix(".json")]
    facts = {"upstream": job.input.status, "fold": job.options.fold, "seed": job.options.seed}
    job.outcome(inputs, job.output.index.with_name("explain_status.json"), **facts).run(work)


def explain_inner(job: Job) -> None:
    """Write the importance weights of training scans under inner models."""
    from bolt.explain.importance import explain_inner

    folder, statuses, checkpoints = job.output.index.parent, job.input.some("statuses"), job.input.some("checkpoints")
    failed = [status for status in statuses if read_json(status)["state"] != "ok"]
    for status in statuses:
        require_outputs(provenance_path(status))
    facts = {"upstream": (failed or statuses)[0], "outer": job.options.fold, "seed": job.options.seed}
    outcome = job.outcome([job.input.cache, checkpoints], folder / "explain_status.json", **facts)
    how = job.config.device, job.config.explain.gradient
    outcome.run(lambda: explain_inner(job.series_cache(), folder, range(len(checkpoints)), *how))


def regress_landmarks(job: Job) -> None:
    """Write the landmark regressions of a run."""
    from bolt.explain.landmarks import landmark_regression, write_landmarks

    classes, settings, (folder, done) = job.require_classes(), job.config.explain, explained(job)
    out, controls = job.output.landmarks, job.input.some("controls")

    def work() -> None:
        found = landmark_regression(
            job.series_cache(),
            folder,
            done,
            classes,
            tokens=settings.tokens,
            random_draws=settings.random_draws,
            offsets=settings.subset_offsets,
            side_by_side=settings.landmark_samples == "scans",
            published_score=settings.subset_score == "published",
            inner=bool(job.input.all("inner")),
            seed=job.options.seed,
        )
        write_landmarks(found, out.parent)

    job.of_folds(done, work)
    read = [file for fold, file in zip(job.folds, controls, strict=True) if fold in done]
    job.note(out, [*job.importance_files(done), read], seed=job.options.seed)


def regions(job: Job) -> None:
    """Write the ROI weights and brain maps of a run."""
    from bolt.explain.regions import write_regions

    classes, coefficients, weights = job.require_classes(), job.input.coefficients, job.output.weights
    require_outputs(coefficients.with_name("landmarks_provenance.json"))
    settings, atlas_name, rois = job.config.explain, job.options.atlas, job.series_cache().rois
    try:
        atlas = job.atlas(atlas_name)
        image, space = atlas.image, atlas.spaces[0]
    except BoltError as error:
        if not job.dataset.ready_series:
            raise
        log.warning("no brain maps: %s", error)  # ready series need no atlas image
        image, space = None, ""
    keys: dict[str, Any] = {"atlas": atlas_name, "space": space}
    keys |= {"fraction": settings.top_rois, "odds_ratio": settings.odds_ratio}
    done = [coefficients] if holds_something(coefficients) else []
    job.of_folds(done, lambda: write_regions(coefficients, rois, classes, image, weights.parent, **keys))
    job.note(weights, [job.input.cache, coefficients, job.input.controls], seed=job.options.seed)


def connections(job: Job) -> None:
    """Write which connections a run's predictions follow."""
    from bolt.explain.connections import usable_folds, write_connections

    dataset, explain, predictions, out = job.dataset, job.config.explain, job.input.some("predictions"), job.output
    folder = predictions[0].parents[1]
    done = usable_folds(folder, job.folds)
    where = folder, done, dataset.classes, out.connections.parent
    facts: dict[str, Any] = {"label": dataset.label, "fraction": explain.top_rois}
    facts["permutations"] = explain.agreement.permutations
    job.of_folds(done, lambda: write_connections(job.series_cache(), *where, **facts))
    used = [file for fold, file in zip(job.folds, predictions, strict=True) if fold in done]
    job.note(out.connections, [job.input.cache, used], seed=job.options.seed)


def tasks(job: Job) -> None:
    """Write the time course of importance in tasks."""
    from bolt.explain.tasks import write_tasks
    from bolt.io.series_files import kept_volumes

    out, given, (folder, done) = job.output.tasks, job.input.some("untrained"), explained(job)

    def kept(scan: str, rows: int) -> Any:
        return kept_volumes(job.layout.series_file(scan, job.options.atlas, job.options.variant), rows)

    where = folder, done, out.parent
    job.of_folds(done, lambda: write_tasks(job.series_cache(), *where, job.config.explain, kept))
    indices = [index for fold, index in zip(job.folds, given, strict=True) if fold in done]
    untrained = [index.with_suffix(suffix) for index in indices for suffix in (".npy", ".tsv")]
    job.note(out, [*job.importance_files(done), untrained], seed=job.options.seed)
