"""What linear models of connectivity share: products in blocks, splits within the training scans, calibration."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.model_selection import StratifiedGroupKFold

from bolt.models.parts.features import Array

log = logging.getLogger(__name__)

INNER_FOLDS = 5  # as usual for Platt scaling
BLOCK = 1024  # columns converted to float64 at a time, which bounds the memory of a product


def products(a: Array, b: Array) -> NDArray[np.float64]:
    """Multiply (n, k) by (k, m) in double precision without converting whole matrices at once."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], BLOCK):
        block = slice(start, start + BLOCK)
        total += a[:, block].astype(np.float64) @ b[block].astype(np.float64)
    return total


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
    splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
    for inner, held_out in splitter.split(labels, labels, groups):
        if len(np.unique(labels[inner])) == n_classes:
            yield inner, held_out


def temperature(scores: Array, truth: Array, labels: Array) -> float:
    """Fit the factor of maximum likelihood by which scores become logits; 1 if there are no scores.

    As in Platt scaling, targets fall short of 1, the less the larger the class, so that the factor is finite even if
    classes do not overlap.

    Parameters
    ----------
    scores : (n, classes) array
        Of scans that the model has not seen.
    truth : (n,) int array
        Their classes.
    labels : int array
        Classes of all training scans, whose numbers set the shortfall.

    References
    ----------
    Guo et al. 2017, ICML, https://arxiv.org/abs/1706.04599; Platt 1999, for the targets.
    """
    if not len(scores):
        return 1.0
    n_classes = scores.shape[1]
    shortfall = 1 / (np.bincount(labels, minlength=n_classes)[truth] + 2)
    target = np.repeat((shortfall / (n_classes - 1))[:, None], n_classes, axis=1)
    target[np.arange(len(truth)), truth] = 1 - shortfall

    def loss(log_factor: float) -> float:
        return -float((target * log_softmax(np.exp(log_factor) * scores, axis=1)).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-10, 10), method="bounded").x))
