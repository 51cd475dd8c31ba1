"""Probabilities from a file: another model's predictions of the test scans of each fold, as they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bolt.models.parts.features import Array, FeatureModel
from bolt.models.registry import register


@register("predictions")
class Predictions(FeatureModel):
    """Returns the probabilities that it is given; nothing is learned, and the other model's training is not audited."""

    inputs = "probabilities"

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Learn nothing."""

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the probabilities themselves, (n, classes)."""
        return features.astype(np.float64)
