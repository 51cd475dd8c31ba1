"""Training of any model: networks, models that are fitted at once, and ensembles of both.

Each kind is imported only when it is trained: networks need torch, the others do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bolt.config import Dataset, Model
from bolt.io.errors import BoltError
from bolt.models.registry import combines, fitted_at_once
from bolt.training.outputs import Training


def train_folds(
    cache: Path, folds: Path, model: Model, dataset: Dataset, trainings: Sequence[Training], **options: Any
) -> list[BoltError | None]:
    """Train a model on several folds: parameters, results and errors as in `bolt.training.runner.train_folds`.

    Models that are fitted at once use none of its options but `needs_test`.
    """
    if fitted_at_once(model.model):
        from bolt.training.features import train_features

        return train_features(cache, folds, model, dataset, trainings, options.get("needs_test", True))
    if combines(model.model):
        from bolt.training.ensembles import train_ensembles

        return train_ensembles(cache, folds, model, dataset, trainings, train_members=train_folds, **options)
    from bolt.training import runner

    return runner.train_folds(cache, folds, model, dataset, trainings, **options)


def train_fold(
    cache: Path, folds: Path, model: Model, dataset: Dataset, *, fold: int, seed: int, out: Path, **options: Any
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
        The run's ``fold-<k>``; receives ``checkpoint.*``, ``config.yaml``, ``history.tsv`` (of networks),
        ``predictions.tsv``, ``exclusions.tsv`` (scans too short for the model) and, last, ``status.json``.
    **options
        device, threads, needs_test, progress and watching of `bolt.training.runner.train_folds`.

    Raises
    ------
    DataError
        A class without a training scan, no test scan, a series that is not finite.
    ConfigError
        An unknown model or setting; a crop that the model cannot read.
    BoltError
        The loss is not finite; names fold, epoch and step.
    """
    (error,) = train_folds(cache, folds, model, dataset, [Training(fold, seed, out)], **options)
    if error is not None:
        raise error
