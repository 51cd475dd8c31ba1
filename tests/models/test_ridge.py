"""Ridge regression equals scikit-learn's, and chooses its penalty on held-out groups."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import roc_auc_score

from bolt.models.registry import create_model
from bolt.models.ridge import PENALTIES
from tests.models.test_svm import check_moderate, made_up, together_and_apart


def fitted(n_classes, penalty=None, n=80, **data):
    features, labels, groups = made_up(n_classes, n=n + 40, **data)
    model = create_model("ridge", 25, n_classes, penalty=penalty)
    model.fit(features[:n], labels[:n], groups[:n])
    return model, features, labels


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
def test_it_decides_as_scikit_learns(n_classes, penalty):
    model, features, labels = fitted(n_classes, penalty)
    train = features[:80].astype(float)
    alpha = penalty * ((train - train.mean(0)) ** 2).sum() / 80
    other = Ridge(alpha=alpha).fit(train, 2 * np.eye(n_classes)[labels[:80]] - 1)
    np.testing.assert_allclose(model.state()["weights"], other.coef_, atol=1e-6)
    np.testing.assert_allclose(model.state()["intercept"], other.intercept_, atol=1e-6)
    probabilities = model.probabilities(features[80:])
    decided = RidgeClassifier(alpha=alpha).fit(train, labels[:80]).predict(features[80:].astype(float))
    np.testing.assert_array_equal(probabilities.argmax(1), decided)
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_the_penalty_grows_with_the_noise():
    """Without an effect nothing should be learned; with a strong one little should be lost to the penalty."""
    (noise, *_), (strong, features, labels) = fitted(2, n=400, effect=0), fitted(2, effect=3)
    assert noise.state()["penalty"] > 1 > strong.state()["penalty"]
    assert roc_auc_score(labels[80:], strong.probabilities(features[80:])[:, 1]) == 1


def test_probabilities_of_noise_stay_moderate():
    check_moderate(create_model("ridge", 29, 2, penalty=PENALTIES[0]))


def test_subjects_do_not_straddle_the_inner_split():
    """Scans of a subject are alike: if they were split, a small penalty would seem best for labels of chance."""
    together, apart = together_and_apart("ridge", n_people=60, scans=4)
    assert together["penalty"] > 10 * apart["penalty"]


def test_too_few_groups_keep_the_neutral_penalty(caplog):
    features, labels, _ = made_up(2, n=12)
    model = create_model("ridge", 25, 2)
    model.fit(features, labels, labels)
    assert model.state()["penalty"] == 1 and model.state()["temperature"] == 1 and "not calibrated" in caplog.text
