"""An ensemble: the weighted mean of the calibrated log probabilities of other models.

Members are trained apart, on the training scans. The temperature of each (Guo et al. 2017,
https://arxiv.org/abs/1706.04599) and the weights are fitted to validation scans: a logarithmic opinion pool (Genest and
Zidek 1986, Statistical Science 1:114, doi:10.1214/ss/1177013825). No member's weights are fitted to these scans, but
members that choose their epoch or their settings by them look better there than they are, and get too much weight
(`bolt.models.suitability.check_members` warns).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from bolt.models.parts.calibration import SMALLEST, fit_temperature
from bolt.models.parts.features import Array, FeatureModel
from bolt.models.registry import register


@register("ensemble")
class Ensemble(FeatureModel):
    """A pool of models.

    Parameters
    ----------
    n_rois, n_classes : int
    prior : float
        How many validation scans the belief in equal weights is worth: 0 trusts the validation scans alone, and the
        larger it is, the closer the weights stay to equal ones.
    """

    inputs = "predictions"

    def __init__(self, n_rois: int, n_classes: int, *, prior: float = 100.0) -> None:
        super().__init__(n_rois, n_classes)
        self.prior = prior

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Fit temperatures and weights; without scans, the former are 1 and the latter equal.

        Parameters
        ----------
        features : (n, members × classes) array
            Probabilities of scans that members were not fitted to.
        labels : (n,) int array
        groups, seed
            Not used.
        """
        logs = self._logs(features)
        n, n_members = logs.shape[:2]
        if not n:
            self._state = {"temperatures": np.ones(n_members), "weights": np.full(n_members, 1 / n_members)}
            return
        temperatures = np.array([fit_temperature(np.exp(logs[:, m]), labels) for m in range(n_members)])
        logs /= temperatures[:, None]

        def loss(free: Array) -> float:
            weights = softmax(np.append(free, 0))
            pooled = log_softmax(np.einsum("m,nmc->nc", weights, logs), axis=1)
            belief = self.prior / n_members * np.log(n_members * weights).sum()
            return -float(pooled[np.arange(n), labels].sum() + belief)

        best = minimize(loss, np.zeros(n_members - 1), method="L-BFGS-B")
        weights = softmax(np.append(best.x, 0))
        self._state = {"temperatures": temperatures, "weights": weights}

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Pool the members' probabilities (n, members × classes) to (n, classes)."""
        logs = self._logs(features) / self._state["temperatures"][:, None]
        return softmax(np.einsum("m,nmc->nc", self._state["weights"], logs), axis=1)

    def _logs(self, features: Array) -> NDArray[np.float64]:
        n_members = features.shape[1] // self.n_classes
        probability = features.reshape(len(features), n_members, self.n_classes).astype(float)
        return np.log(probability.clip(min=SMALLEST))
