"""Training: every torch model, one fold or several at a time. The loop itself is `bolt.training.loop`.

The test part of a fold is read once, after the last epoch.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from bolt.cohort.covariates import Covariates
from bolt.config import Dataset, Model
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_table, write_status, write_table, write_yaml
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import create_model, with_facts
from bolt.models.suitability import check_covariates
from bolt.series.cache import EXCLUSION_COLUMNS, SeriesCache
from bolt.training.checkpoint import load_checkpoint, remove_resume, save_checkpoint
from bolt.training.device import device_of
from bolt.training.loop import Fit, Part
from bolt.training.prediction import Pool, Scans, all_logits, predict, write_predictions
from bolt.training.seeding import seed_step
from bolt.training.targets import Number, fit_target

__all__ = ["Job", "load_checkpoint", "predict", "train_fold", "train_folds"]

log = logging.getLogger(__name__)


class Job(NamedTuple):
    """One training among several on the same data: fold, seed, and its folder."""

    fold: int
    seed: int
    out: Path


def train_fold(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    *,
    fold: int,
    seed: int,
    out: Path,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Train a model on one fold and predict all of the fold's scans.

    A training that was killed goes on from its last whole epoch when called again; on the CPU its weights are the same
    to the last bit as without the kill.

    Parameters
    ----------
    cache : Path
        Folder of the cache.
    folds : Path
        ``folds.tsv``.
    model : Model
    dataset : Dataset
        Its classes and the length of a crop.
    fold, seed : int
    out : Path
        The run's ``fold-<k>``; receives ``checkpoint.*``, ``config.yaml``, ``history.tsv``, ``predictions.tsv``,
        ``exclusions.tsv`` (scans too short for the model) and, last, ``status.json``.
    device : {"auto", "cpu", "cuda"}
    threads : int, optional
        CPU threads of torch; by default left alone.

    Raises
    ------
    DataError
        A class without a training scan, no test scan, a series that is not finite.
    ConfigError
        Unknown model or setting; a crop that the model cannot read.
    BoltError
        A loss that is not finite, with fold, epoch and step.
    """
    error = train_folds(cache, folds, model, dataset, [Job(fold, seed, out)], device=device, threads=threads)[0]
    if error is not None:
        raise error


def train_folds(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    jobs: Sequence[Job],
    *,
    device: str = "auto",
    threads: int | None = None,
) -> list[BoltError | None]:
    """Train several folds (or seeds) on one device in one process; they take turns, a step each.

    The series are in memory once. On a GPU each training has a stream of its own, so that small models overlap. The
    results are those of `train_fold`: on the CPU to the last bit.

    Parameters
    ----------
    jobs : sequence of Job
        Each with a folder of its own.

    Returns
    -------
    list
        For each job None, or the error that ended it; the others finish.

    Raises
    ------
    ConfigError
        As in `train_fold`: what is wrong for one is wrong for all.
    """
    place = device_of(device, threads)
    pool = Pool(SeriesCache(cache), place)
    work = [_train(pool, folds, model, dataset, job, line) for line, job in enumerate(jobs)]
    return _take_turns(work, place)


def _take_turns(trainings: Sequence[Iterator[None]], device: torch.device) -> list[BoltError | None]:
    """Advance every training by a step, again and again, until all have ended."""
    errors: list[BoltError | None] = [None] * len(trainings)
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in trainings]
    waiting = list(range(len(trainings)))
    while waiting:
        for number in tuple(waiting):
            stream = streams[number]
            try:
                with nullcontext() if stream is None else torch.cuda.stream(stream):
                    next(trainings[number])
                continue
            except StopIteration:
                pass
            except ConfigError:
                raise
            except BoltError as error:
                errors[number] = error
            waiting.remove(number)
    return errors


