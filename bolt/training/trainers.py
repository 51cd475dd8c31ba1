"""Training of any model: networks, models that are fitted at once, and ensembles of both.

Each kind is imported only when it is trained: networks need torch, the others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bolt.config import Dataset, Model
from bolt.io.errors import BoltError
from bolt.models.registry import combines, fitted_at_once
from bolt.training.outputs import Training


def train_folds(
    cache: Path,
    folds: Path,
    model: Model,
    dataset: Dataset,
    trainings: Sequence[Training],
    *,
    watching: Callable[..., Any] | None = None,
    **options: Any,
) -> list[BoltError | None]:
    """Train a model on several folds: parameters, results and errors as in `bolt.training.runner.train_folds`."""
    if fitted_at_once(model.model):
        from bolt.training.features import train_features

        return train_features(cache, folds, model, dataset, trainings, **options)
    options |= {"watching": watching} if watching else {}
    if combines(model.model):
        from bolt.training.ensembles import train_ensembles

        return train_ensembles(cache, folds, model, dataset, trainings, train_members=train_folds, **options)
    from bolt.training import runner

    return runner.train_folds(cache, folds, model, dataset, trainings, **options)


def train_fold(
    cache: Path, folds: Path, model: Model, dataset: Dataset, *, fold: int, seed: int, out: Path, **options: Any
) -> None:
    """Train a model on one fold, and raise its error: parameters as in `bolt.training.runner.train_fold`."""
    (error,) = train_folds(cache, folds, model, dataset, [Training(fold, seed, out)], **options)
    if error is not None:
        raise error
