"""The search of hyper-parameters on one fold: trials judged by its validation scans alone, by Optuna.

Test scans are never looked at: neither series nor labels. A search that was stopped goes on with the trials it has;
each trial is drawn from a seed of its own, so that the stop leaves no trace in the result.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from bolt.config import Model, Space, Span
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, write_json, write_table
from bolt.training.tuning.objective import SeenFold, Watch
from bolt.training.tuning.space import narrow, rounded, settings_of, spans_of, values_of

log = logging.getLogger(__name__)

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
TRIALS = {
    "trial": "Trial, from 1; the first has the model's own values, as far as they lie in the ranges",
    "state": "complete; or pruned: ended early, or impossible",
    "validation_loss": "Mean loss of the validation scans without the model's own terms: what is made small",
    "validation_accuracy": "Share of validation scans classified rightly; not searched by",
    "validation_r2": "Explained share of the labels' variance, of validation scans; not searched by",
    "reason": "Why a trial was pruned",
}


def search_fold(seen: SeenFold, model: Model, space: Space, n_trials: int, out: Path, scratch: Path) -> dict[str, Any]:
    """Search the settings of a model on one fold, or go on where a search was stopped.

    Parameters
    ----------
    seen : SeenFold
    model : Model
        Its own values are the first trial.
    space : Space
    n_trials : int
        Of which those that are done already count.
    out : Path
        Receives ``journal.log`` (Optuna's, which a stopped search goes on from), ``trials.tsv`` and, last,
        ``best.json``, which is returned too.
    scratch : Path
        For the training under way; removed.

    Raises
    ------
    ConfigError
        A range of which nothing fits the data; no trial that could be finished.
    """
    spans, narrowed = narrow(spans_of(space, model), seen.limits)
    for words in narrowed:
        log.info("%s, fold %d: %s", model.name, seen.fold, words)
    study = _study(out / "journal.log", f"{seen.fingerprint(model, spans)}, Optuna {optuna.__version__}")
    distributions = {name: _distribution(span) for name, span in spans.items()}
    while (done := len(study.get_trials(deepcopy=False, states=DONE))) < n_trials:
        study.sampler = optuna.samplers.TPESampler(seed=_trial_seed(seen.seed, seen.fold, done))
        if not done and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.enqueue_trial(values_of(model, spans))
        trial = study.ask(distributions)
        reason = _run(study, trial, seen, model, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        last = study.get_trials(deepcopy=False)[trial.number]
        said = f"loss {last.value:.4f}" if last.state == TrialState.COMPLETE else reason
        log.info("%s, fold %d, trial %d of %d: %s", model.name, seen.fold, done + 1, n_trials, said)
    return _write(study, seen, model, n_trials, narrowed, out)


def _run(study: optuna.Study, trial: optuna.Trial, seen: SeenFold, model: Model, scratch: Path) -> str:
    """One trial from its values to its entry in the study; returns why it was pruned, if it was."""
    values = rounded(trial.params)
    settings = settings_of(model, values)
    trial.set_user_attr("values", values)
    try:
        own = model.model_copy(update={"by_fold": {seen.fold: settings}}).for_fold(seen.fold)
        judged = seen.judge(own, scratch, _watch(trial, own.training.epochs))
        if not np.isfinite(judged.loss):
            raise BoltError("the validation loss is not finite")
    except optuna.TrialPruned as ended:
        reason = str(ended)
    except DataError:  # what is wrong with the data is wrong for every trial
        raise
    except BoltError as error:  # it diverged, or the model cannot be built so
        reason = error.what
    else:
        trial.set_user_attr("score", judged.score)
        study.tell(trial, judged.loss)
        return ""
    trial.set_user_attr("reason", reason)
    study.tell(trial, state=TrialState.PRUNED)
    return reason


def _watch(trial: optuna.Trial, epochs: int) -> Watch:
    """Ends a trial that is worse than the median of those before it. Tenths of a training are compared, for a long one
    is still warming up at the epoch at which a short one has ended."""
    told = 0

    def watch(row: dict[str, float]) -> None:
        nonlocal told
        tenth = int(10 * row["epoch"] / epochs)
        if tenth <= told:
            return
        told = tenth
        trial.report(row["validation_loss"], tenth)
        if tenth < 10 and trial.should_prune():
            raise optuna.TrialPruned(f"worse than the median of earlier trials after {10 * tenth} % of its epochs")

    return watch


def _study(journal: Path, name: str) -> optuna.Study:
    """The study of this name; what a stop left half done is put aside, and drawn again."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(journal))),
        study_name=name,
        pruner=optuna.pruners.MedianPruner(),
        load_if_exists=True,
    )
    for left in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(left.number, state=TrialState.FAIL)
    return study


def _trial_seed(seed: int, fold: int, done: int) -> int:
    return int(np.random.SeedSequence([seed, fold, done]).generate_state(1)[0])


def _distribution(span: Span) -> BaseDistribution:
    if span.choices is not None:
        return CategoricalDistribution(span.choices)
    assert span.low is not None and span.high is not None
    if span.whole:
        return IntDistribution(int(span.low), int(span.high), log=span.log)
    return FloatDistribution(float(span.low), float(span.high), log=span.log)


def _write(
    study: optuna.Study, seen: SeenFold, model: Model, n_trials: int, narrowed: list[str], out: Path
) -> dict[str, Any]:
    """Write the trials and the best of them."""
    trials = study.get_trials(deepcopy=False, states=DONE)[:n_trials]
    metric, names = f"validation_{seen.metric}", list(trials[0].params)
    table = pd.DataFrame([_row(number, trial, metric) for number, trial in enumerate(trials, start=1)])
    table = table.reindex(columns=["trial", "state", "validation_loss", metric, *names, "reason"])
    write_table(table, out / "trials.tsv", TRIALS | {name: f"{name}, as it was tried" for name in names})
    complete = table[table["state"] == "complete"]
    if complete.empty:
        raise ConfigError(
            f"none of {n_trials} trials of model '{model.name}' could be finished; the first: {table['reason'][0]}",
            where=f"search on fold {seen.fold}",
            hint="Correct the ranges in the file of the search space (config/search)",
        )
    best = complete["validation_loss"].astype(float).idxmin()  # of equals the first
    values = trials[best].user_attrs["values"]
    facts = {
        "fold": seen.fold,
        "trial": int(table["trial"][best]),
        "validation_loss": float(table["validation_loss"][best]),
        metric: float(table[metric][best]),
        "first_loss": None if pd.isna(table["validation_loss"][0]) else float(table["validation_loss"][0]),
        "n_trials": n_trials,
        "n_complete": len(complete),
        "n_train": seen.n_train,
        "n_validation": seen.n_validation,
        "seed": seen.seed,
        "optuna": optuna.__version__,
        "narrowed": narrowed,
        "values": values,
        "settings": settings_of(model, values).model_dump(mode="json"),
    }
    write_json(facts, out / "best.json")
    return dict(read_json(out / "best.json"))


def _row(number: int, trial: optuna.trial.FrozenTrial, metric: str) -> dict[str, Any]:
    """A trial as a row of ``trials.tsv``."""
    told = trial.user_attrs
    row: dict[str, Any] = {"trial": number, "state": trial.state.name.lower(), "reason": told.get("reason")}
    if trial.state == TrialState.COMPLETE:
        row |= {"validation_loss": trial.value, metric: told["score"]}
    return row | told["values"]
