"""Training of models that learn in one go, of connectivity or covariates: the same files as `bolt.training.runner`.

The connectivity of a scan depends on that scan alone, so it is made once for all folds. What is learned from several
scans (the model, the harmonisation of sites, the encoding of covariates) is learned from the training part of a fold.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bolt.cohort.covariates import Covariates
from bolt.cohort.harmonise import Combat
from bolt.config import Dataset, Model
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import atomic, read_json, read_table, write_json, write_status, write_table, write_yaml
from bolt.models.parts.features import FeatureModel
from bolt.models.registry import create_model, inputs_of
from bolt.models.suitability import check_covariates
from bolt.series.cache import EXCLUSION_COLUMNS, SeriesCache
from bolt.series.connectivity import connectivity_of, connectivity_of_crops
from bolt.training.checkpoint import checked_weights, described
from bolt.training.prediction import write_predictions
from bolt.training.runner import Job, fold_table
from bolt.training.targets import Classes, fit_target

log = logging.getLogger(__name__)


@dataclass
class Trained:
    """A trained model of connectivity or covariates with all that it does to a scan before.

    Attributes
    ----------
    model : FeatureModel
    combat : Combat or None
        Where sites are harmonised.
    info : dict
        What ``checkpoint.json`` says: model (the configuration), fold, seed, n_rois, classes, rois, covariates, sites.
    """

    model: FeatureModel
    combat: Combat | None
    info: dict[str, Any]

    def predict(self, cache: SeriesCache, ids: Sequence[int]) -> NDArray[np.float64]:
        """Class probabilities of scans of a cache, (len(ids), classes).

        Raises
        ------
        DataError
            A scan of a site that was not learned, where the configuration refuses it.
        """
        scans = cache.index.iloc[list(ids)]
        if self.model.inputs == "covariates":
            features = Covariates(self.info["covariates"]).encode(scans)
        else:
            features = connectivity_of(cache, ids, fisher_z=self.info["model"]["fisher_z"])
        return self.probabilities(features, scans["site"])

    def probabilities(self, features: NDArray[np.float32], sites: pd.Series) -> NDArray[np.float64]:
        """The same from connectivity or encoded covariates, (n, F), and the scans' sites."""
        if self.combat is not None:
            features = self.combat.apply(features, sites, pooled=self.info["model"]["unseen_site"] == "pooled")
        return self.model.probabilities(features)


def train_features(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    jobs: Sequence[Job],
    *,
    device: str = "cpu",
    threads: int | None = None,
) -> list[BoltError | None]:
    """Train a model of connectivity or covariates on several folds.

    Parameters
    ----------
    cache, folds, model, dataset, jobs
        As in `bolt.training.runner.train_folds`.
    device, threads
        Not used: the linear algebra's own threads are those of the environment.

    Returns
    -------
    list
        For each job None, or the error that ended it.

    Raises
    ------
    ConfigError
        What is wrong for all folds.
    """
    series = SeriesCache(cache)
    check_covariates(model, dataset, list(series.index))
    try:
        features = None if inputs_of(model.model) == "covariates" else _connectivity(series, model, folds, jobs)
    except DataError as error:
        return [error] * len(jobs)
    errors: list[BoltError | None] = []
    for job in jobs:
        try:
            _train(series, features, folds, model, dataset, job)
            errors.append(None)
        except ConfigError:
            raise
        except BoltError as error:
            errors.append(error)
    return errors


def _connectivity(series: SeriesCache, model: Model, folds: Path, jobs: Sequence[Job]) -> pd.DataFrame:
    """Of the scans of the folds asked for, each over its full length; labelled by the rows of the cache's index."""
    start = time.monotonic()
    table = read_table(folds, text=("scan_id",))
    scans = table.loc[table["fold"].isin([job.fold for job in jobs]), "scan_id"]
    rows = np.flatnonzero(series.index["scan_id"].isin(scans))
    features = connectivity_of(series, rows.tolist(), fisher_z=model.fisher_z)
    log.info("connectivity: %d scans × %d features in %.1f s", *features.shape, time.monotonic() - start)
    return pd.DataFrame(features, index=rows)


