"""Importance of a fold: the scans of predictions.tsv, in its order, from the fold's own checkpoint."""

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.explain.importance import _controls, _wrong, explain_fold
from bolt.explain.relevance import importance
from bolt.explain.weights import read_controls, read_importance
from bolt.io.errors import DataError
from bolt.models.registry import create_model
from bolt.training.checkpoint import save_checkpoint
from tests.explain.runs import HYPER, N_ROIS, save_bolt, untrained_fold


@pytest.fixture
def fold(tmp_path):
    return untrained_fold(tmp_path)


@pytest.mark.parametrize("gradient", ["logit", "loss", "minus_loss"])
def test_each_scan_gets_its_own_weights_whatever_the_batch_and_for_control_classes_too(fold, gradient):
    cache, folder, model = fold
    explain_fold(cache, folder, "cpu", gradient)
    (table, weights), controls = read_importance(folder), read_controls(folder)
    assert table["scan_id"].iloc[0] == "sub-07_task-rest"
    assert (table["predicted"] != table["wrong"]).all() and set(table["predicted"]) | set(table["wrong"]) == {"a", "b"}
    for i, row in enumerate(table.itertuples()):
        x = torch.from_numpy(cache.series(int(row.scan_id[4:6])))[None]
        explained = (
            (row.predicted, weights[i]),
            (row.wrong, controls["wrong class"][i]),
            ("b", controls["fixed class"][i]),
        )
        for name, found in explained:
            expected = importance(model, x, torch.tensor(["ab".index(name)]), gradient)[0].detach().numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
        assert weights[i].min() >= 0 and weights[i].max() > 0
        if gradient == "logit":
            assert not np.allclose(controls["wrong class"][i], weights[i], rtol=1e-3)


def test_the_label_plays_no_part(fold):
    cache, folder, _ = fold
    explain_fold(cache, folder, "cpu")
    before = (folder / "importance.npy").read_bytes()
    cache.index["label"] = cache.index["label"].iloc[::-1].to_numpy()
    explain_fold(cache, folder, "cpu")
    assert (folder / "importance.npy").read_bytes() == before
    (folder / "importance_controls.npy").unlink()
    with pytest.raises(DataError, match="Delete the importance.tsv beside it"):
        read_controls(folder)


def test_models_that_cannot_be_explained_are_refused(fold):
    cache, folder, _ = fold
    save_bolt(folder, create_model("bolt", N_ROIS, 1, **HYPER), None)
    with pytest.raises(DataError, match="predicts a number"):
        explain_fold(cache, folder, "cpu")
    about = {"model": {"model": "lstm", "hyper": {}}, "n_rois": N_ROIS, "classes": ["a", "b"], "fold": 0, "seed": 0}
    save_checkpoint(folder, create_model("lstm", N_ROIS, 2), about)
    with pytest.raises(DataError, match="BolT"):
        explain_fold(cache, folder, "cpu")
    (folder / "checkpoint.safetensors").unlink()
    with pytest.raises(DataError, match="checkpoint"):
        explain_fold(cache, folder, "cpu")


def test_no_class_of_a_scan_is_explained_twice():
    """Three classes: only the first scan's last class is neither its predicted nor its wrong one."""
    classes, asked = ["a", "b", "c"], []
    p = pd.DataFrame([[0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.6, 0.1, 0.3]], columns=["p_a", "p_b", "p_c"])
    table = p.assign(predicted=["a", "c", "a"])
    assert _wrong(table, classes) == ["b", "b", "c"]

    def note(series, targets):
        asked.append(targets)
        return [np.full(len(x), 10.0 + target) for x, target in zip(series, targets, strict=True)]

    weights = [np.full(4, float(i)) for i in range(3)]
    found = _controls(note, [np.zeros((4, 2))] * 3, table.assign(wrong=["b", "b", "c"]), weights, classes)
    assert asked == [[1, 1, 2], [2]]
    assert [control[:, 0].tolist() for control in found] == [[11, 12], [11, 1], [12, 12]]
