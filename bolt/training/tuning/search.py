"""Hyper-parameter search on one fold with Optuna: trials are compared by the loss of the validation scans.

Test scans are never read: neither series nor labels. An interrupted search resumes with the trials it has; each trial
has its own seed, so that an interruption does not change the result.

One choice of hyper-parameters for all datasets and atlases, as in the paper: near the best on each of them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
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
from bolt.io.files import read_json, write_json, write_table, write_text
from bolt.training.tuning.choice import dump, read_trials, trials_of
from bolt.training.tuning.objective import Objective, Watch
from bolt.training.tuning.space import keys_with, narrow, rounded, settings_of, spans_of, values_of

log = logging.getLogger(__name__)

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
TRIALS = {
    "trial": "Trial, from 1; the first has the model's own values, moved into the ranges",
    "state": "complete; or pruned: ended early, or impossible",
    "validation_loss": "Mean loss of the validation scans without the model's own terms; minimised by the search",
    "validation_accuracy": "Share of validation scans classified correctly; not used by the search",
    "validation_r2": "Explained share of the labels' variance, for validation scans; not used by the search",
    "reason": "Why a trial was pruned",
}


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
    kind = ", shared" if shared else ""
    study = _study(out / "journal.log", f"{objective.fingerprint(model, spans)}{kind}, Optuna {optuna.__version__}")
    distributions = {name: _distribution(span) for name, span in spans.items()}
    while (done := len(study.get_trials(deepcopy=False, states=DONE))) < n_trials:
        if shared:
            study.sampler = optuna.samplers.RandomSampler(seed=_trial_seed(objective.seed, 0, done))
        else:
            study.sampler = optuna.samplers.TPESampler(seed=_trial_seed(objective.seed, objective.fold, done))
        if not done and not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.enqueue_trial(values_of(model, spans))
        trial = study.ask(distributions)
        reason = _run(study, trial, objective, model, scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        last = study.get_trials(deepcopy=False)[trial.number]
        result = f"loss {last.value:.4f}" if last.state == TrialState.COMPLETE else reason
        log.info("%s, fold %d, trial %d of %d: %s", model.name, objective.fold, done + 1, n_trials, result)
    return _write(study, objective, model, n_trials, narrowed, out)


def _run(study: optuna.Study, trial: optuna.Trial, objective: Objective, model: Model, scratch: Path) -> str:
    """Run one trial and enter it in the study; return why it was pruned, if it was."""
    values = rounded(trial.params)
    settings = settings_of(model, values)
    trial.set_user_attr("values", values)
    try:
        _require_fit(values, objective)
        candidate = model.model_copy(update={"by_fold": {objective.fold: settings}}).for_fold(objective.fold)
        validation = objective.evaluate(candidate, scratch, _watch(trial, candidate.training.epochs))
        if not np.isfinite(validation.loss):
            raise BoltError("the validation loss is not finite")
    except optuna.TrialPruned as pruned:
        reason = str(pruned)
    except DataError:  # would end every trial
        raise
    except BoltError as error:  # the training diverged, or the model cannot be built with these values
        reason = error.what
    else:
        trial.set_user_attr("score", validation.score)
        study.tell(trial, validation.loss)
        return ""
    trial.set_user_attr("reason", reason)
    study.tell(trial, state=TrialState.PRUNED)
    return reason


def _require_fit(values: Mapping[str, Any], objective: Objective) -> None:
    """Refuse values that do not fit the data, such as a window longer than the crop."""
    for name, limit in objective.limits.items():
        if values.get(name, limit) > limit:
            raise BoltError(f"{name} is {values[name]}, but the data allow at most {limit}")


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


def _study(journal: Path, name: str) -> optuna.Study:
    """Open or create the study of this name; trials interrupted before are marked failed and repeated."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal.parent.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(journal))),
        study_name=name,
        pruner=optuna.pruners.MedianPruner(),
        load_if_exists=True,
    )
    for interrupted in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(interrupted.number, state=TrialState.FAIL)
    return study


def _trial_seed(seed: int, fold: int, done: int) -> int:
    """Return the seed of the trial after `done` others."""
    return int(np.random.SeedSequence([seed, fold, done]).generate_state(1)[0])


def _distribution(span: Span) -> BaseDistribution:
    """Convert a range to Optuna's distribution."""
    if span.choices is not None:
        return CategoricalDistribution(span.choices)
    assert span.low is not None and span.high is not None
    if span.whole:
        return IntDistribution(int(span.low), int(span.high), log=span.log)
    return FloatDistribution(float(span.low), float(span.high), log=span.log)


