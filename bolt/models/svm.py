"""Support vector machine on static connectivity, one class against one.

The paper's first competitor: Pearson correlation, linear kernel, C = 1 (Bedel et al. 2023, after Abraham et al. 2017,
NeuroImage 147:736, https://doi.org/10.1016/j.neuroimage.2016.10.045). The published code uses scikit-learn's default
kernel, RBF; `kernel` selects.

All machines share the kernel matrix of the training scans, computed once. Class probabilities are the softmax of the
decision scores times one factor, fitted to out-of-fold scores of the training scans (temperature scaling: Guo et al.
2017, ICML, https://arxiv.org/abs/1706.04599; for two classes this is Platt's sigmoid without offset). They are a
monotonic function of the scores: the most probable class is the machine's decision, and the AUC is that of the scores.

The published code has Platt's probabilities instead: a sigmoid of each machine's decision value, fitted to out-of-fold
values, and for more than two classes coupled (Wu, Lin and Weng 2004, https://www.jmlr.org/papers/v5/wu04a.html, method
2). Its decision is the most probable class, which may differ from the machines'.
"""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, softmax
from sklearn.svm import SVC

from bolt.models.parts.calibration import fit_factor, inner_splits
from bolt.models.parts.features import Array, FeatureModel, products
from bolt.models.registry import register


