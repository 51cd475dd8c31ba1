"""What a model can be given: inputs, covariates and scan lengths, held against a dataset before any work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from bolt import config as configuration
from bolt.config import Config, Dataset, Model, nearest
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError, DataError
from bolt.models.registry import default_of, fitted_at_once, inputs_of, shortest_of

NAMES_AND_FILES = {"scan_id", "subject", "group", "label", "kind", "exclude_reason", "offset"} | {
    "bold", "mask", "confounds", "t1w", "events",
}  # fmt: skip
"""Columns of a cache's index that say nothing of a person: no covariates."""
MEASURED_LATER = ("mean_fd", "n_volumes")
"""Columns of images that the cache's index may know where the scan table does not."""
NAMED_BY_DATASET = ("site", "age", "sex")
"""Columns that the dataset's file fills from a table of its own."""


def check_inputs(model: Model, config: Config, dataset: Dataset) -> None:
    """Refuse keys that mean nothing for what the model takes."""
    where = f"model '{model.name}'"
    inputs = inputs_of(model.model)
    if model.connectivity != "scan" and inputs != "connectivity":
        raise ConfigError(f"'connectivity' is for models of it; '{model.model}' takes {inputs}", where=where)
    if not fitted_at_once(model.model) or inputs == "covariates":
        if model.harmonise or model.unseen_site != "refuse":
            raise ConfigError(
                f"'harmonise' is for vectors of connectivity (svm); '{model.model}' takes {inputs}",
                where=where,
                hint="Remove it"
                if inputs == "covariates"
                else "Remove it: z-scoring has already removed each scan's mean and variance, and so the site's",
            )
        if model.fisher_z:
            raise ConfigError(
                f"'fisher_z' is for vectors of connectivity (svm); '{model.model}' takes {inputs}", where=where
            )
    if not fitted_at_once(model.model):
        return
    if "training" in model.model_fields_set or any(own.training for own in model.by_fold.values()):
        raise ConfigError(f"'{model.model}' has no epochs", where=where, hint="Remove 'training'")
    if dataset.classes is None:
        raise ConfigError(f"'{model.model}' needs classes, but the label is a number", where=where, hint="Leave it out")
    if model.harmonise and dataset.site is None and dataset.source in ("bids", "fmriprep", "series"):
        raise ConfigError(
            f"'harmonise' needs sites; dataset '{dataset.name}' has none",
            where=where,
            hint="Name the column: 'site: …'",
        )
    if model.harmonise and config.folds.scheme == "leave-site-out" and model.unseen_site == "refuse":
        raise ConfigError(
            "with leave-site-out the sites of validation and test scans are never seen in training",
            where=where,
            hint="Set 'unseen_site: pooled' to leave such scans as they are, or 'harmonise: null'",
        )


def check_covariates(model: Model, dataset: Dataset, columns: Sequence[str]) -> None:
    """Refuse covariates that are not there, that the model cannot take, or that would give the label away.

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

    def wrong(what: str, hint: str) -> ConfigError:
        return ConfigError(what, where=f"covariates of model '{model.name}'", hint=hint)

    for name in model.covariates:
        source = getattr(dataset, name) if name in NAMED_BY_DATASET else name
        if name == "label" or dataset.label in (name, source):
            raise wrong(f"'{name}' is the label itself", "Remove it: the model would read what it has to predict")
        if name not in known:
            raise wrong(f"no column '{name}'", f"Known: {', '.join(known)}{nearest(name, known)}")
        if source is None:
            raise wrong(f"dataset '{dataset.name}' has no '{name}'", f"Name the column in its file: '{name}: …'")
    if "n_covariates" in model.hyper:
        raise wrong("'n_covariates' is no setting of its own", "Name the columns in 'covariates', beside 'hyper'")
    takes = default_of(model.model, "n_covariates", None) is not None
    if model.covariates and not takes:
        raise wrong(f"'{model.model}' takes none", "Remove 'covariates', or choose a model that does")
    if takes and not model.covariates and inputs_of(model.model) == "covariates":
        raise wrong(f"'{model.model}' learns from nothing else", "Name some: 'covariates: [mean_fd]', say")


def check_known(models: Iterable[Model], scans: pd.DataFrame) -> None:
    """Refuse covariates that no scan has, before any work; displacement and length of images may come later.

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
    for model in models:
        for name in model.covariates:
            if name not in later and name in scans and scans[name].isna().all():
                raise DataError(
                    f"'{name}' is known of no scan",
                    where=f"covariates of model '{model.name}'",
                    hint=f"Fill in the column in the dataset's table, or leave out the model '{model.name}'",
                )


def minimum_volumes(config: Config) -> int:
    """Volumes that all of the configured models can read."""
    return max(shortest_scan(configuration.load_model(name)) for name in config.models)


def shortest_scan(model: Model) -> int:
    """Volumes of the shortest scan that a model reads, in the fold that needs most; at least 2."""
    every = [model.for_fold(fold) for fold in model.by_fold] or [model]
    return max(2, *(shortest_of(own.model, own.hyper) for own in every))


def not_applicable(model: Model, config: Config, dataset: Dataset) -> str:
    """Why a row of an experiment cannot be trained on this dataset; empty where it can."""
    shortest = shortest_scan(model)
    if shortest > dataset.crop:
        return f"the shortest scan that it reads, {shortest} volumes, is longer than the crop of {dataset.crop}"
    try:
        check_covariates(model, dataset, list(COLUMNS))
        check_inputs(model, config, dataset)
    except ConfigError as error:
        return error.what
    return ""
