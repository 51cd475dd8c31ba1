"""Interface of models that read one vector per scan and are fitted at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK = 1024  # columns converted to float64 at a time, which bounds the memory of a product


class FeatureModel(ABC):
    """A model of one vector per scan, fitted at once: no epochs, no GPU.

    Parameters
    ----------
    n_rois, n_classes : int

    Attributes
    ----------
    inputs : str
        What it reads: ``connectivity`` (vectors of `bolt.series.cache.connectivity`), ``covariates`` (encoded
        by `bolt.cohort.covariates.Covariates`; at least one if the class has a keyword `n_covariates`),
        ``predictions`` (probabilities of other models), ``features`` (vectors of a file) or ``probabilities`` (of a
        file, for test scans; NaN for others).
    needs_correlations : bool
        Its inputs must be correlation matrices, neither transformed nor harmonised.
    """

    inputs = "connectivity"
    needs_correlations = False

    def __init__(self, n_rois: int, n_classes: int) -> None:
        self.n_rois, self.n_classes = n_rois, n_classes
        self._state: dict[str, Array] = {}

    @abstractmethod
    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Learn from training scans.

        Parameters
        ----------
        features : (n, F) array
        labels : (n,) int array
            Positions in the list of classes; every class occurs.
        groups : (n,) array
            Families, else subjects, which must not straddle a split within the training scans.
        seed : int
            Of such a split.
        """

    @abstractmethod
    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Compute class probabilities, (n, classes); the largest is the model's decision."""

    def state(self) -> dict[str, Array]:
        """Return everything that was learned, as arrays by name, which `fit` has put into `_state`."""
        return self._state

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Restore what `state` returned."""
        self._state = dict(state)


def products(a: Array, b: Array) -> NDArray[np.float64]:
    """Multiply (n, k) by (k, m) in double precision without converting whole matrices at once."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], BLOCK):
        block = slice(start, start + BLOCK)
        total += a[:, block].astype(np.float64) @ b[block].astype(np.float64)
    return total
