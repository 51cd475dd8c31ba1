"""Logistic regression on what is known of a scan beside its series: what the covariates alone give away."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from bolt.io.errors import ConfigError
from bolt.models.parts.features import Array, FeatureModel
from bolt.models.registry import register

ITERATIONS = 1000  # of the solver; a few dozen are the rule for a few standardised columns


@register("logistic")
class Logistic(FeatureModel):
    """Multinomial logistic regression with an L2 penalty.

    Parameters
    ----------
    n_rois, n_classes : int
    C : float
        Inverse weight of the penalty; scikit-learn's default is 1.
    n_covariates : int
        Inputs, as `bolt.cohort.covariates.Covariates` encodes them; filled in from `covariates` of the configuration.
    """

    inputs = "covariates"

    def __init__(self, n_rois: int, n_classes: int, *, C: float = 1.0, n_covariates: int = 0) -> None:
        super().__init__(n_rois, n_classes)
        if C <= 0:
            raise ConfigError(f"C must be above 0, not {C}", where="hyper.C", hint="1 is the default")
        self.cost, self.n_covariates = C, n_covariates

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        fitted = LogisticRegression(C=self.cost, max_iter=ITERATIONS).fit(features.astype(np.float64), labels)
        weights, intercept = fitted.coef_, fitted.intercept_
        if self.n_classes == 2:  # scikit-learn keeps the second class's alone; the first one's scores are 0
            weights, intercept = np.vstack([0 * weights, weights]), np.append(0, intercept)
        self._state = {"weights": weights, "intercept": intercept}

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        scores = features.astype(np.float64) @ self._state["weights"].T + self._state["intercept"]
        return softmax(scores, axis=1)

    def state(self) -> dict[str, Array]:
        return self._state

    def load_state(self, state: Mapping[str, Array]) -> None:
        self._state = dict(state)
