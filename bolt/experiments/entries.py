"""Experiments: lists of runs whose results stand in one table of the paper."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolt.config import ROOT, Config, Experiment, Model, Row, known, load_dataset, load_experiment, load_model, parse
from bolt.config.layout import Layout
from bolt.io.errors import BoltError, ConfigError
from bolt.io.files import read_yaml
from bolt.models.registry import fitted_at_once
from bolt.models.suitability import not_applicable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A row of an experiment on one dataset and atlas.

    Attributes
    ----------
    dataset, atlas : str
    row : str
        What the row is called in the experiment's file and in the paper's tables.
    model : Model
    folders : list of Path
        Run folders ``seed-<s>``, one a seed, with one ``fold-<k>`` a fold.
    folds : list of int
        The folds that are trained.
    classes : list of str
        In the dataset's order; of two the last is the positive one; none where the label is a number.
    note : str
        Why the row cannot be run on this dataset (a window longer than the crop, say); empty where it can.
    paper : dict
        Columns and values of the paper's own table (`paper_table`) that are this row's; empty where it has no such row.
    line : str
        Of a sweep: what its rows have in common, a line of its figure; else empty.
    value : float or None
        Of a sweep: where on that line the row lies.
    explanations : list of Path
        Folders of what is explained of its runs, one a seed.
    outer : int
        Folds of the cross-validation; those that are not trained are missing. 0: as many as are trained.
    """

    dataset: str
    atlas: str
    row: str
    model: Model
    folders: list[Path]
    folds: list[int]
    classes: list[str]
    note: str = ""
    paper: dict[str, str] = field(default_factory=dict)
    line: str = ""
    value: float | None = None
    explanations: list[Path] = field(default_factory=list)
    outer: int = 0


def rows_of(experiment: Experiment, config: Config) -> list[tuple[Row, Model]]:
    """The rows of an experiment, sweeps spelled out, each with its model.

    Parameters
    ----------
    experiment : Experiment
    config : Config
        `quick` bounds the epochs.

    Raises
    ------
    ConfigError
        An unknown model or setting, two rows of one name.
    """
    titles = {
        name: _title(_base(name, f"experiment '{experiment.name}', sweep '{sweep.row}'"))
        for sweep in experiment.sweeps
        for name in sweep.models
    }
    rows = experiment.rows + [row for sweep in experiment.sweeps for row in sweep.rows(titles)]
    found = [_with_model(row, config, experiment.name) for row in rows]
    names = [row.row for row, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two rows are called '{name}'", where=f"experiment '{experiment.name}'", hint="Name one with 'row'"
            )
    return found


def entries(config: Config, experiment: Experiment) -> list[Entry]:
    """What an experiment trains on the configured dataset; none for experiments that train nothing, or that explain
    classes where the label is a number.

    Parameters
    ----------
    config : Config
    experiment : Experiment

    Returns
    -------
    list of Entry
        For each atlas (of landmarks one) all rows, in the order of the experiment's file.
    """
    if not experiment.trains:
        return []
    dataset, layout = load_dataset(config.dataset), Layout(config)
    atlases = list(config.atlas_places)
    if experiment.landmarks is not None:
        atlases = [experiment.landmarks.atlas_of(atlases)] if dataset.classes else []
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
        )
        for atlas in atlases
        for row, model, note in judged
    ]


def all_entries(experiment: Experiment, results: Path, present: str = "") -> list[Entry]:
    """What an experiment trains on every dataset that has begun with it.

    A dataset has begun when it has a run of the experiment that is neither one of its configured models', which every
    dataset has, nor one that another experiment trains as well. Where all are shared, these count; of the present
    dataset every run does.

    Parameters
    ----------
    experiment : Experiment
    results : Path
        The folder with a folder a dataset; each one's ``config.yaml`` says what its runs are.
    present : str
        The dataset that the experiment is made for now.

    Returns
    -------
    list of Entry
        Datasets in the order of their names.
    """
    found: list[Entry] = []
    for config in configurations(results, present):
        try:
            own = entries(config, experiment)
            usual = {load_model(name).run_name for name in config.models}
            shared = usual | _of_others(config, experiment.name)
        except BoltError as error:  # a dataset's file that has moved, say
            log.warning("dataset '%s' is left out of '%s': %s", config.dataset_name, experiment.name, error)
            continue
        kinds = [[entry for entry in own if entry.model.run_name not in names] for names in (shared, usual)]
        telling = own if config.dataset_name == present else next(filter(None, kinds), own)
        if any(folder.is_dir() for entry in telling for folder in entry.folders):
            found += own
    return found


