"""Training of ensembles: members in folders of their own, then the pool of their predictions; files as of any run.

Trained models in memory: one, or one per fold and seed, that predict together.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.config import Dataset, Model
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_json, read_table, write_json, write_table
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import create_model, has_epochs, shortest_of
from bolt.models.suitability import check_members
from bolt.series.cache import SeriesCache
from bolt.training import training_modules
from bolt.training.features import Trained, class_target, load_trained, save_trained
from bolt.training.outputs import Training, checked_info, fold_table, one_by_one, write_run

if TYPE_CHECKING:
    from bolt.models.base import SeriesModel

log = logging.getLogger(__name__)

ANOTHER_SEED = 1000
"""Added to the seed when a member is trained once more."""
DONE = "trained.json"


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
        models = [part.info["model"] for part in self.parts]
        return max(2, *(shortest_of(model["model"], model["hyper"]) for model in models))

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
        return member.model.model.probabilities(np.concatenate(parts, axis=1))  # type: ignore[arg-type,union-attr,operator,no-any-return]
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
    trained = load_trained(folder)
    with checked_info(folder):
        parts = [load_member(member_folder(folder, number, name)) for number, name in enumerate(names)]
        if any(part.info[key] != trained.info[key] for part in parts for key in ("classes", "n_rois", "rois")):
            raise ValueError("its members differ in classes or ROIs")
    return Member(trained, trained.info, parts)


def member_folder(folder: Path, number: int, name: str) -> Path:
    """Return the folder of one member of an ensemble."""
    return folder / "members" / f"{number}-{Path(name).name}"


def train_ensembles(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    trainings: Sequence[Training],
    *,
    train_members: Callable[..., list[BoltError | None]],
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
    series = SeriesCache(cache)

    def train(training: Training) -> None:
        fold, seed, out = training
        of_fold = model.for_fold(fold)
        used = folds
        if of_fold.train_share < 1:  # the same for all members, of which each would draw its own, by its own seed
            kept = fold_table(series, folds, fold, share=of_fold.train_share, seed=seed)["scan_id"]
            rows, used = read_table(folds, text=("scan_id", "subject", "group")), out / "members" / "folds.tsv"
            write_table(rows[(rows["fold"] == fold) & rows["scan_id"].isin(kept)], used, FOLD_COLUMNS)
        tables, excluded, names = [], [], list[str]()
        for number, member in enumerate(of_fold.members):
            again = seed + ANOTHER_SEED * names.count(member.run_name)
            names.append(member.run_name)
            place = Training(fold, again, member_folder(out, number, member.name))
            contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (cache / "manifest.json", used)]
            code = code_fingerprint(*training_modules(member))
            here, of_member = member.on(dataset)
            facts = json.dumps([*contents, here.hash(), code, dataset.classes, of_member.crop, fold, again])
            done, note = {"key": hashlib.sha256(facts.encode()).hexdigest()}, place.folder / DONE
            if not note.is_file() or read_json(note) != done:  # else trained before, on the same scans by the same code
                note.unlink(missing_ok=True)
                (error,) = train_members(cache, used, member, dataset, [place], **options)
                if error is not None:
                    raise error
                write_json(done, note)
            text = ("scan_id", "subject", "group", "site", "label")
            tables.append(read_table(place.folder / "predictions.tsv", text=text).set_index("scan_id"))
            excluded.append(read_table(place.folder / "exclusions.tsv", text=("scan_id",)))
        common = sorted(set.intersection(*(set(table.index) for table in tables)))
        if not common:
            raise DataError(f"no scan of fold {fold} can be read by all members", where=used)
        table = tables[0].loc[common].reset_index()
        target = class_target(of_fold, dataset, table, fold, used)
        columns = [f"p_{name}" for name in target.names]
        features = np.concatenate([part.loc[common, columns].to_numpy(float) for part in tables], axis=1)
        validation = (table["role"] == "validation").to_numpy()
        pool = create_model(of_fold.model, series.n_rois, len(target.names), **of_fold.hyper)
        pool.fit(features[validation], target.encode(table)[validation], np.empty(0), seed)
        info = {"model": of_fold.model_dump(mode="json"), "fold": fold, "seed": seed, "n_rois": series.n_rois}
        info |= {"classes": target.names, "rois": series.rois["value"].tolist(), "covariates": []}
        save_trained(out, Trained(pool, None, info))
        predicted = table.assign(**target.columns(pool.probabilities(features)))
        write_run(out, info, dataset, pd.concat(excluded).drop_duplicates("scan_id"), predicted)
        shares = zip(of_fold.members, pool.state()["weights"], strict=True)
        weights = ", ".join(f"{member.name} {weight:.2f}" for member, weight in shares)
        log.info("%s, fold %d, seed %d: weights of members: %s", of_fold.name, fold, seed, weights)

    return one_by_one(trainings, train)
