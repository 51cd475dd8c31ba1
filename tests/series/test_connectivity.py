"""Correlations of whole scans are never NaN."""

import numpy as np
import pytest

from bolt.series.cache import connectivity, connectivity_of, connectivity_of_crops, n_pairs


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


class Cache:
    """Scans of two ROIs whose correlation changes from volume to volume."""

    n_rois = 2

    def __init__(self, *lengths):
        random = np.random.default_rng(0)
        self.scans = [random.standard_normal((n, 2)).astype(np.float32) for n in lengths]

    def finite_series(self, i):
        return self.scans[i]


def test_scans_are_taken_in_the_order_asked_for():
    cache = Cache(30, 20, 25)
    expected = [np.corrcoef(cache.scans[i].T)[0, 1] for i in (2, 0)]
    np.testing.assert_allclose(connectivity_of(cache, [2, 0])[:, 0], expected, atol=1e-6)
    np.testing.assert_allclose(connectivity_of(cache, [2, 0], fisher_z=True)[:, 0], np.arctanh(expected), rtol=1e-5)


def test_crops_have_their_length_and_begin_anywhere():
    cache = Cache(12, 5)
    parts = [np.corrcoef(cache.scans[0][start : start + 8].T)[0, 1] for start in range(5)]
    found = [connectivity_of_crops(cache, [0], 8, np.random.default_rng(seed))[0, 0] for seed in range(60)]
    nearest = [int(np.argmin(np.abs(value - np.array(parts)))) for value in found]
    np.testing.assert_allclose(found, [parts[i] for i in nearest], atol=1e-6)
    assert set(nearest) == {0, 1, 2, 3, 4}
    whole = connectivity_of_crops(cache, [1], 8, np.random.default_rng(0), fisher_z=True)
    np.testing.assert_allclose(whole, connectivity_of(cache, [1], fisher_z=True))
