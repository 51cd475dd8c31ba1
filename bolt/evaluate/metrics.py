"""Accuracy, recall, precision and area under the ROC curve, from `predictions.tsv` alone; for labels that are numbers
(`classes` is None everywhere here) those of `bolt.evaluate.numbers`.

Two classes: recall and precision are those of the positive class, the last of the dataset's
`classes`, and the AUC is that of its probability. More classes: macro averages (one against the
rest for the AUC). Means and standard deviations are taken over the folds that finished, with
``ddof=0`` as in the paper's published code; a fold that did not finish is listed, never averaged away.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, roc_curve

from bolt.errors import DataError
from bolt.evaluate.numbers import NUMBER_COLUMNS, NUMBER_METRICS, number_arrays, number_scores, number_summary
from bolt.files import read_json, read_table, write_json, write_table

METRICS = ("accuracy", "recall", "precision", "auc")
TEXT = ("scan_id", "subject", "group", "site", "role", "label", "predicted")
COLUMNS = {
    "fold": "outer fold; the last two rows hold the mean and standard deviation (ddof 0) over finished folds",
    "state": "ok, failed, excluded or missing; only folds that are ok enter the mean",
    "n_test": "test scans of the fold; number of folds averaged in the last two rows",
    "accuracy": "share of test scans whose class was predicted",
    "recall": "of the positive class (two classes), or macro average",
    "precision": "of the positive class (two classes), or macro average; 0 where a class was never predicted",
    "auc": "area under the ROC curve of the positive class, or macro average of one against the rest",
    **NUMBER_COLUMNS,
    "note": "why a value is missing",
}


def metrics_of(classes: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the metrics by which predictions are judged; of numbers where there are no classes."""
    return NUMBER_METRICS if classes is None else METRICS


def scores(
    truth: NDArray[Any],
    predicted: NDArray[Any],
    probability: NDArray[np.floating],
    weight: NDArray[np.floating] | None = None,
) -> dict[str, NDArray[np.floating]]:
    """Metrics of one set of predictions, under one or many weightings of its rows.

    Parameters
    ----------
    truth, predicted : int array (n,)
        Positions in the list of classes; with two classes, 1 is the positive one.
    probability : float array (n, classes)
    weight : float array (draws, n), optional
        Weights of the predictions, such as the counts of bootstrap draws; default: one draw of ones.

    Returns
    -------
    dict
        For each of `METRICS` an array (draws,). Recall is NaN where its class does not occur; the
        AUC is NaN unless every class occurs.
    """
    n, n_classes = probability.shape
    weight = np.ones((1, n)) if weight is None else weight
    cell = np.zeros((n, n_classes * n_classes))
    cell[np.arange(n), truth * n_classes + predicted] = 1
    confusion = (weight @ cell).reshape(-1, n_classes, n_classes)
    hits, occurs, guessed = np.einsum("dcc->dc", confusion), confusion.sum(axis=2), confusion.sum(axis=1)
    recall = np.divide(hits, occurs, out=np.full_like(hits, np.nan), where=occurs > 0)
    precision = np.divide(hits, guessed, out=np.zeros_like(hits), where=guessed > 0)
    precision[occurs == 0] = np.nan  # a class that does not occur is not part of the average
    judged = [1] if n_classes == 2 else list(range(n_classes))
    auc = np.stack([_auc(truth == c, probability[:, c], weight) for c in judged])
    return {
        "accuracy": hits.sum(axis=1) / weight.sum(axis=1),
        "recall": _mean_of_finite(recall[:, judged]),
        "precision": _mean_of_finite(precision[:, judged]),
        "auc": auc.mean(axis=0),
    }


