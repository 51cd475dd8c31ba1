"""Logistic regressions on the same samples, with many versions of the labels, fitted together.

All fits share a bound of the Hessian, which is inverted once (Böhning and Lindsay 1988, doi:10.1007/BF00049423), and
so each step of all fits is a few products of matrices. Steps are accelerated, with restarts (O'Donoghue and Candès
2015, doi:10.1007/s10208-013-9150-3). Weights are those of ``LogisticRegression(C=1.0)``, which takes about ten times
as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

Array = NDArray[np.floating]

STEPS = 300
TOLERANCE = 1e-3
"""Relative change of the weights in a step below which a fit has converged."""
TOGETHER = 4_000_000
"""Predictions (samples, fits, classes) that are held in memory at once."""


def regression_maps(volumes: Array, labels: NDArray[np.integer], n_classes: int) -> Array:
    """Fit an L2-regularised logistic regression (C = 1, with intercept) for each version of the labels.

    Parameters
    ----------
    volumes : float array (samples, rois)
    labels : int array (fits, samples)
        Positions in the classes.
    n_classes : int

    Returns
    -------
    float array (fits, classes, rois)
        Log odds; with two classes, weights of the first are those of the second with the opposite sign.
    """
    binary = n_classes == 2
    design = np.column_stack([volumes, np.ones(len(volumes))]).astype(float)
    penalty = np.append(np.ones(volumes.shape[1]), 0)[:, None, None]
    bound = (0.25 if binary else 0.5) * design.T @ design + np.diag(penalty.ravel())
    inverse = np.linalg.pinv(bound, hermitian=True)
    outcomes = np.arange(1, 2) if binary else np.arange(n_classes)
    n_together = max(1, TOGETHER // (len(volumes) * len(outcomes)))
    parts = [
        _fit(design, inverse, penalty, (part.T[..., None] == outcomes).astype(float))
        for part in np.split(labels, range(n_together, len(labels), n_together))
    ]
    weights = np.concatenate(parts, axis=1)[:-1].transpose(1, 2, 0)
    return np.concatenate([-weights, weights], axis=1) if binary else weights


def _fit(design: Array, inverse: Array, penalty: Array, truth: Array) -> Array:
    """Maximise the penalised likelihood of `truth` (samples, fits, outcomes); return (rois + 1, fits, outcomes)."""
    predict = expit if truth.shape[-1] == 1 else lambda logits: softmax(logits, axis=-1)
    weights = np.zeros((design.shape[1], *truth.shape[1:]))
    ahead, momentum, running = weights.copy(), np.ones(truth.shape[1]), np.arange(truth.shape[1])
    for _ in range(STEPS):
        gradient = np.tensordot(design.T, truth[:, running] - predict(np.tensordot(design, ahead, 1)), 1)
        gradient -= penalty * ahead
        new = ahead + np.tensordot(inverse, gradient, 1)
        change = new - weights[:, running]
        weights[:, running] = new
        momentum = np.where((gradient * change).sum((0, 2)) < 0, 1, momentum)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + ((momentum - 1) / following)[:, None] * change
        left = np.linalg.norm(change, axis=(0, 2)) > TOLERANCE * np.linalg.norm(new, axis=(0, 2))
        if not left.any():
            break
        ahead, momentum, running = ahead[:, left], following[left], running[left]
    return weights
