"""Checks, before any work, that a model fits a dataset: its inputs, covariates and scan lengths."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import pandas as pd

from bolt import config as configuration
from bolt.config import Config, Dataset, Model, nearest
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError, DataError
from bolt.models.parts.given import read_probabilities, read_vectors, vectors_of
from bolt.models.registry import (
    FROM_FILE,
    combines,
    defaults_of,
    has_epochs,
    inputs_of,
    needs_correlations,
    shortest_of,
)

log = logging.getLogger(__name__)
NAMES_AND_FILES = {"scan_id", "subject", "group", "label", "kind", "exclude_reason", "offset"} | {
    "bold", "mask", "confounds", "t1w", "events",
}  # fmt: skip
"""Columns of a cache's index that do not describe a person and so are no covariates."""
MEASURED_LATER = ("mean_fd", "n_volumes")
"""Columns that are measured on images: the cache's index may have values that the scan table lacks."""
NAMED_BY_DATASET = ("site", "age", "sex")
"""Columns whose source is named in the dataset's file."""


def check_inputs(model: Model, config: Config, dataset: Dataset) -> None:
    """Refuse keys that do not apply to a model's inputs, or to this dataset (ConfigError)."""
    inputs, at_once = inputs_of(model.model), not has_epochs(model.model)
    check_members(model)
    for member in model.members:
        check_inputs(member, config, dataset)

    def wrong(problem: str, hint: str) -> ConfigError:
        return ConfigError(problem, where=f"model '{model.name}'", hint=hint)

    check_file(model, dataset)
    if model.connectivity != "scan" and inputs != "connectivity":
        raise wrong(f"'connectivity' is for models of connectivity, but '{model.model}' takes {inputs}", "Remove it")
    if not at_once or inputs != "connectivity":
        takes = f"is for vectors of connectivity (svm), but '{model.model}' takes {inputs}"
        if model.harmonise or model.unseen_site != "refuse":
            reason = "" if inputs != "series" else ": z-scoring already removes differences in mean and variance"
            raise wrong(f"'harmonise' {takes}", f"Remove it{reason}")
        if model.fisher_z:
            raise wrong(f"'fisher_z' {takes}", "Remove it")
    if model.preserve and model.harmonise != "combat":
        raise wrong("'preserve' names what ComBat keeps", "Set 'harmonise: combat', or remove 'preserve'")
    if needs_correlations(model.model) and (model.harmonise or model.fisher_z):
        key = "harmonise" if model.harmonise else "fisher_z"
        raise wrong(f"'{key}' makes no correlation matrices, which '{model.model}' needs", "Remove it, or use 'ridge'")
    if not at_once:
        return
    of_folds, of_datasets = model.by_fold.values(), model.by_dataset.values()
    epochs = [*(each.training for each in of_folds), *(each.training for each in of_datasets)]
    if "training" in model.model_fields_set or any(epochs):
        raise wrong(f"'{model.model}' has no epochs", "Remove 'training'")
    if dataset.classes is None:
        others = [name for name in configuration.known("model") if has_epochs(configuration.load_model(name).model)]
        hint = f"Remove the model; these take numbers: {', '.join(others)}"
        raise wrong(f"'{model.model}' needs classes, but the label is a number", hint)
    if model.harmonise and dataset.site is None and dataset.source in ("bids", "fmriprep", "series", "bids_series"):
        raise wrong(f"'harmonise' needs sites, but dataset '{dataset.name}' has none", "Name the column: 'site: …'")
    if model.harmonise and config.folds.scheme == "leave-site-out" and model.unseen_site == "refuse":
        raise wrong(
            "with leave-site-out the sites of validation and test scans are never seen in training",
            "Set 'unseen_site: pooled' to leave such scans unchanged, or 'harmonise: null'",
        )


def check_file(model: Model, dataset: Dataset) -> None:
    """Refuse a model of a file without one, or with one that cannot be read, and a file of any other model.

    Raises
    ------
    ConfigError, DataError
    """
    where = f"model '{model.name}'"
    if model.model not in FROM_FILE:
        if model.file is not None:
            raise ConfigError(f"'{model.model}' reads no file", where=where, hint=f"Use {' or '.join(FROM_FILE)}")
        return
    if model.file is None:
        raise ConfigError(f"'{model.model}' needs a file", where=where, hint="Name it: 'file: theirs.tsv'")
    if dataset.classes is not None:
        if model.model == "features":
            read_vectors(model.file)
        else:
            read_probabilities(model.file, dataset.classes)


def check_file_scans(models: Iterable[Model], scans: pd.DataFrame) -> None:
    """Refuse files of vectors that lack scans; before folds, only those that know none (DataError).

    Parameters
    ----------
    models : iterable of Model
    scans : DataFrame
        Usable rows of the scan table, of which images may later exclude some.
    """
    final = (scans["kind"] == "series").all()
    for model in models:
        if model.model == "features" and model.file is not None:
            known = scans["scan_id"].isin(read_vectors(model.file).index)
            vectors_of(model.file, scans if final or not known.any() else scans[known])


