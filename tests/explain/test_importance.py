"""Importance of a fold: the scans of predictions.tsv, in its order, from the fold's own checkpoint."""

import numpy as np
import pytest
import torch

from bolt.config import Model, load_dataset
from bolt.explain import importance as explain
from bolt.explain.explainable import can_be_explained, has_importance
from bolt.explain.importance import DRAWS, explain_fold, explain_untrained, fresh_model, importance_of
from bolt.explain.relevance import importance
from bolt.explain.weights import UNTRAINED, read_controls, read_importance
from bolt.io.errors import DataError
from bolt.io.files import read_table
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint, save_checkpoint
from bolt.workflow.run import Run
from tests.explain.runs import HYPER, N_ROIS, MemoryCache, save_bolt, untrained_fold
from tests.snake import write_yaml


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


def test_no_class_of_a_scan_is_explained_twice(tmp_path, monkeypatch):
    """Of three classes, the last is explained of those scans of which it is neither the predicted nor the wrong one."""
    cache, folder, model = untrained_fold(tmp_path, "abc")
    p, names = np.random.default_rng(0).dirichlet(np.ones(3), 11), np.array(list("abc"))
    order = names[np.argsort(-p, axis=1)]
    table = read_table(folder / "predictions.tsv").assign(p_a=p[:, 0], p_b=p[:, 1], p_c=p[:, 2], predicted=order[:, 0])
    table.to_csv(folder / "predictions.tsv", sep="\t", index=False)
    asked, real = [], explain.importance_of
    monkeypatch.setattr(explain, "importance_of", lambda *given: asked.append(given[3]) or real(*given))
    explain_fold(cache, folder, "cpu")
    table, controls = read_importance(folder)[0], read_controls(folder)
    assert table[["predicted", "wrong"]].to_numpy().tolist() == order[:, :2].tolist()
    n_left = int((order[:, 2] == "c").sum())
    assert 0 < n_left < 11 and [len(targets) for targets in asked] == [11, 11, n_left]
    for i, scan in enumerate(table["scan_id"]):
        x = torch.from_numpy(cache.series(int(scan[4:6])))[None]
        expected = importance(model, x, torch.tensor([2]))[0].detach().numpy()
        np.testing.assert_allclose(controls["fixed class"][i], expected, rtol=1e-4, atol=1e-7)


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


# ---- what can be explained is known before any work ------------------------------------------------------------------
NONE, LOCAL, GLOBAL = ({"hyper": {"cls_token": kind}} for kind in ("none", "local", "global"))


def test_only_bolt_with_cls_tokens_and_series_alone():
    dataset = load_dataset("series")
    for keys, answer in (
        ({}, True),
        ({"model": "lstm"}, False),
        ({"covariates": ["age"]}, False),
        (GLOBAL, True),
        (NONE, False),
        ({"by_fold": {0: {"hyper": {}}, 1: NONE}}, False),
        (NONE | {"by_fold": {0: LOCAL}}, True),
    ):
        model = Model(**{"name": "m", "model": "bolt"} | keys)
        assert has_importance(model) == can_be_explained(model, dataset) == answer, keys
        assert not can_be_explained(model, dataset.model_copy(update={"classes": None}))


@pytest.mark.parametrize(
    ("model", "files"),
    [
        ({"model": "bolt"} | NONE, ["connections.tsv"]),
        ({"model": "tangent"}, ["connections.tsv"]),
        ({"model": "ensemble", "members": ["ridge", "meanmlp"]}, ["connections.tsv"]),
        ({"model": "logistic", "covariates": ["site"]}, []),
        ({"model": "majority"}, []),
    ],
)
def test_connections_are_asked_of_all_that_see_brains(tmp_path, model, files):
    run = Run({"dataset": "abide1", "models": [str(write_yaml(tmp_path / "some.yaml", model))]})
    assert {file.name for file in run.explanations()} == set(files)  # a file per atlas
    assert len(run.explanation_pages()) == 2 * len(files)
