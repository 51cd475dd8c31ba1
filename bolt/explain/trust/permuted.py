"""A model trained on permuted labels, whose explanation should differ from that of the real model.

Labels are permuted between families or subjects (`bolt.cohort.units`), separately among training and validation scans.
The model is trained on a cache without the true labels of these scans; an interrupted training resumes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.cohort.units import permutations
from bolt.config import Dataset, Model
from bolt.config.layout import ModelRun
from bolt.evaluate.metrics import fold_predictions
from bolt.io.errors import DataError
from bolt.io.files import link_or_copy, read_json, sha256, write_json, write_table
from bolt.series.cache import FILES, INDEX_COLUMNS, SeriesCache
from bolt.training.outputs import fold_table
from bolt.training.trainers import train_fold

CACHE = "cache"
LEARNED = ("train", "validation")


def permuted_labels(scans: pd.DataFrame, seed: int) -> pd.Series:
    """Permute labels, so that they carry no information about scans.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, label, role.
    seed : int

    Returns
    -------
    Series
        Labels in the order of `scans`; test scans keep theirs, which training does not read. Scans of a unit that had
        one label get one, and the number of units with each label stays the same in training and in validation.
    """
    labels = scans["label"].copy()
    for part, role in enumerate(LEARNED):
        learned = scans[scans["role"] == role]
        if learned.empty:
            continue
        labels.loc[learned.index] = permutations(learned, 1, np.random.default_rng([seed, part]))[0]
    return labels


def write_permuted_cache(cache: Path, folds: Path, fold: int, seed: int, out: Path) -> None:
    """Write a cache with the same series, but permuted labels of a fold's training and validation scans.

    The series are linked, not copied, if the file system allows.
    """
    series = SeriesCache(cache)
    labels = permuted_labels(fold_table(series, folds, fold), seed)
    series.index.loc[labels.index, "label"] = labels
    for name in ("series.npy", "rois.tsv"):
        link_or_copy(cache / name, out / name)
    write_table(series.index, out / "index.tsv", INDEX_COLUMNS)
    manifest = read_json(cache / "manifest.json")
    manifest["sha256"] = {name: sha256(out / name) for name in FILES}
    write_json(manifest, out / "manifest.json")


def train_permuted(
    run: ModelRun,
    folds: Path,
    model: Model,
    dataset: Dataset,
    *,
    fold: int,
    device: str = "auto",
    threads: int | None = None,
) -> None:
    """Train a model as in one fold of a run, but on permuted labels, in `run.permuted`.

    That folder has the files of a fold. Labels in its ``predictions.tsv`` are the permuted ones, but for test scans the
    true ones.

    Parameters
    ----------
    run : ModelRun
        The run that is checked.
    folds, model, dataset, fold, device, threads
        As in `bolt.training.trainers.train_fold`.

    Raises
    ------
    DataError
        That fold of the run has not finished; also as `bolt.training.trainers.train_fold`.
    """
    if fold_predictions(run.fold(fold))[0] != "ok":
        what = f"fold {fold} of the run has not finished, so there is nothing to compare with"
        hint = "See its status.json, or name another fold as 'explain: sanity: fold'"
        raise DataError(what, where=run.fold(fold), hint=hint)
    seed, cache = int(run.seed), run.permuted / CACHE
    write_permuted_cache(run.cache, folds, fold, seed, cache)
    try:
        train_fold(cache, folds, model, dataset, fold=fold, seed=seed, out=run.permuted, device=device, threads=threads)
    finally:  # wrong labels must not be kept; they can be drawn again from the seed
        shutil.rmtree(cache, ignore_errors=True)
