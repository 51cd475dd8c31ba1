"""Checks of names, settings and disks before any work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

from bolt import config as configuration
from bolt.atlases.description import carried_from, describe_atlas, find_transform, known_atlases, refuse_space, serves
from bolt.config import Config, Dataset, nearest
from bolt.config.study import Study
from bolt.datasets import COLUMNS, own_tables, source_of, subjects_table
from bolt.datasets.participants import check_institutions, read_series_table, require_classes
from bolt.experiments.checks import check_experiment, lacks_reference
from bolt.explain.explainable import can_be_explained
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table, read_text
from bolt.io.names import BRACES, PATH_RULE, RULE, is_name, is_path
from bolt.io.people import known_values
from bolt.io.resource_errors import free_bytes, gigabytes, require_space
from bolt.io.series_files import check_rois, read_series
from bolt.models.parts.given import probabilities_of
from bolt.models.registry import check_model
from bolt.models.suitability import check_covariates, check_inputs
from bolt.training.space import check_search
from bolt.training.watching import require_tools
from bolt.workflow.estimate import WORKLESS, preprocessing_peak
from bolt.workflow.run import Run
from bolt.workflow.snakemake import is_dry_run

TRIED = 3
"""Files of series whose number of columns is compared with the atlas before any work."""
TABLE_OF_SUBJECTS = ("bids", "fmriprep", "series", "bids_series")
"""Sources whose table of subjects is there before any work."""


def checks(run: Run, jobs: int, arguments: list[str]) -> list[Callable[[], object]]:
    """Return what refuses a run before any work, in the order of the checks; each raises a `BoltError`.

    Parameters
    ----------
    run : Run
    jobs : int
        At once.
    arguments : list of str
        Of the `snakemake` command: a dry run only warns of a disk that is too small. `bolt check` has none.
    """
    config, dataset = run.config, run.dataset
    always: list[Callable[[], object]] = [
        partial(check_names, config, dataset),
        partial(check_series_files, config, dataset),
        partial(check_search, config),
        partial(check_experiments, run, arguments),
        partial(check_space, run, jobs, arguments),
        run.check_results,
    ]
    learning = [partial(check_learning, config, dataset), partial(check_files_of_others, run.study)]
    return [*always, *learning] if run.learns else always


def check_names(config: Config, dataset: Dataset) -> None:
    """Refuse a configuration that names an unknown thing, or things that do not fit together.

    Raises
    ------
    ConfigError
        Unknown atlas, model, hyper-parameter, covariate, denoising or registration; an atlas in another space; a tool
        that is not installed.
    """
    _check_paths(config, dataset)
    require_tools(config.watch)
    _check_models(config, dataset)
    _check_preprocessing(config, dataset)
    for name in config.atlases:
        _check_space(name, config, dataset)
    _check_data(config, dataset)
    _check_folds(config)


def _refuse(what: str, hint: str) -> NoReturn:
    raise ConfigError(what, where="configuration", hint=hint)


def _check_paths(config: Config, dataset: Dataset) -> None:
    """Refuse names that cannot be parts of paths and commands."""
    for path in (dataset.path, subjects_table(dataset, config), *own_tables(dataset)):
        if BRACES.search(str(path)):
            hint = "Rename it, or link it under another name"
            raise ConfigError("braces in a path, which Snakemake takes for wildcards", where=path, hint=hint)
    parts: list[tuple[str, Path | str]] = [("results", config.paths.results), ("work", config.paths.work)]
    parts += [("dataset", config.dataset_name), ("denoise", Path(config.denoise).stem)]
    parts += [("preprocess: space", config.preprocess.space), *(("atlases", name) for name in config.atlas_places)]
    for key, name in parts:
        fits, rule = (is_path(name), PATH_RULE) if isinstance(name, Path) else (is_name(name), RULE)
        if not fits:
            _refuse(f"'{key}' is not fit for paths and commands: {str(name)!r}", f"Choose another. {rule}")


def _check_models(config: Config, dataset: Dataset) -> None:
    """Refuse settings, covariates, inputs and folds that a model cannot have, and an explanation of another's."""
    masked, known = config.explain.masked_task, list(dict.fromkeys([*(dataset.classes or []), *(dataset.tasks or [])]))
    if masked is not None and dataset.tasks is not None and masked not in known:
        _refuse(
            f"explain.masked_task names '{masked}', which is neither a class nor a task of dataset '{dataset.name}'",
            f"Known: {', '.join(known)}{nearest(masked, known)}",
        )
    sanity = config.explain.sanity
    for model in map(configuration.load_model, config.models):
        folds = config.folds.of(model.name)
        compared = sanity.fold is not None and (sanity.permuted or sanity.controlled)
        if compared and sanity.fold not in folds and can_be_explained(model, dataset):
            _refuse(
                f"explain.sanity.fold is {sanity.fold}, but model '{model.name}' runs folds "
                f"{', '.join(map(str, folds))}",
                "Name one of them, or null for the first",
            )
        check_model(model.model, model.hyper)
        for settings in model.by_fold.values():
            check_model(model.model, settings.hyper)
        for fold in folds:
            model.for_fold(fold)
        check_covariates(model, dataset, list(COLUMNS))
        check_inputs(model, config, dataset)


