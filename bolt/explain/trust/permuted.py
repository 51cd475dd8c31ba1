"""A model that has learned permuted labels: what an explanation of real reasons must not look like.

Labels change places between families, or between the largest units of scans (families, subjects, scans) that each have
one label, among the training scans and among the validation scans. `bolt.training.runner` trains,
on a cache without the true labels of these scans; an interrupted training resumes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.config import Dataset, Model
from bolt.datasets import COLUMNS
from bolt.evaluate.metrics import fold_predictions
from bolt.io.errors import DataError
from bolt.io.files import keep, read_table, write_table
from bolt.series.cache import OWN_COLUMNS, SeriesCache
from bolt.training.runner import train_fold

CACHE = "cache"
LEARNED = ("train", "validation")


def permuted_labels(scans: pd.DataFrame, seed: int) -> pd.Series:
    """Labels that have changed places, so that each says nothing about its scan.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, label, role.
    seed : int

    Returns
    -------
    Series
        Labels in the order of `scans`; test scans keep theirs, which training does not read. All scans of a unit get
        one label, and the number of units with each label stays the same in training and in validation.
    """
    labels = scans["label"].copy()
    for part, role in enumerate(LEARNED):
        own = scans[scans["role"] == role].sort_values("scan_id")
        if own.empty:
            continue
        unit = _units(own)
        first = own.groupby(unit, sort=True)["label"].first()
        moved = np.random.default_rng([seed, part]).permutation(first.to_numpy())
        labels.loc[own.index] = unit.map(dict(zip(first.index, moved, strict=True)))
    return labels


def _units(scans: pd.DataFrame) -> pd.Series:
    """The name of each scan's unit: family, subject or scan, the largest of which each has one label."""
    family = scans["group"].fillna(scans["subject"])
    for unit in (family, scans["subject"]):
        if (scans.groupby(unit)["label"].nunique() == 1).all():
            return unit
    return scans["scan_id"]


def write_permuted_cache(cache: Path, folds: Path, fold: int, seed: int, out: Path) -> None:
    """Write a cache with the same series, in whose index the labels of a fold's training and validation scans are
    permuted (`permuted_labels`). The series are no second copy where the disk allows."""
    index = SeriesCache(cache).index
    roles = read_table(folds, text=("scan_id",))
    roles = roles[roles["fold"] == fold].set_index("scan_id")["role"]
    index["label"] = permuted_labels(index.assign(role=index["scan_id"].map(roles)), seed)
    for name in ("series.npy", "rois.tsv"):
        keep(cache / name, out / name)
    write_table(index, out / "index.tsv", {**COLUMNS, **OWN_COLUMNS})
    keep(cache / "manifest.json", out / "manifest.json")


def train_permuted(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    run: Path,
    *,
    fold: int,
    seed: int,
    out: Path,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Train a model as in one fold of a run, but on permuted labels.

    Parameters
    ----------
    cache, folds, model, dataset, seed, device, threads
        As in `bolt.training.runner.train_fold`.
    run : Path
        Folder ``seed-<s>`` of the run that is checked.
    fold : int
        Which fold.
    out : Path
        Receives what a run's fold has; no run itself. Labels in its ``predictions.tsv`` are the permuted ones, of test
        scans the true ones.

    Raises
    ------
    DataError
        Where that fold has not finished; and what `bolt.training.runner.train_fold` raises.
    """
    if fold_predictions(run / f"fold-{fold}")[0] != "ok":
        raise DataError(
            f"fold {fold}, which is to be compared with, has not finished",
            where=run / f"fold-{fold}",
            hint="See its status.json, or name another fold as 'explain: sanity: fold'",
        )
    write_permuted_cache(cache, folds, fold, seed, out / CACHE)
    try:
        settings = {"fold": fold, "seed": seed, "out": out, "device": device, "threads": threads}
        train_fold(out / CACHE, folds, model, dataset, **settings)  # type: ignore[arg-type]
    finally:  # labels that are wrong on purpose shall not lie about; they are drawn the same again
        shutil.rmtree(out / CACHE, ignore_errors=True)