class Prepared(NamedTuple):
    """A training that is ready to begin.

    Attributes
    ----------
    fit : Fit
    table : DataFrame
        Its scans (rows of the cache's index) with their role.
    too_short : DataFrame
        Scans that the model cannot read.
    covariates : Covariates
    everything : Scans
        Those of `table`.
    """

    fit: Fit
    table: pd.DataFrame
    too_short: pd.DataFrame
    covariates: Covariates
    everything: Scans


def prepare(
    pool: Pool, folds: Path, model: Model, dataset: Dataset, job: Job, line: int = 0, search: bool = False
) -> Prepared:
    """Build the model of one fold and find its scans.

    In a `search` test scans are not looked at, and a model that cannot read all others is a ConfigError, for trials are
    compared on equal scans.

    Raises
    ------
    DataError, ConfigError
        As in `train_fold`.
    """
    fold, seed, out = job
    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(".[0-9]*.*"):  # temporary files of a killed run; nobody else writes here
        left.unlink()
    series, model = pool.cache, model.for_fold(fold)
    check_covariates(model, dataset, list(series.index))
    table = fold_table(series, folds, fold, share=model.train_share, seed=seed, numbers=dataset.classes is None)
    table = table[table["role"] != "test"] if search else table
    covariates = Covariates.fit(table[table.role == "train"], model.covariates)
    crop = min(dataset.crop, int(table.loc[table.role == "train", "length"].max()))
    seconds = table.loc[table.role == "train"].get("tr", pd.Series(dtype=float)).median()
    facts_of_data = {"crop": crop} | ({"tr": float(seconds)} if seconds > 0 else {})
    model = model.model_copy(update={"hyper": with_facts(model.model, model.hyper, facts_of_data)})
    settings = model.hyper | ({"n_covariates": len(covariates)} if model.covariates else {})
    seed_step(seed, fold)
    n_outputs = 1 if dataset.classes is None else len(dataset.classes)
    net = create_model(model.model, series.n_rois, n_outputs, **settings).to(pool.device)
    if crop < net.min_length:
        raise ConfigError(
            f"crops of {crop} volumes are shorter than the {net.min_length} that model '{model.name}' needs",
            hint="Lengthen 'crop' of the dataset (and take longer scans), or shorten the window of the model",
        )
    counts = table["role"].value_counts()
    table, too_short = _long_enough(table, net.min_length)
    if search and len(too_short):
        raise ConfigError(f"{len(too_short)} training or validation scans are too short for the model")
    for role in sorted(set(counts.index) - set(table["role"])):
        raise DataError(
            f"all {counts[role]} {role} scans of fold {fold} are shorter than the {net.min_length} volumes that model "
            f"'{model.name}' needs",
            where=folds,
            hint=f"Leave such scans out of all models with 'quality: min_n_volumes: {net.min_length}', or shorten the "
            "window of the model",
        )
    target = fit_target(dataset.classes, table, fold, folds)
    truth = target.encode(table)
    if not search and not (table["role"] == "test").any():
        raise DataError(f"fold {fold} has no test scan", where=folds, hint="Use fewer folds or more scans")
    inputs = covariates.encode(table)
    everything = Scans(pool, table.index.tolist(), inputs)

    def part(role: str) -> Part:
        own = (table.role == role).to_numpy()
        return Part(Scans(pool, table.index[own].tolist(), inputs[own]), torch.tensor(truth[own], device=pool.device))

    validation = part("validation") if (table.role == "validation").any() else None
    fingerprint = _fingerprint(series.folder, table, model, dataset, fold, seed)
    fit = Fit(net, part("train"), validation, target, model, crop, fold, seed, out, fingerprint, line)
    return Prepared(fit, table, too_short, covariates, everything)


