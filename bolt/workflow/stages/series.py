"""Stages from ROI series to what models learn from: the cache of an atlas, and the folds that all models share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bolt.workflow.stage import Cost, stage

if TYPE_CHECKING:
    import pandas as pd

    from bolt.config.study import Study
    from bolt.jobs.provenance import Inputs
    from bolt.workflow.job import Job

NOT_OF_FOLDS = {"run", "side_by_side", "permutations"}
"""Keys of `folds` that choose which folds are trained, and change no split."""


def _cache_settings(study: Study) -> list[Any]:
    from bolt.models.suitability import minimum_volumes
    from bolt.workflow.watched import atlas_files

    config = study.config
    join = study.dataset.join_scans
    joins = [] if join == "none" else [join]
    return [atlas_files(config), config.parcellate.uncovered, minimum_volumes(config), *joins]


@stage(
    "Pack the z-scored series of all scans into one array.",
    keys=("atlas",),
    code=("bolt.series.gather",),
    settings=_cache_settings,
    jobs=lambda plan: plan.n_atlases,
    cost=Cost(2, 0.005, phantom=2),
    memory_mb=4000,
)
def cache(job: Job) -> None:
    """Build the cache of an atlas."""
    from bolt.atlases.labels import load_labels
    from bolt.cohort.exclusions import EXCLUSION_COLUMNS
    from bolt.cohort.quality import displacement, is_judged
    from bolt.config import load_denoise
    from bolt.io.files import write_table
    from bolt.models.suitability import minimum_volumes
    from bolt.series.gather import build_cache

    atlas, config, layout = job.options.atlas, job.config, job.layout
    judged = is_judged(config, job.dataset)
    folder, scans = layout.cache(atlas), job.scans()

    def series_of(scan: Any) -> Path:
        return Path(scan.bold) if scan.kind == "series" else layout.series_file(scan.scan_id, atlas)

    excluded = build_cache(
        scans,
        atlas,
        load_labels(config.atlas_places[atlas], atlas_dir=config.paths.atlas_dir),
        series_of,
        folder,
        policy=config.parcellate.uncovered,
        expected={"Atlas": atlas, "Denoising": load_denoise(config.denoise).model_dump(mode="json")},
        minimum_volumes=minimum_volumes(config),
        verdict_of=layout.quality_status if judged else None,
        mean_fd=displacement(layout.quality) if judged else None,
        join=job.dataset.join_scans,
    )
    write_table(excluded, folder / "exclusions.tsv", EXCLUSION_COLUMNS)
    used = scans[~scans["scan_id"].isin(excluded["scan_id"])]
    tables = [layout.scans, *([layout.quality] if judged else [])]
    job.note(folder / "provenance.json", [*tables, [series_of(scan) for scan in used.itertuples()]])


@stage(
    "List the excluded scans of all atlases, and the warnings about the others.",
    code=("bolt.cohort.exclusions", "bolt.folds.duplicates"),
    settings=lambda study: study.config.folds.duplicates,
    jobs=lambda plan: 1,
)
def exclusions(job: Job) -> None:
    """Gather the lists of the caches; folds may fail later, these stay."""
    import pandas as pd

    from bolt.cohort.exclusions import EXCLUSION_COLUMNS, WARNING_COLUMNS
    from bolt.io.files import read_table, write_table

    layout = job.layout
    caches = [layout.cache(atlas) for atlas in job.config.atlas_places]

    def gathered(name: str, text: tuple[str, ...]) -> pd.DataFrame:
        tables = pd.concat([read_table(cache / name, text=text) for cache in caches])
        return tables.drop_duplicates().sort_values(["scan_id", "stage"])

    excluded = gathered("exclusions.tsv", ("scan_id",))
    job.refuse_bad(excluded)
    warnings = gathered("warnings.tsv", tuple(WARNING_COLUMNS))
    if job.config.folds.duplicates != "refuse":  # copies are excluded, or grouped with a warning
        from bolt.folds.duplicates import handle_copies

        scans, dataset = job.scans(), job.dataset
        usable = scans[~scans["scan_id"].isin(excluded["scan_id"])]
        numbers = dataset.label is not None and dataset.classes is None
        copies, about_copies = handle_copies(usable, cached_contents(job), job.config.folds.duplicates, numbers)
        excluded = pd.concat([excluded, copies]).sort_values(["scan_id", "stage"])
        warnings = pd.concat([warnings[~warnings["scan_id"].isin(copies["scan_id"])], about_copies])
        warnings = warnings.sort_values(["scan_id", "stage"])
    write_table(warnings, layout.warnings, WARNING_COLUMNS)
    write_table(excluded, layout.exclusions, EXCLUSION_COLUMNS)
    job.note(layout.exclusions, [cache / "exclusions.tsv" for cache in caches])


@stage(
    "Split subjects into nested folds, and audit the split for leaks.",
    code=("bolt.folds.splits", "bolt.folds.check"),
    settings=lambda study: study.config.folds.model_dump(exclude=NOT_OF_FOLDS),
    jobs=lambda plan: 1,
)
def folds(job: Job) -> None:
    """Write the folds that all models share."""
    from bolt.datasets.participants import require_classes
    from bolt.folds.splits import FOLD_COLUMNS, make_folds, strata
    from bolt.io.files import read_table, write_table

    layout, settings, scans = job.layout, job.config.folds, job.scans()
    excluded = read_table(layout.exclusions, text=("scan_id",))
    usable = scans[~scans.scan_id.isin(excluded.scan_id)]
    require_classes(usable, job.dataset, layout.scans)
    usable = strata(usable, job.dataset)
    write_table(make_folds(usable, settings, cached_contents(job)), layout.folds, FOLD_COLUMNS)
    manifests = [layout.cache(atlas) / "manifest.json" for atlas in job.config.atlas_places]
    read = [layout.scans, layout.exclusions, *manifests]
    job.note(layout.folds, read, seed=settings.seed)


def cached_contents(job: Job) -> dict[str, pd.Series]:
    """Name the content of each scan in the cache of each atlas."""
    from bolt.folds.check import series_contents
    from bolt.series.cache import SeriesCache

    caches = [job.layout.cache(atlas) for atlas in job.config.atlas_places]
    return {f"series in {cache}": series_contents(SeriesCache(cache)) for cache in caches}


def _atlas_files(study: Study) -> list[str]:
    from bolt.workflow.watched import atlas_files

    return atlas_files(study.config)


@stage(
    "Pack the phantom's true series, for the demo's oracle.",
    keys=("atlas",),
    code=("bolt.truth.table",),
    settings=_atlas_files,
    jobs=lambda plan: plan.n_atlases if plan.truth else 0,
)
def oracle_cache(job: Job) -> None:
    """Build the cache of the phantom's true series."""
    from bolt.config.layout import ORACLE
    from bolt.truth.table import build_oracle_cache

    atlas, layout = job.options.atlas, job.layout
    build_oracle_cache(job.study, atlas)
    truth = layout.truth(job.dataset.path)
    inputs: Inputs = [layout.cache(atlas) / "index.tsv", sorted(truth.rglob("*.npy"))]
    job.note(layout.cache(atlas, ORACLE) / "provenance.json", inputs)
