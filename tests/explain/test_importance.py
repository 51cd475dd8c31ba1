"""Importance of all scans of a fold; of training scans from models that did not see them; what can be explained."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from bolt.config import Folds, Model, Training, load_dataset
from bolt.explain import importance as explain
from bolt.explain.explainable import can_be_explained, has_importance
from bolt.explain.importance import explain_fold, explain_untrained, fresh_model, importance_of, load_bolt
from bolt.explain.landmarks import FoldScans, landmark_regression, top_tokens
from bolt.explain.relevance import importance
from bolt.explain.weights import (
    CONTROLS_FILE,
    OTHER_CLASSES,
    UNTRAINED,
    read_controls,
    read_importance,
    write_controls,
    write_importance,
)
from bolt.folds.splits import FOLD_COLUMNS, make_inner_folds
from bolt.io.errors import DataError
from bolt.io.files import read_table, write_table
from bolt.models.registry import create_model
from bolt.series.cache import SeriesCache
from bolt.training.checkpoint import load_checkpoint, save_checkpoint
from bolt.training.trainers import train_fold
from bolt.workflow.run import Run
from tests.caches import dataset, pack, scan_table, split
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
        found = weights[i], *(controls[name][i] for name in OTHER_CLASSES)
        for name, curve in zip((row.predicted, row.wrong, "b"), found, strict=True):
            expected = importance(model, x, torch.tensor(["ab".index(name)]), gradient)[0].detach().numpy()
            np.testing.assert_allclose(curve, expected, rtol=1e-4, atol=1e-7)
        assert gradient != "logit" or not np.allclose(controls["wrong class"][i], weights[i], rtol=1e-3)


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
    series = [cache.series(int(scan[4:6])) for scan in table["scan_id"]]
    for found, expected in zip(controls["fixed class"], real(model, series, "cpu", [2] * 11), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


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
    models = [fresh_model(load_checkpoint(tmp_path)[1], draw) for draw in range(explain.DRAWS)]
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
    none = {"model": "lstm"}, {"covariates": ["age"]}, NONE, {"by_fold": {0: {"hyper": {}}, 1: NONE}}
    for keys in ({}, GLOBAL, NONE | {"by_fold": {0: LOCAL}}, *none):
        model = Model(**{"name": "m", "model": "bolt"} | keys)
        assert has_importance(model) == can_be_explained(model, dataset) == (keys not in none), keys
        assert not can_be_explained(model, dataset.model_copy(update={"classes": None}))


@pytest.mark.parametrize(
    ("model", "files"),
    [
        ({"model": "bolt"} | NONE, ["connections.tsv"]),
        ({"model": "bolt", "covariates": ["age"]}, ["connections.tsv"]),
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


# ---- importance of training scans from models that did not see them; noise stays noise ------------------------------
CLASSES = ["control", "patient"]
N, T, R = 40, 24, 10
TINY = {"hidden": 8, "n_blocks": 1, "n_heads": 2, "head_dim": 4, "window": 6}


def train(cache, folds, fold, out, epochs, seed=0):
    rates = {"learning_rate": 1e-3, "peak_learning_rate": 2e-2, "warmup_epochs": 1}
    model = Model(name="tiny", model="bolt", hyper=TINY, training=Training(epochs=epochs, batch_size=8, **rates))
    train_fold(cache, folds, model, dataset(CLASSES, T), fold=fold, seed=seed, out=out / f"fold-{fold}", device="cpu")


def made(folder, seed, test_shift=0.0):
    """Cache, scans and folds of noise with random labels; `test_shift` changes the test scans of fold 0."""
    random = np.random.default_rng(seed)
    scans = scan_table(random.permutation(CLASSES * (N // 2)).tolist())
    folds = split(folder, scans, 2)
    tests = set(read_table(folds, text=("scan_id",)).query("fold == 0 and role == 'test'")["scan_id"])
    ramp = test_shift * np.arange(T)[:, None]
    series = [random.standard_normal((T, R)) + ramp * (scan in tests) for scan in scans["scan_id"]]
    return pack(folder, series, scans), scans, folds


def inner_of(folder, test_shift=0.0):
    """Two inner models of fold 0, and what they explain; the cache, and the run's folder."""
    cache, scans, folds = made(folder, 0, test_shift)
    table, inner = read_table(folds, text=("scan_id", "subject", "group")), folder / "inner.tsv"
    write_table(make_inner_folds(table, scans, 0, Folds(outer=2), 2), inner, FOLD_COLUMNS)
    for fold in range(2):
        train(cache, inner, fold, folder / "run/fold-0/inner", epochs=2)
    explain.explain_inner(SeriesCache(cache), folder / "run/fold-0/inner", range(2), "cpu")
    return cache, folder / "run"


@pytest.fixture(scope="module")
def inner(tmp_path_factory):
    return inner_of(tmp_path_factory.mktemp("inner"))


