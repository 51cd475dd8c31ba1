"""How good class probabilities are: Brier score, log loss, reliability diagram, expected calibration error.

The expected calibration error follows Guo et al. (2017, https://arxiv.org/abs/1706.04599): scans are sorted into `BINS`
bins of equal width on [0, 1] by the probability of their predicted class; the error is the mean distance between
accuracy and mean probability of the bins, weighted by their number of scans. With two classes that probability is at
least 0.5, so the lower half of the bins is empty. The error is biased upwards, the more so the fewer scans are in a bin
(Kumar et al. 2019, https://arxiv.org/abs/1909.10155), and depends on how far probabilities are spread: two perfectly
calibrated models can differ. So it only describes a model, beside the error that a perfectly calibrated one would have;
tests and intervals are those of Brier score and log loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15
SMALLEST = 1e-6
"""Probabilities below it count as this in the log loss, whose largest value is therefore 13.8."""


def brier_score(
    truth: NDArray[np.integer], probability: NDArray[np.floating], weight: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Compute the mean squared distance between probabilities and truth.

    Parameters
    ----------
    truth : int array (n,)
        Positions in the list of classes.
    probability : float array (n, classes)
    weight : float array (draws, n)

    Returns
    -------
    float array (draws,)
        Two classes: of the positive class, 0 to 1; a coin has 0.25. More classes: summed over classes, 0 to 2 (Brier
        1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2).
    """
    return weight @ squared_errors(truth, probability) / weight.sum(axis=1)


def squared_errors(truth: NDArray[np.integer], probability: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return what the Brier score averages, (n,)."""
    squares = (probability - np.eye(probability.shape[1])[truth]) ** 2
    return squares[:, 1] if probability.shape[1] == 2 else squares.sum(axis=1)


def log_loss(
    truth: NDArray[np.integer], probability: NDArray[np.floating], weight: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Compute the mean of `log_losses`, (draws,); parameters as in `brier_score`."""
    return weight @ log_losses(truth, probability) / weight.sum(axis=1)


def log_losses(truth: NDArray[np.integer], probability: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the negative natural logarithm of each scan's probability of its true class, (n,).

    Probabilities are at least `SMALLEST`, so that one scan whose true class had none does not make the mean infinite.
    """
    return -np.log(probability[np.arange(len(truth)), truth].clip(SMALLEST, 1))


def reliability(
    truth: NDArray[np.integer],
    predicted: NDArray[np.integer],
    probability: NDArray[np.floating],
    scan: NDArray[Any] | None = None,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the reliability diagram of the predicted class, and its expected calibration error.

    Parameters
    ----------
    truth, predicted : int array (n,)
    probability : float array (n, classes)
    scan : array (n,), optional
        Predictions by several seeds are of the same scan; by default every row is a scan.
    draws, seed : int
        Simulations of a perfectly calibrated model.

    Returns
    -------
    dict
        ``probability`` (mean, of the predicted class), ``accuracy`` and ``n_scans`` of each bin with scans; ``ece``,
        and ``ece_if_calibrated``: its mean if predictions were right as often as their probabilities say.
    """
    confidence, bins = _binned(predicted, probability)
    filled, place = np.unique(bins, return_inverse=True)
    right = truth == predicted
    scan = np.arange(len(truth)) if scan is None else np.unique(scan, return_inverse=True)[1]
    luck = np.random.default_rng(seed).random((draws, scan.max() + 1))[:, scan]
    in_bin = np.eye(len(filled))[place]
    return {
        "probability": [float(confidence[bins == b].mean()) for b in filled],
        "accuracy": [float(right[bins == b].mean()) for b in filled],
        "n_scans": [int((bins == b).sum()) for b in filled],
        "ece": float(_distance(right[None], confidence, in_bin)[0]),
        "ece_if_calibrated": float(_distance(luck < confidence, confidence, in_bin).mean()),
    }


def _distance(right: NDArray[np.bool_], confidence: NDArray[np.floating], in_bin: NDArray[np.floating]) -> Any:
    """Return the expected calibration error of each row of `right`, (draws,)."""
    return np.abs((right - confidence) @ in_bin).sum(axis=1) / len(confidence)


def _binned(
    predicted: NDArray[np.integer], probability: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """Return the probability of the predicted class and its bin; 1 belongs to the last bin."""
    confidence = probability[np.arange(len(predicted)), predicted]
    return confidence, np.minimum((confidence * BINS).astype(int), BINS - 1)
