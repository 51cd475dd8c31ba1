"""Batched connectivity against numpy, scikit-learn and nilearn, on smooth, correlated series like those of brains."""

import numpy as np
import pytest
import torch
from nilearn.connectome import ConnectivityMeasure
from scipy.ndimage import gaussian_filter1d
from sklearn.covariance import LedoitWolf

from bolt.models.parts.connectivity import ledoit_wolf, partial_correlation, pearson


def brain_series(n, volumes, rois, seed=0):
    """Simulate smooth, z-scored ROI series with a few networks and a global signal, (n, volumes, rois) float32."""
    random = np.random.default_rng(seed)
    shared = random.standard_normal((n, volumes, 5)) @ random.standard_normal((5, rois))
    series = gaussian_filter1d(shared + random.standard_normal((n, volumes, rois)), 1.5, axis=1)
    series += 0.5 * gaussian_filter1d(random.standard_normal((n, volumes, 1)), 2, axis=1)
    return ((series - series.mean(1, keepdims=True)) / series.std(1, keepdims=True)).astype(np.float32)


LENGTHS = [(200, 30), (25, 60)]  # the second with fewer volumes than ROIs


@pytest.mark.parametrize(("volumes", "rois"), LENGTHS)
@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e20])
def test_pearson_is_numpys(volumes, rois, scale):
    x = brain_series(3, volumes, rois)
    values = pearson(torch.from_numpy(x * np.float32(scale)))
    assert values.dtype == torch.float32
    np.testing.assert_allclose(values, [np.corrcoef(scan.T.astype(float)) for scan in x], atol=2e-6)


def test_pearson_far_from_zero():
    """Raw BOLD is around 10,000: the mean is subtracted first."""
    x = brain_series(1, 150, 20) * 30 + 10_000
    np.testing.assert_allclose(pearson(torch.from_numpy(x))[0], np.corrcoef(x[0].T.astype(float)), atol=2e-5)


def test_a_constant_roi_correlates_with_nothing_not_even_itself():
    x = torch.from_numpy(brain_series(2, 50, 6))
    x[0, :, 1], x[0, :, 4], x[1] = 0.1, 0, 3
    values = pearson(x)
    assert values.isfinite().all() and not values[1].any()
    assert not values[0, [1, 4]].any() and not values[0, :, [1, 4]].any()
    assert values[0, 0, 0] == pytest.approx(1)


def test_pearson_ignores_lower_precision():
    x = torch.from_numpy(brain_series(1, 80, 10))
    with torch.autocast("cpu", torch.bfloat16):
        inside = pearson(x)
    assert inside.dtype == torch.float32 and torch.equal(inside, pearson(x))


@pytest.mark.parametrize(("volumes", "rois"), [*LENGTHS, (2, 5), (40, 1)])
def test_ledoit_wolf_is_scikit_learns(volumes, rois):
    x = np.random.default_rng(1).standard_normal((3, volumes, rois)) if rois < 9 else brain_series(3, volumes, rois)
    expected = [LedoitWolf(assume_centered=False).fit(scan.astype(float)).covariance_ for scan in x]
    np.testing.assert_allclose(ledoit_wolf(torch.from_numpy(x)), expected, atol=1e-8)


@pytest.mark.parametrize(("volumes", "rois"), LENGTHS)
def test_partial_correlation_is_nilearns(volumes, rois):
    x = brain_series(3, volumes, rois)
    measure = ConnectivityMeasure(kind="partial correlation", standardize=False)
    values = partial_correlation(ledoit_wolf(torch.from_numpy(x)))
    np.testing.assert_allclose(values, measure.fit_transform(list(x.astype(float))), atol=1e-5)


def test_partial_correlation_of_hard_scans():
    """Constant ROIs, identical ROIs, a scan of zeros, two volumes: the result is finite."""
    x = torch.from_numpy(brain_series(3, 40, 6))
    x[0, :, 2], x[0, :, 4], x[1] = 0, x[0, :, 5], 0
    values = partial_correlation(ledoit_wolf(x))
    assert values.isfinite().all() and values.abs().max() <= 1
    assert torch.equal(values[0, 2], torch.eye(6)[2]) and torch.equal(values[1], torch.eye(6))
    assert partial_correlation(ledoit_wolf(x[:, :2])).isfinite().all()