def _mean_of_finite(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Mean over the last axis without NaN; NaN where nothing is left."""
    finite = np.isfinite(values)
    total = np.where(finite, values, 0).sum(axis=-1)
    return np.divide(total, finite.sum(axis=-1), out=np.full_like(total, np.nan), where=finite.any(axis=-1))


def _auc(
    positive: NDArray[np.bool_], score: NDArray[np.floating], weight: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Share of (weighted) positive-negative pairs in the right order, ties half, for each row of
    `weight`; scikit-learn's `roc_auc_score` handles one weighting a call, too slow for a bootstrap."""
    order = np.argsort(score, kind="stable")
    starts = np.flatnonzero(np.diff(score[order], prepend=-np.inf))  # first of each run of equal scores
    high = np.add.reduceat((weight * positive)[:, order], starts, axis=1)
    low = np.add.reduceat((weight * ~positive)[:, order], starts, axis=1)
    right = (high * (low.cumsum(axis=1) - low / 2)).sum(axis=1)
    pairs = high.sum(axis=1) * low.sum(axis=1)
    return np.divide(right, pairs, out=np.full_like(right, np.nan), where=pairs > 0)


def fold_metrics(predictions: pd.DataFrame, classes: Sequence[str] | None) -> dict[str, float]:
    """Metrics of the given rows of a `predictions.tsv` (usually those of role ``test``)."""
    return {name: float(value[0]) for name, value in _scores(predictions, classes).items()}


def _scores(
    predictions: pd.DataFrame, classes: Sequence[str] | None, weight: NDArray[np.floating] | None = None
) -> dict[str, NDArray[np.floating]]:
    if classes is None:
        return number_scores(*number_arrays(predictions), weight)
    return scores(*_arrays(predictions, classes), weight)


def read_predictions(path: Path) -> pd.DataFrame:
    """Read one fold's `predictions.tsv`; identifiers stay text."""
    return read_table(path, text=TEXT)


def summarise(run: Path, folds: Sequence[int], classes: Sequence[str] | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Gather the folds of one run.

    Parameters
    ----------
    run : Path
        Folder ``seed-<s>`` with one ``fold-<k>`` a fold.
    folds : sequence of int
        The folds that should be there.
    classes : sequence of str
        In the dataset's order; the last is the positive one. None: the labels are numbers.

    Returns
    -------
    table : DataFrame
        One row a fold (columns of `COLUMNS`, those of its metrics), then ``mean`` and ``sd``.
    predictions : DataFrame
        Test predictions of all finished folds.
    """
    rows, tests = [], []
    for fold in folds:
        state, note = _state(run / f"fold-{fold}")
        row: dict[str, Any] = {"fold": str(fold), "state": state, "n_test": 0, "note": note}
        if state == "ok":
            predictions = read_predictions(run / f"fold-{fold}" / "predictions.tsv")
            test = predictions[predictions["role"] == "test"]
            if test.empty:
                row |= {"state": "missing", "note": "no test scans"}
            else:
                values = fold_metrics(test, classes)
                absent = [c for c in classes or () if c not in set(test["label"])]
                note = f"AUC undefined: no test scan of {', '.join(absent)}" if absent else ""
                row |= {"n_test": len(test), "note": note, **values}
                tests.append(test)
        rows.append(row)
    columns = ["fold", "state", "n_test", *metrics_of(classes), "note"]
    table = pd.DataFrame(rows).reindex(columns=columns)
    values = table[list(metrics_of(classes))].astype(float)
    missing = [row["fold"] for row in rows if row["state"] != "ok"]
    note = f"without fold {', '.join(missing)}" if missing else ""
    done = len(rows) - len(missing)
    summary = [
        {"fold": name, "state": "", "n_test": done, "note": note, **value.to_dict()}
        for name, value in (("mean", values.mean()), ("sd", values.std(ddof=0)))
    ]
    table = pd.concat([table, pd.DataFrame(summary)], ignore_index=True)[columns]
    return table, pd.concat(tests, ignore_index=True) if tests else pd.DataFrame(columns=[*TEXT, "fold"])


def pooled(
    predictions: pd.DataFrame, classes: Sequence[str] | None, *, draws: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Metrics over the test scans of all folds together.

    Parameters
    ----------
    predictions : DataFrame
        Test rows of all folds; each scan is tested once.
    classes : sequence of str
    draws : int
        Bootstrap samples. Groups (families, else subjects) are drawn with replacement, so that
        several scans of a person stay together.
    seed : int

    Returns
    -------
    dict
        Per metric ``{value, low, high}`` (95 % percentile interval); ``majority_accuracy`` (always
        guessing the most frequent test label), ``n_scans``, ``n_groups``, ``classes``,
        ``confusion`` (rows: true class) and, for two classes, ``roc``. For numbers ``mean_guess_mae`` (always guessing
        the mean test label), ``truth`` and ``predicted`` in place of what is of classes.
    """
    values = fold_metrics(predictions, classes)
    groups, member = np.unique(predictions["group"].astype(str), return_inverse=True)
    random = np.random.default_rng(seed)
    drawn = random.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=draws)[:, member]
    samples = _scores(predictions, classes, drawn.astype(float))
    summary: dict[str, Any] = {}
    for metric in metrics_of(classes):
        sample = samples[metric][np.isfinite(samples[metric])]
        low, high = np.percentile(sample, [2.5, 97.5]) if len(sample) else (np.nan, np.nan)
        summary[metric] = {"value": values[metric], "low": float(low), "high": float(high)}
    if classes is None:
        return summary | number_summary(*number_arrays(predictions)) | {"n_groups": len(groups)}
    return summary | _class_summary(predictions, classes) | {"n_groups": len(groups)}


def _class_summary(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, Any]:
    truth, predicted, probability = _arrays(predictions, classes)
    counts = np.bincount(truth, minlength=len(classes))
    summary: dict[str, Any] = {
        "majority_accuracy": float(counts.max() / counts.sum()),
        "n_scans": len(truth),
        "classes": list(classes),
        "confusion": confusion_matrix(truth, predicted, labels=np.arange(len(classes))),
    }
    if len(classes) == 2 and (counts > 0).all():
        false_rate, true_rate, _ = roc_curve(truth, probability[:, 1])
        summary["roc"] = {"false_positive_rate": false_rate, "true_positive_rate": true_rate}
    return summary


def write_metrics(seed_folder: Path, classes: Sequence[str] | None, folds: Sequence[int], out: Path) -> None:
    """Write ``metrics.tsv`` (a row a fold, mean, sd) and ``summary.json`` (pooled) into `out`."""
    table, predictions = summarise(seed_folder, folds, classes)
    summary: dict[str, Any] = {
        "expected_folds": list(folds),
        "missing_folds": [int(f) for f in table.loc[~table["state"].isin(["ok", ""]), "fold"]],
        "positive_class": classes[-1] if classes and len(classes) == 2 else None,
        "pooled": pooled(predictions, classes) if len(predictions) else None,
    }
    write_table(table, out / "metrics.tsv", COLUMNS)
    write_json(_without_nan(summary), out / "summary.json")


def _state(folder: Path) -> tuple[str, str]:
    if not (folder / "status.json").is_file():
        return "missing", "not trained (no status.json)"
    status = read_json(folder / "status.json")
    if status["state"] == "ok" and not (folder / "predictions.tsv").is_file():
        return "missing", "predictions.tsv is not there"
    return status["state"], status["reason"]


def _arrays(predictions: pd.DataFrame, classes: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Labels and predictions as positions in `classes`, probabilities as (n, classes)."""
    position = {name: i for i, name in enumerate(classes)}
    for column in ("label", "predicted"):
        unknown = predictions[~predictions[column].astype(str).isin(position)]
        if len(unknown):
            raise DataError(
                f"{column} '{unknown[column].iloc[0]}' is not one of the classes {list(classes)}",
                where=f"predictions, scan {unknown['scan_id'].iloc[0]}",
                mend="Train again after changing 'classes' in the dataset's configuration",
            )
    probability = predictions[[f"p_{c}" for c in classes]].to_numpy(float)
    lost = ~np.isfinite(probability).all(axis=1)
    if lost.any():
        raise DataError(
            "a class probability is missing",
            where=f"predictions, scan {predictions.loc[lost, 'scan_id'].iloc[0]}",
            mend="Delete this fold's folder and train it again",
        )
    truth, predicted = (predictions[c].astype(str).map(position).to_numpy(int) for c in ("label", "predicted"))
    return truth, predicted, probability


def _without_nan(value: Any) -> Any:
    """NaN is not JSON: write null."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