def _write(
    study: optuna.Study, objective: Objective, model: Model, n_trials: int, narrowed: list[str], out: Path
) -> dict[str, Any]:
    """Write all trials and the best of them; return the latter."""
    trials = study.get_trials(deepcopy=False, states=DONE)[:n_trials]
    metric, names = f"validation_{objective.metric}", list(trials[0].params)
    table = pd.DataFrame([_row(number, trial, metric) for number, trial in enumerate(trials, start=1)])
    table = table.reindex(columns=["trial", "state", "validation_loss", metric, *names, "reason"])
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
        metric: float(table[metric][best]),
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


def _row(number: int, trial: optuna.trial.FrozenTrial, metric: str) -> dict[str, Any]:
    """Convert a trial to a row of ``trials.tsv``."""
    attributes = trial.user_attrs
    row: dict[str, Any] = {"trial": number, "state": trial.state.name.lower(), "reason": attributes.get("reason")}
    if trial.state == TrialState.COMPLETE:
        row |= {"validation_loss": trial.value, metric: attributes["score"]}
    return row | attributes["values"]


COLUMNS = {
    "trial": "Candidate, from 1; the same values in every study. The first has the model's own",
    "study": "Dataset and atlas",
    "validation_loss": "Mean loss of the validation scans of the first fold; n/a: pruned",
    "excess": "How much higher this loss is than the study's lowest, as a share of the latter",
    "worst_excess": "Highest excess of the candidate over all studies, which is minimised; n/a: pruned in one of them",
}


def write_shared(studies: Mapping[str, Path], model: Model, out: Path) -> None:
    """Write a model with the candidate whose loss is nearest to the lowest of each study, in the worst of them.

    Parameters
    ----------
    studies : mapping
        Name (dataset and atlas) to the folder written by `search_fold`; all tried the same
        candidates.
    model : Model
        The model that was searched.
    out : Path
        ``<model>.yaml``; ``<model>_trials.tsv`` is written beside it.

    Raises
    ------
    DataError
        The studies tried different candidates.
    ConfigError
        No candidate was completed in all studies.
    """
    tables = {name: read_trials(folder / "trials.tsv").set_index("trial") for name, folder in studies.items()}
    searched = list(next(iter(tables.values())).columns.drop(["state", "reason"]).drop(_measures(tables)))
    _require_equal(tables, searched, studies)
    losses = pd.DataFrame({name: table["validation_loss"].astype(float) for name, table in tables.items()})
    excess = losses / losses.min() - 1
    worst = excess.max(axis=1, skipna=False)
    if worst.isna().all():
        raise ConfigError(
            f"no candidate of model '{model.name}' was completed in all studies: {', '.join(studies)}",
            where=out,
            hint="Raise 'search: n_trials', or narrow the ranges to what fits all datasets (config/search)",
        )
    chosen = int(worst.idxmin())
    table = losses.stack(future_stack=True).rename("validation_loss").rename_axis(["trial", "study"]).reset_index()
    table["excess"] = excess.stack(future_stack=True).to_numpy()
    table["worst_excess"] = table["trial"].map(worst)
    values = next(iter(tables.values()))[searched]
    table = table.merge(values, left_on="trial", right_index=True)
    write_table(table, trials_of(out), COLUMNS | {name: f"Value of {name}" for name in searched})
    write_text(_text(model, studies, values.loc[chosen].to_dict(), excess.loc[chosen], chosen), out)


def _measures(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the columns of results."""
    return [name for name in next(iter(tables.values())) if str(name).startswith("validation_")]


def _require_equal(tables: Mapping[str, pd.DataFrame], searched: list[str], studies: Mapping[str, Path]) -> None:
    """Refuse studies that did not try the same candidates."""
    first, *others = tables
    for name in others:
        if not all(column in tables[name] for column in searched) or not tables[name][searched].equals(
            tables[first][searched]
        ):
            raise DataError(
                f"{first} and {name} tried different candidates",
                where=studies[name] / "trials.tsv",
                hint="Search all datasets with the same 'search' (scheme: shared; space, n_trials, seed)",
            )


def _text(model: Model, studies: Mapping[str, Path], values: dict[str, Any], excess: pd.Series, chosen: int) -> str:
    """Compose the YAML file."""
    title = model.shown
    drawn = rounded({name: value for name, value in values.items() if pd.notna(value)})
    keys = keys_with(model, "shared", settings_of(model, drawn))
    about = read_json(next(iter(studies.values())) / "best.json")
    lines = [
        f"# {title} with one choice of hyper-parameters for all datasets and atlases searched so far, as in the paper.",
        "# Chosen by the loss of the validation scans of the first fold; its test scans were not used. These scans are",
        "# test scans of other folds, whose results are therefore slightly optimistic.",
        f"# Candidate {chosen} of {about['n_trials']}, seed {about['seed']}. Loss above the study's lowest:",
        *(f"#   {name}: {100 * excess[name]:.1f} %" for name in studies),
        dump({"name": f"{model.name}_search_shared", "title": title, **keys}),
    ]
    return "\n".join(lines) + "\n"
