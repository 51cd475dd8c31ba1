"""Training of ensembles: members in folders of their own, then the pool of their predictions; files as of any run.

Trained models in memory: one, or one per fold and seed, that predict together.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.config import Dataset, Model
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table, write_json, write_status, write_table, write_yaml
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import create_model, has_epochs, shortest_of
from bolt.models.suitability import check_members
from bolt.series.cache import SeriesCache
from bolt.training.features import Trained, class_target, save_trained
from bolt.training.modules import training_modules
from bolt.training.outputs import Training, checked_info, fold_table, write_predictions

if TYPE_CHECKING:
    from bolt.models.base import SeriesModel
    from bolt.training.features import Trained


@dataclass
class Member:
    """One trained model.

    Attributes
    ----------
    model : SeriesModel or Trained
        In evaluation mode, on the CPU.
    info : dict
        Contents of its ``checkpoint.json``.
    members : list of Member
        Of an ensemble.
    """

    model: SeriesModel | Trained
    info: dict[str, Any]
    members: list[Member] = field(default_factory=list)

    @property
    def parts(self) -> list[Member]:
        """Return the model and the members of an ensemble."""
        return [self, *self.members]

    @property
    def shortest(self) -> int:
        """Return the length of the shortest scan that the model can read, in volumes."""
        configured = [part.info["model"] for part in self.parts]
        return max(2, *(shortest_of(model["model"], model["hyper"]) for model in configured))

    @property
    def has_epochs(self) -> bool:
        """Return whether the model is a network, which needs torch."""
        return has_epochs(self.info["model"]["model"])

    def save(self, folder: Path) -> None:
        """Write ``checkpoint.safetensors`` and ``checkpoint.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.has_epochs:
            from bolt.training.checkpoint import save_checkpoint

            save_checkpoint(folder, self.model, self.info)  # type: ignore[arg-type]
        else:
            from bolt.training.features import save_trained

            save_trained(folder, self.model)  # type: ignore[arg-type]
        for number, member in enumerate(self.members):
            member.save(member_folder(folder, number, member.info["model"]["name"]))


def predict_each(
    members: Sequence[Member], scans: SeriesCache, device: str = "auto", rows: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Predict scans of a cache (by default all) with each model.

    Returns
    -------
    (members, scans, classes) or, for numbers, (members, scans) array
    """
    rows = range(len(scans)) if rows is None else rows
    return np.stack([_predict(member, scans, rows, device) for member in members])


def _predict(member: Member, scans: SeriesCache, rows: Sequence[int], device: str) -> NDArray[np.float64]:
    """Predict scans with one model."""
    if member.members:
        parts = [_predict(part, scans, rows, device) for part in member.members]
        return member.model.model.probabilities(features_of(parts))  # type: ignore[arg-type,union-attr,operator,no-any-return]
    if not member.has_epochs:
        return member.model.predict(scans, rows)  # type: ignore[operator,union-attr,no-any-return]
    from bolt.training.device import device_of
    from bolt.training.prediction import predict

    return predict(member.model, scans, rows, device_of(device, None), info=member.info)  # type: ignore


def load_member(folder: Path) -> Member:
    """Read a trained model from a folder with ``checkpoint.json``.

    Raises
    ------
    DataError
        The files are missing or do not fit each other.
    """
    info: dict[str, Any] = read_json(folder / "checkpoint.json")
    with checked_info(folder):
        network = has_epochs(info["model"]["model"])
        names = [str(member["name"]) for member in info["model"].get("members", [])]
    if network:
        from bolt.training.checkpoint import load_checkpoint

        return Member(*load_checkpoint(folder))
    from bolt.training.features import load_trained

    trained = load_trained(folder)
    with checked_info(folder):
        parts = [load_member(member_folder(folder, number, name)) for number, name in enumerate(names)]
        if any(part.info[key] != trained.info[key] for part in parts for key in ("classes", "n_rois", "rois")):
            raise ValueError("its members differ in classes or ROIs")
    return Member(trained, trained.info, parts)


def member_folder(folder: Path, number: int, name: str) -> Path:
    """Return the folder of one member of an ensemble."""
    return folder / "members" / f"{number}-{Path(name).name}"


def features_of(probabilities: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Join the members' probabilities, (n, classes) each, to the features of an ensemble, (n, members × classes)."""
    return np.concatenate([np.asarray(part, float) for part in probabilities], axis=1)


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
