"""Majority baseline: class frequencies of the training scans, the floor of any comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier

from bolt.models.parts.features import Array, FeatureModel
from bolt.models.registry import register


@register("majority")
class Majority(FeatureModel):
    """Predicts the most frequent class of the training scans, with the class frequencies as probabilities.

    It reads nothing of a scan: its inputs are covariates, of which it takes none.
    """

    inputs = "covariates"

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Count classes; `features`, `groups` and `seed` are not used."""
        prior = DummyClassifier(strategy="prior").fit(np.zeros((len(labels), 1)), labels)
        self._shares = np.zeros(self.n_classes)
        self._shares[prior.classes_] = prior.class_prior_

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the class frequencies for every scan, (n, classes)."""
        return np.tile(self._shares, (len(features), 1))

    def state(self) -> dict[str, Array]:
        """Return the class frequencies, (classes,)."""
        return {"shares": self._shares}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Restore the class frequencies from `state`."""
        self._shares = state["shares"]
