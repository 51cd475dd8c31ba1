"""Calibration of class probabilities on scans that a model has not seen: temperature scaling, and inner splits for it.

One number, fitted to predictions of scans that were not trained on, multiplies scores or divides logits (Guo et al.
2017, ICML, https://arxiv.org/abs/1706.04599): it changes how sure the model is, never which class it chooses. Targets
are smoothed as Platt (1999, Probabilistic outputs for support vector machines) proposes: they fall short of 1, the less
the larger the class, so that the number is finite even if classes do not overlap, and a few scans without an error do
not make the model certain.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from bolt.models.parts.features import Array

log = logging.getLogger(__name__)

INNER_FOLDS = 5  # as usual for Platt scaling
RANGE = (0.2, 10.0)
"""Temperatures that are considered: for a model at chance the best one may be infinite."""
SMALLEST = 1e-12
"""Probability."""


def inner_splits(labels: Array, groups: Array, n_classes: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Split training scans by group into parts to learn from and parts held out.

    Parameters
    ----------
    labels : (n,) int array
    groups : (n,) array
        Never on both sides.
    n_classes : int
    seed : int

    Yields
    ------
    tuple
        Positions to learn from, which include every class, and positions held out. Nothing if there are too few groups.
    """
    n_folds = min(INNER_FOLDS, *(len(np.unique(groups[labels == c])) for c in range(n_classes)))
    if n_folds < 2:
        log.warning("too few training subjects for out-of-fold scores: probabilities are not calibrated")
        return
    from sklearn.model_selection import StratifiedGroupKFold  # evaluation and reports, which never split, start without

    splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
    for inner, held_out in splitter.split(labels, labels, groups):
        if len(np.unique(labels[inner])) == n_classes:
            yield inner, held_out


def fit_factor(scores: Array, truth: Array, labels: Array) -> float:
    """Fit the factor of maximum likelihood by which scores become logits; 1 if there are no scores.

    Parameters
    ----------
    scores : (n, classes) array
        Of scans that the model has not seen.
    truth : (n,) int array
        Their classes.
    labels : int array
        Classes of all training scans, whose numbers set the shortfall of the targets.
    """
    if not len(scores):
        return 1.0
    n_classes = scores.shape[1]
    target = _smoothed(truth, 1 / (np.bincount(labels, minlength=n_classes)[truth] + 2), n_classes)

    def loss(log_factor: float) -> float:
        return -float((target * log_softmax(np.exp(log_factor) * scores, axis=1)).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-10, 10), method="bounded").x))


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
    count = np.bincount(truth, minlength=n_classes)[truth] / n_seeds
    target = _smoothed(truth, 1 - (count + 1) / (count + 2), n_classes)

    def loss(log_temperature: float) -> float:
        scaled = with_temperature(probability, float(np.exp(log_temperature)))
        return -float((target * np.log(scaled.clip(min=SMALLEST))).sum(axis=1).mean())

    return float(np.exp(minimize_scalar(loss, bounds=tuple(np.log(RANGE)), method="bounded").x))


def with_temperature(
    probability: NDArray[np.floating], temperature: float | NDArray[np.floating]
) -> NDArray[np.floating]:
    """Scale probabilities (…, classes) by a temperature, or one each (…, 1): above 1 they become less extreme."""
    return softmax(np.log(probability.clip(min=SMALLEST)) / temperature, axis=-1)


def _smoothed(truth: Array, shortfall: NDArray[np.floating], n_classes: int) -> NDArray[np.floating]:
    """Return targets (n, classes): in the true class `shortfall` below 1, which the other classes share."""
    target = np.repeat((shortfall / (n_classes - 1))[:, None], n_classes, axis=1)
    target[np.arange(len(truth)), truth] = 1 - shortfall
    return target
