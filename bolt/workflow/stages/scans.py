"""Stages of one subject or one scan, up to its ROI series, and the quality of all."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bolt.workflow.stage import Cost, stage

if TYPE_CHECKING:
    import pandas as pd

    from bolt.atlases.image import Atlas
    from bolt.config import Denoise, Registration
    from bolt.config.study import Study
    from bolt.workflow.job import Job

log = logging.getLogger("bolt")

NOT_ANATOMICAL = {"description", "motion_sampling", "motion_iterations"}
"""Keys of a registration that preprocessing of the T1w does not read."""


def _registrations(study: Study) -> list[Registration]:
    """Return the configured registrations, in the order in which they are tried."""
    from bolt.config import load_registration

    return [load_registration(name) for name in study.config.preprocess.registrations]


@stage(
    "Preprocess the T1w image of a subject.",
    keys=("folder",),
    code=("bolt.preprocess.anatomical.workflow",),
    settings=lambda study: [
        study.config.preprocess.space,
        [registration.model_dump(exclude=NOT_ANATOMICAL) for registration in _registrations(study)],
    ],
    jobs=lambda plan: plan.n_anatomies,
    cost=Cost(60, phantom=23),
    memory_mb=4000,
    minutes=90,
    guarded=True,
)
def anatomical(job: Job) -> None:
    """Preprocess the T1w image of a subject or session."""
    from bolt.config.derivatives import T1W_PICTURES, remove_outputs
    from bolt.config.layout import folder_of, prefix_of
    from bolt.datasets import t1w_images
    from bolt.preprocess.anatomical.workflow import preprocess_anatomical
    from bolt.preprocess.sidecars import describe_dataset

    folder, layout, config = job.options.folder, job.layout, job.config
    scan = next(scan for scan in job.scans().dropna(subset="t1w").itertuples() if folder_of(str(scan.t1w)) == folder)
    t1w, *more_t1w = map(Path, t1w_images(scan))
    registrations = _registrations(job.study)

    def work() -> None:
        describe_dataset(layout.derivatives, job.dataset.path, job.dataset.name)
        preprocess_anatomical(
            t1w,
            layout.template,
            config.preprocess.space,
            registrations,
            layout.anatomical(folder),
            layout.work / "preprocess" / folder / "anat",
            prefix=prefix_of(folder),
            more_t1w=more_t1w,
        )

    seeds = {registration.name: registration.seed for registration in registrations}
    templates = sorted(layout.template.glob("*.nii.gz"))
    outcome = job.outcome(layout.anatomical_status(folder), [t1w, *more_t1w, *templates], seed=seeds)
    outcome.empty = list(layout.anatomical_files(folder).values())
    remove_outputs(outcome.empty, prefix_of(folder), T1W_PICTURES)
    outcome.run(work)


@stage(
    "Preprocess the BOLD image of a scan.",
    keys=("scan",),
    code=("bolt.preprocess.functional.workflow",),
    settings=lambda study: [
        study.config.preprocess.model_dump(exclude={"keep_bold", "registration", "threads"}),
        _registrations(study)[0].model_dump(exclude={"description"}),
    ],
    jobs=lambda plan: plan.n_raw,
    cost=Cost(60, phantom=11),
    memory_mb=4000,
    minutes=120,
    guarded=True,
)
def functional(job: Job) -> None:
    """Preprocess the BOLD image of a scan."""
    from bolt.config.derivatives import SCAN_PICTURES, remove_outputs
    from bolt.config.layout import folder_of, prefix_of
    from bolt.preprocess.functional.workflow import functional_names, preprocess_functional
    from bolt.preprocess.sidecars import sidecar_of

    scan, layout, settings = job.scan, job.layout, job.config.preprocess
    folder, anatomical = folder_of(scan.scan_id), folder_of(scan.t1w)
    registration = _registrations(job.study)[0]
    sbref = Path(scan.sbref) if isinstance(scan.sbref, str) else None

    def work() -> None:
        preprocess_functional(
            Path(scan.bold),
            layout.anatomical(anatomical),
            layout.template,
            settings.space,
            settings.resolution,
            registration,
            layout.functional(folder),
            layout.work / "preprocess" / folder / scan.scan_id,
            scan_id=scan.scan_id,
            prefix=prefix_of(anatomical),
            tr=scan.tr,
            output=settings.output,
            slice_timing=settings.slice_timing == "auto",
            steady_state=settings.steady_state,
            sbref=sbref,
        )
        if not settings.keep_bold:  # the image is deleted after parcellation; BIDS wants no JSON file without an image
            sidecar_of(layout.bold(scan.scan_id)).unlink(missing_ok=True)

    inputs = [Path(scan.bold), *([sbref] if sbref else []), *sorted(layout.anatomical_files(anatomical).values())]
    outcome = job.outcome(layout.functional_status(scan.scan_id), inputs, seed=registration.seed)
    outcome.depends_on(layout.anatomical_status(anatomical))
    outcome.empty = [layout.mask(scan.scan_id), layout.confounds(scan.scan_id)]
    outcome.empty += [] if layout.native else [layout.bold(scan.scan_id)]
    names = functional_names(scan.scan_id, settings.space, settings.output).values()
    remove_outputs([layout.functional(folder) / name for name in names], f"{scan.scan_id}_", SCAN_PICTURES)
    outcome.run(work)


def _parcellate_code(study: Study) -> tuple[str, ...]:
    native = ("bolt.series.native_space",) if study.layout.native else ()
    return ("bolt.series.parcellate", *native)


def _parcellate_settings(study: Study) -> list[Any]:
    from bolt.config import load_denoise
    from bolt.workflow.watched import atlas_files, atlas_images

    config = study.config
    return [
        atlas_files(config),
        atlas_images(study),
        [config.parcellate.coverage, config.parcellate.signal],
        load_denoise(config.denoise),
        [config.preprocess.slice_timing] if study.layout.native else [],
    ]


@stage(
    "Average a scan over the ROIs of atlases.",
    command="parcellate-scan",
    keys=("scan",),
    code=_parcellate_code,
    settings=_parcellate_settings,
    jobs=lambda plan: plan.n_images,
    cost=Cost(6, phantom=2),
    memory_mb=1500,
    minutes=10,
    guarded=True,
)
def parcellate(job: Job) -> None:
    """Write the ROI series of a scan for all configured atlases."""
    import pandas as pd

    from bolt.config import load_denoise
    from bolt.series.parcellate import parcellate, write_parcellated

    scan, layout = job.scan, job.layout
    denoise = load_denoise(job.config.denoise)
    raw = scan.kind == "raw"
    bold = layout.bold(scan.scan_id) if raw else Path(scan.bold)
    given = {name: Path(scan[name]) for name in ("mask", "confounds") if isinstance(scan[name], str)}
    mask = layout.mask(scan.scan_id) if raw else given.get("mask")
    confounds = layout.confounds(scan.scan_id) if raw else given.get("confounds")

    def work() -> None:
        atlases = [job.atlas(name) for name in job.config.atlas_places]
        outcome.facts = {"atlases": {atlas.name: atlas.sha256 for atlas in atlases}}
        if raw and layout.native:
            results = _parcellate_native(job, scan, atlases, denoise)
        else:
            results = parcellate(
                bold,
                atlases,
                mask=mask,
                confounds=confounds,
                denoise=denoise,
                tr=None if pd.isna(scan.tr) else scan.tr,  # then the header's
                threshold=job.config.parcellate.coverage,
                signal=job.config.parcellate.signal,
                space=job.config.preprocess.space,
            )
        write_parcellated(results, layout.series(scan.scan_id), scan_id=scan.scan_id)

    read = [Path(scan.bold) if layout.native else bold, mask, confounds]
    outcome = job.outcome(layout.series_status(scan.scan_id), [path for path in read if path is not None])
    if raw:
        outcome.depends_on(layout.functional_status(scan.scan_id))
    elif job.dataset.downloaded:
        outcome.depends_on(job.download_status(scan.scan_id))
    outcome.empty = [layout.series_file(scan.scan_id, atlas) for atlas in job.config.atlas_places]
    outcome.run(work)


def _parcellate_native(job: Job, scan: pd.Series, atlases: list[Atlas], denoise: Denoise) -> dict[str, Any]:
    """Average a raw scan in its own voxels, to which the atlases are carried."""
    from bolt.config.derivatives import anatomical_names
    from bolt.config.layout import folder_of, prefix_of
    from bolt.preprocess.functional.workflow import functional_names
    from bolt.series.native_space import Transforms, parcellate_native

    layout, settings, anatomical = job.layout, job.config.preprocess, folder_of(scan.t1w)
    anat, func = layout.anatomical(anatomical), layout.functional(folder_of(scan.scan_id))
    from_t1w = anatomical_names(prefix_of(anatomical), settings.space)
    names = functional_names(scan.scan_id, settings.space, "native")
    return parcellate_native(
        Path(scan.bold),
        atlases,
        Transforms(
            forward=anat / from_t1w["forward"],
            inverse=anat / from_t1w["inverse"],
            **{name: func / names[name] for name in ("bold_to_t1w", "motion", "mask", "confounds")},
        ),
        space=settings.space,
        denoise=denoise,
        tr=scan.tr,
        threshold=job.config.parcellate.coverage,
        signal=job.config.parcellate.signal,
        slice_timing=settings.slice_timing == "auto",
    )


@stage(
    "Gather the quality of all scans, and exclude those beyond the cut-offs.",
    code=("bolt.cohort.quality",),
    settings=lambda study: study.config.quality,
    jobs=lambda plan: int(plan.judged),
    memory_mb=2000,
)
def quality(job: Job) -> None:
    """Judge every scan by the configured cut-offs."""
    from bolt.cohort.quality import gather_quality

    layout = job.layout
    table = gather_quality(job.scans(), job.config, layout)
    log.info("%d of %d scans are excluded", (table.state != "ok").sum(), len(table))
    statuses = [layout.series_status(scan) for scan in table.scan_id]
    measures = sorted(layout.derivatives.glob("sub-*/**/*desc-quality.json"))
    ratings = job.config.quality.ratings
    job.note(layout.quality, [layout.scans, statuses, measures, [ratings] if ratings else []])


def _pages_settings(study: Study) -> list[Any]:
    from bolt.workflow.watched import templates

    return [study.config.parcellate.coverage, templates()]


@stage(
    "Write the page of image quality, and one per subject.",
    code=("bolt.report.pages.quality", "bolt.report.pages.subjects", "bolt.preprocess.sidecars"),
    settings=_pages_settings,
    jobs=lambda plan: int(plan.judged and plan.whole),
    memory_mb=2000,
)
def quality_pages(job: Job) -> None:
    """Write the pages that show the quality of images."""
    from bolt.preprocess.sidecars import write_bidsignore
    from bolt.report.pages.quality import write_quality
    from bolt.report.pages.subjects import write_subjects

    layout = job.layout
    write_quality(job.study)
    write_subjects(job.study)
    if (layout.derivatives / "dataset_description.json").is_file():
        write_bidsignore(layout.derivatives)  # now that it is known which subjects failed
    job.note(layout.quality_page, [layout.quality])
