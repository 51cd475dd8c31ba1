"""Entries of experiments: the runs whose results are compared in one table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bolt.config import Config, Experiment, Explain, Model, Row, known, load_experiment, load_model, parse
from bolt.config.layout import Layout
from bolt.config.models import Fidelity
from bolt.config.study import Entry, Study, paper_dataset
from bolt.io.errors import BoltError, ConfigError
from bolt.io.files import read_yaml
from bolt.models.registry import has_epochs
from bolt.models.suitability import not_applicable

log = logging.getLogger(__name__)

EXPLAINED_BY = {"landmarks": "landmarks.tsv", "brain_maps": "roi_weights.tsv", "task_timing": "tasks.tsv"}
"""Kind of experiment to the file that explains a run for it."""


def rows_of(experiment: Experiment, config: Config) -> list[tuple[Row, Model]]:
    """Return the rows of an experiment, including those of its sweeps, each with its model.

    Parameters
    ----------
    experiment : Experiment
    config : Config
        Its `quick` limits the epochs.

    Raises
    ------
    ConfigError
        An unknown model or setting, or a duplicate name.
    """
    titles = {
        name: _base(name, f"experiment '{experiment.name}', sweep '{sweep.row}'", config).shown
        for sweep in experiment.sweeps
        for name in sweep.models
    }
    rows = experiment.rows + [row for sweep in experiment.sweeps for row in sweep.rows(titles)]
    with_models = [_with_model(row, config, experiment.name) for row in rows]
    names = [row.row for row, _ in with_models]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        what, where = f"two rows are named '{twice[0]}'", f"experiment '{experiment.name}'"
        raise ConfigError(what, where=where, hint="Give one another name with 'row'")
    return with_models


def entries(config: Config, experiment: Experiment) -> list[Entry]:
    """Return the entries of an experiment on the configured dataset.

    There are none if the experiment trains nothing, or if it explains classes but the label is a number.

    Parameters
    ----------
    config : Config
    experiment : Experiment

    Returns
    -------
    list of Entry
        All rows of each atlas (of one atlas for explanations), in the order of the experiment's file.
    """
    if not experiment.trains:
        return []
    study = Study.of(config)
    dataset, layout = study.dataset, study.layout
    atlases = list(config.atlas_places)
    if experiment.explains is not None:
        atlases = [experiment.explains.atlas_of(atlases)] if dataset.classes else []
    judged = [(row, model, not_applicable(model, config, dataset)) for row, model in rows_of(experiment, config)]
    return [
        Entry(
            dataset=config.dataset_name,
            atlas=atlas,
            row=row.row,
            model=model,
            folders=[] if note else [layout.run(atlas, model, seed).folder for seed in config.seeds],
            folds=config.folds.of(model.name),
            classes=dataset.classes or [],
            note=note,
            paper=row.paper,
            line=row.line,
            value=row.value,
            explanations=[] if note else [layout.run(atlas, model, seed).explanation for seed in config.seeds],
            outer=config.folds.outer,
            paper_dataset=paper_dataset(dataset, config.folds.scheme),
        )
        for atlas in atlases
        for row, model, note in judged
    ]


def all_entries(experiment: Experiment, results: Path, present: str = "") -> list[Entry]:
    """Return the entries of an experiment on every dataset that has started it.

    A dataset has started an experiment if it has a run that belongs to this experiment alone: neither to the configured
    models, which every dataset trains, nor to another experiment. If the experiment has no such rows, shared runs
    count; for the present dataset, every run counts.

    Parameters
    ----------
    experiment : Experiment
    results : Path
        Holds one folder per dataset, whose ``config.yaml`` defines its runs.
    present : str
        The dataset for which the experiment is made now.

    Returns
    -------
    list of Entry
        Datasets in alphabetical order.
    """
    started: list[Entry] = []
    for config in configurations(results, present):
        try:
            candidates = entries(config, experiment)
            usual = {load_model(name).run_name for name in config.models}
            shared = usual | _runs_of_others(config, experiment.name)
        except BoltError as error:  # such as a dataset's file that was moved
            log.warning("dataset '%s' is excluded from '%s': %s", config.dataset_name, experiment.name, error)
            continue
        groups = [[entry for entry in candidates if entry.model.run_name not in names] for names in (shared, usual)]
        telling = candidates if config.dataset_name == present else next(filter(None, groups), candidates)
        if any(folder.is_dir() for entry in telling for folder in entry.folders):
            started += candidates
    return started


def _runs_of_others(config: Config, name: str) -> set[str]:
    """Return the names of the runs that a dataset's other experiments train."""
    names: set[str] = set()
    for place in {*known("experiment"), *config.experiments}:
        if Path(place).stem == name:
            continue
        try:
            other = load_experiment(place)
            names |= {model.run_name for _, model in rows_of(other, config)} if other.trains else set()
        except BoltError as error:  # such as a file that was moved
            log.warning("experiment '%s' of dataset '%s' is ignored: %s", place, config.dataset_name, error)
    return names