def _of_others(config: Config, name: str) -> set[str]:
    """Names of the runs that a dataset's experiments other than this one train."""
    found: set[str] = set()
    for place in {*known("experiment"), *config.experiments}:
        if Path(place).stem == name:
            continue
        try:
            other = load_experiment(place)
            found |= {model.run_name for _, model in rows_of(other, config)} if other.trains else set()
        except BoltError as error:  # a file that has moved, say
            log.warning("experiment '%s' of dataset '%s' is left out: %s", place, config.dataset_name, error)
    return found


def with_first_looks(experiment: Experiment, results: Path, shown: Iterable[str]) -> Experiment:
    """The experiment, its description saying of which datasets among those shown it is only a first look (`quick`)."""
    looks = [
        f"Only a first look at {config.dataset_name}: torch models learned for at most {config.quick.epochs} epoch(s)."
        for config in configurations(results)
        if config.quick and config.dataset_name in shown
    ]
    return experiment.model_copy(update={"description": " ".join([experiment.description, *looks])})


def configurations(results: Path, present: str = "") -> Iterator[Config]:
    """What was run below a folder of results: a configuration a dataset, in the order of their names.

    Parameters
    ----------
    results : Path
    present : str
        The dataset whose configuration must be valid; others' that are not, of an older version say, are passed over.

    Raises
    ------
    ConfigError, DataError
        Of the present dataset.
    """
    for file in sorted(results.glob("*/config.yaml")):
        try:
            config = parse(Config, read_yaml(file), file)
        except BoltError as error:
            if file.parent.name == present:
                raise
            log.warning("dataset '%s' is left out: %s", file.parent.name, error)
            continue
        yield config.model_copy(update={"paths": config.paths.model_copy(update={"results": results})})


def available(config: Config) -> dict[str, Experiment]:
    """Every experiment that can be asked for: those configured, and those of `config/experiments`."""
    names = {name: name for name in known("experiment")} | config.experiment_places
    return {name: load_experiment(place) for name, place in names.items()}


def paper_table(name: str) -> Path:
    """Where the paper's own values of an experiment are kept, if it has some."""
    return ROOT / "config/experiments/paper" / f"{name}.tsv"


def experiment_models(config: Config) -> dict[str, Model]:
    """The models that experiments train, by the names of their runs."""
    found = available(config)
    return trained_models(found, {name: rows_of(one, config) for name, one in found.items()})


def trained_models(
    experiments: Mapping[str, Experiment], rows: Mapping[str, list[tuple[Row, Model]]]
) -> dict[str, Model]:
    """Of experiments whose rows are known, the models that are trained, by the names of their runs."""
    trained = [name for name, one in experiments.items() if one.trains]
    return {model.run_name: model for name in trained for _, model in rows[name]}


def _title(model: Model) -> str:
    return model.title or model.name


def _base(name: str, where: str) -> Model:
    """The model that a row names; refused with the row's place."""
    try:
        return load_model(name)
    except ConfigError as error:
        raise ConfigError(error.what, where=", ".join(filter(None, [where, error.where])), hint=error.hint) from None


def _with_model(row: Row, config: Config, experiment: str) -> tuple[Row, Model]:
    """The row with its name, and its model: the named one with the row's changes."""
    base = _base(row.model, f"experiment '{experiment}', row '{row.row or row.model}'")
    data = base.model_dump(mode="json", exclude_unset=True)
    data["hyper"] = base.hyper | row.hyper
    training: dict[str, Any] = data.get("training", {}) | row.training
    if config.quick and not fitted_at_once(base.model):
        training["epochs"] = min(training.get("epochs", base.training.epochs), config.quick.epochs)
        data.pop("by_fold", None)  # a first look has no settings of its own for a fold
    if training:
        data["training"] = training
    for own in data.get("by_fold", {}).values():  # what a row asks for was not searched
        for group, asked in {"hyper": row.hyper, "training": row.training}.items():
            own[group] = {key: value for key, value in own.get(group, {}).items() if key not in asked}
    data |= row.model_dump(include={"connectivity", "train_share"}, exclude_none=True)
    named = row.model_copy(update={"row": row.row or _title(base)})
    return named, parse(Model, data, f"experiment '{experiment}', row '{named.row}'")
