"""Tangent vectors are nilearn's, of training scans and of others, and do not depend on how ROIs are mixed."""

import numpy as np
from nilearn.connectome import ConnectivityMeasure

from bolt.models.registry import create_model
from bolt.models.tangent import SHRINKAGES, _Given
from bolt.series.cache import connectivity

N_ROIS = 6


def scans(n=30, seed=0):
    random = np.random.default_rng(seed)
    mixing = random.standard_normal((N_ROIS, N_ROIS))
    series = [random.standard_normal((40, N_ROIS)) @ mixing for _ in range(n)]
    return np.stack([connectivity(x) for x in series]), np.arange(n) % 2


def test_vectors_are_nilearns():
    features, labels = scans()
    model = create_model("tangent", N_ROIS, 2, shrinkage=0.2)
    model.fit(features[:20], labels[:20], np.arange(20))
    measure = ConnectivityMeasure(_Given(), kind="tangent", vectorize=True, standardize=False)
    measure.fit(list(model._matrices(features[:20], 0.2)))
    expected = measure.transform(list(model._matrices(features, 0.2)))
    np.testing.assert_allclose(model._vectors(features), expected, atol=1e-6)


def test_matrices_are_shrunk_correlations():
    features, _ = scans(2)
    matrix = create_model("tangent", N_ROIS, 2)._matrices(features, 0.25)[1]
    assert (np.diag(matrix) == 1).all() and (matrix == matrix.T).all()
    np.testing.assert_allclose(matrix[np.triu_indices(N_ROIS, 1)], 0.75 * features[1], atol=1e-7)


def test_rois_that_are_constant_or_alike_are_no_obstacle():
    features, labels = scans()
    features = np.stack(
        [np.ones_like(row) if i == 3 else np.zeros_like(row) if i == 4 else row for i, row in enumerate(features)]
    )
    model = create_model("tangent", N_ROIS, 2)
    model.fit(features, labels, np.arange(len(labels)))
    assert np.isfinite(model.probabilities(features)).all()


def test_the_shrinkage_with_the_least_error_on_held_out_training_scans_is_chosen():
    features, labels = scans(40, seed=3)
    errors = {}
    for shrinkage in SHRINKAGES:
        model = create_model("tangent", N_ROIS, 2, shrinkage=shrinkage)
        model.fit(features, labels, np.arange(40), seed=1)
        errors[shrinkage] = model.held_out_error
    chosen = create_model("tangent", N_ROIS, 2, shrinkage=None)
    chosen.fit(features, labels, np.arange(40), seed=1)
    best = min(errors, key=errors.get)
    assert len(set(errors.values())) == len(SHRINKAGES) and chosen.state()["shrinkage"] == best
    one_group = create_model("tangent", N_ROIS, 2, shrinkage=None)
    one_group.fit(features, labels, np.zeros(40, int), seed=1)  # nothing can be held out
    assert one_group.state()["shrinkage"] == 0.5
    again = create_model("tangent", N_ROIS, 2, shrinkage=None)
    again.load_state(chosen.state())
    alone = create_model("tangent", N_ROIS, 2, shrinkage=best)
    alone.fit(features, labels, np.arange(40), seed=1)
    np.testing.assert_array_equal(again.probabilities(features), alone.probabilities(features))