def _train(pool: Pool, folds: Path, model: Model, dataset: Dataset, job: Job, line: int) -> Iterator[None]:
    """One training from its table of scans to its predictions; pauses after every step."""
    fit, table, too_short, covariates, everything = prepare(pool, folds, model, dataset, job, line)
    (fold, seed, out), series, target = job, pool.cache, fit.target
    model, net, crop = fit.model, fit.net, fit.crop
    progress = yield from fit.run()
    facts = {"model": model.model_dump(mode="json"), "fold": fold, "seed": seed}
    about = {"n_rois": series.n_rois, "classes": dataset.classes, "rois": series.rois["value"].tolist()}
    about |= {"label": target.__dict__} if isinstance(target, Number) else {}
    about["covariates"] = covariates.columns
    save_checkpoint(out, net, {**facts, **about, "crop": crop, "epoch": progress.epoch})
    write_yaml({**facts, "dataset": dataset.model_dump(mode="json")}, out / "config.yaml")
    write_table(too_short, out / "exclusions.tsv", EXCLUSION_COLUMNS)
    predicted = target.columns(target.decode(all_logits(net, everything)))
    write_predictions(table.assign(fold=fold, seed=seed, **predicted), out / "predictions.tsv")
    write_status(out / "status.json", "ok", "train")
    remove_resume(out)


def fold_table(
    series: SeriesCache, folds: Path, fold: int, *, share: float = 1.0, seed: int = 0, numbers: bool = False
) -> pd.DataFrame:
    """Rows of the cache's index (by position, sorted by scan) with their role; of the training part the scans of a
    share of its groups, drawn by `seed`, a smaller share being part of a larger one. `numbers`: labels are no classes.
    """
    roles = read_table(folds, text=("scan_id", "subject", "group"))
    roles = roles.loc[roles["fold"] == fold].set_index("scan_id")["role"]
    index = series.index.reset_index(drop=True)
    table = index.assign(role=index["scan_id"].map(roles)).dropna(subset="role").sort_values("scan_id")
    missing = sorted(set(roles.index) - set(table["scan_id"]))
    if missing:
        log.warning("%d scans of fold %d are not in the cache: %s", len(missing), fold, ", ".join(missing))
    return table if share == 1 else _thinned(table, share, seed, numbers)


def _thinned(table: pd.DataFrame, share: float, seed: int, numbers: bool) -> pd.DataFrame:
    """Without the training scans of some groups (families, else subjects); each class of groups keeps its share."""
    training = table[table["role"] == "train"]
    groups = training["group"].fillna(training["subject"]).astype(str)
    first = training.groupby(groups)["label"].first()  # sorted by group
    kept: set[str] = set()
    for _, members in first.groupby(first.astype(str) if not numbers else np.zeros(len(first))):
        drawn = np.random.default_rng(seed).permutation(members.index.to_numpy())
        kept |= set(drawn[: max(1, round(share * len(drawn)))])
    return table[(table["role"] != "train") | table.index.isin(groups.index[groups.isin(kept)])]


def _long_enough(table: pd.DataFrame, min_length: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The scans that the model can read, and a list of those that are too short."""
    short = table["length"] < min_length
    hint = f"shorten the window, or leave such scans out of all models with 'quality: min_n_volumes: {min_length}'"
    reasons = [f"{n} volumes, fewer than the {min_length} that the model needs: {hint}" for n in table["length"][short]]
    too_short = pd.DataFrame({"scan_id": table.loc[short, "scan_id"], "stage": "train", "reason": reasons})
    for row in too_short.itertuples():
        log.warning("left out: %s: %s", row.scan_id, row.reason)
    return table[~short], too_short


def _fingerprint(cache: Path, table: pd.DataFrame, model: Model, dataset: Dataset, fold: int, seed: int) -> str:
    """Names what an interrupted training must share with this one to be gone on with."""
    manifest = hashlib.sha256((cache / "manifest.json").read_bytes()).hexdigest()
    scans = table[["scan_id", "role", "label", "length"]].to_csv()
    code = code_fingerprint("bolt.training.runner", f"bolt.models.{model.model}")
    settings = [model.hash(), code, dataset.classes, dataset.crop, fold, seed, manifest, scans]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
