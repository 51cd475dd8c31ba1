"""What every model of one vector a scan takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class FeatureModel(ABC):
    """A model of one vector a scan, trained in one go: no epochs, no GPU.

    Parameters
    ----------
    n_rois, n_classes : int

    Attributes
    ----------
    inputs : str
        What it takes: ``connectivity`` (vectors of `bolt.series.connectivity.connectivity`) or ``covariates`` (those of
        `bolt.cohort.covariates.Covariates`); with a keyword `n_covariates` in its class, at least one.
    """

    inputs = "connectivity"

    def __init__(self, n_rois: int, n_classes: int) -> None:
        self.n_rois, self.n_classes = n_rois, n_classes

    @abstractmethod
    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Learn from training scans alone.

        Parameters
        ----------
        features : (n, F) array
        labels : (n,) int array
            Positions in the list of classes; each occurs.
        groups : (n,) array
            Families, else subjects: what must not straddle a split within the training part either.
        seed : int
        """

    @abstractmethod
    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Class probabilities, (n, classes); the largest is the model's decision."""

    @abstractmethod
    def state(self) -> dict[str, Array]:
        """All that was learned, as arrays."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Array]) -> None:
        """Take what `state` gave."""
