"""Logistic regression on covariates alone: how much age, sex, site or motion reveal of the label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from bolt.models.parts.features import Array, FeatureModel
from bolt.models.registry import register

ITERATIONS = 1000  # of the solver; a few standardised columns need a few dozen


@register("logistic")
class Logistic(FeatureModel):
    """Multinomial logistic regression with an L2 penalty.

    Parameters
    ----------
    n_rois, n_classes : int
    C : float
        Inverse strength of the penalty; scikit-learn's default is 1.
    n_covariates : int
        Number of inputs, as encoded by `bolt.cohort.covariates.Covariates`; filled in from `covariates` of the
        configuration.
    """

    inputs = "covariates"

    def __init__(self, n_rois: int, n_classes: int, *, C: float = 1.0, n_covariates: int = 0) -> None:
        super().__init__(n_rois, n_classes)
        self.cost, self.n_covariates = C, n_covariates

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Fit the regression; `groups` and `seed` are not used."""
        fitted = LogisticRegression(C=self.cost, max_iter=ITERATIONS).fit(features.astype(np.float64), labels)
        weights, intercept = fitted.coef_, fitted.intercept_
        if self.n_classes == 2:  # scikit-learn keeps the second class only; the first one's scores are 0
            weights, intercept = np.vstack([0 * weights, weights]), np.append(0, intercept)
        self._state = {"weights": weights, "intercept": intercept}

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Compute class probabilities, (n, classes)."""
        scores = features.astype(np.float64) @ self._state["weights"].T + self._state["intercept"]
        return softmax(scores, axis=1)
