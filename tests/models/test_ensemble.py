"""The pool of members' predictions: calibrated, weighted by validation scans, and never worse than its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from bolt.models.ensemble import Ensemble
from bolt.models.parts.calibration import fit_temperature, with_temperature

NONE = np.empty(0)


def members(n=80, n_classes=2, sharpness=(1.0, 1.0, 0.0), seed=0):
    """Predictions of members that see the label through noise, (n, members, classes); 0: nothing is seen."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    logits = random.standard_normal((n, len(sharpness), n_classes))
    logits += np.array(sharpness)[:, None] * np.eye(n_classes)[labels][:, None]
    return softmax(logits, axis=2), labels


def fitted(probability, labels, prior):
    model = Ensemble(5, probability.shape[2], prior=prior)
    model.fit(joined(probability), labels, NONE)
    return model


def joined(probability):
    """As the model reads them: (n, members × classes)."""
    return probability.reshape(len(probability), probability.shape[1] * probability.shape[2])


@pytest.mark.parametrize("n_classes", [2, 7])
def test_it_is_the_weighted_product_of_calibrated_probabilities(n_classes):
    probability, labels = members(n_classes=n_classes)
    model = fitted(probability, labels, 10.0)
    product = np.ones((len(labels), n_classes))
    for m, weight in enumerate(model.state()["weights"]):
        product *= with_temperature(probability[:, m], fit_temperature(probability[:, m], labels)) ** weight
    expected = product / product.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.probabilities(joined(probability)), expected, rtol=1e-10)


def test_a_large_prior_makes_weights_equal_and_none_drops_what_knows_nothing():
    probability, labels = members(n=400, sharpness=(2.0, 2.0, 0.0))
    free, sure = (fitted(probability, labels, prior).state()["weights"] for prior in (0.0, 1e6))
    np.testing.assert_allclose(sure, 1 / 3, atol=1e-3)
    assert free[2] < 0.05 and free.sum() == pytest.approx(1)


def test_without_validation_scans_members_count_alike():
    probability, _ = members(n=6)
    model = fitted(probability[:0], np.empty(0, int), 100.0)
    expected = softmax(np.log(probability).mean(axis=1), axis=1)
    np.testing.assert_allclose(model.probabilities(joined(probability)), expected)


@given(st.integers(0, 10_000), st.floats(0, 1000))
def test_equal_members_change_no_decision(seed, prior):
    probability, labels = members(n=30, sharpness=(1.0,), seed=seed)
    twice = np.repeat(probability, 2, axis=1)
    pooled = fitted(twice, labels, prior).probabilities(joined(twice))
    alone = probability[:, 0]
    clear = np.abs(alone[:, 0] - alone[:, 1]) > 1e-6
    np.testing.assert_array_equal(pooled.argmax(axis=1)[clear], alone.argmax(axis=1)[clear])


def test_a_certain_member_leaves_probabilities_finite():
    probability, labels = members()
    probability[:, 0] = np.eye(2)[1 - labels]
    pooled = fitted(probability, labels, 0.0).probabilities(joined(probability))
    assert np.isfinite(pooled).all() and (pooled.argmax(axis=1) == labels).mean() > 0.5