def check_members(model: Model) -> None:
    """Refuse an ensemble without two members, one of ensembles, and members of any other model (ConfigError).

    Warn of members that validation scans have chosen, which the same scans then weigh.
    """
    where = f"members of model '{model.name}'"
    if not combines(model.model):
        if model.members:
            raise ConfigError(f"'{model.model}' has no members", where=where, hint="Remove them, or use 'ensemble'")
    elif len(model.members) < 2:
        raise ConfigError("an ensemble needs two models", where=where, hint="Such as 'members: [bolt, ridge]'")
    for member in model.members:
        if member.model in FROM_FILE:
            raise ConfigError(f"'{member.name}' is read from a file", where=where, hint="Name other models")
        if combines(member.model):
            raise ConfigError(f"'{member.name}' is an ensemble itself", where=where, hint="Name its members instead")
    chosen = [member for member in model.members if _chosen_by_validation(member)]
    if names := ", ".join(dict.fromkeys(f"'{member.name}'" for member in chosen)):
        log.warning(
            "%s: the validation scans by which the ensemble weighs its members also choose epoch or settings of %s, "
            "which favours such members. Use 'epoch_choice: last', or a large 'prior'",
            where,
            names,
        )


def _chosen_by_validation(model: Model) -> bool:
    """Return whether the epoch that is kept, or the settings of each fold, are chosen by validation scans."""
    trainings = [model.training, *(model.for_fold(fold).training for fold in model.by_fold)]
    epochs = has_epochs(model.model) and any(each.epoch_choice == "best_validation" for each in trainings)
    return epochs or bool(model.by_fold)


def check_covariates(model: Model, dataset: Dataset, columns: Sequence[str]) -> None:
    """Refuse covariates that do not exist, that the model cannot take, or that contain the label.

    Parameters
    ----------
    model : Model
    dataset : Dataset
    columns : sequence of str
        Columns of the scan table or of a cache's index.

    Raises
    ------
    ConfigError
    """
    known = [column for column in columns if column not in NAMES_AND_FILES]

    def wrong(problem: str, hint: str) -> ConfigError:
        return ConfigError(problem, where=f"covariates of model '{model.name}'", hint=hint)

    for member in model.members:
        check_covariates(member, dataset, columns)
    for name in [*model.covariates, *model.preserve]:
        source = getattr(dataset, name) if name in NAMED_BY_DATASET else name
        if name == "label" or dataset.label in (name, source):
            raise wrong(f"'{name}' is the label itself", "Remove it: the model would read what it should predict")
        if name not in known:
            raise wrong(f"no column '{name}'", f"Known: {', '.join(known)}{nearest(name, known)}")
        if source is None:
            raise wrong(f"dataset '{dataset.name}' has no '{name}'", f"Name the column in its file: '{name}: …'")
    if "n_covariates" in model.hyper:
        raise wrong("'n_covariates' is set automatically", "Name the columns in 'covariates' instead")
    takes = "n_covariates" in defaults_of(model.model)
    if model.covariates and not takes:
        raise wrong(f"'{model.model}' takes none", "Remove 'covariates', or choose a model that takes them")
    if takes and not model.covariates and inputs_of(model.model) == "covariates":
        raise wrong(f"'{model.model}' needs at least one", "Name the columns, such as 'covariates: [mean_fd]'")


def check_covariate_values(models: Iterable[Model], scans: pd.DataFrame) -> None:
    """Refuse covariates without a value for any scan, except those that are measured on images later.

    Parameters
    ----------
    models : iterable of Model
    scans : DataFrame
        Usable rows of the scan table.

    Raises
    ------
    DataError
    """
    later = () if (scans["kind"] == "series").all() else MEASURED_LATER
    for part in [part for model in models for part in model.parts]:
        for name in [*part.covariates, *part.preserve]:
            if name not in later and name in scans and scans[name].isna().all():
                raise DataError(
                    f"no scan has a value of '{name}'",
                    where=f"covariates of model '{part.name}'",
                    hint=f"Fill in the column in the dataset's table, or remove model '{part.name}' from 'models'",
                )


def minimum_volumes(config: Config) -> int:
    """Return the number of volumes with which every configured model can read a scan."""
    return max(shortest_scan(configuration.load_model(name)) for name in config.models)


def shortest_scan(model: Model) -> int:
    """Return the length of the shortest scan that a model can read in all folds, in volumes; at least 2."""
    models = [model.for_fold(fold) for fold in model.by_fold] or [model]
    own = [shortest_of(fold_model.model, fold_model.hyper) for fold_model in models]
    return max([2, *own, *map(shortest_scan, model.members)])


def not_applicable(model: Model, config: Config, dataset: Dataset) -> str:
    """Return why a row of an experiment cannot be trained on this dataset; empty if it can."""
    shortest, crop = shortest_scan(model), model.on(dataset)[1].crop
    if shortest > crop:
        return f"the model needs {shortest} volumes, more than the crop of {crop}"
    try:
        check_covariates(model, dataset, list(COLUMNS))
        check_inputs(model, config, dataset)
    except ConfigError as error:
        return error.what
    return ""
