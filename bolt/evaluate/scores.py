"""Metrics of predicted classes, and how good their probabilities are; and of predicted numbers.

Two classes: recall, precision and AUC are those of the positive class, the last of the dataset's `classes`. More
classes: macro averages (one against the rest for the AUC). Balanced accuracy, Brier score and log loss treat all
classes alike.

The expected calibration error follows Guo et al. (2017, https://arxiv.org/abs/1706.04599): scans are sorted into `BINS`
bins of equal width on [0, 1] by the probability of their predicted class; the error is the mean distance between
accuracy and mean probability of the bins, weighted by their number of scans. With two classes that probability is at
least 0.5, so the lower half of the bins is empty. The error is biased upwards, the more so the fewer scans are in a bin
(Kumar et al. 2019, https://arxiv.org/abs/1909.10155), and depends on how far probabilities are spread: two perfectly
calibrated models can differ. So it only describes a model, beside the error that a perfectly calibrated one would have;
tests and intervals are those of Brier score and log loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.io.errors import DataError
from bolt.io.files import columns
from bolt.models.parts.calibration import with_temperature

BINS = 15
SMALLEST = 1e-6
"""Probabilities below it count as this in the log loss, whose largest value is therefore 13.8."""
RANK = "rank_"
Floats = NDArray[np.floating]
Positions = NDArray[np.integer]
METRICS = ("accuracy", "recall", "precision", "auc")
"""Metrics of the paper."""
CLASS_METRICS = (*METRICS, "balanced_accuracy", "brier", "log_loss")
NUMBER_METRICS = ("r", "mae", "r2")
METRIC_COLUMNS = columns("evaluate", "classes", smallest=SMALLEST) | columns("evaluate", "numbers")


def metrics_of(classes: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the metrics for these classes, or for numbers."""
    return NUMBER_METRICS if classes is None else CLASS_METRICS


def fold_metrics(predictions: pd.DataFrame, classes: Sequence[str] | None) -> dict[str, float]:
    """Compute the metrics of rows of a `predictions.tsv`, usually those with role ``test``."""
    if classes is None:
        values = number_scores(*number_arrays(predictions))
    else:
        ranking = ranking_of(predictions, classes)
        stratum = model_of(predictions) if ranking is None else model_of(predictions[["seed"]])
        values = scores(*class_arrays(predictions, classes), stratum=stratum, ranking=ranking)
    return {name: float(value[0]) for name, value in values.items()}


def deviation(values: pd.DataFrame) -> pd.Series:
    """Return the standard deviation (ddof 0) of each column (a metric of folds); NaN of fewer than two values."""
    return values.std(ddof=0).where(values.count() > 1)


def scan_scores(predictions: pd.DataFrame, classes: Sequence[str] | None) -> dict[str, Floats]:
    """Return what metrics average over scans, by metric, (n,) each."""
    if classes is None:
        number, predicted_number = number_arrays(predictions)
        return {"mae": np.abs(number - predicted_number)}
    truth, predicted, probability = class_arrays(predictions, classes)
    right = (truth == predicted).astype(float)
    return {"accuracy": right, "brier": squared_errors(truth, probability), "log_loss": log_losses(truth, probability)}


def scores(
    truth: Positions,
    predicted: Positions,
    probability: Floats,
    weight: Floats | None = None,
    stratum: Positions | None = None,
    ranking: Floats | None = None,
) -> dict[str, Floats]:
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
        "brier": weight @ squared_errors(truth, probability) / weight.sum(axis=1),
        "log_loss": weight @ log_losses(truth, probability) / weight.sum(axis=1),
    }


def squared_errors(truth: Positions, probability: Floats) -> Floats:
    """Return what the Brier score averages, the squared distance of probabilities from the truth, (n,).

    Two classes: of the positive class, 0 to 1; a coin has 0.25. More classes: summed over classes, 0 to 2 (Brier 1950,
    doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2).
    """
    squares = (probability - np.eye(probability.shape[1])[truth]) ** 2
    return squares[:, 1] if probability.shape[1] == 2 else squares.sum(axis=1)


def log_losses(truth: Positions, probability: Floats) -> Floats:
    """Return the negative natural logarithm of each scan's probability of its true class, (n,).

    Probabilities are at least `SMALLEST`, so that one scan whose true class had none does not make the mean infinite.
    """
    return -np.log(probability[np.arange(len(truth)), truth].clip(SMALLEST, 1))


def mean_of_finite(values: Floats) -> Floats:
    """Average over the last axis, ignoring NaN; NaN if nothing is left."""
    finite = np.isfinite(values)
    total = np.where(finite, values, 0).sum(axis=-1)
    return np.divide(total, finite.sum(axis=-1), out=np.full_like(total, np.nan), where=finite.any(axis=-1))


def _auc(positive: NDArray[np.bool_], score: Floats, weight: Floats, stratum: Positions) -> Floats:
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


def class_arrays(predictions: pd.DataFrame, classes: Sequence[str]) -> tuple[Positions, Positions, Floats]:
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
            what = f"{column} '{unknown[column].iloc[0]}' is not one of the classes {list(classes)}"
            raise _error(what, unknown, "Train again after changing 'classes' in the dataset's configuration")
    probability = predictions[[f"p_{c}" for c in classes]].to_numpy(float)
    missing = predictions[~np.isfinite(probability).all(axis=1)]
    if len(missing):
        raise _error("a class probability is missing", missing, "Delete this fold's folder and train it again")
    return positions["label"], positions["predicted"], probability


def _error(what: str, rows: pd.DataFrame, hint: str) -> DataError:
    """Return an error that names the first scan of some rows."""
    return DataError(what, where=f"predictions, scan {rows['scan_id'].iloc[0]}", hint=hint)


