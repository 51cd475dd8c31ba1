"""Calibration of class probabilities: Brier score, expected calibration error, reliability diagram.

The expected calibration error follows Guo et al. (2017, https://arxiv.org/abs/1706.04599): scans are sorted into `BINS`
bins of equal width on [0, 1] by the probability of their predicted class; the error is the mean distance between
accuracy and mean probability of the bins, weighted by their number of scans. With two classes that probability is at
least 0.5, so the lower half of the bins is empty. With few scans per bin the error is biased upwards: even a perfectly
calibrated model does not reach 0, and bootstrap intervals are too high.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15


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
    squares = (probability - np.eye(probability.shape[1])[truth]) ** 2
    error = squares[:, 1] if probability.shape[1] == 2 else squares.sum(axis=1)
    return weight @ error / weight.sum(axis=1)


def calibration_error(
    truth: NDArray[np.integer],
    predicted: NDArray[np.integer],
    probability: NDArray[np.floating],
    weight: NDArray[np.floating],
) -> NDArray[np.floating]:
    """Compute the expected calibration error of the predicted class, (draws,); parameters as in `brier_score`."""
    confidence, bins = _binned(predicted, probability)
    gap = np.zeros((len(truth), BINS))
    gap[np.arange(len(truth)), bins] = (truth == predicted) - confidence
    return np.abs(weight @ gap).sum(axis=1) / weight.sum(axis=1)


def reliability(
    truth: NDArray[np.integer], predicted: NDArray[np.integer], probability: NDArray[np.floating]
) -> dict[str, list[Any]]:
    """Return ``probability`` (mean, of the predicted class), ``accuracy`` and ``n_scans`` of each bin with scans."""
    confidence, bins = _binned(predicted, probability)
    filled = np.unique(bins)
    return {
        "probability": [float(confidence[bins == b].mean()) for b in filled],
        "accuracy": [float((truth == predicted)[bins == b].mean()) for b in filled],
        "n_scans": [int((bins == b).sum()) for b in filled],
    }


def _binned(
    predicted: NDArray[np.integer], probability: NDArray[np.floating]
) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """Return the probability of the predicted class and its bin; 1 belongs to the last bin."""
    confidence = probability[np.arange(len(predicted)), predicted]
    return confidence, np.minimum((confidence * BINS).astype(int), BINS - 1)
