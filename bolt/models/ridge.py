"""Ridge regression of the classes on static connectivity: the simplest strong model of resting-state scans.

Each class is a column of targets, 1 for its scans and -1 for others; the largest prediction decides. The penalty is
chosen among `PENALTIES` by the squared error of out-of-fold predictions within the training scans. With more
connections than scans all is computed in the space of scans (kernel ridge: Saunders, Gammerman and Vovk 1998, ICML), so
that a penalty costs next to nothing. Dadi et al. 2019, NeuroImage 192:115,
https://doi.org/10.1016/j.neuroimage.2019.02.062, found such models of whole connectomes to be hard to beat.

Class probabilities are made of the scores as for the SVM (`bolt.models.parts.calibration.fit_factor`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from bolt.models.parts.calibration import fit_factor, inner_splits
from bolt.models.parts.features import Array, FeatureModel, products
from bolt.models.registry import register

PENALTIES = tuple(4.0**power for power in range(-6, 5))
"""Candidates, as multiples of the scans' mean squared distance from their mean: from 1/4096 to 256."""


@register("ridge")
class Ridge(FeatureModel):
    """Kernel ridge regression with calibrated class probabilities.

    Parameters
    ----------
    n_rois, n_classes : int
    penalty : float, optional
        As a multiple of the scans' mean squared distance from their mean; by default chosen on the training scans.

    Attributes
    ----------
    held_out_error : float
        Summed squared error of the out-of-fold predictions within the training scans, after `fit`.
    """

    def __init__(self, n_rois: int, n_classes: int, *, penalty: float | None = None) -> None:
        super().__init__(n_rois, n_classes)
        self.penalty = penalty
        self.held_out_error = np.nan

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Choose the penalty, fit one regression per class and the temperature."""
        candidates = PENALTIES if self.penalty is None else (self.penalty,)
        targets = 2.0 * np.eye(self.n_classes)[labels] - 1
        gram = products(features, features.T)
        held_out = np.full((len(candidates), *targets.shape), np.nan)
        for inner, outer in inner_splits(labels, groups, self.n_classes, seed):
            machines = _regressions(gram[np.ix_(inner, inner)], targets[inner], candidates)
            cross = gram[np.ix_(outer, inner)]
            held_out[:, outer] = [cross @ dual + intercept for dual, intercept in machines]
        known = np.isfinite(held_out).all(axis=(0, 2))
        errors = ((held_out - targets) ** 2)[:, known].sum(axis=(1, 2))
        best = int(np.argmin(errors)) if known.any() else candidates.index(min(candidates, key=lambda x: abs(x - 1)))
        self.held_out_error = float(errors[best])
        [(dual, intercept)] = _regressions(gram, targets, candidates[best : best + 1])
        self._state = {
            "weights": products(dual.T, features),
            "intercept": intercept,
            "penalty": np.array(candidates[best]),
            "temperature": np.array(fit_factor(held_out[best, known], labels[known], labels)),
        }

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Compute class probabilities, (n, classes)."""
        return softmax(self._state["temperature"] * self.scores(features), axis=1)

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Predict targets, (n, classes)."""
        return products(features, self._state["weights"].T) + self._state["intercept"]


def _regressions(gram: Array, targets: Array, penalties: tuple[float, ...]) -> list[tuple[Array, Array]]:
    """Regress targets (n, classes) on centred features for several penalties.

    Returns
    -------
    list of tuple
        For each penalty the weights of the scans, (n, classes), and the intercepts, (classes,). Weights sum to 0 over
        scans, and therefore apply to features that are not centred.
    """
    rows = gram.mean(axis=1)
    centred = gram - rows[:, None] - rows + rows.mean()
    values, vectors = np.linalg.eigh(centred)
    mean, spread = targets.mean(axis=0), centred.trace() / len(gram)
    turned = vectors.T @ (targets - mean)
    machines = []
    for penalty in penalties:
        dual = vectors @ (turned / (values.clip(0) + penalty * spread)[:, None])
        machines.append((dual, mean - rows @ dual))
    return machines
