"""Importance under untrained models: of test scans with events, for the class that the trained model predicts."""

import numpy as np
import pytest
import torch

from bolt.explain.importance import explain_fold, importance_of
from bolt.explain.trust.relative import LEAST, relative_to_untrained
from bolt.explain.trust.sanity import DRAWS, explain_untrained, fresh_model
from bolt.explain.weights import UNTRAINED, read_importance
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint
from tests.explain.runs import HYPER, N_ROIS, MemoryCache, save_bolt


def test_test_scans_with_events_have_the_mean_of_a_few_random_models(tmp_path):
    """Of eight scans the first four are tested; all but the second have events."""
    random = np.random.default_rng(0)
    cache = MemoryCache([random.standard_normal((30 + i, N_ROIS)).astype(np.float32) for i in range(8)], ["a", "b"] * 4)
    cache.index["events"] = ["e.tsv", np.nan, *["e.tsv"] * 6]
    torch.manual_seed(0)
    save_bolt(tmp_path, create_model("bolt", N_ROIS, 2, **HYPER).eval(), ["a", "b"], fold=2)
    table = cache.index.assign(role=["test"] * 4 + ["train"] * 4, predicted=["a", "b"] * 4)
    table.assign(p_a=[0.9, 0.1] * 4, p_b=[0.1, 0.9] * 4).to_csv(tmp_path / "predictions.tsv", sep="\t", index=False)
    explain_fold(cache, tmp_path, "cpu")
    explain_untrained(cache, tmp_path, "cpu")
    table, curves = read_importance(tmp_path, UNTRAINED)
    assert table["scan_id"].str[4:6].tolist() == ["00", "02", "03"] and set(table["role"]) == {"test"}
    models = [fresh_model(load_checkpoint(tmp_path)[1], draw) for draw in range(DRAWS)]
    for scan, predicted, curve in zip([0, 2, 3], [0, 0, 1], curves, strict=True):
        own = [importance_of(model, [cache.series(scan)], "cpu", [predicted])[0] for model in models]
        np.testing.assert_allclose(curve, np.mean([one / one.mean() for one in own], axis=0), rtol=1e-4)
    _, trained = read_importance(tmp_path)
    assert np.corrcoef(trained[0], curves[0])[0, 1] < 0.9  # of other models
    for rest in (cache.index.assign(events=np.nan), cache.index.drop(columns="events")):
        cache.index = rest
        explain_untrained(cache, tmp_path, "cpu")
        assert read_importance(tmp_path, UNTRAINED)[1] == []


def shape(n):
    return 1 - 0.6 * np.exp(-np.arange(n) / 6) - 0.6 * np.exp(-np.arange(n)[::-1] / 6)


def test_the_shape_that_all_models_give_is_divided_out_at_every_length():
    lengths = [60, 60, 60, 60, 60, 64, 80]
    effect = [1 + 0.5 * (np.arange(n) == 30) for n in lengths]
    weights = [5 * shape(n) * own for n, own in zip(lengths, effect, strict=True)]
    relative, expected = relative_to_untrained(weights, [2 * shape(n) for n in lengths])
    for curve, own, usual in zip(relative, effect, expected, strict=True):
        np.testing.assert_allclose(curve, own / own.mean(), rtol=0.02)
        assert usual.mean() == pytest.approx(1, abs=0.05)


def test_volumes_that_hardly_a_window_has_are_ignored_and_a_single_scan_has_its_own_shape():
    untrained = shape(50)
    untrained[-3:] = [0, 0.01, LEAST * untrained.mean() / 2]
    (relative,), _ = relative_to_untrained([np.ones(50)], [untrained])
    assert np.isnan(relative[-3:]).all() and np.isfinite(relative[:-3]).all()
    assert np.nanmean(relative) == pytest.approx(1)
    np.testing.assert_allclose(relative[:-3] * untrained[:-3], relative[20] * untrained[20])