def with_first_looks(experiment: Experiment, results: Path, shown: Iterable[str]) -> Experiment:
    """Add to an experiment's description how the shown datasets differ from usual: first looks, searched values."""
    looks = []
    for config in configurations(results):
        name, quick = config.dataset_name, config.quick
        if name not in shown:
            continue
        if quick:
            looks.append(f"Only a first look at {name}: torch models were trained for at most {quick.epochs} epoch(s).")
        if config.folds.scheme == "leave-site-out":
            looks.append(f"Each fold of {name} is a site, predicted by models that never saw it.")
        if experiment.explains and (n := config.explain.tokens) != (papers := Explain().tokens):
            looks.append(f"At {name} a scan has {n} landmarks, in the paper {papers}.")
        if config.search.use:
            rows = {row.row: searched_model(row.model, config) for row, _ in rows_of(experiment, config)}
            chosen, own = (", ".join(row for row in rows if bool(rows[row]) == used) for used in (True, False))
            joint = f"one choice for all datasets and atlases for {chosen or 'no row'}"
            looks.append(f"Hyper-parameters at {name}: {joint}; the values of the model's file for {own or 'no row'}.")
    return experiment.model_copy(update={"description": " ".join([experiment.description, *looks])})


def configurations(results: Path, present: str = "") -> Iterator[Config]:
    """Yield the configuration of each dataset below a folder of results, in alphabetical order.

    Parameters
    ----------
    results : Path
    present : str
        The dataset whose configuration must be valid; invalid ones of other datasets, such as those of an older
        version, are skipped.

    Raises
    ------
    ConfigError, DataError
        The configuration of the present dataset is invalid.
    """
    for file in sorted(results.glob("*/config.yaml")):
        try:
            config = parse(Config, read_yaml(file), file)
        except BoltError as error:
            if file.parent.name == present:
                raise
            log.warning("dataset '%s' is excluded: %s", file.parent.name, error)
            continue
        yield config.model_copy(update={"paths": config.paths.model_copy(update={"results": results})})


def available(config: Config) -> dict[str, Experiment]:
    """Return all experiments by name: those configured, and those in `config/experiments`."""
    names = {name: name for name in known("experiment")} | config.experiment_places
    return {name: load_experiment(place) for name, place in names.items()}


def experiment_models(config: Config) -> dict[str, Model]:
    """Return the models that experiments train, by the names of their runs."""
    experiments = available(config)
    rows = {name: rows_of(experiment, config) for name, experiment in experiments.items()}
    return trained_models(experiments, rows)


def trained_models(
    experiments: Mapping[str, Experiment], rows: Mapping[str, list[tuple[Row, Model]]]
) -> dict[str, Model]:
    """Return the models that experiments train, by the names of their runs; `rows` are those of each experiment."""
    return {model.run_name: model for name, e in experiments.items() if e.trains for _, model in rows[name]}


def searched_model(name: str, config: Config) -> Path | None:
    """Return the file with the values chosen for all datasets, if experiments use it (`search: use`)."""
    file = Layout(config).shared_choice(Path(name).stem) if config.search.use else None
    return file if file and file.is_file() else None


def _base(name: str, where: str, config: Config) -> Model:
    """Load the model that a row names, with the values that a search chose if these are used; errors name the row."""
    try:
        original, searched = load_model(name), searched_model(name, config)
        return original if searched is None else load_model(str(searched)).model_copy(update={"name": original.name})
    except ConfigError as error:
        raise ConfigError(error.what, where=", ".join(filter(None, [where, error.where])), hint=error.hint) from None


def _fidelity(row: Row, base: Model) -> Fidelity | None:
    """Return what the row states, else what its model states; None for a model as published that is so no more."""
    stated = row.fidelity or base.fidelity
    own = base.model_dump(mode="json", include={"hyper", "training", "connectivity"})
    changed = row.members is not None or (row.connectivity or own["connectivity"]) != own["connectivity"]
    for group, changes in (("hyper", row.hyper), ("training", row.training)):
        changed |= any(key not in own[group] or own[group][key] != value for key, value in changes.items())
    as_published = stated is not None and stated.level == "exact" and not row.fidelity
    return None if changed and as_published and not row.paper else stated


def _first_look(model: Model, data: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the settings of a model for at most so many epochs, if it has any, and without those of single folds."""
    if not has_epochs(model.model):
        return data
    training = data.get("training", {})
    training = training | {"epochs": min(training.get("epochs", model.training.epochs), most)}
    return {key: value for key, value in data.items() if key != "by_fold"} | {"training": training}


def _with_model(row: Row, config: Config, experiment: str) -> tuple[Row, Model]:
    """Return the row with its name, and its model with the row's changes."""
    base = _base(row.model, f"experiment '{experiment}', row '{row.row or row.model}'", config)
    data = base.model_dump(mode="json", exclude_unset=True)
    data["hyper"] = base.hyper | row.hyper
    if training := data.get("training", {}) | row.training:
        data["training"] = training
    members: list[Any] = list(base.members or []) if row.members is None else list(map(load_model, row.members))
    if config.quick:
        data = _first_look(base, data, config.quick.epochs)
        plain = {"mode": "json", "exclude_unset": True, "exclude": {"by_fold"}}
        members = [_first_look(member, member.model_dump(**plain), config.quick.epochs) for member in members]
    if members:
        data["members"] = members
    changed = {"hyper": {*row.hyper}, "training": {*row.training, *(["epochs"] if config.quick else [])}}
    for settings in [*data.get("by_fold", {}).values(), *data.get("by_dataset", {}).values()]:
        for group in settings.keys() & changed:  # the row's settings replace those of single folds and datasets
            settings[group] = {key: value for key, value in settings[group].items() if key not in changed[group]}
    data |= row.model_dump(include={"connectivity", "train_share"}, exclude_none=True)
    data["fidelity"] = _fidelity(row, base)
    named = row.model_copy(update={"row": row.row or base.shown})
    return named, parse(Model, data, f"experiment '{experiment}', row '{named.row}'")
