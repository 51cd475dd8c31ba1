"""Stages of a whole dataset before its scans: simulation, downloads, templates, index."""

from __future__ import annotations

import logging
from functools import partial

import pandas as pd

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, write_cohort
from bolt.config.study import Study
from bolt.datasets import COLUMNS, own_tables, source_of, subjects_table
from bolt.datasets.participants import require_classes
from bolt.io.errors import DataError
from bolt.io.files import write_json, write_table
from bolt.models.suitability import check_covariate_values, check_file_scans, minimum_volumes
from bolt.workflow.job import Job
from bolt.workflow.watched import files_of

log = logging.getLogger("bolt")

TEMPLATE_MM = 2.0
"""Voxel size of the templates that T1w images are registered to."""


def simulate(job: Job) -> None:
    """Write the phantom."""
    from bolt.datasets.phantom import simulate

    settings = job.dataset.simulate
    if settings is None:
        raise DataError("this dataset has no 'simulate' keys", where=job.dataset.name, hint="Use the phantom's")
    simulate(job.dataset.path, settings, n_jobs=job.options.threads)
    job.note(job.layout.truth(job.dataset.path) / "provenance.json", [], seed=settings.seed)


def download(job: Job) -> None:
    """Download some scans, or the table of subjects."""
    source, scan_ids = source_of(job.dataset), job.options.scan
    if not scan_ids:
        return source.download_table(job.dataset, job.config)
    for scan_id in scan_ids:
        outcome = job.outcome([], source.download_folder(job.dataset, job.config) / scan_id / "status.json")
        outcome.transient = True
        outcome.run(partial(source.download_scan, scan_id, job.dataset, job.config))
    for done in job.output.all("done"):  # each scan's status file says how it went
        write_json({"scans": scan_ids}, done)


def template(job: Job) -> None:
    """Stage the template of the output space."""
    from bolt.preprocess.quality.compute import stage_ventricles
    from bolt.preprocess.templates import stage_template

    folder, config = job.layout.template, job.config
    stage_template(config.preprocess.space, TEMPLATE_MM, folder, config.paths.templateflow_home)
    stage_ventricles(folder)
    job.note(folder / "provenance.json", sorted(folder.glob("*.nii.gz")))  # copies of the published ones


def resources(job: Job) -> None:
    """Download missing atlas images and, for raw data, the template."""
    from bolt.atlases.staging import stage_atlases

    stage_atlases(job.config, job.study.space)
    if job.dataset.source == "bids":
        template(job)


def list_scans(study: Study, *, learns: bool, minimum_volumes: int) -> pd.DataFrame:
    """List the scans of a dataset, and find out now what would fail hours later.

    Parameters
    ----------
    study : Study
    learns : bool
        Whether models are trained, which need labels, covariates and folds.
    minimum_volumes : int
        As for `bolt.datasets.index`.

    Returns
    -------
    DataFrame
        `bolt.datasets.COLUMNS`, with the reason for each exclusion.

    Raises
    ------
    BoltError
        The dataset cannot be indexed; its usable scans are too few for the models or the folds.
    """
    from bolt.datasets import index
    from bolt.folds.splits import make_folds, strata

    scans = index(study.config, study.dataset, minimum_volumes)
    usable = scans[scans.exclude_reason.isna()]
    check_covariate_values(study.models.values(), usable)
    check_file_scans(study.models.values(), usable)
    if learns:  # too few subjects of a class are reported here, too
        require_classes(usable, study.dataset, study.dataset.where)
        make_folds(strata(usable, study.dataset), study.config.folds)
    return scans


def can_be_listed(study: Study) -> bool:
    """Return whether the scans can be listed before a run downloads or simulates anything."""
    dataset = study.dataset
    simulated = dataset.source == "phantom" and (dataset.path / "dataset_description.json").is_file()
    return simulated or dataset.source in ("bids", "fmriprep", "series", "bids_series")


def index(job: Job) -> None:
    """Write the scan table."""
    dataset, layout = job.dataset, job.layout
    if not dataset.ready_series:
        for name in job.config.atlas_places:
            job.atlas(name)  # a missing or wrong image is reported here, hours before parcellation
    scans = list_scans(job.study, learns=job.learns, minimum_volumes=minimum_volumes(job.config))
    usable = scans[scans.exclude_reason.isna()]
    excluded = scans.loc[scans.exclude_reason.notna(), ["scan_id", "exclude_stage", "exclude_reason"]]
    excluded.columns = pd.Index(EXCLUSION_COLUMNS)
    job.refuse_bad(excluded)
    write_table(scans, layout.scans, COLUMNS)
    for scan in excluded.itertuples():
        log.warning("%s is excluded: %s", scan.scan_id, scan.reason)
    log.info("%d scans of %d subjects", len(usable), usable.subject.nunique())
    write_cohort(scans, dataset.published, layout.cohort)
    tables = dict.fromkeys([subjects_table(dataset, job.config), *own_tables(dataset)])
    # images are hashed by the stages that read them; here the hash of their names, sizes and times
    present = [table for table in tables if table.is_file()]  # ready series without labels need no table of subjects
    job.note(layout.scans, present, listing=files_of(dataset))
