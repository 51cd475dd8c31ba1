"""Stages that explain models: importance, landmarks, regions and the course of tasks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from bolt.workflow.stage import OF_FOLD, OF_RUN, Cost, stage

if TYPE_CHECKING:
    from bolt.config.study import Study
    from bolt.jobs.provenance import Inputs
    from bolt.workflow.job import Job

log = logging.getLogger("bolt")

LANDMARK_KEYS = {"tokens", "landmark_samples", "random_draws", "subset_offsets", "inner_folds"}
"""Keys of `explain` that only landmarks are found by."""
TASK_KEYS = {"hrf_shift", "trial_types", "masked_task"}
"""Keys of `explain` that only the time course of tasks is read from."""


def folds_with_importance(job: Job) -> list[int]:
    """Return the folds of the run that have importance weights."""
    from bolt.explain.weights import explained_folds

    return explained_folds(job.run.folder, job.folds)


@stage(
    "Compute importance weights of every scan for one fold's model.",
    command="explain-fold",
    rules=("explain_fold",),
    keys=OF_FOLD,
    code=("bolt.explain.importance",),
    settings=lambda study: [study.config.device, study.config.explain.gradient],
    jobs=lambda plan: plan.n_weighed_folds,
    cost=Cost(5, 0.2, phantom=3),
    memory_mb=4000,
    minutes=60,
    applies=True,
    guarded=True,
)
def explain(job: Job) -> None:
    """Write the importance weights of every scan of a fold; of tasks, also under untrained models."""
    from bolt.explain.importance import explain_fold, explain_untrained
    from bolt.explain.weights import IMPORTANCE_FILES, UNTRAINED

    options = job.options
    folder, cache = job.run.fold(options.fold), job.run.cache
    inputs = [cache / "manifest.json", folder / "checkpoint.safetensors", folder / "checkpoint.json"]
    facts = {"fold": options.fold, "seed": options.seed}
    outcome = job.outcome(folder / "explain_status.json", inputs, folder / "importance.tsv", **facts)
    outcome.depends_on(folder / "status.json")
    untrained = [f"{UNTRAINED}.{kind}" for kind in ("npy", "tsv")] * job.dataset.has_tasks
    outcome.empty = [folder / name for name in (*IMPORTANCE_FILES, *untrained)]

    def work() -> None:
        how = job.config.device, job.config.explain.gradient
        explain_fold(job.series_cache(), folder, *how)
        if job.dataset.has_tasks:
            explain_untrained(job.series_cache(), folder, *how)

    outcome.run(work)


@stage(
    "Compute importance weights of a fold's training side by models that saw none of these scans.",
    keys=OF_FOLD,
    code=("bolt.explain.importance",),
    settings=lambda study: [study.config.device, study.config.explain.gradient],
    jobs=lambda plan: plan.n_explained_folds * (plan.n_inner > 0),
    cost=Cost(5, 0.2, phantom=3),
    memory_mb=4000,
    minutes=60,
    applies=True,
    guarded=True,
)
def explain_inner(job: Job) -> None:
    """Write the importance weights of training scans under inner models."""
    from bolt.explain.importance import explain_inner
    from bolt.explain.weights import IMPORTANCE_FILES
    from bolt.io.files import read_json
    from bolt.io.integrity import require_outputs
    from bolt.jobs.provenance import provenance_path

    folder, cache = job.run.inner(job.options.fold), job.run.cache
    inner = range(job.config.explain.inner_folds)
    statuses = [folder / f"fold-{part}" / "status.json" for part in inner]
    failed = [status for status in statuses if read_json(status)["state"] != "ok"]
    for status in statuses:
        require_outputs(provenance_path(status))
    checkpoints = [folder / f"fold-{part}" / "checkpoint.safetensors" for part in inner]
    inputs: Inputs = [cache / "manifest.json", checkpoints]
    facts = {"outer": job.options.fold, "seed": job.options.seed}
    outcome = job.outcome(folder / "explain_status.json", inputs, folder / "importance.tsv", **facts)
    outcome.depends_on((failed or statuses)[0])
    outcome.empty = [folder / name for name in IMPORTANCE_FILES]
    how = job.config.device, job.config.explain.gradient
    outcome.run(lambda: explain_inner(job.series_cache(), folder, inner, *how))


@stage(
    "Run regressions on the most important volumes, and on control volumes.",
    rules=("regress_landmarks",),
    keys=OF_RUN,
    code=("bolt.explain.landmarks",),
    settings=lambda study: study.config.explain.model_dump(include=LANDMARK_KEYS),
    jobs=lambda plan: plan.n_explained,
    cost=Cost(10, 0.1, phantom=4),
    memory_mb=8000,
    minutes=240,
)
def landmarks(job: Job) -> None:
    """Write the landmark regressions of a run."""
    from bolt.explain.landmarks import OUTPUTS, landmark_regression, write_landmarks
    from bolt.explain.weights import CONTROLS_FILE

    classes = job.require_classes()
    run, settings, done = job.run, job.config.explain, folds_with_importance(job)

    def work() -> None:
        found = landmark_regression(
            job.series_cache(),
            run.folder,
            done,
            classes,
            tokens=settings.tokens,
            random_draws=settings.random_draws,
            offsets=settings.subset_offsets,
            side_by_side=settings.landmark_samples == "scans",
            inner=settings.inner_folds > 0,
            seed=job.options.seed,
        )
        write_landmarks(found, run.explanation)

    outputs = [run.explanation / name for name in OUTPUTS]
    job.of_folds(done, outputs, work)
    controls = [run.fold(fold) / CONTROLS_FILE for fold in done]
    job.note(outputs[0], [*job.importance_files(done), controls], seed=job.options.seed)


def _region_settings(study: Study) -> list[Any]:
    from bolt.workflow.watched import atlas_files, atlas_images

    config = study.config
    others = TASK_KEYS | LANDMARK_KEYS | {"gradient", "sanity", "faithfulness", "agreement"}
    return [atlas_files(config), atlas_images(study), config.explain.model_dump(exclude=others)]


@stage(
    "Average ROI weights over folds, and write brain maps.",
    keys=OF_RUN,
    code=("bolt.explain.regions",),
    settings=_region_settings,
    jobs=lambda plan: plan.n_mapped,
    cost=Cost(20, 0.1, phantom=2),
    memory_mb=4000,
)
def regions(job: Job) -> None:
    """Write the ROI weights and brain maps of a run."""
    from bolt.explain.regions import write_regions
    from bolt.io.errors import BoltError
    from bolt.io.files import holds_something
    from bolt.io.integrity import require_outputs

    classes = job.require_classes()
    require_outputs(job.run.explanation / "landmarks_provenance.json")
    out, settings, atlas_name = job.run.explanation, job.config.explain, job.options.atlas
    cache = job.series_cache()
    try:
        atlas = job.atlas(atlas_name)
        image, space = atlas.image, atlas.spaces[0]
    except BoltError as error:
        if not job.dataset.ready_series:
            raise
        log.warning("no brain maps: %s", error)  # ready series need no atlas image
        image, space = None, ""
    coefficients, controls = out / "coefficients.npy", out / "coefficients_controls.npy"
    keys: dict[str, Any] = {"atlas": atlas_name, "space": space}
    keys |= {"fraction": settings.top_rois, "odds_ratio": settings.odds_ratio}
    done = [coefficients] if holds_something(coefficients) else []
    outputs = [out / "roi_weights.tsv"]
    job.of_folds(done, outputs, lambda: write_regions(coefficients, cache.rois, classes, image, out, **keys))
    inputs = [cache.folder / "manifest.json", coefficients, controls]
    job.note(outputs[0], inputs, seed=job.options.seed)


@stage(
    "Correlate the predictions of test scans with every connection.",
    keys=OF_RUN,
    code=("bolt.explain.connections",),
    jobs=lambda plan: plan.n_checked,
    cost=Cost(15, 0.05, phantom=4),
    memory_mb=8000,
)
def connections(job: Job) -> None:
    """Write which connections a run's predictions follow."""
    from bolt.explain.connections import OUTPUTS, usable_folds, write_connections

    classes = job.require_classes()
    run, out = job.run, job.run.explanation
    done = usable_folds(run.folder, job.folds)
    outputs = [out / name for name in OUTPUTS]
    job.of_folds(done, outputs, lambda: write_connections(job.series_cache(), run.folder, done, classes, out))
    predictions = [run.fold(fold) / "predictions.tsv" for fold in done]
    job.note(outputs[0], [run.cache / "manifest.json", predictions], seed=job.options.seed)


@stage(
    "Average importance over the course of tasks, beside their events.",
    keys=OF_RUN,
    code=("bolt.explain.tasks",),
    settings=lambda study: study.config.explain.model_dump(include=TASK_KEYS),
    jobs=lambda plan: plan.n_timed,
    cost=Cost(3, 0.01, phantom=3),
    memory_mb=4000,
)
def tasks(job: Job) -> None:
    """Write the time course of importance in tasks."""
    from bolt.explain.tasks import write_tasks
    from bolt.explain.weights import UNTRAINED
    from bolt.io.series_files import kept_volumes

    run, done = job.run, folds_with_importance(job)
    out = run.explanation / "tasks.tsv"

    def kept(scan: str, rows: int) -> Any:
        return kept_volumes(job.layout.series_file(scan, run.atlas, run.variant), rows)

    where = run.folder, done, out.parent
    job.of_folds(done, [out], lambda: write_tasks(job.series_cache(), *where, job.config.explain, kept))
    untrained = [run.fold(fold) / f"{UNTRAINED}.{kind}" for fold in done for kind in ("npy", "tsv")]
    job.note(out, [*job.importance_files(done), untrained], seed=job.options.seed)
