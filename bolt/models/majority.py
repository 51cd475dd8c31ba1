"""Majority baseline: class frequencies of the training scans, the floor of any comparison."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
        self._state = {"shares": np.bincount(labels, minlength=self.n_classes) / len(labels)}

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the class frequencies for every scan, (n, classes)."""
        return np.tile(self._state["shares"], (len(features), 1))
