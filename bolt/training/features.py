"""Training of models that are fitted at once, on connectivity or covariates; same files as `bolt.training.runner`.

The connectivity of a scan depends on that scan only, so it is computed once for all folds. Everything learned from
several scans (the model, the harmonisation of sites, the encoding of covariates) is learned from training scans only.

Cross-validation repeated on permuted labels, of models that are fitted at once: what chance gives, without theory.

Each permutation exchanges the labels of people (`bolt.cohort.units`) among all scans in folds, keeps them so in every
fold, fits the model again, and scores it on the permuted labels of the test scans (Ojala and Garriga 2010, JMLR
11:1833).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.metrics import roc_auc_score

from bolt.cohort.covariates import Covariates
from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.cohort.harmonise import SiteEffects
from bolt.cohort.units import permutations
from bolt.config import Dataset, Model
from bolt.folds.splits import ROLES
from bolt.io.errors import BoltError, ConfigError, DataError, shorten_list
from bolt.io.files import atomic, read_table, write_json
from bolt.io.people import people
from bolt.models.parts.features import FeatureModel
from bolt.models.parts.given import probabilities_of, separating, vectors_of
from bolt.models.registry import create_model, inputs_of, with_covariates
from bolt.models.suitability import check_covariates
from bolt.series.cache import SeriesCache, connectivity_of
from bolt.training.outputs import Classes, Training, checked_files, fit_target, fold_table, one_by_one, write_run

log = logging.getLogger(__name__)
SITE_ARRAYS = ("scale", "offset", "effects")


@dataclass
class Trained:
    """A trained model of connectivity or covariates, with its preprocessing of features.

    Attributes
    ----------
    model : FeatureModel
    site_effects : SiteEffects or None
        Harmonisation of sites, if configured.
    info : dict
        Contents of ``checkpoint.json``: model (the configuration), fold, seed, n_rois, classes, rois, covariates and,
        with harmonisation, preserved and, when saved, sites.
    """

    model: FeatureModel
    site_effects: SiteEffects | None
    info: dict[str, Any]

    def predict(self, cache: SeriesCache, ids: Sequence[int]) -> NDArray[np.float64]:
        """Predict class probabilities of scans in a cache, (len(ids), classes).

        Raises
        ------
        DataError
            A scan from a site without training scans, if the configuration refuses such scans.
        """
        scans = cache.index.iloc[list(ids)]
        if self.model.inputs in ("features", "probabilities"):
            what = f"model '{self.info['model']['name']}' reads a file of others, which has no new scans"
            raise DataError(what, hint="Predict by a model of ROI series")
        if self.model.inputs == "covariates":
            features = Covariates(self.info["covariates"]).encode(scans)
        else:
            features = connectivity_of(cache, ids, fisher_z=self.info["model"]["fisher_z"])
        return self.probabilities(features, scans)

    def probabilities(self, features: NDArray[np.float32], scans: pd.DataFrame) -> NDArray[np.float64]:
        """Predict class probabilities from connectivity or encoded covariates, (n, F), and the scans' rows."""
        return self.model.probabilities(self.harmonised(features, scans))

    def harmonised(self, features: NDArray[np.float32], scans: pd.DataFrame) -> NDArray[np.float32]:
        """Remove the effects of the scans' sites, if that is configured."""
        if self.site_effects is None:
            return features
        kept = Covariates(self.info["preserved"]).encode(scans)
        pooled = self.info["model"]["unseen_site"] == "pooled"
        return self.site_effects.apply(features, scans["site"], kept, pooled=pooled)


def train_features(
    cache: Path, folds: Path, model: Model, dataset: Dataset, trainings: Sequence[Training], needs_test: bool = True
) -> list[BoltError | None]:
    """Train a model of connectivity or covariates on several folds, on the CPU with the environment's threads.

    Parameters
    ----------
    cache, folds, model, dataset, trainings, needs_test
        As in `bolt.training.runner.train_folds`.

    Returns
    -------
    list
        For each training None, or the error that ended it.

    Raises
    ------
    ConfigError
        An error that concerns all folds.
    """
    series = SeriesCache(cache)
    check_covariates(model, dataset, list(series.index))
    try:
        inputs = read_inputs(series, folds, model, dataset, trainings)
    except DataError as error:
        return [error] * len(trainings)
    model, dataset = model.on(dataset)

    def train(training: Training) -> None:
        fold, seed, out = training
        start, of_fold = time.monotonic(), model.for_fold(fold)
        table = fold_table(series, folds, fold, share=of_fold.train_share, seed=seed)
        if needs_test and not (table["role"] == "test").any():
            raise DataError(f"fold {fold} has no test scan", where=folds, hint="Use fewer folds or more scans")
        target = class_target(of_fold, dataset, table, fold, folds)
        trained, probabilities = learn(series, table, inputs.of(fold, table), target, of_fold, training, dataset.crop)
        trained.info |= inputs.about
        save_trained(out, trained)
        nobody, known = pd.DataFrame(columns=list(EXCLUSION_COLUMNS)), np.isfinite(probabilities).all(axis=1)
        predicted = pd.DataFrame(target.columns(probabilities), index=table.index)[known]
        write_run(out, trained.info, dataset, nobody, table.join(predicted))
        log.info("%s, fold %d, seed %d: trained in %.1f s", of_fold.name, fold, seed, time.monotonic() - start)

    return one_by_one(trainings, train)