def facts_of(predictions: pd.DataFrame, classes: Sequence[str] | None) -> dict[str, Any]:
    """Return the entries of ``summary.json`` besides the metrics.

    Of numbers ``mean_guess_mae`` (the error of predicting their mean), ``n_scans``, and all pairs: ``truth`` and
    ``predicted``.

    Of classes ``majority_accuracy`` (always predicting the most frequent test label), ``auc_across`` (the AUC that also
    compares scans of different folds, as scikit-learn's does for all rows of a seed), ``n_scans``, ``classes``,
    ``confusion`` (rows: true class), ``calibration`` (`reliability`), if every fold has a temperature ``calibrated``
    (`after_temperature`), and, of two classes, ``roc``, the mean of the folds' curves.
    """
    if classes is None:
        number, predicted_number = number_arrays(predictions)
        of_mean = float(np.abs(number - number.mean()).mean())
        return {"mean_guess_mae": of_mean, "n_scans": len(number), "truth": number, "predicted": predicted_number}
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
    if len(classes) == 2 and (roc := _mean_roc(truth, probability[:, 1], model_of(predictions))):
        summary["roc"] = roc
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
    scaled = with_temperature(probability, temperature[:, None])
    values = scores(truth, predicted, scaled)
    errors = reliability(truth, predicted, scaled, predictions["scan_id"].to_numpy())
    found = {name: float(values[name][0]) for name in ("brier", "log_loss")}
    found |= {name: errors[name] for name in ("ece", "ece_if_calibrated")}
    return found | {"temperature": float(np.exp(np.log(temperature).mean()))}


def reliability(
    truth: Positions, predicted: Positions, probability: Floats, scan: NDArray[Any] | None = None, *, draws: int = 1000
) -> dict[str, Any]:
    """Return the reliability diagram of the predicted class, and its expected calibration error.

    Parameters
    ----------
    truth, predicted : int array (n,)
    probability : float array (n, classes)
    scan : array (n,), optional
        Predictions by several seeds are of the same scan; by default every row is a scan.
    draws : int
        Simulations of a perfectly calibrated model.

    Returns
    -------
    dict
        ``probability`` (mean, of the predicted class), ``accuracy`` and ``n_scans`` of each bin with scans; ``ece``,
        and ``ece_if_calibrated``: its mean if predictions were right as often as their probabilities say.
    """
    confidence = probability[np.arange(len(predicted)), predicted]
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)  # 1 belongs to the last bin
    filled, place = np.unique(bins, return_inverse=True)
    in_bin, right = np.eye(len(filled))[place], truth == predicted
    scan = np.arange(len(truth)) if scan is None else np.unique(scan, return_inverse=True)[1]
    luck = np.random.default_rng(0).random((draws, scan.max() + 1))[:, scan]

    def errors(right: NDArray[np.bool_]) -> Floats:
        return np.abs((right - confidence) @ in_bin).sum(axis=1) / len(confidence)

    return {
        "probability": [float(confidence[bins == b].mean()) for b in filled],
        "accuracy": [float(right[bins == b].mean()) for b in filled],
        "n_scans": [int((bins == b).sum()) for b in filled],
        "ece": float(errors(right[None])[0]),
        "ece_if_calibrated": float(errors(luck < confidence).mean()),
    }


def model_of(predictions: pd.DataFrame) -> Positions:
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


def ranking_of(predictions: pd.DataFrame, classes: Sequence[str]) -> Floats | None:
    """Return the columns of `with_ranks`, (n, classes), which may be compared between folds; None without them."""
    names = [f"{RANK}{name}" for name in classes]
    return predictions[names].to_numpy(float) if set(names) <= set(predictions) else None


def _mean_roc(truth: Positions, score: Floats, model: Positions) -> dict[str, Any]:
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


# ---- numbers ----------------------------------------------------------------------------------------------------
def number_scores(truth: Floats, predicted: Floats, weight: Floats | None = None) -> dict[str, Floats]:
    """Compute the metrics of predictions, under one or more weightings of the rows.

    Parameters
    ----------
    truth, predicted : float array (n,)
    weight : float array (draws, n), optional
        By default all 1.

    Returns
    -------
    dict
        For each of `NUMBER_METRICS` an array (draws,); r and r2 are NaN if all labels are equal, r also if all
        predictions are.
    """
    weight = np.ones((1, len(truth))) if weight is None else weight
    total = weight.sum(axis=1)

    def centred(values: Floats) -> Floats:
        return values - (weight @ values / total)[:, None]

    x, y = centred(truth), centred(predicted)
    spread_x, spread_y = (weight * x**2).sum(axis=1), (weight * y**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = (weight * x * y).sum(axis=1) / np.sqrt(spread_x * spread_y)
        r2 = 1 - weight @ (truth - predicted) ** 2 / spread_x
    values = {"r": r, "mae": weight @ np.abs(truth - predicted) / total, "r2": r2}
    return {name: np.where(np.isfinite(value), value, np.nan) for name, value in values.items()}


def number_arrays(predictions: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return labels and predictions as numbers, (n,) each.

    Raises
    ------
    DataError
        One is missing or not a number.
    """
    arrays = []
    for column in ("label", "predicted"):
        values = pd.to_numeric(predictions[column], errors="coerce").to_numpy(float)
        unknown = predictions[~np.isfinite(values)]
        if len(unknown):
            what = f"{column} '{unknown[column].iloc[0]}' is not a number"
            raise _error(what, unknown, "Train again after changing 'classes' in the dataset's configuration")
        arrays.append(values)
    return arrays[0], arrays[1]
