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
from typing import Any

import pandas as pd

from bolt.cohort.covariates import Covariates
from bolt.config import Dataset, Model
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.base import SeriesModel
from bolt.models.registry import create_model, with_covariates, with_facts
from bolt.models.suitability import check_covariates
from bolt.series.cache import SeriesCache
from bolt.training.batches import explain_shortage, seed_step
from bolt.training.checkpoint import RESUME, load_checkpoint, save_checkpoint
from bolt.training.device import device_of
from bolt.training.loop import Fit
from bolt.training.outputs import Number, Training, fit_target, fold_table, write_run
from bolt.training.prediction import Pool, Scans, all_logits, predict

__all__ = ["Training", "load_checkpoint", "predict", "train_folds"]

log = logging.getLogger(__name__)

FREE_GPU = "Run fewer jobs at once on this GPU (--resources trainings=1), choose a smaller model, or set 'device: cpu'"
Watching = Callable[[Training], AbstractContextManager[Callable[[dict[str, float]], None]]]


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

    The series are in memory once. The results are those of a training alone.

    Parameters
    ----------
    cache, folds, model, dataset
        As in `bolt.training.trainers.train_fold`.
    trainings : sequence of Training
        Each with its own folder.
    device : {"auto", "cpu", "cuda"}
    threads : int, optional
        CPU threads of torch; unchanged by default.
    needs_test : bool
        Refuse a fold without test scans.
    progress : bool
        Show a progress bar.
    watching : callable
        Returns a context for a training, which yields what takes its epochs (`Fit.watch`).

    Returns
    -------
    list
        For each training None, or the error that ended it; the others finish.

    Raises
    ------
    ConfigError
        An unknown model or setting, or a crop that the model cannot read; ends all trainings, because it concerns all.
    """
    torch_device = device_of(device, threads)
    with explain_shortage("the series", FREE_GPU):
        pool = Pool(SeriesCache(cache), torch_device)
    log.info("series: %.2f GB, %s", pool.data.nbytes / 1e9, pool.place)

    def train(training: Training, line: int | None) -> Iterator[None]:
        """Train one fold and write its files, pausing after every step."""
        fit, scans, table, too_short, columns = prepare(
            pool, folds, model, dataset, training, line, needs_test=needs_test
        )
        (fold, seed, out), series, target = training, pool.cache, fit.target
        with watching(training) as fit.watch:
            yield from fit.run()
        info: dict[str, Any] = {"model": fit.model.model_dump(mode="json"), "fold": fold, "seed": seed}
        info |= {"n_rois": series.n_rois, "classes": dataset.classes, "rois": series.rois["value"].tolist()}
        info |= {"label": target.__dict__} if isinstance(target, Number) else {}
        info |= {"covariates": columns, "crop": fit.crop, "epoch": fit.progress.epoch, **fit.computed_by()}
        save_checkpoint(out, fit.net, info)
        predicted = target.columns(target.decode(all_logits(fit.net, scans)))
        write_run(out, info, dataset, too_short, table.assign(**predicted))
        (out / RESUME).unlink(missing_ok=True)

    steps = [train(training, line if progress else None) for line, training in enumerate(trainings)]
    errors: list[BoltError | None] = [None] * len(trainings)
    waiting = list(range(len(trainings)))
    while waiting:  # each training advances by one step in turn, until all have ended
        for number in tuple(waiting):
            try:
                next(steps[number])
                continue
            except StopIteration:
                pass
            except ConfigError:
                raise
            except BoltError as error:
                errors[number] = error
            waiting.remove(number)
    return errors


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
) -> tuple[Fit, Scans, pd.DataFrame, pd.DataFrame, list[dict[str, Any]]]:
    """Select the scans of one fold and build its model.

    In a `search`, test scans are left out, and a model that cannot read all other scans is a ConfigError, so that all
    trials are compared on the same scans. `line` is that of the progress bar, among several; None shows none.

    Returns
    -------
    tuple
        The training, ready to start; its scans; the same as rows of the cache's index, with their roles; scans that
        the model cannot read, as rows of ``exclusions.tsv``; and the columns of its covariates.

    Raises
    ------
    DataError, ConfigError
        As in `bolt.training.trainers.train_fold`.
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
    tr = train.get("tr", pd.Series(dtype=float)).dropna().median()  # seconds
    facts = {"crop": longest} | ({"tr": float(tr)} if tr > 0 else {})
    model = model.model_copy(update={"hyper": with_facts(model.model, model.hyper, facts)})
    seed_step(seed, fold)
    with explain_shortage(f"{model.name}, fold {fold}: the model", FREE_GPU):
        n_outputs = 1 if dataset.classes is None else len(dataset.classes)
        settings = with_covariates(model.hyper, len(covariates))
        net: SeriesModel = create_model(model.model, series.n_rois, n_outputs, **settings)
        if shortest < net.min_length:
            raise ConfigError(
                f"crops of {shortest} volumes are shorter than the {net.min_length} that model '{model.name}' needs",
                hint="Lengthen 'crop' of the dataset (and use longer scans), or shorten the model's window",
            )
        net = net.to(pool.device)
    short, needed = table["length"] < net.min_length, f"the {net.min_length} that the model needs"
    hint = f"Shorten the window, or exclude such scans from all models with 'quality: min_n_volumes: {net.min_length}'"
    reasons = [f"{n} volumes, fewer than {needed}. {hint}" for n in table["length"][short]]
    too_short = pd.DataFrame({"scan_id": table.loc[short, "scan_id"], "stage": "train", "reason": reasons})
    for row in too_short.itertuples():
        log.warning("excluded: %s: %s", row.scan_id, row.reason)
    if search and len(too_short):
        raise ConfigError(f"{len(too_short)} training or validation scans are too short for the model")
    for role, of_role in table.groupby("role"):
        if short[of_role.index].all():
            problem = f"all {len(of_role)} {role} scans of fold {fold} are shorter than the {net.min_length} volumes"
            raise DataError(f"{problem} that model '{model.name}' needs", where=folds, hint=hint)
    table = table[~short]
    target = fit_target(dataset.classes, table, fold, folds)
    truth = target.encode(table)
    if needs_test and not search and not (table["role"] == "test").any():
        raise DataError(f"fold {fold} has no test scan", where=folds, hint="Use fewer folds or more scans")
    inputs = covariates.encode(table)
    # what an interrupted training must share with this one to be resumed
    manifest = hashlib.sha256((series.folder / "manifest.json").read_bytes()).hexdigest()
    listed = table[["scan_id", "role", "label", "length"]].to_csv()
    code = code_fingerprint("bolt.training.runner", f"bolt.models.{model.model}")
    shared = [model.hash(), code, dataset.classes, dataset.crop, fold, seed, manifest, listed]
    fingerprint = hashlib.sha256(json.dumps(shared).encode()).hexdigest()

    def select(role: str) -> Scans:
        rows = (table["role"] == role).to_numpy()
        return Scans(pool, table.index[rows].tolist(), inputs[rows], truth[rows])

    validation = select("validation") if (table["role"] == "validation").any() else None
    fit = Fit(net, select("train"), validation, target, model, crop, fold, seed, out, fingerprint, line)
    return fit, Scans(pool, table.index.tolist(), inputs), table, too_short, covariates.columns
