"""The floor of any table: the share of each class among the training scans, whoever is asked about."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier

from bolt.models.parts.features import Array, FeatureModel
from bolt.models.registry import register


@register("majority")
class Majority(FeatureModel):
    """Says the most frequent class of the training scans, with the classes' shares as probabilities.

    It looks at nothing: it takes covariates, and none of them.
    """

    inputs = "covariates"

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        floor = DummyClassifier(strategy="prior").fit(np.zeros((len(labels), 1)), labels)
        self._shares = np.zeros(self.n_classes)
        self._shares[floor.classes_] = floor.class_prior_

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.tile(self._shares, (len(features), 1))

    def state(self) -> dict[str, Array]:
        return {"shares": self._shares}

    def load_state(self, state: Mapping[str, Array]) -> None:
        self._shares = state["shares"]
