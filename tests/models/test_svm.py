"""The SVM decides like scikit-learn's, its probabilities agree with its decisions, and its state is arrays only."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.svm import SVC

from bolt.config import Config, load_dataset, load_experiment, load_model
from bolt.experiments.entries import rows_of
from bolt.models.registry import create_model
from bolt.models.svm import couple


def made_up(n_classes, n=120, n_features=300, effect=0.35, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    directions = random.standard_normal((n_classes, n_features))
    features = 0.2 * random.standard_normal((n, n_features)) + 0.2 * effect * directions[labels] / 2
    return features.clip(-1, 1).astype(np.float32), labels, np.arange(n) // n_classes // 2


def trained(n_classes, **hyper):
    features, labels, groups = made_up(n_classes)
    model = create_model("svm", 25, n_classes, **hyper)
    model.fit(features[:80], labels[:80], groups[:80])
    return model, features, labels


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("hyper", [{"kernel": "linear"}, {"kernel": "rbf"}, {"kernel": "rbf", "C": 3.5, "gamma": 0.07}])
def test_it_decides_as_scikit_learns(n_classes, hyper):
    model, features, labels = trained(n_classes, **hyper)
    other = SVC(**{"C": 1} | hyper, break_ties=True).fit(features[:80].astype(float), labels[:80])
    scores, expected = model.scores(features[80:]), other.decision_function(features[80:].astype(float))
    np.testing.assert_allclose(scores[:, 1] if n_classes == 2 else scores, expected, atol=2e-3)
    probabilities = model.probabilities(features[80:])
    np.testing.assert_array_equal(probabilities.argmax(1), other.predict(features[80:].astype(float)))
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (probabilities > 0).all()
    if n_classes == 2:
        assert len(np.unique(probabilities[:, 1])) == 40  # no two run together
        assert roc_auc_score(labels[80:], probabilities[:, 1]) == roc_auc_score(labels[80:], scores[:, 1])


def check_moderate(model):
    """With more features than scans training scans are separable, but probabilities of new scans must stay moderate."""
    random = np.random.default_rng(1)
    features, labels = random.standard_normal((100, 400)).astype(np.float32), np.arange(100) % 2
    model.fit(features, labels, np.arange(100))
    assert (model.probabilities(features).argmax(1) == labels).all()  # overfitted
    chance = model.probabilities(random.standard_normal((200, 400)).astype(np.float32))
    assert 0.4 < chance.mean() < 0.6 and chance.max() < 0.75


def test_probabilities_are_calibrated_on_out_of_fold_scores():
    check_moderate(create_model("svm", 29, 2))


def together_and_apart(name, n_people, scans):
    """States of a model that knows which scans are of a person, and of one that does not; labels are of chance."""
    random = np.random.default_rng(0)
    people, n = random.standard_normal((n_people, 400)), n_people * scans
    features = (np.repeat(people, scans, axis=0) + 0.05 * random.standard_normal((n, 400))).astype(np.float32)
    labels, states = np.repeat(np.arange(n_people) % 2, scans), []
    for groups in (np.repeat(np.arange(n_people), scans), np.arange(n)):
        model = create_model(name, 29, 2)
        model.fit(features, labels, groups)
        states.append(model.state())
    return states


def test_subjects_do_not_straddle_the_inner_split():
    """Scans of a subject are alike: if they were split, out-of-fold scores would be as confident as training scores."""
    together, apart = together_and_apart("svm", n_people=100, scans=3)
    assert together["temperature"] < 0.3 * apart["temperature"]


def test_platts_probabilities_are_scikit_learns():
    features, labels, groups = made_up(2)
    model = create_model("svm", 25, 2, kernel="rbf", calibration="platt")
    model.fit(features[:80], labels[:80], groups[:80])
    splits = StratifiedGroupKFold(5, shuffle=True, random_state=0).split(features[:80], labels[:80], groups[:80])
    machine = SVC(kernel="rbf", C=1)  # the published code's
    other = CalibratedClassifierCV(machine, method="sigmoid", ensemble=False, cv=list(splits))
    other.fit(features[:80].astype(float), labels[:80])
    np.testing.assert_allclose(model.probabilities(features[80:]), other.predict_proba(features[80:]), atol=1e-3)


def test_pairs_that_agree_on_the_classes_are_coupled_to_them():
    """If i beats j with p_i / (p_i + p_j), the classes have the probabilities p."""
    p = np.random.default_rng(0).dirichlet(np.ones(5), size=20)
    second = np.stack([p[:, j] / (p[:, i] + p[:, j]) for i, j in combinations(range(5), 2)], axis=1)
    np.testing.assert_allclose(couple(second, 5), p, atol=1e-6)


def test_the_published_code_has_a_row_of_its_own():
    rows = {row.row: model for row, model in rows_of(load_experiment("baselines"), Config(dataset="abide1"))}
    published, ours = rows["SVM (published code)"], load_model("svm")
    assert published.hyper == ours.hyper | {"kernel": "rbf", "calibration": "platt"}
    assert (published.connectivity, ours.connectivity) == ("crop", "scan")
    recipe = load_model("bolt_published")  # the code crops the scans of all its models alike
    for name in ("abide1", "hcp_rest", "hcp_task"):
        dataset = load_dataset(name)
        assert published.on(dataset)[1].crop == recipe.on(dataset)[1].crop


def test_too_few_subjects_for_out_of_fold_scores():
    features, labels, _ = made_up(2, n=12)
    model = create_model("svm", 25, 2)
    model.fit(features, labels, labels)
    assert model.state()["temperature"] == 1
