"""Importance of a fold: the scans of predictions.tsv, in its order, from the fold's own checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.explain.importance import explain_fold
from bolt.explain.relevance import importance
from bolt.explain.weights import read_importance
from bolt.io.errors import DataError
from bolt.models.registry import create_model
from bolt.training.checkpoint import save_checkpoint
from tests.explain.runs import N_ROIS, MemoryCache

HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 10}


@pytest.fixture
def fold(tmp_path: Path) -> tuple[MemoryCache, Path, torch.nn.Module]:
    random = np.random.default_rng(0)
    series = [random.standard_normal((30 + i % 2 * 7, N_ROIS)).astype(np.float32) for i in range(11)]
    cache = MemoryCache(series, ["a", "b"] * 5 + ["a"])
    torch.manual_seed(0)
    model = create_model("bolt", N_ROIS, 2, **HYPER).eval()
    info = {"model": {"model": "bolt", "hyper": HYPER}, "n_rois": N_ROIS, "classes": ["a", "b"]}
    save_checkpoint(tmp_path, model, info)
    order = [7, 0, 3, 10, 1, 2, 4, 5, 6, 8, 9]  # not the cache's
    table = pd.DataFrame({"scan_id": cache.index["scan_id"].iloc[order], "role": "test", "predicted": "a"})
    table.to_csv(tmp_path / "predictions.tsv", sep="\t", index=False)
    return cache, tmp_path, model


def test_each_scan_gets_its_own_weights_whatever_the_batch(fold: tuple) -> None:
    cache, folder, model = fold
    explain_fold(cache, folder, "cpu")
    table, weights = read_importance(folder)
    assert table["scan_id"].iloc[0] == "sub-07_task-rest"
    for scan, found in zip(table["scan_id"], weights, strict=True):
        x = cache.series(int(scan[4:6]))
        expected = importance(model, torch.from_numpy(x)[None])[0].detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
        assert len(found) == len(x) and found.min() >= 0 and found.max() > 0


def test_the_label_plays_no_part(fold: tuple) -> None:
    cache, folder, _ = fold
    explain_fold(cache, folder, "cpu")
    before = (folder / "importance.npy").read_bytes()
    cache.index["label"] = cache.index["label"].iloc[::-1].to_numpy()
    explain_fold(cache, folder, "cpu")
    assert (folder / "importance.npy").read_bytes() == before


def test_a_missing_checkpoint_is_said(fold: tuple) -> None:
    cache, folder, _ = fold
    (folder / "checkpoint.safetensors").unlink()
    with pytest.raises(DataError, match="checkpoint"):
        explain_fold(cache, folder, "cpu")
