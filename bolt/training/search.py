"""Hyper-parameter search on one fold with Optuna: trials are compared by the loss of the validation scans.

Test scans are never read: neither series nor labels. An interrupted search resumes with the trials it has; each trial
has its own seed, so that an interruption does not change the result.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from sklearn.metrics import log_loss

from bolt.config import Dataset, Model, Space, Span
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import columns, read_json, write_json, write_table
from bolt.jobs.code_hash import fingerprint as code_fingerprint
from bolt.models.registry import fitted_at_once, shortest_of
from bolt.series.cache import SeriesCache
from bolt.training.device import device_of
from bolt.training.features import class_target, learn, read_inputs
from bolt.training.outputs import Training, fold_table
from bolt.training.prediction import Pool
from bolt.training.runner import prepare
from bolt.training.space import narrow, rounded, settings_of, spans_of, values_of

log = logging.getLogger(__name__)

ROLES = ("train", "validation")
"""Roles of the scans that a search may use."""
Watch = Callable[[dict[str, float]], None]
DONE = (TrialState.COMPLETE, TrialState.PRUNED)
TRIALS = columns("training", "trials")


class Objective:
    """What a search minimises: the validation loss of a model trained on one fold.

    It has the fold's training and validation scans; test scans are never read.

    Parameters
    ----------
    cache, folds, model, dataset, fold, seed, device, threads
        As in `bolt.training.trainers.train_fold`.

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
        self.metric = "r2" if numbers else "accuracy"
        table = fold_table(self.series, folds, fold, share=model.train_share, seed=seed, numbers=numbers)
        self.table = table[table["role"].isin(ROLES)]
        self.n_train, self.n_validation = (int((self.table["role"] == role).sum()) for role in ROLES)
        if not self.n_validation:
            problem = f"fold {fold} has no validation scan, which a search needs"
            raise DataError(problem, where=folds, hint="Raise 'folds: validation'")
        shortest = min(dataset.crop, int(self.table["length"].min()))
        window = bisect_right(  # the longest with which the model can read a scan of `shortest` volumes
            range(1, shortest + 1), shortest, key=lambda w: shortest_of(model.model, {**model.hyper, "window": w})
        )
        self.limits = {"hyper.window": window, "training.batch_size": self.n_train}
        self.at_once = fitted_at_once(model.model)
        if not self.at_once:
            self._pool = Pool(self.series, device_of(device, threads))
        else:
            own = [Training(fold, seed, cache)]
            self._features = read_inputs(self.series, folds, model, dataset, own, ROLES).of(fold, self.table)

    def fingerprint(self, model: Model, spans: Mapping[str, Span]) -> str:
        """Identify everything that trials must share to belong to one search."""
        facts = ["scan_id", "role", "label", "length", "tr", "group", "site", *model.covariates, *model.preserve]
        scans = self.table[[name for name in dict.fromkeys(facts) if name in self.table]].to_csv(index=False)
        code = code_fingerprint("bolt.training.search", f"bolt.models.{model.model}")
        ranges = {name: span.model_dump(mode="json") for name, span in spans.items()}
        settings = [model.hash(), ranges, self.dataset.classes, self.dataset.crop, self.fold, self.seed, scans, code]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for i in self.table.index:
            digest.update(np.ascontiguousarray(self.series.series(int(i))).tobytes())
        if self.at_once and self._features is not None:  # of a file, perhaps
            digest.update(np.ascontiguousarray(self._features).tobytes())
        return digest.hexdigest()

    def evaluate(self, model: Model, scratch: Path, watch: Watch) -> tuple[float, float]:
        """Train a model and return its loss and its accuracy (or R²) on the validation scans.

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
        if not self.at_once:
            fit, *_ = prepare(self._pool, self.folds, model, self.dataset, training, search=True)
            fit.watch = watch
            for _ in fit.run():
                pass
            row = fit.progress.history[fit.progress.epoch - 1]
            return row["validation_loss"], row[f"validation_{self.metric}"]
        target = class_target(model, self.dataset, self.table, self.fold, self.folds)
        _, probabilities = learn(self.series, self.table, self._features, target, model, training, self.dataset.crop)
        validation = (self.table["role"] == "validation").to_numpy()
        truth, predicted = target.encode(self.table)[validation], probabilities[validation]
        loss = log_loss(truth, predicted, labels=range(len(target.names)))
        return float(loss), float((predicted.argmax(1) == truth).mean())


def search_fold(
    objective: Objective, model: Model, space: Space, n_trials: int, out: Path, scratch: Path, *, shared: bool = False
) -> dict[str, Any]:
    """Search the settings of a model on one fold, or resume an interrupted search.

    Parameters
    ----------
    objective : Objective
    model : Model
        Its own values are the first trial.
    space : Space
    n_trials : int
        In total, including those of an interrupted search.
    out : Path
        Receives ``journal.log`` (of Optuna, from which a search resumes), ``trials.tsv`` and, last, ``best.json``,
        whose contents are returned.
    scratch : Path
        For the current training; removed afterwards.
    shared : bool
        Try candidates that depend neither on the data nor on earlier trials, so that other datasets try the same: drawn
        at random from the whole ranges. Those that do not fit the data are pruned.

    Raises
    ------
    ConfigError
        No value of a range fits the data; no trial could be completed.
    """
    spans, narrowed = narrow(spans_of(space, model), {} if shared else objective.limits)
    for change in narrowed:
        log.info("%s, fold %d: %s", model.name, objective.fold, change)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    out.mkdir(parents=True, exist_ok=True)
    kind = ", shared" if shared else ""
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(out / "journal.log"))),
        study_name=f"{objective.fingerprint(model, spans)}{kind}, Optuna {optuna.__version__}",
        pruner=optuna.pruners.MedianPruner(),
        load_if_exists=True,
    )
    for interrupted in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(interrupted.number, state=TrialState.FAIL)  # and it is repeated

    def run(trial: optuna.Trial) -> float:
        drawn: dict[str, Any] = {}
        for name, span in spans.items():
            if span.choices is not None:
                drawn[name] = trial.suggest_categorical(name, span.choices)
                continue
            assert span.low is not None and span.high is not None
            if span.whole:
                drawn[name] = trial.suggest_int(name, int(span.low), int(span.high), log=span.log)
            else:
                drawn[name] = trial.suggest_float(name, float(span.low), float(span.high), log=span.log)
        values = rounded(drawn)
        settings = settings_of(model, values)
        trial.set_user_attr("values", values)
        try:
            for name, limit in objective.limits.items():
                if values.get(name, limit) > limit:
                    raise BoltError(f"{name} is {values[name]}, but the data allow at most {limit}")
            candidate = model.model_copy(update={"by_fold": {objective.fold: settings}}).for_fold(objective.fold)
            loss, score = objective.evaluate(candidate, scratch, _watch(trial, candidate.training.epochs))
            if not np.isfinite(loss):
                raise BoltError("the validation loss is not finite")
        except DataError:  # would end every trial
            raise
        except (optuna.TrialPruned, BoltError) as error:  # the latter: it diverged, or no model has these values
            reason = error.what if isinstance(error, BoltError) else str(error)
            trial.set_user_attr("reason", reason)
            raise optuna.TrialPruned(reason) from None
        trial.set_user_attr("score", score)
        return loss

    def report(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        result = f"loss {trial.value:.4f}" if trial.state == TrialState.COMPLETE else trial.user_attrs["reason"]
        log.info("%s, fold %d, trial %d of %d: %s", model.name, objective.fold, done + 1, n_trials, result)

    for done in range(len(study.get_trials(deepcopy=False, states=DONE)), n_trials):
        seed = np.random.SeedSequence([objective.seed, 0 if shared else objective.fold, done]).generate_state(1)
        sampler = optuna.samplers.RandomSampler if shared else optuna.samplers.TPESampler
        study.sampler = sampler(seed=int(seed[0]))
        if not done and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.enqueue_trial(values_of(model, spans))
        study.optimize(run, n_trials=1, callbacks=[report])
    return _write(study, objective, model, n_trials, narrowed, out)


def _watch(trial: optuna.Trial, epochs: int) -> Watch:
    """Return a callback that prunes a trial if it is worse than the median of earlier trials.

    Trials are compared after tenths of their epochs, because long trainings warm up more slowly than short ones.
    """
    reported = 0

    def watch(row: dict[str, float]) -> None:
        nonlocal reported
        tenth = int(10 * row["epoch"] / epochs)
        if tenth <= reported:
            return
        reported = tenth
        trial.report(row["validation_loss"], tenth)
        if tenth < 10 and trial.should_prune():
            raise optuna.TrialPruned(f"worse than the median of earlier trials after {10 * tenth} % of its epochs")

    return watch


def _write(
    study: optuna.Study, objective: Objective, model: Model, n_trials: int, narrowed: list[str], out: Path
) -> dict[str, Any]:
    """Write all trials and the best of them; return the latter."""
    trials = study.get_trials(deepcopy=False, states=DONE)[:n_trials]
    metric, names, rows = f"validation_{objective.metric}", list(trials[0].params), []
    for number, trial in enumerate(trials, start=1):
        facts = trial.user_attrs
        row: dict[str, Any] = {"trial": number, "state": trial.state.name.lower(), "reason": facts.get("reason")}
        if trial.state == TrialState.COMPLETE:
            row |= {"validation_loss": trial.value, metric: facts["score"]}
        rows.append(row | facts["values"])
    columns = ["trial", "state", "validation_loss", metric, *names, "reason"]
    table = pd.DataFrame(rows).reindex(columns=columns)
    write_table(table, out / "trials.tsv", TRIALS | {name: f"Value of {name}" for name in names})
    complete = table[table["state"] == "complete"]
    if complete.empty:
        raise ConfigError(
            f"none of {n_trials} trials of model '{model.name}' could be completed; the first: {table['reason'][0]}",
            where=f"search on fold {objective.fold}",
            hint="Correct the ranges in the file of the search space (config/search)",
        )
    best = complete["validation_loss"].astype(float).idxmin()  # the first of equals
    values = trials[best].user_attrs["values"]
    facts = {
        "fold": objective.fold,
        "trial": int(table["trial"][best]),
        "validation_loss": float(table["validation_loss"][best]),
        metric: None if pd.isna(table[metric][best]) else float(table[metric][best]),
        "first_loss": None if pd.isna(table["validation_loss"][0]) else float(table["validation_loss"][0]),
        "n_trials": n_trials,
        "n_complete": len(complete),
        "n_train": objective.n_train,
        "n_validation": objective.n_validation,
        "seed": objective.seed,
        "optuna": optuna.__version__,
        "narrowed": narrowed,
        "values": values,
        "settings": settings_of(model, values).model_dump(mode="json"),
    }
    write_json(facts, out / "best.json")
    return dict(read_json(out / "best.json"))
