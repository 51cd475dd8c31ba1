"""Ridge regression in the tangent space of correlation matrices.

Correlation matrices lie on a curved space. In the tangent space at their geometric mean (Varoquaux et al. 2010, MICCAI,
https://doi.org/10.1007/978-3-642-15705-9_25) differences between scans are vectors, which a linear model can weigh.
Dadi et al. 2019, NeuroImage 192:115, https://doi.org/10.1016/j.neuroimage.2019.02.062, found it the best of several
kinds of connectivity.

The mean is estimated on the training scans, by nilearn's `ConnectivityMeasure`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from bolt.models.parts.features import Array
from bolt.models.registry import register
from bolt.models.ridge import Ridge

SHRINKAGES = (0.1, 0.25, 0.5, 0.75)
"""Candidates."""


@register("tangent")
class Tangent(Ridge):
    """Ridge regression of the classes on tangent vectors.

    Parameters
    ----------
    n_rois, n_classes : int
    penalty : float, optional
        As in `bolt.models.ridge.Ridge`.
    shrinkage : float, optional
        Share of the identity in each correlation matrix, above 0 and below 1: with fewer volumes than ROIs a matrix
        has no logarithm without it. None: chosen among `SHRINKAGES`, as the penalty is.
    """

    needs_correlations = True

    def __init__(
        self, n_rois: int, n_classes: int, *, penalty: float | None = None, shrinkage: float | None = 0.5
    ) -> None:
        super().__init__(n_rois, n_classes, penalty=penalty)
        self.shrinkage = shrinkage

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Estimate the mean of the training scans, then fit as `Ridge`, with each shrinkage that may be chosen."""
        from nilearn.connectome import ConnectivityMeasure

        found: list[tuple[float, dict[str, Array]]] = []
        for shrinkage in SHRINKAGES if self.shrinkage is None else (self.shrinkage,):
            measure = ConnectivityMeasure(_Given(), kind="tangent", vectorize=True, standardize=False)
            vectors = measure.fit_transform(list(self._matrices(features, shrinkage)))
            super().fit(vectors.astype(np.float32), labels, groups, seed)
            state = self._state | {"whitening": measure.whitening_, "shrinkage": np.array(shrinkage)}
            found.append((self.held_out_error, state))
        self.held_out_error, self._state = min(  # of equals, as without held-out scans, the default
            found, key=lambda one: (one[0], abs(float(one[1]["shrinkage"]) - 0.5))
        )

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Predict targets, (n, classes)."""
        return super().scores(self._vectors(features))

    def _vectors(self, features: Array) -> NDArray[np.float32]:
        """Project scans onto the tangent space, (n, R (R + 1) / 2), as nilearn does."""
        from nilearn.connectome import sym_matrix_to_vec

        whitening, shrinkage = self._state["whitening"], np.asarray(self._state.get("shrinkage", self.shrinkage)).item()
        values, directions = np.linalg.eigh(whitening @ self._matrices(features, shrinkage) @ whitening)
        logarithms = (directions * np.log(values)[:, None]) @ directions.transpose(0, 2, 1)
        return sym_matrix_to_vec(logarithms).astype(np.float32)

    def _matrices(self, features: Array, shrinkage: float) -> NDArray[np.float64]:
        """Return shrunk correlation matrices, (n, R, R)."""
        upper = np.triu_indices(self.n_rois, k=1)
        matrices = np.zeros((len(features), self.n_rois, self.n_rois))
        matrices[:, upper[0], upper[1]] = (1 - shrinkage) * features
        return matrices + matrices.transpose(0, 2, 1) + np.eye(self.n_rois)


class _Given(BaseEstimator):
    """Stands where `ConnectivityMeasure` expects an estimator of covariance, and gives it the matrices themselves."""

    def fit(self, matrix: Array, y: None = None) -> _Given:
        """Take a matrix, (R, R)."""
        self.covariance_ = matrix
        return self
