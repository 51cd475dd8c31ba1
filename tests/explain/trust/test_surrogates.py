"""Phase-randomised copies keep the spectra and the covariance, and nothing of what happens when."""

import numpy as np
import pytest

from bolt.explain.trust.perturb import phase_randomised


@pytest.fixture(params=[40, 41])
def series(request):
    random = np.random.default_rng(0)
    smooth = np.cumsum(random.standard_normal((request.param, 5)), axis=0)
    smooth[:, 1] += 2 * smooth[:, 0]
    smooth[:, 4] = 3.0
    return smooth


def test_spectra_and_covariance_stay(series):
    copy = phase_randomised(series, np.random.default_rng(1))
    before, after = np.fft.rfft(series, axis=0), np.fft.rfft(copy, axis=0)
    np.testing.assert_allclose(np.abs(after), np.abs(before), atol=1e-9)
    np.testing.assert_allclose(after[:, 0] * after[:, 1].conj(), before[:, 0] * before[:, 1].conj(), atol=1e-7)
    np.testing.assert_allclose(np.cov(copy.T), np.cov(series.T), atol=1e-9)
    np.testing.assert_allclose(copy.mean(0), series.mean(0), atol=1e-9)


def test_the_time_of_things_is_lost(series):
    copies = [phase_randomised(series, np.random.default_rng(seed)) for seed in range(30)]
    correlation = [np.corrcoef(copy[:, 0], series[:, 0])[0, 1] for copy in copies]
    assert abs(np.mean(correlation)) < 0.3 and np.std(correlation) > 0.1


def test_seeded_and_in_its_precision(series):
    single = series.astype(np.float32)
    first, again, other = (phase_randomised(single, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.dtype == np.float32 and np.array_equal(first, again) and not np.array_equal(first, other)