def test_each_training_scan_is_explained_by_the_model_that_held_it_out(inner):
    cache, folder = SeriesCache(inner[0]), inner[1] / "fold-0/inner"
    table, weights = read_importance(folder)
    outer = read_table(inner[0].parent / "folds.tsv", text=("scan_id",)).query("fold == 0 and role != 'test'")
    assert sorted(table["scan_id"]) == sorted(outer["scan_id"]) and (table["role"] == "test").all()
    assert all(len(w) == T and w.max() > 0 for w in weights)
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    models, written = [load_bolt(folder / f"fold-{fold}")[0] for fold in range(2)], iter(weights)
    for fold in range(2):
        own = read_table(folder / f"fold-{fold}/predictions.tsv", text=("scan_id",)).groupby("role")["scan_id"]
        scans = own.get_group("test").tolist()
        assert not set(scans) & set(own.get_group("train"))
        series = [cache.series(position[scan]) for scan in scans]
        right, wrong = (importance_of(models[which], series, "cpu") for which in (fold, 1 - fold))
        for held_out, trained_on in zip(right, wrong, strict=True):
            found = next(written)
            np.testing.assert_allclose(found, held_out, rtol=1e-4, atol=1e-7)
            assert not np.allclose(found, trained_on, rtol=1e-2)


def test_outer_test_scans_play_no_part(inner, tmp_path):
    _, other = inner_of(tmp_path, test_shift=5.0)
    for name in ("importance.npy", CONTROLS_FILE, "importance.tsv", "fold-0/checkpoint.safetensors"):
        assert (other / "fold-0/inner" / name).read_bytes() == (inner[1] / "fold-0/inner" / name).read_bytes(), name


def test_the_table_has_a_row_of_inner_importance(inner, tmp_path):
    cache, run = SeriesCache(inner[0]), shutil.copytree(inner[1], tmp_path / "run")
    folds = read_table(inner[0].parent / "folds.tsv", text=("scan_id",))
    outer = folds.loc[folds["fold"] == 0, ["scan_id", "role"]].assign(predicted="control")
    random = np.random.default_rng(0)
    write_importance(outer, [random.random(T) for _ in range(N)], run / "fold-0")
    write_controls([random.random((2, T)) for _ in range(N)], run / "fold-0")

    def regressed(inner):
        return landmark_regression(cache, run, [0], CLASSES, random_draws=1, inner=inner)

    table, coefficients, *_ = regressed(True)
    kinds = table.loc[table["fold"] == "0", ["importance", "tokens"]].drop_duplicates()
    by_model = ["important", "wrong class", "fixed class", "random direction"]
    expected = [[importance, name] for importance in ("fitted", "inner") for name in by_model]
    assert kinds.to_numpy().tolist() == [*expected, ["none", "random"]]
    without, same, *_ = regressed(False)
    assert same.tobytes() == coefficients.tobytes()
    fitted = table[table["importance"] != "inner"].reset_index(drop=True)
    pd.testing.assert_frame_equal(fitted, without.reset_index(drop=True))
    rows = table[table["fold"] == "0"].set_index(["importance", "tokens", "level"])[["accuracy", "auc"]].sort_index()
    for tokens in ("important", "wrong class"):
        chosen = {}
        for folder in (run / "fold-0", run / "fold-0/inner"):
            own, weights = read_importance(folder)
            weights = weights if tokens == "important" else read_controls(folder)[tokens]
            chosen |= {scan: top_tokens(w, 5) for scan, w in zip(own["scan_id"], weights, strict=True)}
        by_hand = pd.DataFrame(FoldScans(cache, outer, CLASSES, where=run).regress(chosen)[0]).set_index("level")
        assert by_hand[["accuracy", "auc"]].sort_index().equals(rows.loc["inner", tokens])
    assert not rows.loc["inner", "important"].equals(rows.loc["fitted", "important"])  # other volumes
    own = own.iloc[1:]  # one scan is missing
    write_importance(own, [np.ones(T)] * len(own), run / "fold-0/inner")
    write_controls([np.ones((2, T))] * len(own), run / "fold-0/inner")
    assert "inner" not in set(regressed(True).table["importance"])


def test_noise_is_at_chance_whatever_explains_it(tmp_path):
    """Even if models have learned the labels of their training scans by heart."""
    found = []
    for seed in range(3):
        run = tmp_path / str(seed) / "run"
        cache, _, folds = made(tmp_path / str(seed), seed)
        for fold in range(2):
            train(cache, folds, fold, run, 32, seed)
            explain_fold(SeriesCache(cache), run / f"fold-{fold}", "cpu")
            own = read_table(run / f"fold-{fold}/predictions.tsv", text=("label", "predicted")).query("role == 'train'")
            assert (own["label"] == own["predicted"]).mean() > 0.9
        table, *_ = landmark_regression(SeriesCache(cache), run, range(2), CLASSES, random_draws=1)
        found.append(table[table["fold"].isin(["0", "1"]) & (table["tokens"] == "important")])
    together = pd.concat(found).groupby("level")[["accuracy", "auc"]].mean()
    assert together.to_numpy() == pytest.approx(0.5, abs=0.12)
