"""Ridge regression of the classes on vectors from a file: a linear probe of embeddings that another model has made.

Columns are standardised over the training scans, because units differ between embeddings; all else is as in
`bolt.models.ridge`. That the vectors were made without the labels of test scans cannot be seen from them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from bolt.models.parts.features import Array
from bolt.models.registry import register
from bolt.models.ridge import Ridge


@register("features")
class Features(Ridge):
    """Kernel ridge regression on the standardised columns of a file (`file` of the model's configuration)."""

    inputs = "features"

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Standardise the columns, then as `Ridge.fit`; a column that is constant here is only centred."""
        scaler = StandardScaler().fit(features.astype(np.float64))
        scale = {"mean": scaler.mean_, "sd": scaler.scale_}
        super().fit(((features - scale["mean"]) / scale["sd"]).astype(np.float32), labels, groups, seed)
        self._state |= scale

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Predict targets, (n, classes)."""
        return super().scores(((features - self._state["mean"]) / self._state["sd"]).astype(np.float32))
