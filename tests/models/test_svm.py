"""The SVM decides like scikit-learn's, its probabilities agree with its decisions, and its state is arrays only."""

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
from bolt.models.ridge import PENALTIES
from bolt.models.svm import couple


def made_up(n_classes, n=120, n_features=300, effect=0.35, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    directions = random.standard_normal((n_classes, n_features))
    features = 0.2 * random.standard_normal((n, n_features)) + 0.2 * effect * directions[labels] / 2
    return features.clip(-1, 1).astype(np.float32), labels, np.arange(n) // n_classes // 2


def trained(name, n_classes, n=80, effect=0.35, **hyper):
    features, labels, groups = made_up(n_classes, n=n + 40, effect=effect)
    model = create_model(name, 25, n_classes, **hyper)
    model.fit(features[:n], labels[:n], groups[:n])
    return model, features, labels


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("hyper", [{"kernel": "linear"}, {"kernel": "rbf"}, {"kernel": "rbf", "C": 3.5, "gamma": 0.07}])
def test_it_decides_as_scikit_learns(n_classes, hyper):
    model, features, labels = trained("svm", n_classes, **hyper)
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


@pytest.mark.parametrize(("name", "settings"), [("svm", {}), ("ridge", {"penalty": PENALTIES[0]})])
def test_probabilities_are_calibrated_on_out_of_fold_scores(name, settings):
    """With more features than scans training scans are separable, but probabilities of new scans must stay moderate."""
    random, model = np.random.default_rng(1), create_model(name, 29, 2, **settings)
    features, labels = random.standard_normal((100, 400)).astype(np.float32), np.arange(100) % 2
    model.fit(features, labels, np.arange(100))
    assert (model.probabilities(features).argmax(1) == labels).all()  # overfitted
    chance = model.probabilities(random.standard_normal((200, 400)).astype(np.float32))
    assert 0.4 < chance.mean() < 0.6 and chance.max() < 0.75


@pytest.mark.parametrize(
    ("name", "n_people", "scans", "key", "least", "most"),
    [("svm", 100, 3, "temperature", 0, 0.3), ("ridge", 60, 4, "penalty", 10, np.inf)],
)
def test_subjects_do_not_straddle_the_inner_split(name, n_people, scans, key, least, most):
    """Scans of a subject are alike: if they were split, out-of-fold scores would be as confident as training scores,
    and a small penalty would seem best for labels of chance."""
    random = np.random.default_rng(0)
    people, n = random.standard_normal((n_people, 400)), n_people * scans
    features = (np.repeat(people, scans, axis=0) + 0.05 * random.standard_normal((n, 400))).astype(np.float32)
    labels, found = np.repeat(np.arange(n_people) % 2, scans), []
    for groups in (np.repeat(np.arange(n_people), scans), np.arange(n)):
        model = create_model(name, 29, 2)
        model.fit(features, labels, groups)
        found.append(model.state()[key])
    assert least < found[0] / found[1] < most


def test_platts_probabilities_are_scikit_learns():
    model, features, labels = trained("svm", 2, kernel="rbf", calibration="platt")
    groups = made_up(2)[2]
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


@pytest.mark.parametrize("name", ["svm", "ridge"])
def test_too_few_subjects_for_out_of_fold_scores_keep_the_neutral_penalty(name, caplog):
    features, labels, _ = made_up(2, n=12)
    model = create_model(name, 25, 2)
    model.fit(features, labels, labels)
    assert model.state()["temperature"] == model.state().get("penalty", 1) == 1 and "not calibrated" in caplog.text