def _check_preprocessing(config: Config, dataset: Dataset) -> None:
    """Refuse denoising, output and registrations that the scans cannot have."""
    denoise, nothing = configuration.load_denoise(config.denoise), configuration.load_denoise("none")
    raw, about = dataset.source in ("phantom", "bids"), {"name", "description"}
    if dataset.ready_series and denoise.model_dump(exclude=about) != nothing.model_dump(exclude=about):
        _refuse(
            f"dataset '{dataset.name}' provides ROI series, which are used as they are: denoising "
            f"'{denoise.name}' would change nothing",
            "Set 'denoise' to none, and denoise the series before (bolt parcellate makes them with --denoise)",
        )
    if denoise.strategy == "ica_aroma" and raw:
        _refuse(
            f"denoising '{denoise.name}' needs images that fMRIPrep has cleaned with ICA-AROMA; these are raw",
            "Set 'denoise' to 24p_acompcor, for example",
        )
    if config.preprocess.output == "native" and not raw:
        _refuse(
            f"the scans of dataset '{dataset.name}' are preprocessed already, so native output is not possible",
            "Set 'preprocess: output' to template",
        )
    for name in config.preprocess.registrations:
        configuration.load_registration(name)


def _check_space(atlas: str, config: Config, dataset: Dataset) -> None:
    """Refuse an atlas that is in another space than the images and cannot be carried over."""
    about, space, home = describe_atlas(atlas), config.preprocess.space, config.paths.templateflow_home
    if not dataset.ready_series and not serves(about, space, home):
        drawn = f"atlas '{atlas}' is drawn in {', '.join(about.spaces)}, but the images will be in {space}"
        _refuse(drawn, refuse_space(atlas, about.spaces, space, home).hint)
    if about.kind == "maps" and config.preprocess.output == "native":
        _refuse(
            f"atlas '{atlas}' has maps, of which series are only made in template space",
            "Set 'preprocess: output' to template, or choose an atlas with a label image",
        )


def carried_atlases(study: Study) -> Iterator[str]:
    """Yield a note for each atlas that has no image in the space of the images, and is carried over to it."""
    space, home = study.space, study.config.paths.templateflow_home
    if space is None:
        return
    for about in map(describe_atlas, study.config.atlas_places.values()):
        source = carried_from(about, space, home)
        if source:
            note = f"Note: atlas '{about.name}' has no image in {space}: that in {source} is carried over."
            try:
                find_transform(source, space, home)
            except DataError as error:
                note += f" {error.what[0].upper()}{error.what[1:]}. {error.hint}."
            yield note


def _check_data(config: Config, dataset: Dataset) -> None:
    """Refuse a dataset whose data are missing or that its source cannot provide."""
    if dataset.source == "phantom":
        if dataset.simulate is None:
            raise ConfigError("the phantom needs the key 'simulate'", where=f"config/datasets/{dataset.name}.yaml")
    elif dataset.downloaded or dataset.source == "hcp":
        source_of(dataset).check(dataset, config)
    elif not dataset.path.exists():
        _refuse(
            f"the data of dataset '{dataset.name}' are missing: {dataset.path}",
            f"Set 'path' in the dataset's file (config/datasets/{dataset.name}.yaml)",
        )
    elif dataset.source == "bids_series" and dataset.label and not subjects_table(dataset, config).is_file():
        _refuse(
            f"no table of subjects: {subjects_table(dataset, config)}",
            "Set 'subjects_table' in the dataset's file to participants.tsv of the raw data",
        )


def check_learning(config: Config, dataset: Dataset) -> None:
    """Refuse a dataset that models cannot learn from, by its table alone, before any work.

    Raises
    ------
    ConfigError, DataError
        There is no label; or the table lacks its column, a class, or enough subjects for the folds.
    """
    if dataset.label is None:
        _refuse(
            f"dataset '{dataset.name}' has no label, so there is nothing to learn",
            "Set 'label' in the dataset's file; the target 'series' (bolt run: participant) needs none",
        )
    table = subjects_table(dataset, config) if dataset.source in TABLE_OF_SUBJECTS else None
    if table is None or not table.is_file():
        return
    subjects = read_series_table(table) if dataset.source == "series" else read_text(table)
    header = list(subjects)
    for key in ("label", "group", "site", "age", "sex"):
        if (column := getattr(dataset, key)) is not None and column not in header:
            raise ConfigError(
                f"column '{column}' is missing; found {', '.join(header)}",
                where=table,
                hint=f"Set '{key}' in the dataset's file to one of these{nearest(column, header)}",
            )
    if dataset.site is not None:
        check_institutions(known_values(subjects[dataset.site]), dataset.institutions, table)
    labels = known_values(subjects[dataset.label], label=True)
    require_classes(labels.to_frame("label"), dataset, table)
    usable = labels.isin(dataset.classes) if dataset.classes else labels.notna()
    names = subjects.iloc[:, 0] if dataset.source != "series" else subjects["subject"]
    units = (known_values(subjects[dataset.group]).fillna(names) if dataset.group else names)[usable]
    counts = units.groupby(labels[usable] if dataset.classes else usable[usable]).nunique()
    if counts.min() < config.folds.outer:
        of_class = f" of class {counts.idxmin()}" if dataset.classes else ""
        people = "subjects or families" if dataset.group else "subjects"
        fewer = f"Set 'folds: outer' to at most {counts.min()}, or a" if counts.min() > 1 else "A"
        raise ConfigError(
            f"{config.folds.outer} folds for {counts.min()} {people}{of_class}", where=table, hint=f"{fewer}dd subjects"
        )