@dataclass
class Inputs:
    """What a model reads of each scan.

    Attributes
    ----------
    vectors : DataFrame or None
        Connectivity or vectors of a file, by position in the cache; or probabilities of a file, by fold and scan. None:
        covariates alone.
    about : dict
        For ``checkpoint.json``: ``separating``, columns of a file that alone tell the classes apart.
    """

    vectors: pd.DataFrame | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def of(self, fold: int, table: pd.DataFrame) -> NDArray[np.floating] | None:
        """Return the vectors of a fold's scans, (len(table), F); NaN where a file of predictions has none."""
        if self.vectors is None or self.vectors.index.nlevels == 1:
            return None if self.vectors is None else self.vectors.loc[table.index].to_numpy()
        return self.vectors.loc[fold].reindex(table["scan_id"]).to_numpy()


def read_inputs(
    series: SeriesCache,
    folds: Path,
    model: Model,
    dataset: Dataset,
    trainings: Sequence[Training],
    roles: Sequence[str] = ROLES,
) -> Inputs:
    """Read or compute what a model reads of the scans of some folds that have one of `roles` there.

    Raises
    ------
    DataError
        A series that is not finite; a file that does not fit the scans or folds (`bolt.models.parts.given`).
    """
    start, kind, about = time.monotonic(), inputs_of(model.model), dict[str, Any]()
    if kind == "covariates":
        return Inputs()
    table = read_table(folds, text=("scan_id", "subject"))
    if kind == "probabilities":
        return Inputs(probabilities_of(Path(str(model.file)), dataset.classes or [], table))
    used = table["fold"].isin([training.fold for training in trainings]) & table["role"].isin(roles)
    rows = np.flatnonzero(series.index["scan_id"].isin(table["scan_id"][used]))
    if kind == "features":
        scans = series.index.iloc[rows]
        vectors = vectors_of(Path(str(model.file)), scans).set_axis(rows)
        about["separating"] = separating(vectors, scans["label"].to_numpy())
        if about["separating"]:
            log.warning("%s: predict the label perfectly: %s", model.file, shorten_list(about["separating"]))
    else:
        vectors = pd.DataFrame(connectivity_of(series, rows.tolist(), fisher_z=model.fisher_z), index=rows)
    log.info("%s: %d scans × %d features in %.1f s", kind, *vectors.shape, time.monotonic() - start)
    return Inputs(vectors, about)


def class_target(model: Model, dataset: Dataset, table: pd.DataFrame, fold: int, folds: Path) -> Classes:
    """Define the target of one fold; refuse labels that are numbers (ConfigError)."""
    target = fit_target(dataset.classes, table, fold, folds)
    if not isinstance(target, Classes):
        raise ConfigError(f"model '{model.name}' needs classes, but the label is a number", hint="Remove the model")
    return target


def learn(
    series: SeriesCache,
    table: pd.DataFrame,
    vectors: NDArray[np.float32] | None,
    target: Classes,
    model: Model,
    training: Training,
    crop: int,
) -> tuple[Trained, NDArray[np.float64]]:
    """Fit a model to the training scans of a table, and predict all of its scans.

    Parameters
    ----------
    series : SeriesCache
    table : DataFrame
        Rows of the cache's index with their role.
    vectors : (len(table), F) array or None
        Their connectivity; None for a model of covariates.
    target : Classes
    model : Model
        With the settings of this fold.
    training : Training
    crop : int
        Length of training crops in volumes, used with ``connectivity: crop``.

    Returns
    -------
    tuple
        The trained model, and class probabilities (len(table), classes).
    """
    train = (table["role"] == "train").to_numpy()
    covariates = Covariates.fit(table[train], model.covariates)
    if vectors is None:
        vectors = covariates.encode(table)
    inputs = vectors[train]
    if model.connectivity == "crop":
        random = np.random.default_rng([training.seed, training.fold])
        ids, fisher_z = table.index[train].tolist(), model.fisher_z
        inputs = connectivity_of(series, ids, fisher_z=fisher_z, crop=(crop, random))
    info = {"model": model.model_dump(mode="json"), "fold": training.fold, "seed": training.seed}
    info |= {"n_rois": series.n_rois, "classes": target.names, "rois": series.rois["value"].tolist()}
    info["covariates"] = covariates.columns
    settings = with_covariates(model.hyper, len(covariates))
    trained = Trained(create_model(model.model, series.n_rois, len(target.names), **settings), None, info)
    if model.harmonise:
        preserved = Covariates.fit(table[train], model.preserve)
        info["preserved"] = preserved.columns
        kept = preserved.encode(table[train])
        trained.site_effects = SiteEffects.fit(inputs, table["site"][train], model.harmonise, kept)
        inputs = trained.harmonised(inputs, table[train])
    groups = people(table)[train].to_numpy()
    trained.model.fit(inputs, target.encode(table)[train], groups, training.seed)
    return trained, trained.probabilities(vectors, table)


