"""Metrics of runs, computed from `predictions.tsv`, per fold and pooled.

They are those of `bolt.evaluate.scores`: of classes, or of numbers (`classes` is None in all functions). Means and
standard deviations are taken over the folds that finished, with ``ddof=0`` as in the paper's published code; folds that
did not finish are listed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bolt.evaluate.chance import compare_with_chance
from bolt.evaluate.intervals import intervals
from bolt.evaluate.scores import METRIC_COLUMNS, class_arrays, deviation, facts_of, fold_metrics, metrics_of, with_ranks
from bolt.io.files import columns, json_text, read_json, read_table, write_json, write_table
from bolt.io.integrity import require_outputs, require_present
from bolt.models.parts.calibration import fit_temperature

TEXT = ("scan_id", "subject", "group", "site", "role", "label", "predicted")
LOWER_IS_BETTER = ("brier", "log_loss", "mae")
COLUMNS = columns("evaluate", "folds") | METRIC_COLUMNS | {"note": "why a value is missing"}


def by_training(tests: pd.DataFrame, classes: Sequence[str] | None) -> pd.DataFrame:
    """Compute metrics per fold and seed (rows)."""
    metrics = {key: fold_metrics(part, classes) for key, part in tests.groupby(["fold", "seed"])}
    return pd.DataFrame.from_dict(metrics, orient="index").rename_axis(["fold", "seed"])


def by_fold(tests: pd.DataFrame, classes: Sequence[str] | None) -> pd.DataFrame:
    """Compute metrics per fold (rows), averaged over seeds; NaN if a metric is undefined for a seed."""
    return by_training(tests, classes).groupby("fold").agg(lambda seeds: seeds.mean(skipna=False))


def read_predictions(path: Path) -> pd.DataFrame:
    """Read the `predictions.tsv` of a fold; identifiers stay text."""
    return read_table(path, text=TEXT)


def fold_predictions(folder: Path) -> tuple[str, str, pd.DataFrame]:
    """Return the state of a fold, the reason if it is not ``ok``, and its predictions (no rows if not ``ok``)."""
    nothing = pd.DataFrame(columns=[*TEXT, "fold"])
    if not (folder / "status.json").is_file():
        return "missing", "not trained (no status.json)", nothing
    status = read_json(folder / "status.json")
    if status["state"] != "ok":
        return status["state"], status["reason"], nothing
    require_present(folder / "predictions.tsv")
    require_outputs(folder / "provenance.json")
    return "ok", "", read_predictions(folder / "predictions.tsv")


def summarise(run: Path, folds: Sequence[int], classes: Sequence[str] | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute the metrics of all folds of a run.

    Parameters
    ----------
    run : Path
        Folder ``seed-<s>`` with one ``fold-<k>`` per fold.
    folds : sequence of int
        The expected folds.
    classes : sequence of str or None
        In the dataset's order; the last is the positive class. None if labels are numbers.

    Returns
    -------
    table : DataFrame
        One row per fold (columns of `COLUMNS` that apply), then ``mean`` and ``sd``.
    predictions : DataFrame
        `tests_with_temperature` of all finished folds; ``n_train`` and ``n_all``: training scans, and all scans, of the
        fold.
    """
    rows, tests = [], []
    for fold in folds:
        state, note, predictions = fold_predictions(run / f"fold-{fold}")
        row: dict[str, Any] = {"fold": str(fold), "state": state, "n_test": 0, "note": note}
        if state == "ok":
            test = predictions[predictions["role"] == "test"]
            absent = [c for c in classes or () if c not in set(test["label"])]
            note = f"AUC undefined: no test scan of {', '.join(absent)}" if absent else ""
            row |= {"n_test": len(test), "note": note, **fold_metrics(test, classes)}
            n_all = predictions["scan_id"].nunique()
            facts = {"n_train": (predictions["role"] == "train").sum(), "n_all": n_all}
            tests.append(tests_with_temperature(predictions, classes).assign(**facts))
        rows.append(row)
    metrics = list(metrics_of(classes))
    table = pd.DataFrame(rows).reindex(columns=["fold", "state", "n_test", *metrics, "note"])
    values = table[metrics].astype(float)
    missing = [row["fold"] for row in rows if row["state"] != "ok"]
    about = {"state": "", "n_test": len(rows) - len(missing)}
    about["note"] = f"without fold {', '.join(missing)}" if missing else ""
    summary = pd.DataFrame({"mean": values.mean(), "sd": deviation(values)}).T.rename_axis("fold").reset_index()
    table = pd.concat([table, summary.assign(**about)[list(table)]], ignore_index=True)
    return table, pd.concat(tests, ignore_index=True) if tests else pd.DataFrame(columns=[*TEXT, "fold"])


def tests_with_temperature(predictions: pd.DataFrame, classes: Sequence[str] | None) -> pd.DataFrame:
    """Return the test rows of finished folds with ``temperature``, fitted to the validation scans of their training.

    NaN: there are no such scans, or labels are numbers.
    """
    tests, found = predictions[predictions["role"] == "test"], {}
    for key, training in predictions.groupby(["fold", "seed"]):
        found[key] = float("nan")
        validation = training[training["role"] == "validation"]
        if classes is not None:
            validation = validation.dropna(subset=[f"p_{name}" for name in classes])
            if len(validation):
                truth, _, probability = class_arrays(validation, classes)
                found[key] = fit_temperature(probability, truth)
    return tests.assign(temperature=[found[key] for key in zip(tests["fold"], tests["seed"], strict=True)])


