"""Correlations of whole scans are never NaN."""

import numpy as np
import pytest

from bolt.series.connectivity import connectivity, n_pairs


def test_pearson_in_the_order_of_the_upper_triangle():
    series = np.random.default_rng(0).standard_normal((60, 5)) + 7
    expected = np.corrcoef(series.T)
    values = connectivity(series)
    assert values.dtype == np.float32 and len(values) == n_pairs(5) == 10
    np.testing.assert_allclose(values, [expected[i, j] for i in range(5) for j in range(i + 1, 5)], atol=1e-6)


def test_fishers_z():
    series = np.random.default_rng(0).standard_normal((60, 5))
    np.testing.assert_allclose(connectivity(series, fisher_z=True), np.arctanh(connectivity(series)), rtol=1e-5)


@pytest.mark.parametrize("fisher_z", [False, True])
@pytest.mark.filterwarnings("error")
def test_constant_rois_give_zeros_and_equal_ones_stay_finite(fisher_z):
    series = np.random.default_rng(0).standard_normal((30, 6)).astype(np.float32)
    series[:, 1], series[:, 3], series[:, 5] = 0, 2.5, series[:, 4]
    matrix = np.zeros((6, 6))
    matrix[np.triu_indices(6, 1)] = connectivity(series, fisher_z=fisher_z)
    assert np.isfinite(matrix).all()
    assert not (matrix + matrix.T)[[1, 3]].any()
    assert matrix[4, 5] > 0.999