def check_files_of_others(study: Study) -> None:
    """Refuse predictions that do not fit the folds, where these were made before (DataError)."""
    files = [model.file for model in study.models.values() if model.file is not None and model.model == "predictions"]
    if files and study.layout.folds.is_file():
        folds = read_table(study.layout.folds, text=("scan_id", "subject"))
        for file in files:
            probabilities_of(file, study.dataset.classes or [], folds)


def check_series_files(config: Config, dataset: Dataset) -> None:
    """Refuse ready series that were made with another atlas, by the first of them.

    Raises
    ------
    DataError
        None of the first `TRIED` files has as many columns as an atlas has ROIs.
    """
    if dataset.source != "series" or not dataset.path.is_file():
        return
    from bolt.atlases.labels import count_rois, load_labels  # which need nibabel; other sources start without it

    table, atlas_dir = read_text(dataset.path), config.paths.atlas_dir
    errors = []
    for name in table["file"].dropna()[:TRIED] if "file" in table else ():
        file = dataset.path.parent / name
        try:
            series = read_series(file)
        except DataError:
            continue  # it alone will be excluded
        for atlas, place in config.atlas_places.items():
            try:
                check_rois(series, atlas, len(load_labels(place, atlas_dir=atlas_dir)), file)
                return
            except DataError as error:
                errors.append((error, series.shape[1]))
    if errors:
        refusal, n_rois = errors[0]
        fitting = [name for name in known_atlases() if count_rois(name, atlas_dir=atlas_dir) == n_rois]
        hint = f"{refusal.hint}. {n_rois} ROIs: {', '.join(fitting)}" if fitting else refusal.hint
        raise DataError(refusal.what, where=refusal.where, hint=hint)


def _check_folds(config: Config) -> None:
    """Refuse `folds.run` if it names models or folds that do not exist."""
    run, outer = config.folds.run, config.folds.outer
    if isinstance(run, dict):
        models = {configuration.load_model(name).name for name in config.models}
        if set(run) - models:
            experiments = map(configuration.load_experiment, config.experiments)
            models |= {configuration.load_model(row.model).name for each in experiments for row in each.rows}
        if strangers := sorted(set(run) - models):
            hint = f"Configured, or part of an experiment: {', '.join(sorted(models))}"
            _refuse(f"folds.run names model '{strangers[0]}'", hint)
    named = [fold for folds in run.values() for fold in folds] if isinstance(run, dict) else run or []
    if unknown := [fold for fold in named if fold not in range(outer)]:
        _refuse(f"folds.run names fold {unknown[0]}, but there are folds 0 to {outer - 1}", "Correct the list")


def check_download_space(config: Config, dataset: Dataset) -> None:
    """Refuse downloads that the disk cannot hold, before the first one starts.

    Raises
    ------
    ConfigError
        States how much is needed, and where.
    """
    if dataset.downloaded:
        source = source_of(dataset)
        what = f"what is still to be downloaded of dataset '{dataset.name}'"
        require_space(source.download_folder(dataset, config), source.download_bytes(dataset, config), what, "work")


def check_space(run: Run, jobs: int, arguments: list[str]) -> None:
    """Refuse downloads and preprocessing that the disk cannot hold; a dry run warns, or says what is needed.

    Raises
    ------
    ConfigError
        States how much is needed, and where.
    """
    what, folder = f"preprocessing with {jobs} job{'s' if jobs > 1 else ''} at once", run.layout.derivatives
    try:
        check_download_space(run.config, run.dataset)
        if needed := preprocessing_peak(run, jobs) if WORKLESS.isdisjoint(arguments) else 0.0:
            require_space(folder, needed, what, "results")
            if is_dry_run(arguments):
                free = gigabytes(free_bytes(folder))
                print(f"Disk: {what} needs up to {gigabytes(needed)}; {free} are free.", file=sys.stderr)
    except ConfigError as error:
        if not is_dry_run(arguments):
            raise
        print(f"Warning: {error}", file=sys.stderr)


def check_experiments(run: Run, arguments: list[str]) -> None:
    """Refuse experiments that cannot be made; a dry run says which have no tests."""
    for name, experiment in run.experiments.items():
        check_experiment(experiment, run.experiment_rows[name])
        if is_dry_run(arguments) and lacks_reference(experiment, run.experiment_rows[name]):
            print(f"Note: experiment '{name}' has no row '{experiment.reference}', so no tests.", file=sys.stderr)