def pooled(predictions: pd.DataFrame, classes: Sequence[str] | None, *, draws: int = 1000) -> dict[str, Any]:
    """Compute metrics over the test scans of all folds together, with their intervals.

    Parameters
    ----------
    predictions : DataFrame
        Test rows of all folds; each scan is tested once.
    classes : sequence of str or None
    draws : int
        Of the bootstrap, for metrics whose intervals need one (`bolt.evaluate.intervals`).

    Returns
    -------
    dict
        For each metric ``{value, low, high}`` (95 % interval; NaN: too few groups), ``n_groups``, and the entries of
        `bolt.evaluate.scores.facts_of`.
    """
    ends, summary = intervals(predictions, classes, over_folds=False, draws=draws), {}
    for metric, value in fold_metrics(predictions, classes).items():
        summary[metric] = {"value": value, "low": ends[metric][0], "high": ends[metric][1]}
    return summary | facts_of(predictions, classes) | {"n_groups": predictions["group"].nunique()}


def by_site(predictions: pd.DataFrame, classes: Sequence[str] | None) -> list[dict[str, Any]]:
    """Compute `pooled` metrics of each site, sorted by site; an empty list if there are fewer than two sites.

    The AUC of a site compares ranks among all test scans of a fold, because a site may have few scans per fold.

    Each entry is ``{site, n_scans, n_groups, majority_accuracy (of classes), <metric>: {value, low, high}}``.
    """
    if classes is not None and {"fold", "seed"} <= set(predictions):
        predictions = with_ranks(predictions, classes)
    sites = sorted(predictions.dropna(subset=["site"]).groupby("site"))
    kept = ("n_scans", "n_groups", "majority_accuracy", *metrics_of(classes))
    summaries = [(site, pooled(part, classes)) for site, part in sites] if len(sites) > 1 else []
    return [{"site": site, **{key: summary[key] for key in kept if key in summary}} for site, summary in summaries]


def by_subject(predictions: pd.DataFrame, classes: Sequence[str] | None) -> pd.DataFrame | None:
    """Average the predictions of each subject's scans.

    Parameters
    ----------
    predictions : DataFrame
        Test rows of all folds of one seed.
    classes : sequence of str or None

    Returns
    -------
    DataFrame, or None
        One row per subject: the mean probability of each class and the most probable one, or the mean prediction. None
        if nobody has several scans, or if a subject's scans differ in their label.
    """
    subjects = predictions.groupby("subject", sort=True)
    if not subjects.size().gt(1).any() or subjects["label"].nunique().gt(1).any():
        return None
    averaged = subjects[["scan_id", "group", "label", *predictions.columns.intersection(["fold"])]].first()
    if classes is None:
        numbers = predictions["predicted"].astype(float).groupby(predictions["subject"]).mean()
        return averaged.assign(predicted=numbers).reset_index()
    probability = subjects[[f"p_{name}" for name in classes]].mean()
    predicted = np.array(classes)[probability.to_numpy().argmax(axis=1)]
    return averaged.join(probability).assign(predicted=predicted).reset_index()


def write_metrics(
    seed_folder: Path,
    classes: Sequence[str] | None,
    folds: Sequence[int],
    out: Path,
    repeated: np.ndarray | None = None,
    *,
    outer: int | None = None,
) -> None:
    """Write ``metrics.tsv`` (per fold, mean, sd) and ``summary.json`` (pooled, against chance, by site) into `out`.

    Parameters
    ----------
    seed_folder, classes, folds
        As in `summarise`.
    out : Path
        Folder.
    repeated : float array, optional
        As in `bolt.evaluate.chance.compare_with_chance`.
    outer : int, optional
        Outer folds of the split, of which `folds` may be a part; by default all.
    """
    table, predictions = summarise(seed_folder, folds, classes)
    n_all = int(predictions["n_all"].max()) if len(predictions) else 0
    scope = {"outer_folds": outer or len(folds), "n_all_scans": n_all}
    summary: dict[str, Any] = {
        "expected_folds": list(folds),
        "missing_folds": [int(f) for f in table.loc[~table["state"].isin(["ok", ""]), "fold"]],
        "positive_class": classes[-1] if classes and len(classes) == 2 else None,
        "pooled": pooled(predictions, classes) if len(predictions) else None,
        "chance": compare_with_chance(predictions, classes, repeated) if len(predictions) else None,
        "sites": by_site(predictions, classes),
    }
    if len(predictions) and (subjects := by_subject(predictions, classes)) is not None:
        summary["pooled"]["subjects"] = pooled(subjects, classes)
    for part in ("pooled", "chance"):
        summary[part] = summary[part] and summary[part] | scope
    write_table(table, out / "metrics.tsv", COLUMNS)
    known = json.loads(json_text(summary), parse_constant=lambda _: None)  # JSON lacks NaN
    write_json(known, out / "summary.json")
