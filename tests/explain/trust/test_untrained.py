"""Importance under untrained models: of test scans with events, for the class that the trained model predicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.explain.importance import explain_fold, importance_of
from bolt.explain.trust.relative import LEAST, relative_to_untrained
from bolt.explain.trust.sanity import DRAWS, explain_untrained, fresh_model
from bolt.explain.weights import UNTRAINED, read_importance
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint, save_checkpoint
from tests.explain.runs import N_ROIS, MemoryCache

HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 10}


@pytest.fixture
def fold(tmp_path: Path) -> tuple[MemoryCache, Path]:
    """Eight scans, of which the first four are tested; all but the second have events."""
    random = np.random.default_rng(0)
    cache = MemoryCache([random.standard_normal((30 + i, N_ROIS)).astype(np.float32) for i in range(8)], ["a", "b"] * 4)
    cache.index["events"] = ["e.tsv", np.nan, *["e.tsv"] * 6]
    torch.manual_seed(0)
    info = {"model": {"model": "bolt", "hyper": HYPER}, "n_rois": N_ROIS, "classes": ["a", "b"], "fold": 2, "seed": 1}
    save_checkpoint(tmp_path, create_model("bolt", N_ROIS, 2, **HYPER).eval(), info)
    table = pd.DataFrame({"scan_id": cache.index["scan_id"], "role": ["test"] * 4 + ["train"] * 4})
    table = table.assign(predicted=["a", "b"] * 4, p_a=[0.9, 0.1] * 4, p_b=[0.1, 0.9] * 4)
    table.to_csv(tmp_path / "predictions.tsv", sep="\t", index=False)
    explain_fold(cache, tmp_path, "cpu")
    return cache, tmp_path


def test_test_scans_with_events_have_the_mean_of_a_few_random_models(fold: tuple[MemoryCache, Path]) -> None:
    cache, folder = fold
    explain_untrained(cache, folder, "cpu")
    table, curves = read_importance(folder, UNTRAINED)
    assert table["scan_id"].str[4:6].tolist() == ["00", "02", "03"] and set(table["role"]) == {"test"}
    info = load_checkpoint(folder)[1]
    for scan, predicted, curve in zip([0, 2, 3], [0, 0, 1], curves, strict=True):
        models = [fresh_model(info, draw) for draw in range(DRAWS)]
        own = [importance_of(model, [cache.series(scan)], "cpu", [predicted])[0] for model in models]
        np.testing.assert_allclose(curve, np.mean([one / one.mean() for one in own], axis=0), rtol=1e-4)
    _, trained = read_importance(folder)
    assert np.corrcoef(trained[0], curves[0])[0, 1] < 0.9  # of other models


def test_rest_has_an_empty_table(fold: tuple[MemoryCache, Path]) -> None:
    cache, folder = fold
    for index in (cache.index.assign(events=np.nan), cache.index.drop(columns="events")):
        cache.index = index
        explain_untrained(cache, folder, "cpu")
        assert read_importance(folder, UNTRAINED)[1] == []


def shape(n: int) -> np.ndarray:
    place = np.arange(n)
    return 1 - 0.6 * np.exp(-place / 6) - 0.6 * np.exp(-place[::-1] / 6)


def test_the_shape_that_all_models_give_is_divided_out_at_every_length() -> None:
    lengths = [60, 60, 60, 60, 60, 64, 80]
    effect = [1 + 0.5 * (np.arange(n) == 30) for n in lengths]
    weights = [5 * shape(n) * own for n, own in zip(lengths, effect, strict=True)]
    relative, expected = relative_to_untrained(weights, [2 * shape(n) for n in lengths])
    for curve, own, usual in zip(relative, effect, expected, strict=True):
        np.testing.assert_allclose(curve, own / own.mean(), rtol=0.02)
        assert usual.mean() == pytest.approx(1, abs=0.05)


def test_volumes_that_hardly_a_window_has_are_ignored_and_a_single_scan_has_its_own_shape() -> None:
    untrained = shape(50)
    untrained[-3:] = [0, 0.01, LEAST * untrained.mean() / 2]
    (relative,), _ = relative_to_untrained([np.ones(50)], [untrained])
    assert np.isnan(relative[-3:]).all() and np.isfinite(relative[:-3]).all()
    assert np.nanmean(relative) == pytest.approx(1)
    np.testing.assert_allclose(relative[:-3] * untrained[:-3], relative[20] * untrained[20])
