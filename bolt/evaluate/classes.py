"""Metrics of predicted classes.

Two classes: recall, precision and AUC are those of the positive class, the last of the dataset's `classes`. More
classes: macro averages (one against the rest for the AUC). Balanced accuracy, Brier score and log loss treat all
classes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.calibration import SMALLEST, brier_score, log_loss, reliability
from bolt.io.errors import DataError
from bolt.models.parts.temperature import with_temperature

RANK = "rank_"
METRICS = ("accuracy", "recall", "precision", "auc")
"""Metrics of the paper."""
CLASS_METRICS = (*METRICS, "balanced_accuracy", "brier", "log_loss")
CLASS_COLUMNS = {
    "accuracy": "share of test scans classified correctly",
    "recall": "of the positive class (two classes), or macro average",
    "precision": "of the positive class (two classes), or macro average; 0 where a class was never predicted",
    "auc": "area under the ROC curve of the positive class, or macro average of one against the rest; of several folds "
    "together, the share of pairs of scans of the same fold that are in order",
    "balanced_accuracy": "mean over classes of the share of their test scans classified correctly",
    "brier": "Brier score: squared distance of probabilities from the truth (two classes: of the positive class)",
    "log_loss": f"mean of −ln(probability of the true class), which is clipped at {SMALLEST:g}",
}


def scores(
    truth: NDArray[Any],
    predicted: NDArray[Any],
    probability: NDArray[np.floating],
    weight: NDArray[np.floating] | None = None,
    stratum: NDArray[np.integer] | None = None,
    ranking: NDArray[np.floating] | None = None,
) -> dict[str, NDArray[np.floating]]:
    """Compute the metrics of predictions, under one or more weightings of the rows.

    Parameters
    ----------
    truth, predicted : int array (n,)
        Positions in the list of classes; with two classes, 1 is the positive one.
    probability : float array (n, classes)
    weight : float array (draws, n), optional
        Weights of the rows, such as counts of bootstrap draws; by default all 1.
    stratum : int array (n,), optional
        Model that made each prediction. The AUC compares predictions of one model only, because models of different
        folds may score on different scales (Airola et al. 2011, doi:10.1016/j.csda.2010.11.023).
    ranking : float array (n, classes), optional
        Scores that the AUC ranks in place of `probability`.

    Returns
    -------
    dict
        For each of `CLASS_METRICS` an array (draws,). Recall is NaN if its class does not occur; the AUC is NaN unless
        every class occurs beside another one.
    """
    n, n_classes = probability.shape
    weight = np.ones((1, n)) if weight is None else weight
    cell = np.zeros((n, n_classes * n_classes))
    cell[np.arange(n), truth * n_classes + predicted] = 1
    confusion = (weight @ cell).reshape(-1, n_classes, n_classes)
    hits, actual, called = np.einsum("dcc->dc", confusion), confusion.sum(axis=2), confusion.sum(axis=1)
    recall = np.divide(hits, actual, out=np.full_like(hits, np.nan), where=actual > 0)
    precision = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
    precision[actual == 0] = np.nan  # a class that does not occur is not part of the average
    averaged = [1] if n_classes == 2 else list(range(n_classes))
    stratum = np.zeros(n, int) if stratum is None else stratum
    ranking = probability if ranking is None else ranking
    auc = np.stack([_auc(truth == c, ranking[:, c], weight, stratum) for c in averaged])
    return {
        "accuracy": hits.sum(axis=1) / weight.sum(axis=1),
        "recall": mean_of_finite(recall[:, averaged]),
        "precision": mean_of_finite(precision[:, averaged]),
        "auc": auc.mean(axis=0),
        "balanced_accuracy": mean_of_finite(recall),
        "brier": brier_score(truth, probability, weight),
        "log_loss": log_loss(truth, probability, weight),
    }


def mean_of_finite(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Average over the last axis, ignoring NaN; NaN if nothing is left."""
    finite = np.isfinite(values)
    total = np.where(finite, values, 0).sum(axis=-1)
    return np.divide(total, finite.sum(axis=-1), out=np.full_like(total, np.nan), where=finite.any(axis=-1))


def _auc(
    positive: NDArray[np.bool_],
    score: NDArray[np.floating],
    weight: NDArray[np.floating],
    stratum: NDArray[np.integer],
) -> NDArray[np.floating]:
    """Compute the AUC for each row of `weight`: the share of positive-negative pairs in order, ties counted half.

    Both members of a pair are of the same stratum. Scikit-learn's `roc_auc_score` takes one weighting per call, which
    is too slow for a bootstrap, and no strata.
    """
    order = np.lexsort((score, stratum))
    score, stratum = score[order], stratum[order]
    first = np.diff(stratum, prepend=stratum[:1] - 1) != 0
    starts = np.flatnonzero(first | (np.diff(score, prepend=-np.inf) != 0))  # first of each run of equal scores
    positives = np.add.reduceat((weight * positive)[:, order], starts, axis=1)
    negatives = np.add.reduceat((weight * ~positive)[:, order], starts, axis=1)
    before = negatives.cumsum(axis=1) - negatives
    opening = np.flatnonzero(first[starts])  # runs that open a stratum: pairs with earlier strata do not count
    sizes = np.diff(opening, append=len(starts))
    before -= np.repeat(before[:, opening], sizes, axis=1)
    ordered = (positives * (before + negatives / 2)).sum(axis=1)
    pairs = (np.add.reduceat(positives, opening, axis=1) * np.add.reduceat(negatives, opening, axis=1)).sum(axis=1)
    return np.divide(ordered, pairs, out=np.full_like(ordered, np.nan), where=pairs > 0)


