"""Ridge regression equals scikit-learn's, and chooses its penalty on held-out groups."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import roc_auc_score

from bolt.io.errors import ConfigError
from bolt.models.registry import create_model
from bolt.models.ridge import PENALTIES
from tests.models.test_svm import made_up


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
    random = np.random.default_rng(1)
    features, labels = random.standard_normal((100, 400)).astype(np.float32), np.arange(100) % 2
    model = create_model("ridge", 29, 2, penalty=PENALTIES[0])
    model.fit(features, labels, np.arange(100))
    assert (model.probabilities(features).argmax(1) == labels).all()  # overfitted
    chance = model.probabilities(random.standard_normal((200, 400)).astype(np.float32))
    assert 0.4 < chance.mean() < 0.6 and chance.max() < 0.75


def test_subjects_do_not_straddle_the_inner_split():
    """Scans of a subject are alike: if they were split, a small penalty would seem best for labels of chance."""
    random = np.random.default_rng(0)
    people = random.standard_normal((60, 400))
    features = np.repeat(people, 4, axis=0) + 0.05 * random.standard_normal((240, 400))
    labels, groups = np.repeat(np.arange(60) % 2, 4), np.repeat(np.arange(60), 4)
    together, apart = create_model("ridge", 29, 2), create_model("ridge", 29, 2)
    together.fit(features.astype(np.float32), labels, groups)
    apart.fit(features.astype(np.float32), labels, np.arange(240))
    assert together.state()["penalty"] > 10 * apart.state()["penalty"]


def test_too_few_groups_keep_the_neutral_penalty(caplog):
    features, labels, _ = made_up(2, n=12)
    model = create_model("ridge", 25, 2)
    model.fit(features, labels, labels)
    assert model.state()["penalty"] == 1 and model.state()["temperature"] == 1 and "not calibrated" in caplog.text


@pytest.mark.parametrize("penalty", [0, -1.0])
def test_a_penalty_that_is_none_is_refused(penalty):
    with pytest.raises(ConfigError, match="must be above 0"):
        create_model("ridge", 25, 2, penalty=float(penalty))