def save_trained(folder: Path, trained: Trained) -> None:
    """Write ``checkpoint.safetensors`` and ``checkpoint.json``, which cannot contain code."""
    arrays = {f"model.{name}": value for name, value in trained.model.state().items()}
    info = trained.info
    if trained.site_effects is not None:
        arrays |= {f"sites.{name}": getattr(trained.site_effects, name) for name in SITE_ARRAYS}
        info = info | {"sites": trained.site_effects.sites}
    with atomic(folder / "checkpoint.safetensors") as temporary:
        save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, temporary)
    write_json(info, folder / "checkpoint.json")


def load_trained(folder: str | Path) -> Trained:
    """Read a model that was fitted at once.

    Parameters
    ----------
    folder : path
        A run's ``fold-<k>``.

    Raises
    ------
    DataError
        The files are missing or do not fit each other.
    """
    with checked_files(Path(folder)) as (info, weights):
        arrays = load_file(weights)
        for name, value in arrays.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise RuntimeError(f"{name} has NaN or infinite weights")
        settings = with_covariates(info["model"]["hyper"], len(Covariates(info["covariates"])))
        model = create_model(info["model"]["model"], info["n_rois"], len(info["classes"]), **settings)
        model.load_state({name.removeprefix("model."): a for name, a in arrays.items() if name.startswith("model.")})
        effects = None
        if "sites" in info:
            effects = SiteEffects(info["sites"], *(arrays[f"sites.{name}"] for name in SITE_ARRAYS))
    return Trained(model, effects, info)


def permuted_aucs(
    cache: Path, folds: Path, model: Model, dataset: Dataset, trainings: Sequence[Training], n: int
) -> NDArray[np.floating] | None:
    """Return the mean AUC over folds of each of `n` permutations, (n,); NaN where it is undefined in every fold.

    None if the model's predictions are those of a file: nothing is trained on permuted labels, so that their spread
    would lack what folds share.

    Parameters
    ----------
    cache, folds, model, dataset
        As in `train_features`; the dataset has classes.
    trainings : sequence of Training
        Folds to repeat; their folders are not used.
    n : int
        Permutations.
    """
    if inputs_of(model.model) == "probabilities":
        return None
    series, (model, dataset) = SeriesCache(cache), model.on(dataset)
    scans = fold_table(series, folds, trainings[0].fold)  # every fold has all scans
    inputs = read_inputs(series, folds, model, dataset, trainings)
    permuted = permutations(scans, n, np.random.default_rng(trainings[0].seed))
    values = np.full((n, len(trainings)), np.nan)
    for column, training in enumerate(trainings):
        of_fold = model.for_fold(training.fold)
        table = fold_table(series, folds, training.fold, share=of_fold.train_share, seed=training.seed)
        vectors = inputs.of(training.fold, table)
        for row, labels in enumerate(permuted):
            drawn = table.assign(label=table["scan_id"].map(dict(zip(scans["scan_id"], labels, strict=True))))
            if drawn.loc[drawn["role"] == "train", "label"].nunique() < len(dataset.classes or []):
                continue
            target = class_target(of_fold, dataset, drawn, training.fold, folds)
            _, probability = learn(series, drawn, vectors, target, of_fold, training, dataset.crop)
            test = (drawn["role"] == "test").to_numpy()
            values[row, column] = _auc(target.encode(drawn)[test], probability[test])
    return pd.DataFrame(values).mean(axis=1).to_numpy()


def _auc(truth: NDArray[np.integer], probability: NDArray[np.floating]) -> float:
    """Return the AUC of the positive class, or the macro average; NaN unless every class occurs."""
    n_classes = probability.shape[1]
    if len(np.unique(truth)) < n_classes:
        return float("nan")
    averaged = [1] if n_classes == 2 else range(n_classes)
    return float(np.mean([roc_auc_score(truth == c, probability[:, c]) for c in averaged]))
