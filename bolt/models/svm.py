"""Support vector machine on static connectivity, one against one.

The paper's first competitor: Pearson correlation, linear kernel, C = 1 (Bedel et al. 2023, after Abraham et al. 2017,
NeuroImage 147:736). Its published code runs scikit-learn's default kernel, which is RBF: `kernel` chooses.

Every machine sees the kernel matrix of the training scans, computed once. Class probabilities are the softmax of the
decision scores times one number, fitted to out-of-fold scores of the training part (temperature scaling: Guo et al.
2017, ICML; with two classes Platt's sigmoid without its offset). So they follow the decision function everywhere: the
largest probability is the machine's own decision, and the AUC is that of its scores.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.svm import SVC

from bolt.models.parts.features import Array, FeatureModel
from bolt.models.registry import register

log = logging.getLogger(__name__)

INNER_FOLDS = 5  # Platt scaling's customary number
BLOCK = 1024  # of the inner dimension at a time in float64: bounds the memory of a product


@register("svm")
class SVM(FeatureModel):
    """Parameters beside those of `FeatureModel`: `kernel`; `C`, the weight of errors; `gamma` of the RBF kernel,
    ``scale`` being 1 / (features × variance), scikit-learn's default."""

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        kernel: Literal["linear", "rbf"] = "linear",
        C: float = 1.0,
        gamma: float | Literal["scale"] = "scale",
    ) -> None:
        super().__init__(n_rois, n_classes)
        self.kernel, self.cost, self.gamma = kernel, C, gamma
        self.pairs = list(combinations(range(n_classes), 2))
        self._state: dict[str, Array] = {}

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        gamma = np.array(
            1 / (features.shape[1] * features.var(dtype=np.float64)) if self.gamma == "scale" else self.gamma
        )
        gram = self._kernel(features, features, gamma)
        dual, intercept = self._machines(gram, labels)
        temperature = self._temperature(gram, labels, groups, seed)
        self._state = {"intercept": intercept, "temperature": np.array(temperature)}
        if self.kernel == "linear":
            self._state["weights"] = _products(dual, features)
        else:
            support = dual.any(axis=0)
            self._state |= {"dual": dual[:, support], "support": features[support], "gamma": gamma}

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return softmax(self._state["temperature"] * self.scores(features), axis=1)

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Decision scores, (n, classes): 0 and the decision value of two classes; of more the votes, ties broken by the
        summed decision values, which is scikit-learn's `decision_function`."""
        learned = self._state
        if self.kernel == "linear":
            decisions = _products(features, learned["weights"].T)
        else:
            decisions = self._kernel(features, learned["support"], learned["gamma"]) @ learned["dual"].T
        return self._votes(decisions + learned["intercept"])

    def state(self) -> dict[str, Array]:
        return self._state

    def load_state(self, state: Mapping[str, Array]) -> None:
        self._state = dict(state)

    def _kernel(self, one: Array, two: Array, gamma: Array) -> NDArray[np.float64]:
        products = _products(one, two.T)
        if self.kernel == "linear":
            return products
        squares = [np.einsum("ij,ij->i", x, x, dtype=np.float64) for x in (one, two)]
        return np.exp(-gamma * (squares[0][:, None] + squares[1] - 2 * products))

    def _machines(self, gram: Array, labels: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Signed weight of every scan, (pairs, n), and intercepts; positive speaks for a pair's second class."""
        dual, intercept = np.zeros((len(self.pairs), len(labels))), np.zeros(len(self.pairs))
        for row, (first, second) in enumerate(self.pairs):
            own = np.flatnonzero(np.isin(labels, (first, second)))
            machine = SVC(C=self.cost, kernel="precomputed").fit(gram[np.ix_(own, own)], labels[own] == second)
            dual[row, own[machine.support_]] = machine.dual_coef_[0]
            intercept[row] = machine.intercept_[0]
        return dual, intercept

    def _votes(self, decisions: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.n_classes == 2:
            return np.column_stack([np.zeros(len(decisions)), decisions[:, 0]])
        votes, sums = np.zeros((2, len(decisions), self.n_classes))
        for (first, second), decision in zip(self.pairs, decisions.T, strict=True):
            votes[:, first] += decision <= 0
            votes[:, second] += decision > 0
            sums[:, first] -= decision
            sums[:, second] += decision
        return votes + sums / (3 * (np.abs(sums) + 1))  # less than half a vote

    def _temperature(self, gram: Array, labels: Array, groups: Array, seed: int) -> float:
        """The factor under which out-of-fold scores of the training scans are the most likely.

        As with Platt, a scan's target is short of 1 by an amount that shrinks with its class, so that classes without
        any overlap give a finite factor.
        """
        sizes = [len(np.unique(groups[labels == c])) for c in range(self.n_classes)]
        parts = min(INNER_FOLDS, *sizes)
        if parts < 2:
            log.warning("too few training subjects for out-of-fold scores: probabilities are not calibrated")
            return 1.0
        scores, known = np.zeros((len(labels), self.n_classes)), np.zeros(len(labels), bool)
        splitter = StratifiedGroupKFold(parts, shuffle=True, random_state=seed)
        for inner, held_out in splitter.split(gram, labels, groups):
            if len(np.unique(labels[inner])) < self.n_classes:
                continue
            dual, intercept = self._machines(gram[np.ix_(inner, inner)], labels[inner])
            scores[held_out] = self._votes(gram[np.ix_(held_out, inner)] @ dual.T + intercept)
            known[held_out] = True
        short = 1 / (np.bincount(labels, minlength=self.n_classes)[labels] + 2)
        target = np.repeat((short / (self.n_classes - 1))[:, None], self.n_classes, axis=1)
        target[np.arange(len(labels)), labels] = 1 - short

        def loss(log_factor: float) -> float:
            return -float((target * log_softmax(np.exp(log_factor) * scores, axis=1))[known].sum())

        return float(np.exp(minimize_scalar(loss, bounds=(-10, 10), method="bounded").x))


def _products(one: Array, two: Array) -> NDArray[np.float64]:
    """Matrix product in double precision, (n, k) × (k, m), without a double copy of the whole."""
    total = np.zeros((one.shape[0], two.shape[1]))
    for start in range(0, one.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        total += one[:, part].astype(np.float64) @ two[part].astype(np.float64)
    return total
