"""Objective of a hyper-parameter search: loss of the validation scans of a fold after training."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import log_loss

from bolt.config import Dataset, Model, Span
from bolt.io.errors import DataError
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import fitted_at_once, inputs_of, shortest_of
from bolt.series.cache import SeriesCache
from bolt.series.connectivity import connectivity_of
from bolt.training.device import device_of
from bolt.training.features import class_target, learn
from bolt.training.outputs import fold_table
from bolt.training.prediction import Pool
from bolt.training.runner import Training, prepare

ROLES = ("train", "validation")
"""Roles of the scans that a search may use."""
Watch = Callable[[dict[str, float]], None]


class Validation(NamedTuple):
    """Result of a trial on the validation scans: loss, and accuracy (or R²)."""

    loss: float
    score: float


class Objective:
    """What a search minimises: the validation loss of a model trained on one fold.

    It has the fold's training and validation scans; test scans are never read.

    Parameters
    ----------
    cache, folds, model, dataset, fold, seed, device, threads
        As in `bolt.training.runner.train_fold`.

    Attributes
    ----------
    limits : dict
        Largest value that fits the data, by name of the searched value.
    metric : str
        ``accuracy`` or ``r2``.

    Raises
    ------
    DataError
        The fold has no validation scans.
    """

    def __init__(
        self,
        cache: Path,
        folds: Path,
        model: Model,
        dataset: Dataset,
        fold: int,
        seed: int,
        device: str = "auto",
        threads: int | None = None,
    ) -> None:
        self.series, self.folds, self.dataset = SeriesCache(cache), folds, dataset
        self.fold, self.seed = fold, seed
        numbers = dataset.classes is None
        table = fold_table(self.series, folds, fold, share=model.train_share, seed=seed, numbers=numbers)
        self.table = table[table["role"].isin(ROLES)]
        counts = self.table["role"].value_counts()
        self.n_train, self.n_validation = int(counts.get("train", 0)), int(counts.get("validation", 0))
        if not self.n_validation:
            raise DataError(
                f"fold {fold} has no validation scan, which a search needs",
                where=folds,
                hint="Raise 'folds: validation'",
            )
        self.metric = "r2" if dataset.classes is None else "accuracy"
        shortest = min(dataset.crop, int(self.table["length"].min()))
        self.limits = {"hyper.window": _longest_window(model, shortest), "training.batch_size": self.n_train}
        self.at_once = fitted_at_once(model.model)
        if not self.at_once:
            self._pool = Pool(self.series, device_of(device, threads))
        elif inputs_of(model.model) == "covariates":
            self._features = None
        else:
            self._features = connectivity_of(self.series, self.table.index.tolist(), fisher_z=model.fisher_z)

    def fingerprint(self, model: Model, spans: Mapping[str, Span]) -> str:
        """Identify everything that trials must share to belong to one search."""
        facts = ["scan_id", "role", "label", "length", "group", "site", *model.covariates, *model.preserve]
        scans = self.table[[name for name in dict.fromkeys(facts) if name in self.table]].to_csv(index=False)
        code = code_fingerprint("bolt.training.tuning.search", f"bolt.models.{model.model}")
        ranges = {name: span.model_dump(mode="json") for name, span in spans.items()}
        settings = [model.hash(), ranges, self.dataset.classes, self.dataset.crop, self.fold, self.seed, scans, code]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for i in self.table.index:
            digest.update(np.ascontiguousarray(self.series.series(int(i))).tobytes())
        return digest.hexdigest()

    def evaluate(self, model: Model, scratch: Path, watch: Watch) -> Validation:
        """Train a model and evaluate it on the validation scans.

        Parameters
        ----------
        model : Model
            With the settings of this trial.
        scratch : Path
            For the state from which an interrupted training resumes.
        watch : callable
            Called with each epoch's row of the history; may end the trial by an exception.
        """
        training = Training(self.fold, self.seed, scratch)
        if self.at_once:
            return self._evaluate_at_once(model, training)
        fit = prepare(self._pool, self.folds, model, self.dataset, training, search=True).fit
        fit.watch = watch
        progress = _result(fit.run())
        row = progress.history[progress.epoch - 1]
        return Validation(row["validation_loss"], row[f"validation_{self.metric}"])

    def _evaluate_at_once(self, model: Model, training: Training) -> Validation:
        """Evaluate a model without epochs."""
        target = class_target(model, self.dataset, self.table, self.fold, self.folds)
        _, probabilities = learn(self.series, self.table, self._features, target, model, training, self.dataset.crop)
        validation = (self.table["role"] == "validation").to_numpy()
        truth, predicted = target.encode(self.table)[validation], probabilities[validation]
        loss = log_loss(truth, predicted, labels=range(target.n_outputs))
        return Validation(float(loss), float((predicted.argmax(1) == truth).mean()))


def _longest_window(model: Model, shortest: int) -> int:
    """Return the longest window with which a model can read a scan of `shortest` volumes."""
    windows = range(1, shortest + 1)
    return bisect_right(windows, shortest, key=lambda w: shortest_of(model.model, {**model.hyper, "window": w}))


def _result(steps: Generator[None, None, Any]) -> Any:
    """Exhaust a generator and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
