"""Regressions that are fitted together are those of scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bolt.explain.trust import agreement
from bolt.explain.trust.agreement import regression_maps


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_those_of_a_logistic_regression(n_classes: int) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((120, 15)) + random.standard_normal((120, 1))  # correlated regions
    labels = np.stack([random.permutation(np.arange(120) % n_classes) for _ in range(4)])
    labels[0] = np.digitize(x[:, 0] + x[:, 1], [0, 2][: n_classes - 1])  # nearly separable
    found = regression_maps(x, labels, n_classes)
    assert found.shape == (4, n_classes, 15)
    for fitted, y in zip(found, labels, strict=True):
        expected = LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(x, y).coef_
        expected = np.concatenate([-expected, expected]) if n_classes == 2 else expected
        np.testing.assert_allclose(fitted, expected, atol=0.02 * np.abs(expected).max())


def test_what_is_fitted_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    x, labels = random.standard_normal((40, 5)), random.integers(0, 3, (7, 40))
    together = regression_maps(x, labels, 3)
    monkeypatch.setattr(agreement, "TOGETHER", 40 * 3 * 2)
    np.testing.assert_allclose(regression_maps(x, labels, 3), together, rtol=1e-9, atol=1e-12)


def test_regions_without_signal_have_no_weight() -> None:
    random = np.random.default_rng(2)
    x = np.column_stack([random.standard_normal((30, 3)), np.zeros(30)])  # a region that is not covered
    found = regression_maps(x, (np.arange(30) % 2)[None], 2)
    assert found[0, :, 3].tolist() == [0, 0] and np.abs(found[0, 1, :3]).min() > 0