@register("svm")
class SVM(FeatureModel):
    """Support vector machine with calibrated class probabilities.

    Parameters
    ----------
    n_rois, n_classes : int
    kernel : {"linear", "rbf"}
    C : float
        Weight of errors.
    gamma : float or "scale"
        Of the RBF kernel; ``scale``, scikit-learn's default, is 1 / (features × variance).
    calibration : {"temperature", "platt"}
        How probabilities are made of decision values; the published code has ``platt``.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        kernel: Literal["linear", "rbf"] = "linear",
        C: float = 1.0,
        gamma: float | Literal["scale"] = "scale",
        calibration: Literal["temperature", "platt"] = "temperature",
    ) -> None:
        super().__init__(n_rois, n_classes)
        self.kernel, self.cost, self.gamma, self.calibration = kernel, C, gamma, calibration
        self.pairs = list(combinations(range(n_classes), 2))

    def fit(self, features: NDArray[np.float32], labels: Array, groups: Array, seed: int = 0) -> None:
        """Fit one machine per pair of classes, and the temperature or sigmoids."""
        scale = 1 / (features.shape[1] * features.var(dtype=np.float64)) if self.kernel == "rbf" else np.nan
        gamma = np.array(scale if self.gamma == "scale" else self.gamma)
        gram = self._kernel(features, features, gamma)
        held_out = np.full((len(labels), len(self.pairs)), np.nan)  # decision values
        for inner, outer in inner_splits(labels, groups, self.n_classes, seed):
            dual, intercept = self._machines(gram[np.ix_(inner, inner)], labels[inner])
            held_out[outer] = gram[np.ix_(outer, inner)] @ dual.T + intercept
        known = np.isfinite(held_out).all(axis=1)
        dual, intercept = self._machines(gram, labels)
        self._state = {"intercept": intercept}
        if self.calibration == "platt":
            self._state["sigmoid"] = self._sigmoids(held_out[known], labels[known])
        else:
            self._state["temperature"] = np.array(fit_factor(self._votes(held_out[known]), labels[known], labels))
        if self.kernel == "linear":
            self._state["weights"] = products(dual, features)
        else:
            support = dual.any(axis=0)
            self._state |= {"dual": dual[:, support], "support": features[support], "gamma": gamma}

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Compute class probabilities, (n, classes)."""
        if self.calibration == "platt":
            slope, offset = self._state["sigmoid"].T
            return couple(expit(slope * self._decisions(features) + offset), self.n_classes)
        return softmax(self._state["temperature"] * self.scores(features), axis=1)

    def scores(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Compute decision scores, (n, classes).

        Two classes: 0 and the decision value. More classes: the number of votes, ties broken by the summed decision
        values, as in scikit-learn's `decision_function`.
        """
        return self._votes(self._decisions(features))

    def _decisions(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Compute the decision value of each pair, (n, pairs); positive means the second class."""
        state = self._state
        if self.kernel == "linear":
            decisions = products(features, state["weights"].T)
        else:
            decisions = self._kernel(features, state["support"], state["gamma"]) @ state["dual"].T
        return decisions + state["intercept"]

    def _kernel(self, a: Array, b: Array, gamma: Array) -> NDArray[np.float64]:
        """Compute the kernel between the rows of `a` and of `b`, (len(a), len(b))."""
        inner = products(a, b.T)
        if self.kernel == "linear":
            return inner
        norms_a, norms_b = (np.einsum("ij,ij->i", x, x, dtype=np.float64) for x in (a, b))
        return np.exp(-gamma * (norms_a[:, None] + norms_b - 2 * inner))

    def _machines(self, gram: Array, labels: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit all pairs: signed weights of scans, (pairs, n), and intercepts; positive means the second class."""
        dual, intercept = np.zeros((len(self.pairs), len(labels))), np.zeros(len(self.pairs))
        for row, (first, second) in enumerate(self.pairs):
            members = np.flatnonzero(np.isin(labels, (first, second)))
            machine = SVC(C=self.cost, kernel="precomputed")
            machine.fit(gram[np.ix_(members, members)], labels[members] == second)
            dual[row, members[machine.support_]] = machine.dual_coef_[0]
            intercept[row] = machine.intercept_[0]
        return dual, intercept

    def _votes(self, decisions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn decision values (n, pairs) into scores (n, classes)."""
        if self.n_classes == 2:
            return np.column_stack([np.zeros(len(decisions)), decisions[:, 0]])
        votes, sums = np.zeros((2, len(decisions), self.n_classes))
        for (first, second), decision in zip(self.pairs, decisions.T, strict=True):
            votes[:, first] += decision <= 0
            votes[:, second] += decision > 0
            sums[:, first] -= decision
            sums[:, second] += decision
        return votes + sums / (3 * (np.abs(sums) + 1))  # less than half a vote

    def _sigmoids(self, decisions: Array, labels: Array) -> NDArray[np.float64]:
        """Fit Platt's sigmoid to the out-of-fold values of each pair: slope and offset, (pairs, 2)."""
        fitted = [(1.0, 0.0)] * len(self.pairs)
        for row, (first, second) in enumerate(self.pairs):
            members = np.isin(labels, (first, second))
            if members.any():
                fitted[row] = _sigmoid(decisions[members, row], labels[members] == second)
        return np.array(fitted)


def _sigmoid(decisions: Array, positive: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the slope and offset of maximum likelihood, for targets that fall short of 0 and 1 (Platt 1999)."""
    target = np.where(positive, 1 - 1 / (positive.sum() + 2), 1 / ((~positive).sum() + 2))

    def loss(line: Array) -> float:
        values = line[0] * decisions + line[1]
        return -float((target * log_expit(values) + (1 - target) * log_expit(-values)).sum())

    offset = np.log((positive.sum() + 1) / ((~positive).sum() + 1))
    slope, offset = minimize(loss, [0.0, offset], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}).x
    return float(slope), float(offset)


def couple(second: Array, n_classes: int) -> NDArray[np.float64]:
    """Turn probabilities of pairs into those of classes, (n, classes).

    Minimises the sum of (r_ji p_i - r_ij p_j)², where r_ij is the probability of i among i and j.

    Parameters
    ----------
    second : (n, pairs) array
        Probability of the second class of each pair, in the order of `itertools.combinations`.
    n_classes : int
    """
    second = np.clip(second, 1e-7, 1 - 1e-7)
    n, pairs = len(second), np.array(list(combinations(range(n_classes), 2)))
    won = np.zeros((n, n_classes, n_classes))
    won[:, pairs[:, 0], pairs[:, 1]], won[:, pairs[:, 1], pairs[:, 0]] = 1 - second, second
    system = np.ones((n, n_classes + 1, n_classes + 1))
    system[:, -1, -1] = 0
    system[:, :-1, :-1] = -won * won.transpose(0, 2, 1)
    diagonal = np.arange(n_classes)
    system[:, diagonal, diagonal] = (won**2).sum(1)
    right = np.append(np.zeros(n_classes), 1.0)[:, None]
    return np.linalg.solve(system, np.broadcast_to(right, (n, n_classes + 1, 1)))[:, :-1, 0].clip(0)
