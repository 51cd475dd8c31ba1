"""Metrics of predicted classes, from `predictions.tsv` alone.

Two classes: recall and precision are those of the positive class, the last of the dataset's `classes`, and the AUC is
that of its probability. More classes: macro averages (one against the rest for the AUC). Balanced accuracy, Brier
score and calibration error are of all classes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, roc_curve

from bolt.evaluate.calibration import BINS, brier_score, calibration_error, reliability
from bolt.io.errors import DataError

METRICS = ("accuracy", "recall", "precision", "auc")
"""Those of the paper."""
CLASS_METRICS = (*METRICS, "balanced_accuracy", "brier", "ece")
CLASS_COLUMNS = {
    "accuracy": "share of test scans whose class was predicted",
    "recall": "of the positive class (two classes), or macro average",
    "precision": "of the positive class (two classes), or macro average; 0 where a class was never predicted",
    "auc": "area under the ROC curve of the positive class, or macro average of one against the rest",
    "balanced_accuracy": "mean over classes of the share of their test scans that was predicted right",
    "brier": "Brier score: squared distance of probabilities from the truth (two classes: of the positive one)",
    "ece": f"expected calibration error of the predicted class's probability, {BINS} bins of equal width on [0, 1]",
}


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
        For each of `CLASS_METRICS` an array (draws,). Recall is NaN where its class does not occur; the
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
        "recall": mean_of_finite(recall[:, judged]),
        "precision": mean_of_finite(precision[:, judged]),
        "auc": auc.mean(axis=0),
        "balanced_accuracy": mean_of_finite(recall),
        "brier": brier_score(truth, probability, weight),
        "ece": calibration_error(truth, predicted, probability, weight),
    }


def mean_of_finite(values: NDArray[np.floating]) -> NDArray[np.floating]:
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


def class_arrays(predictions: pd.DataFrame, classes: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Labels and predictions as positions in `classes`, probabilities as (n, classes)."""
    found = {}
    for column in ("label", "predicted"):
        found[column] = pd.Index(classes).get_indexer(predictions[column].astype(str))
        unknown = predictions[found[column] < 0]
        if len(unknown):
            raise DataError(
                f"{column} '{unknown[column].iloc[0]}' is not one of the classes {list(classes)}",
                where=f"predictions, scan {unknown['scan_id'].iloc[0]}",
                hint="Train again after changing 'classes' in the dataset's configuration",
            )
    probability = predictions[[f"p_{c}" for c in classes]].to_numpy(float)
    lost = ~np.isfinite(probability).all(axis=1)
    if lost.any():
        raise DataError(
            "a class probability is missing",
            where=f"predictions, scan {predictions.loc[lost, 'scan_id'].iloc[0]}",
            hint="Delete this fold's folder and train it again",
        )
    return found["label"], found["predicted"], probability


def class_summary(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, Any]:
    """What ``summary.json`` says beside the metrics.

    ``majority_accuracy`` (always guessing the most frequent test label), ``n_scans``, ``classes``, ``confusion`` (rows:
    true class), ``calibration`` (`bolt.evaluate.calibration.reliability`) and, for two classes, ``roc``.
    """
    truth, predicted, probability = class_arrays(predictions, classes)
    counts = np.bincount(truth, minlength=len(classes))
    summary: dict[str, Any] = {
        "majority_accuracy": float(counts.max() / counts.sum()),
        "n_scans": predictions["scan_id"].nunique(),  # several seeds predict a scan several times
        "classes": list(classes),
        "confusion": confusion_matrix(truth, predicted, labels=np.arange(len(classes))),
        "calibration": reliability(truth, predicted, probability),
    }
    if len(classes) == 2 and (counts > 0).all():
        false_rate, true_rate, _ = roc_curve(truth, probability[:, 1])
        summary["roc"] = {"false_positive_rate": false_rate, "true_positive_rate": true_rate}
    return summary
