"""Training of ensembles: members in folders of their own, then the pool of their predictions; files as of any run."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.config import Dataset, Model
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table, write_json, write_status, write_table, write_yaml
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import create_model
from bolt.models.suitability import check_members
from bolt.series.cache import SeriesCache
from bolt.training.features import Trained, class_target, save_trained
from bolt.training.members import features_of, member_folder
from bolt.training.modules import training_modules
from bolt.training.outputs import write_predictions
from bolt.training.roles import Training, fold_table

log = logging.getLogger(__name__)

Trainer = Callable[..., list[BoltError | None]]
ANOTHER_SEED = 1000
"""Added to the seed when a member is trained once more."""
DONE = "trained.json"


def train_ensembles(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    trainings: Sequence[Training],
    *,
    train_members: Trainer,
    **options: Any,
) -> list[BoltError | None]:
    """Train an ensemble on several folds, one after the other.

    Members are trained in ``members/<number>-<name>`` of the fold's folder. Those that were finished before an
    interruption are kept.

    Parameters
    ----------
    cache, folds, model, dataset, trainings
        As in `bolt.training.runner.train_folds`.
    train_members : callable
        Trains any other model: `bolt.training.trainers.train_folds`.
    **options
        For it: device, threads, needs_test, progress, watching.

    Returns
    -------
    list
        For each training None, or the error that ended it.

    Raises
    ------
    ConfigError
        An error that concerns all folds.
    """
    check_members(model)
    series, errors = SeriesCache(cache), list[BoltError | None]()
    for training in trainings:
        try:
            _train(series, folds, model, dataset, training, partial(train_members, **options))
            errors.append(None)
        except ConfigError:
            raise
        except BoltError as error:
            errors.append(error)
    return errors


def _train(
    series: SeriesCache, folds: Path, model: Model, dataset: Dataset, training: Training, train: Trainer
) -> None:
    """Train the members of one fold, and combine them."""
    fold, seed, out = training
    model = model.for_fold(fold)
    parts = list(_members(model, training))
    folds = _of_share(series, folds, model, training)
    for member, of_member in parts:
        _train_member(series, folds, member, dataset, of_member, train)
    tables = [_predictions(of_member.folder) for _, of_member in parts]
    common = sorted(set.intersection(*(set(table.index) for table in tables)))
    if not common:
        raise DataError(f"no scan of fold {fold} can be read by all members", where=folds)
    table = tables[0].loc[common].reset_index()
    target = class_target(model, dataset, table, fold, folds)
    features = features_of([part.loc[common, [f"p_{c}" for c in target.names]].to_numpy() for part in tables])
    validation = (table["role"] == "validation").to_numpy()
    pool = create_model(model.model, series.n_rois, target.n_outputs, **model.hyper)
    pool.fit(features[validation], target.encode(table)[validation], np.empty(0), seed)
    rois = series.rois["value"].tolist()
    info = {"model": model.model_dump(mode="json"), "fold": fold, "seed": seed, "n_rois": series.n_rois}
    info |= {"classes": target.names, "rois": rois, "covariates": []}
    save_trained(out, Trained(pool, None, info))
    about = {name: info[name] for name in ("model", "fold", "seed")}
    write_yaml({**about, "dataset": dataset.model_dump(mode="json")}, out / "config.yaml")
    excluded = pd.concat([read_table(part.folder / "exclusions.tsv", text=("scan_id",)) for _, part in parts])
    write_table(excluded.drop_duplicates("scan_id"), out / "exclusions.tsv", EXCLUSION_COLUMNS)
    table = table.drop(columns=[name for name in table if name.startswith("p_")])
    write_predictions(table.assign(seed=seed, **target.columns(pool.probabilities(features))), out / "predictions.tsv")
    write_status(out / "status.json", "ok", "train")
    weights = ", ".join(f"{part.name} {w:.2f}" for (part, _), w in zip(parts, pool.state()["weights"], strict=True))
    log.info("%s, fold %d, seed %d: weights of members: %s", model.name, fold, seed, weights)


def _members(model: Model, training: Training) -> Iterator[tuple[Model, Training]]:
    """Return the members with their trainings; a member named again gets another seed."""
    names: list[str] = []
    for number, member in enumerate(model.members):
        seed = training.seed + ANOTHER_SEED * names.count(member.run_name)
        names.append(member.run_name)
        yield member, Training(training.fold, seed, member_folder(training.folder, number, member.name))


def _of_share(series: SeriesCache, folds: Path, model: Model, training: Training) -> Path:
    """Return folds with a share of the training subjects, if not all are used: the same for all members.

    Each member would draw its own, by its own seed.
    """
    if model.train_share == 1:
        return folds
    kept = fold_table(series, folds, training.fold, share=model.train_share, seed=training.seed)["scan_id"]
    rows = read_table(folds, text=("scan_id", "subject", "group"))
    file = training.folder / "members" / "folds.tsv"
    write_table(rows[(rows["fold"] == training.fold) & rows["scan_id"].isin(kept)], file, FOLD_COLUMNS)
    return file


def _train_member(
    series: SeriesCache, folds: Path, model: Model, dataset: Dataset, training: Training, train: Trainer
) -> None:
    """Train a member, unless it was trained before on the same scans by the same code."""
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (series.folder / "manifest.json", folds)]
    code = code_fingerprint(*training_modules(model))
    key = json.dumps([*contents, model.hash(), code, dataset.classes, dataset.crop, training.fold, training.seed])
    done = {"key": hashlib.sha256(key.encode()).hexdigest()}
    note = training.folder / DONE
    if note.is_file() and read_json(note) == done:
        return
    note.unlink(missing_ok=True)
    (error,) = train(series.folder, folds, model, dataset, [training])
    if error is not None:
        raise error
    write_json(done, note)


def _predictions(folder: Path) -> pd.DataFrame:
    return read_table(folder / "predictions.tsv", text=("scan_id", "subject", "group", "label")).set_index("scan_id")
