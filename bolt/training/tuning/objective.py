"""A fold as a search of hyper-parameters sees it: training and validation scans, and what these say of a model."""

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
from bolt.training.prediction import Pool
from bolt.training.runner import Job, fold_table, prepare

SEEN = ("train", "validation")
Watch = Callable[[dict[str, float]], None]


class Judged(NamedTuple):
    """What validation says of one trial: loss, and accuracy (or r2)."""

    loss: float
    score: float


class SeenFold:
    """All that a search sees of a fold: its training and validation scans.

    Parameters
    ----------
    cache, folds, model, dataset, fold, seed, device, threads
        As in `bolt.training.runner.train_fold`.

    Attributes
    ----------
    limits : dict
        Name of a searched value to the largest that fits.
    metric : str
        ``accuracy`` or ``r2``.

    Raises
    ------
    DataError
        A fold without validation scans.
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
        self.table = table[table["role"].isin(SEEN)]
        counts = self.table["role"].value_counts()
        self.n_train, self.n_validation = int(counts.get("train", 0)), int(counts.get("validation", 0))
        if not self.n_validation:
            raise DataError(
                f"fold {fold} has no validation scan, and a search is judged by nothing else",
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
        """Names all that trials must share to belong to one search."""
        facts = ["scan_id", "role", "label", "length", "group", "site", *model.covariates]
        scans = self.table[[name for name in dict.fromkeys(facts) if name in self.table]].to_csv(index=False)
        code = code_fingerprint("bolt.training.tuning.search", f"bolt.models.{model.model}")
        ranges = {name: span.model_dump(mode="json") for name, span in spans.items()}
        settings = [model.hash(), ranges, self.dataset.classes, self.dataset.crop, self.fold, self.seed, scans, code]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for i in self.table.index:
            digest.update(np.ascontiguousarray(self.series.series(int(i))).tobytes())
        return digest.hexdigest()

    def judge(self, model: Model, scratch: Path, watch: Watch) -> Judged:
        """Train a model and ask the validation scans.

        Parameters
        ----------
        model : Model
            As it is trained in this fold.
        scratch : Path
            Where a training keeps what it goes on from after a stop.
        watch : callable
            Told each epoch's row of the history; may end the trial.
        """
        job = Job(self.fold, self.seed, scratch)
        if self.at_once:
            return self._judge_at_once(model, job)
        prepared = prepare(self._pool, self.folds, model, self.dataset, job, search=True)
        prepared.fit.watch = watch
        progress = _result(prepared.fit.run())
        row = progress.history[progress.epoch - 1]
        return Judged(row["validation_loss"], row[f"validation_{self.metric}"])

    def _judge_at_once(self, model: Model, job: Job) -> Judged:
        target = class_target(model, self.dataset, self.table, self.fold, self.folds)
        _, probabilities = learn(self.series, self.table, self._features, target, model, job, self.dataset.crop)
        own = (self.table["role"] == "validation").to_numpy()
        truth, said = target.encode(self.table)[own], probabilities[own]
        loss = log_loss(truth, said, labels=range(target.n_outputs))
        return Judged(float(loss), float((said.argmax(1) == truth).mean()))


def _longest_window(model: Model, shortest: int) -> int:
    """Volumes of the longest window with which a model can read a scan of `shortest` volumes."""
    windows = range(1, shortest + 1)
    return bisect_right(windows, shortest, key=lambda w: shortest_of(model.model, {**model.hyper, "window": w}))


def _result(steps: Generator[None, None, Any]) -> Any:
    """What a generator returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