def class_arrays(predictions: pd.DataFrame, classes: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return labels and predictions as positions in `classes`, and probabilities, (n, classes).

    Raises
    ------
    DataError
        A class is unknown, or a probability is missing.
    """
    positions = {}
    for column in ("label", "predicted"):
        positions[column] = pd.Index(classes).get_indexer(predictions[column].astype(str))
        unknown = predictions[positions[column] < 0]
        if len(unknown):
            raise DataError(
                f"{column} '{unknown[column].iloc[0]}' is not one of the classes {list(classes)}",
                where=f"predictions, scan {unknown['scan_id'].iloc[0]}",
                hint="Train again after changing 'classes' in the dataset's configuration",
            )
    probability = predictions[[f"p_{c}" for c in classes]].to_numpy(float)
    missing = ~np.isfinite(probability).all(axis=1)
    if missing.any():
        raise DataError(
            "a class probability is missing",
            where=f"predictions, scan {predictions.loc[missing, 'scan_id'].iloc[0]}",
            hint="Delete this fold's folder and train it again",
        )
    return positions["label"], positions["predicted"], probability


def class_summary(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, Any]:
    """Return the entries of ``summary.json`` besides the metrics.

    ``majority_accuracy`` (always predicting the most frequent test label), ``auc_across`` (the AUC that also compares
    scans of different folds, as scikit-learn's does for all rows of a seed), ``n_scans``, ``classes``, ``confusion``
    (rows: true class), ``calibration`` (`bolt.evaluate.calibration.reliability`), if every fold has a temperature
    ``calibrated`` (`after_temperature`), and, for two classes, ``roc``, the mean of the folds' curves.
    """
    from sklearn.metrics import confusion_matrix  # slow to import, and the report needs only names

    truth, predicted, probability = class_arrays(predictions, classes)
    counts = np.bincount(truth, minlength=len(classes))
    seed = model_of(predictions[predictions.columns.intersection(["seed"])])
    summary: dict[str, Any] = {
        "majority_accuracy": float(counts.max() / counts.sum()),
        "auc_across": float(scores(truth, predicted, probability, stratum=seed)["auc"][0]),
        "n_scans": predictions["scan_id"].nunique(),  # several seeds predict a scan several times
        "classes": list(classes),
        "confusion": confusion_matrix(truth, predicted, labels=np.arange(len(classes))),
        "calibration": reliability(truth, predicted, probability, predictions["scan_id"].to_numpy()),
    }
    if "temperature" in predictions and predictions["temperature"].notna().all():
        summary["calibrated"] = after_temperature(predictions, classes)
    if len(classes) == 2 and (counts > 0).all():
        summary["roc"] = _mean_roc(truth, probability[:, 1], model_of(predictions))
    return summary


def after_temperature(predictions: pd.DataFrame, classes: Sequence[str]) -> dict[str, float]:
    """Return how good probabilities are after each was scaled by the temperature of its fold (column ``temperature``).

    Returns
    -------
    dict
        ``brier``, ``log_loss``, ``ece`` and ``ece_if_calibrated`` of the scaled probabilities; ``temperature``, the
        geometric mean over scans.
    """
    truth, predicted, probability = class_arrays(predictions, classes)
    temperature = predictions["temperature"].to_numpy(float)
    scaled, every = with_temperature(probability, temperature[:, None]), np.ones((1, len(truth)))
    errors = reliability(truth, predicted, scaled, predictions["scan_id"].to_numpy())
    return {
        "brier": float(brier_score(truth, scaled, every)[0]),
        "log_loss": float(log_loss(truth, scaled, every)[0]),
        "ece": errors["ece"],
        "ece_if_calibrated": errors["ece_if_calibrated"],
        "temperature": float(np.exp(np.log(temperature).mean())),
    }


def model_of(predictions: pd.DataFrame) -> NDArray[np.intp]:
    """Return a number of the model, its fold and seed, that made each prediction; all 0 if neither is known."""
    known = [column for column in ("fold", "seed") if column in predictions]
    if not known:
        return np.zeros(len(predictions), np.intp)
    return predictions.groupby(known, sort=True).ngroup().to_numpy()


def with_ranks(predictions: pd.DataFrame, classes: Sequence[str]) -> pd.DataFrame:
    """Add the rank of each probability among the test scans of its model, from 0 to 1, as columns ``rank_<class>``.

    A site has too few scans per fold to be compared within folds. Ranks remove what differs between models; folds are
    stratified, or are the sites themselves.
    """
    model = model_of(predictions)
    ranks = {f"{RANK}{name}": predictions[f"p_{name}"].groupby(model).rank(pct=True) for name in classes}
    return predictions.assign(**ranks)


def ranking_of(predictions: pd.DataFrame, classes: Sequence[str]) -> NDArray[np.floating] | None:
    """Return the columns of `with_ranks`, (n, classes), which may be compared between folds; None without them."""
    names = [f"{RANK}{name}" for name in classes]
    return predictions[names].to_numpy(float) if set(names) <= set(predictions) else None


def _mean_roc(truth: NDArray[Any], score: NDArray[np.floating], model: NDArray[np.intp]) -> dict[str, Any]:
    """Average the ROC curves of models with test scans of both classes, at equally spaced false-positive rates."""
    from sklearn.metrics import roc_curve  # slow to import

    grid, curves = np.linspace(0, 1, 101), []
    for number in np.unique(model):
        mine = model == number
        if len(np.unique(truth[mine])) == 2:
            false_rate, true_rate, _ = roc_curve(truth[mine], score[mine])
            curves.append(np.interp(grid, false_rate, true_rate))
    if not curves:
        return {}
    mean = np.mean(curves, axis=0)
    return {"false_positive_rate": [0.0, *grid], "true_positive_rate": [0.0, *mean]}
