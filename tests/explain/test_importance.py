"""Importance of a fold: the scans of predictions.tsv, in its order, from the fold's own checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.explain.importance import _controls, _wrong, explain_fold
from bolt.explain.relevance import Gradient, importance
from bolt.explain.weights import read_controls, read_importance
from bolt.io.errors import DataError
from bolt.models.registry import create_model
from bolt.training.checkpoint import save_checkpoint
from tests.explain.runs import HYPER, N_ROIS, MemoryCache, untrained_fold


@pytest.fixture
def fold(tmp_path: Path) -> tuple[MemoryCache, Path, torch.nn.Module]:
    return untrained_fold(tmp_path)


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


def test_a_model_of_numbers_is_refused(fold: tuple) -> None:
    cache, folder, _ = fold
    about = {"model": {"model": "bolt", "hyper": HYPER}, "n_rois": N_ROIS, "fold": 0, "seed": 0}
    save_checkpoint(folder, create_model("bolt", N_ROIS, 1, **HYPER), {**about, "classes": None})
    with pytest.raises(DataError, match="predicts a number"):
        explain_fold(cache, folder, "cpu")


def test_the_wrong_and_a_fixed_class_are_explained_too(fold: tuple) -> None:
    cache, folder, model = fold
    explain_fold(cache, folder, "cpu")
    table, weights = read_importance(folder)
    controls = read_controls(folder)
    assert (table["predicted"] != table["wrong"]).all() and set(table["predicted"]) | set(table["wrong"]) == {"a", "b"}
    for i, row in enumerate(table.itertuples()):
        x = torch.from_numpy(cache.series(int(row.scan_id[4:6])))[None]
        for name, label in (("wrong class", row.wrong), ("fixed class", "b")):
            expected = importance(model, x, torch.tensor(["ab".index(label)]))[0].detach().numpy()
            np.testing.assert_allclose(controls[name][i], expected, rtol=1e-4, atol=1e-7)
        assert not np.allclose(controls["wrong class"][i], weights[i], rtol=1e-3)
    (folder / "importance_controls.npy").unlink()
    with pytest.raises(DataError, match="Delete the importance.tsv beside it"):
        read_controls(folder)


@pytest.mark.parametrize("gradient", ["loss", "minus_loss"])
def test_weights_and_controls_use_the_gradient_that_is_asked_for(fold: tuple, gradient: Gradient) -> None:
    cache, folder, model = fold
    explain_fold(cache, folder, "cpu", gradient)
    (table, weights), controls = read_importance(folder), read_controls(folder)["wrong class"]
    for i in (0, 4):
        x = torch.from_numpy(cache.series(int(table["scan_id"][i][4:6])))[None]
        for column, found in (("predicted", weights[i]), ("wrong", controls[i])):
            target = torch.tensor([["a", "b"].index(table[column][i])])
            expected = importance(model, x, target, gradient)[0].detach().numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_no_class_of_a_scan_is_explained_twice() -> None:
    """Three classes: only the first scan's last class is neither its predicted nor its wrong one."""
    classes = ["a", "b", "c"]
    p = pd.DataFrame([[0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.6, 0.1, 0.3]], columns=["p_a", "p_b", "p_c"])
    table = p.assign(predicted=["a", "c", "a"])
    assert _wrong(table, classes) == ["b", "b", "c"]
    asked: list[list[int]] = []

    def note(series: list, targets: list[int]) -> list[np.ndarray]:
        asked.append(targets)
        return [np.full(len(x), 10.0 + target) for x, target in zip(series, targets, strict=True)]

    series, weights = [np.zeros((4, 2))] * 3, [np.full(4, float(i)) for i in range(3)]
    found = _controls(note, series, table.assign(wrong=["b", "b", "c"]), weights, classes)  # type: ignore[arg-type]
    assert asked == [[1, 1, 2], [2]]
    assert [control[:, 0].tolist() for control in found] == [[11, 12], [11, 1], [12, 12]]
