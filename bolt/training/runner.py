"""Training of torch models on one or several folds; the loop itself is in `bolt.training.loop`.

Test scans are read once, after the last epoch.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from bolt.cohort.covariates import Covariates
from bolt.cohort.exclusions import EXCLUSION_COLUMNS
from bolt.config import Dataset, Model
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import write_status, write_table, write_yaml
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.base import SeriesModel
from bolt.models.registry import create_model, with_covariates, with_facts
from bolt.models.suitability import check_covariates
from bolt.series.cache import SeriesCache
from bolt.training.batches import explain_shortage
from bolt.training.checkpoint import load_checkpoint, remove_resume, save_checkpoint
from bolt.training.device import device_of
from bolt.training.loop import Fit, LabelledScans
from bolt.training.outputs import Training, fold_table, write_predictions
from bolt.training.prediction import Pool, Scans, all_logits, predict
from bolt.training.seeding import seed_step
from bolt.training.targets import Number, fit_target

__all__ = ["Training", "load_checkpoint", "predict", "train_fold", "train_folds"]

log = logging.getLogger(__name__)

FREE_GPU = "Run fewer jobs at once on this GPU (--resources trainings=1), choose a smaller model, or set 'device: cpu'"
Watching = Callable[[Training], AbstractContextManager[Callable[[dict[str, float]], None]]]


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
    needs_test: bool = True,
    progress: bool = True,
) -> None:
    """Train a model on one fold and predict all of the fold's scans.

    A training that was killed resumes after its last complete epoch when called again; on the CPU the weights are
    bitwise identical to those of an uninterrupted training.

    Parameters
    ----------
    cache : Path
        Folder of the cache.
    folds : Path
        ``folds.tsv``.
    model : Model
    dataset : Dataset
        Gives the classes and the crop length.
    fold, seed : int
    out : Path
        The run's ``fold-<k>``; receives ``checkpoint.*``, ``config.yaml``, ``history.tsv``, ``predictions.tsv``,
        ``exclusions.tsv`` (scans too short for the model) and, last, ``status.json``.
    device : {"auto", "cpu", "cuda"}
    threads : int, optional
        CPU threads of torch; unchanged by default.
    needs_test : bool
        Refuse a fold without test scans.
    progress : bool
        Show a progress bar.

    Raises
    ------
    DataError
        A class without a training scan, no test scan, a series that is not finite.
    ConfigError
        An unknown model or setting; a crop that the model cannot read.
    BoltError
        The loss is not finite; names fold, epoch and step.
    """
    trainings = [Training(fold, seed, out)]
    options: Any = {"device": device, "threads": threads, "needs_test": needs_test, "progress": progress}
    error = train_folds(cache, folds, model, dataset, trainings, **options)[0]
    if error is not None:
        raise error


def train_folds(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    trainings: Sequence[Training],
    *,
    device: str = "auto",
    threads: int | None = None,
    needs_test: bool = True,
    progress: bool = True,
    watching: Watching = lambda training: nullcontext(lambda row: None),
) -> list[BoltError | None]:
    """Train several folds (or seeds) on one device in one process, by turns, one step at a time.

    The series are in memory once. On a GPU each training has its own stream, so that small models overlap. The results
    are those of `train_fold`, on the CPU bitwise.

    Parameters
    ----------
    cache, folds, model, dataset, device, threads, needs_test, progress
        As in `train_fold`.
    trainings : sequence of Training
        Each with its own folder.
    watching : callable
        Returns a context for a training, which yields what takes its epochs (`Fit.watch`).

    Returns
    -------
    list
        For each training None, or the error that ended it; the others finish.

    Raises
    ------
    ConfigError
        As in `train_fold`; ends all trainings, because it concerns all.
    """
    torch_device = device_of(device, threads)
    with explain_shortage("the series", FREE_GPU):
        pool = Pool(SeriesCache(cache), torch_device)
    log.info("series: %.2f GB, %s", pool.data.nbytes / 1e9, pool.place)
    steps = [
        _train(pool, folds, model, dataset, training, line if progress else None, needs_test, watching)
        for line, training in enumerate(trainings)
    ]
    return _take_turns(steps, torch_device)


def _take_turns(trainings: Sequence[Iterator[None]], device: torch.device) -> list[BoltError | None]:
    """Advance each training by one step in turn, until all have ended."""
    errors: list[BoltError | None] = [None] * len(trainings)
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in trainings]
    for stream in streams:
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))  # which copies the series
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
    """A training that is ready to start.

    Attributes
    ----------
    fit : Fit
    table : DataFrame
        Its scans (rows of the cache's index) with their roles.
    too_short : DataFrame
        Scans that the model cannot read, as rows of ``exclusions.tsv``.
    covariates : Covariates
    scans : Scans
        The scans of `table`.
    """

    fit: Fit
    table: pd.DataFrame
    too_short: pd.DataFrame
    covariates: Covariates
    scans: Scans


def prepare(
    pool: Pool,
    folds: Path,
    model: Model,
    dataset: Dataset,
    training: Training,
    line: int | None = 0,
    *,
    search: bool = False,
    needs_test: bool = True,
) -> Prepared:
    """Select the scans of one fold and build its model.

    In a `search`, test scans are left out, and a model that cannot read all other scans is a ConfigError, so that all
    trials are compared on the same scans. `line` is that of the progress bar, among several; None shows none.

    Raises
    ------
    DataError, ConfigError
        As in `train_fold`.
    """
    fold, seed, out = training
    out.mkdir(parents=True, exist_ok=True)
    # temporary files of a killed run, ours and those of safetensors; no other process writes here
    for leftover in [*out.glob(".[0-9]*.*"), *out.glob(".tmp*")]:
        leftover.unlink()
    model, dataset = model.on(dataset)
    series, model = pool.cache, model.for_fold(fold)
    check_covariates(model, dataset, list(series.index))
    table = fold_table(series, folds, fold, share=model.train_share, seed=seed, numbers=dataset.classes is None)
    table = table[table["role"] != "test"] if search else table
    train = table[table["role"] == "train"]
    covariates = Covariates.fit(train, model.covariates)
    crop = min(dataset.crop, int(train["length"].max()))
    shortest, longest = model.training.crop_lengths(crop)
    model = _with_data_settings(model, train, longest)
    seed_step(seed, fold)
    with explain_shortage(f"{model.name}, fold {fold}: the model", FREE_GPU):
        net = _build(model, dataset, series.n_rois, len(covariates), shortest).to(pool.device)
    table, too_short = _readable(table, net.min_length, f"fold {fold}", folds, model, search)
    target = fit_target(dataset.classes, table, fold, folds)
    truth = target.encode(table)
    if needs_test and not search and not (table["role"] == "test").any():
        raise DataError(f"fold {fold} has no test scan", where=folds, hint="Use fewer folds or more scans")
    inputs = covariates.encode(table)
    scans = Scans(pool, table.index.tolist(), inputs)

    def select(role: str) -> LabelledScans:
        rows = (table["role"] == role).to_numpy()
        selected = Scans(pool, table.index[rows].tolist(), inputs[rows])
        return LabelledScans(selected, torch.tensor(truth[rows], device=pool.device))

    validation = select("validation") if (table["role"] == "validation").any() else None
    fingerprint = _fingerprint(series.folder, table, model, dataset, fold, seed)
    fit = Fit(net, select("train"), validation, target, model, crop, fold, seed, out, fingerprint, line)
    return Prepared(fit, table, too_short, covariates, scans)


def _with_data_settings(model: Model, train: pd.DataFrame, crop: int) -> Model:
    """Fill in the settings that follow from the training scans: crop length and median TR in seconds."""
    tr = train.get("tr", pd.Series(dtype=float)).dropna().median()
    facts = {"crop": crop} | ({"tr": float(tr)} if tr > 0 else {})
    return model.model_copy(update={"hyper": with_facts(model.model, model.hyper, facts)})


def _build(model: Model, dataset: Dataset, n_rois: int, n_covariates: int, crop: int) -> SeriesModel:
    """Create a model with fresh weights; refuse a crop that it cannot read (ConfigError)."""
    n_outputs = 1 if dataset.classes is None else len(dataset.classes)
    net: SeriesModel = create_model(model.model, n_rois, n_outputs, **with_covariates(model.hyper, n_covariates))
    if crop < net.min_length:
        raise ConfigError(
            f"crops of {crop} volumes are shorter than the {net.min_length} that model '{model.name}' needs",
            hint="Lengthen 'crop' of the dataset (and use longer scans), or shorten the model's window",
        )
    return net


def _readable(
    table: pd.DataFrame, min_length: int, fold: str, folds: Path, model: Model, search: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split scans into those that the model can read and a table of exclusions.

    Raises
    ------
    ConfigError
        A scan is too short, in a search.
    DataError
        All scans of a role are too short.
    """
    short = table["length"] < min_length
    hint = f"Shorten the window, or exclude such scans from all models with 'quality: min_n_volumes: {min_length}'"
    reasons = [f"{n} volumes, fewer than the {min_length} that the model needs. {hint}" for n in table["length"][short]]
    too_short = pd.DataFrame({"scan_id": table.loc[short, "scan_id"], "stage": "train", "reason": reasons})
    for row in too_short.itertuples():
        log.warning("excluded: %s: %s", row.scan_id, row.reason)
    if search and len(too_short):
        raise ConfigError(f"{len(too_short)} training or validation scans are too short for the model")
    for role, scans in table.groupby("role"):
        if short[scans.index].all():
            raise DataError(
                f"all {len(scans)} {role} scans of {fold} are shorter than the {min_length} volumes that model "
                f"'{model.name}' needs",
                where=folds,
                hint=hint,
            )
    return table[~short], too_short


def _train(
    pool: Pool,
    folds: Path,
    model: Model,
    dataset: Dataset,
    training: Training,
    line: int | None,
    needs_test: bool,
    watching: Watching,
) -> Iterator[None]:
    """Train one fold and write its files, pausing after every step."""
    prepared = prepare(pool, folds, model, dataset, training, line, needs_test=needs_test)
    fit, table, too_short, covariates, scans = prepared
    (fold, seed, out), series, target = training, pool.cache, fit.target
    with watching(training) as fit.watch:
        progress = yield from fit.run()
    run = {"model": fit.model.model_dump(mode="json"), "fold": fold, "seed": seed}
    info = {**run, "n_rois": series.n_rois, "classes": dataset.classes, "rois": series.rois["value"].tolist()}
    info |= {"label": target.__dict__} if isinstance(target, Number) else {}
    info |= {"covariates": covariates.columns, "crop": fit.crop, "epoch": progress.epoch, **fit.computed_by()}
    save_checkpoint(out, fit.net, info)
    write_yaml({**run, "dataset": dataset.model_dump(mode="json")}, out / "config.yaml")
    write_table(too_short, out / "exclusions.tsv", EXCLUSION_COLUMNS)
    predicted = target.columns(target.decode(all_logits(fit.net, scans)))
    write_predictions(table.assign(fold=fold, seed=seed, **predicted), out / "predictions.tsv")
    write_status(out / "status.json", "ok", "train")
    remove_resume(out)


def _fingerprint(cache: Path, table: pd.DataFrame, model: Model, dataset: Dataset, fold: int, seed: int) -> str:
    """Identify everything that an interrupted training must share with this one to be resumed."""
    manifest = hashlib.sha256((cache / "manifest.json").read_bytes()).hexdigest()
    scans = table[["scan_id", "role", "label", "length"]].to_csv()
    code = code_fingerprint("bolt.training.runner", f"bolt.models.{model.model}")
    settings = [model.hash(), code, dataset.classes, dataset.crop, fold, seed, manifest, scans]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
