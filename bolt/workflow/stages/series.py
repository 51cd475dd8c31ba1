"""Stages from ROI series to what models learn from: the cache of an atlas, and the folds that all models share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS
from bolt.config import load_denoise
from bolt.datasets.participants import require_classes
from bolt.io.files import columns, read_table, write_table
from bolt.models.suitability import minimum_volumes
from bolt.workflow.job import Job


def rois(job: Job) -> None:
    """Write the table of an atlas's ROIs."""
    from bolt.atlases.labels import load_labels

    table = load_labels(job.config.atlas_places[job.options.atlas], atlas_dir=job.config.paths.atlas_dir)
    described = columns("series", "rois")
    write_table(table[list(described)], job.output.rois, described)
    job.note(job.output.rois, [])


def cache(job: Job) -> None:
    """Build the cache of an atlas."""
    from bolt.series.cache import ROI_TEXT
    from bolt.series.gather import build_cache

    atlas, config, layout = job.options.atlas, job.config, job.layout
    quality, folder, scans = job.input.get("quality"), job.output.manifest.parent, job.scans()
    tables, mean_fd = [job.input.scans, job.input.rois], None
    if quality:
        tables.append(quality)
        mean_fd = dict(read_table(quality, text=("scan_id",)).set_index("scan_id")["mean_fd"].astype(float).dropna())

    def series_of(scan: Any) -> Path:
        return Path(scan.bold) if scan.kind == "series" else layout.series_file(scan.scan_id, atlas)

    excluded = build_cache(
        scans,
        atlas,
        read_table(job.input.rois, text=ROI_TEXT),
        series_of,
        folder,
        policy=config.parcellate.uncovered,
        expected={"Atlas": atlas, "Denoising": load_denoise(config.denoise).model_dump(mode="json")},
        minimum_volumes=minimum_volumes(config),
        verdict_of=layout.quality_status if quality else None,
        mean_fd=mean_fd,
        join=job.dataset.join_scans,
        others=[name for name in config.atlas_places if name != atlas],
    )
    write_table(excluded, job.output.exclusions, EXCLUSION_COLUMNS)
    used = scans[~scans["scan_id"].isin(excluded["scan_id"])]
    job.note(folder / "provenance.json", [*tables, [series_of(scan) for scan in used.itertuples()]])


def exclusions(job: Job) -> None:
    """Gather the lists of the caches; folds may fail later, these stay."""

    def gathered(name: str, text: tuple[str, ...]) -> pd.DataFrame:
        tables = pd.concat([read_table(table, text=text) for table in job.input.some(name)])
        return tables.drop_duplicates().sort_values(["scan_id", "stage"])

    excluded = gathered("exclusions", ("scan_id",))
    job.refuse_bad(excluded)
    warnings = gathered("warnings", tuple(WARNING_COLUMNS))
    if job.config.folds.duplicates != "refuse":  # copies are excluded, or grouped with a warning
        from bolt.folds.audit import handle_copies

        scans, dataset = job.scans(), job.dataset
        usable = scans[~scans["scan_id"].isin(excluded["scan_id"])]
        numbers = dataset.label is not None and dataset.classes is None
        copies, about_copies = handle_copies(usable, cached_contents(job), job.config.folds.duplicates, numbers)
        excluded = pd.concat([excluded, copies]).sort_values(["scan_id", "stage"])
        warnings = pd.concat([warnings[~warnings["scan_id"].isin(copies["scan_id"])], about_copies])
        warnings = warnings.sort_values(["scan_id", "stage"])
    write_table(warnings, job.output.warnings, WARNING_COLUMNS)
    write_table(excluded, job.output.exclusions, EXCLUSION_COLUMNS)
    job.note(job.output.exclusions, job.input.all("exclusions"))


def folds(job: Job) -> None:
    """Write the folds that all models share."""
    from bolt.folds.splits import FOLD_COLUMNS, make_folds, strata

    settings, scans, excluded = job.config.folds, job.scans(), read_table(job.input.exclusions, text=("scan_id",))
    usable = scans[~scans.scan_id.isin(excluded.scan_id)]
    require_classes(usable, job.dataset, job.input.scans)
    usable = strata(usable, job.dataset)
    write_table(make_folds(usable, settings, cached_contents(job)), job.output.folds, FOLD_COLUMNS)
    job.note(job.output.folds, job.input.all("scans", "exclusions", "caches"), seed=settings.seed)


def cached_contents(job: Job) -> dict[str, pd.Series]:
    """Name the content of each scan in the cache of each atlas."""
    from bolt.folds.check import series_contents
    from bolt.series.cache import SeriesCache

    caches = [manifest.parent for manifest in job.input.some("caches")]
    return {f"series in {cache}": series_contents(SeriesCache(cache)) for cache in caches}


def oracle_cache(job: Job) -> None:
    """Build the cache of the phantom's true series."""
    from bolt.series.cache import ROI_TEXT
    from bolt.truth import build_oracle_cache

    index, out = job.input.index, job.output.manifest
    build_oracle_cache(job.study, job.options.atlas, read_table(job.input.rois, text=ROI_TEXT))
    truth = sorted(job.layout.truth(job.dataset.path).rglob("*.npy"))
    job.note(out.with_name("provenance.json"), [index, job.input.rois, truth])