def _train(
    series: SeriesCache, features: pd.DataFrame | None, folds: Path, model: Model, dataset: Dataset, job: Job
) -> None:
    """One fold, from its table of scans to its predictions; `features` of at least its scans, None for covariates."""
    fold, seed, out = job
    start, model = time.monotonic(), model.for_fold(job.fold)
    table = fold_table(series, folds, fold, share=model.train_share, seed=seed)
    if not (table["role"] == "test").any():
        raise DataError(f"fold {fold} has no test scan", where=folds, hint="Use fewer folds or more scans")
    target = class_target(model, dataset, table, fold, folds)
    vectors = None if features is None else features.loc[table.index].to_numpy()
    trained, probabilities = learn(series, table, vectors, target, model, job, dataset.crop)
    save_trained(out, trained)
    facts = {name: trained.info[name] for name in ("model", "fold", "seed")}
    write_yaml({**facts, "dataset": dataset.model_dump(mode="json")}, out / "config.yaml")
    write_table(pd.DataFrame(columns=list(EXCLUSION_COLUMNS)), out / "exclusions.tsv", EXCLUSION_COLUMNS)
    predicted = target.columns(probabilities)
    write_predictions(table.assign(fold=fold, seed=seed, **predicted), out / "predictions.tsv")
    write_status(out / "status.json", "ok", "train")
    log.info("%s, fold %d, seed %d: trained in %.1f s", model.name, fold, seed, time.monotonic() - start)


def class_target(model: Model, dataset: Dataset, table: pd.DataFrame, fold: int, folds: Path) -> Classes:
    """What is predicted in one fold, where it is a class; these models know no numbers."""
    target = fit_target(dataset.classes, table, fold, folds)
    if not isinstance(target, Classes):
        raise ConfigError(f"model '{model.name}' needs classes, but the label is a number", hint="Leave the model out")
    return target


def learn(
    series: SeriesCache,
    table: pd.DataFrame,
    vectors: NDArray[np.float32] | None,
    target: Classes,
    model: Model,
    job: Job,
    crop: int,
) -> tuple[Trained, NDArray[np.float64]]:
    """Learn from the training scans of a table, and predict all of its scans.

    Parameters
    ----------
    series : SeriesCache
    table : DataFrame
        Rows of the cache's index with their role.
    vectors : (len(table), F) array or None
        Their connectivity; None for a model of covariates.
    target : Classes
    model : Model
        As it is trained in this fold.
    job : Job
    crop : int
        Volumes of the stretches that are learned from where the model says ``connectivity: crop``.

    Returns
    -------
    tuple
        The trained model, and class probabilities (len(table), classes).
    """
    train = (table["role"] == "train").to_numpy()
    covariates = Covariates.fit(table[train], model.covariates)
    if vectors is None:
        vectors = covariates.encode(table)
    learned, sites = vectors[train], table["site"][train]
    if model.connectivity == "crop":
        random = np.random.default_rng([job.seed, job.fold])
        learned = connectivity_of_crops(series, table.index[train].tolist(), crop, random, fisher_z=model.fisher_z)
    facts = {"model": model.model_dump(mode="json"), "fold": job.fold, "seed": job.seed}
    about = {"n_rois": series.n_rois, "classes": target.names, "rois": series.rois["value"].tolist()}
    about |= {"covariates": covariates.columns}
    settings = model.hyper | ({"n_covariates": len(covariates)} if model.covariates else {})
    trained = Trained(create_model(model.model, series.n_rois, target.n_outputs, **settings), None, facts | about)
    if model.harmonise:
        trained.combat = Combat.fit(learned, sites)
        learned = trained.combat.apply(learned, sites, pooled=model.unseen_site == "pooled")
    groups = table["group"].fillna(table["subject"])[train].to_numpy()
    trained.model.fit(learned, target.encode(table)[train], groups, job.seed)
    return trained, trained.probabilities(vectors, table["site"])


def save_trained(folder: Path, trained: Trained) -> None:
    """Write ``checkpoint.safetensors`` and ``checkpoint.json``: arrays and facts, nothing that can run."""
    arrays = {f"model.{name}": value for name, value in trained.model.state().items()}
    info = trained.info
    if trained.combat is not None:
        arrays |= {"combat.scale": trained.combat.scale, "combat.offset": trained.combat.offset}
        info = info | {"sites": trained.combat.sites}
    with atomic(folder / "checkpoint.safetensors") as temporary:
        save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, temporary)
    write_json(info, folder / "checkpoint.json")


def load_trained(folder: str | Path) -> Trained:
    """Read a model that was trained in one go.

    Parameters
    ----------
    folder : path
        A run's ``fold-<k>``.

    Raises
    ------
    DataError
        Where the files are missing or do not belong together.
    """
    folder = Path(folder)
    info = read_json(folder / "checkpoint.json")
    with checked_weights(folder) as weights, described(folder):
        arrays = load_file(weights)
        settings = info["model"]["hyper"] | (
            {"n_covariates": len(Covariates(info["covariates"]))} if info["covariates"] else {}
        )
        model = create_model(info["model"]["model"], info["n_rois"], len(info["classes"]), **settings)
        model.load_state({name.removeprefix("model."): a for name, a in arrays.items() if name.startswith("model.")})
        combat = Combat(info["sites"], arrays["combat.scale"], arrays["combat.offset"]) if "sites" in info else None
    return Trained(model, combat, info)
