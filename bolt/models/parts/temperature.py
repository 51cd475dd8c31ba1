"""Temperature scaling of class probabilities (Guo et al. 2017, https://arxiv.org/abs/1706.04599).

One number, fitted to the predictions of scans that were not trained on, divides the logits: it changes how sure the
model is, never which class it chooses. The targets are smoothed as Platt (1999, Probabilistic outputs for support
vector machines) proposes, so that a few scans without an error do not make the model certain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

RANGE = (0.2, 10.0)
"""Temperatures that are considered: for a model at chance the best one may be infinite."""
SMALLEST = 1e-12


def fit_temperature(probability: NDArray[np.floating], truth: NDArray[np.integer], n_seeds: int = 1) -> float:
    """Return the temperature with the smallest log loss of the smoothed targets.

    Parameters
    ----------
    probability : (n, classes) array
        Of scans that were not trained on.
    truth : (n,) int array
        Positions of the classes.
    n_seeds : int
        How often each scan is among them: its predictions by several seeds are not several scans.
    """
    n_classes = probability.shape[1]
    count = np.bincount(truth, minlength=n_classes)[truth]
    count = count / n_seeds
    sure = (count + 1) / (count + 2)
    target = np.repeat(((1 - sure) / (n_classes - 1))[:, None], n_classes, axis=1)
    target[np.arange(len(truth)), truth] = sure

    def loss(log_temperature: float) -> float:
        scaled = with_temperature(probability, float(np.exp(log_temperature)))
        return -float((target * np.log(scaled.clip(min=SMALLEST))).sum(axis=1).mean())

    best = minimize_scalar(loss, bounds=tuple(np.log(RANGE)), method="bounded")
    return float(np.exp(best.x))


def with_temperature(
    probability: NDArray[np.floating], temperature: float | NDArray[np.floating]
) -> NDArray[np.floating]:
    """Scale probabilities (…, classes) by a temperature, or one each (…, 1): above 1 they become less extreme."""
    logits = np.log(probability.clip(min=SMALLEST)) / temperature
    scaled = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return scaled / scaled.sum(axis=-1, keepdims=True)
