"""Ridge regression equals scikit-learn's, and chooses its penalty on held-out groups."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import roc_auc_score

from tests.models.test_svm import trained


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
def test_it_decides_as_scikit_learns(n_classes, penalty):
    model, features, labels = trained("ridge", n_classes, penalty=penalty)
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
    (noise, *_), (strong, features, labels) = trained("ridge", 2, n=400, effect=0), trained("ridge", 2, effect=3)
    assert noise.state()["penalty"] > 1 > strong.state()["penalty"]
    assert roc_auc_score(labels[80:], strong.probabilities(features[80:])[:, 1]) == 1
