"""Stages of one subject or one scan, up to its ROI series, and the quality of all."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bolt.config import load_denoise
from bolt.config.derivatives import SCAN_PICTURES, T1W_PICTURES, anatomical_names, remove_outputs
from bolt.config.layout import folder_of, prefix_of
from bolt.workflow.job import Job
from bolt.workflow.watched import registrations

if TYPE_CHECKING:
    from bolt.series.native_space import Transforms

log = logging.getLogger("bolt")


def anatomical(job: Job) -> None:
    """Preprocess the T1w image of a subject or session."""
    from bolt.preprocess.anatomical import preprocess_anatomical
    from bolt.preprocess.sidecars import describe_dataset

    folder, layout, config = job.options.folder, job.layout, job.config
    (t1w, *more_t1w), template = job.input.some("t1w"), job.input.template.parent
    tried = registrations(job.study)

    def work() -> None:
        describe_dataset(layout.derivatives, job.dataset.path, job.dataset.name)
        preprocess_anatomical(
            t1w,
            template,
            config.preprocess.space,
            tried,
            job.output.status.parent,
            layout.work / "preprocess" / folder / "anat",
            prefix=prefix_of(folder),
            more_t1w=more_t1w,
        )

    seeds = {registration.name: registration.seed for registration in tried}
    outcome = job.outcome([t1w, *more_t1w, *sorted(template.glob("*.nii.gz"))], seed=seeds)
    remove_outputs(outcome.empty, prefix_of(folder), T1W_PICTURES)
    outcome.run(work)


def functional(job: Job) -> None:
    """Preprocess the BOLD image of a scan."""
    from bolt.preprocess.functional.workflow import functional_names, preprocess_functional
    from bolt.preprocess.sidecars import sidecar_of

    scan, settings, registration = job.scan, job.config.preprocess, registrations(job.study)[0]
    bold, sbref, (t1w_status, *anatomical) = job.input.bold, job.input.get("sbref"), job.input.some("anatomical")
    out = job.output.status.parent

    def work() -> None:
        preprocess_functional(
            bold,
            t1w_status.parent,
            job.input.template.parent,
            settings.space,
            settings.resolution,
            registration,
            out,
            job.layout.work / "preprocess" / folder_of(scan.scan_id) / scan.scan_id,
            scan_id=scan.scan_id,
            prefix=prefix_of(folder_of(scan.t1w)),
            tr=scan.tr,
            output=settings.output,
            slice_timing=settings.slice_timing == "auto",
            steady_state=settings.steady_state,
            sbref=sbref,
        )
        if not settings.keep_bold:  # the image is deleted after parcellation; BIDS wants no JSON file without an image
            sidecar_of(job.layout.bold(scan.scan_id)).unlink(missing_ok=True)

    inputs = [bold, *([sbref] if sbref else []), *sorted(anatomical)]
    outcome = job.outcome(inputs, upstream=t1w_status, seed=registration.seed)
    names = functional_names(scan.scan_id, settings.space, settings.output).values()
    remove_outputs([out / name for name in names], f"{scan.scan_id}_", SCAN_PICTURES)
    outcome.run(work)


def parcellate(job: Job) -> None:
    """Write the ROI series of a scan for all configured atlases."""
    from bolt.series.parcellate import parcellate, write_parcellated

    scan, config, denoise = job.scan, job.config, load_denoise(job.config.denoise)
    native = scan.kind == "raw" and job.layout.native
    if job.dataset.downloaded:  # beside their status, which is what Snakemake knows of them
        files = {name: Path(scan[name]) for name in ("bold", "mask", "confounds") if isinstance(scan[name], str)}
    else:
        files = {name: path for name in ("mask", "confounds") if (path := job.input.get(name))}
        files = {"bold": job.input.bold, **files}

    def work() -> None:
        atlases = [job.atlas(name) for name in config.atlas_places]
        outcome.facts = {"atlases": {atlas.name: atlas.sha256 for atlas in atlases}}
        facts: dict[str, Any] = {"denoise": denoise, "space": config.preprocess.space}
        facts |= {"threshold": config.parcellate.coverage, "signal": config.parcellate.signal}
        facts["tr"] = None if pd.isna(scan.tr) else scan.tr  # then the header's
        if native:
            from bolt.series.native_space import parcellate_native

            facts["slice_timing"] = config.preprocess.slice_timing == "auto"
            results = parcellate_native(files["bold"], atlases, _transforms(job, scan, files["mask"].parent), **facts)
        else:
            facts |= {name: path for name, path in files.items() if name != "bold"}
            results = parcellate(files["bold"], atlases, **facts)
        write_parcellated(results, job.output.status.parent, scan_id=scan.scan_id)

    outcome = job.outcome(list(files.values()), upstream=job.input.get("status"))
    outcome.run(work)


def _transforms(job: Job, scan: pd.Series, folder: Path) -> Transforms:
    """Return what carries atlases to a raw scan's own voxels; `folder` has what was made of the scan."""
    from bolt.preprocess.functional.workflow import functional_names
    from bolt.series.native_space import Transforms

    space, anatomical = job.config.preprocess.space, folder_of(scan.t1w)
    anat, from_t1w = job.layout.anatomical(anatomical), anatomical_names(prefix_of(anatomical), space)
    names = functional_names(scan.scan_id, space, "native")
    return Transforms(
        forward=anat / from_t1w["forward"],
        inverse=anat / from_t1w["inverse"],
        **{name: folder / names[name] for name in ("bold_to_t1w", "motion", "mask", "confounds")},
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
