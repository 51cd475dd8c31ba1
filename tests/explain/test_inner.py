"""Importance of training scans from models that did not see them; and that noise stays noise, whoever explains it."""

import shutil

import numpy as np
import pandas as pd
import pytest

from bolt.config import Folds, Model, Training
from bolt.explain.importance import explain_fold, explain_inner, importance_of, load_bolt
from bolt.explain.landmarks import LEVELS, FoldScans, landmark_regression, top_tokens
from bolt.explain.weights import CONTROLS_FILE, read_controls, read_importance, write_controls, write_importance
from bolt.folds.splits import FOLD_COLUMNS, make_inner_folds
from bolt.io.files import read_table, write_table
from bolt.series.cache import SeriesCache
from bolt.training.trainers import train_fold
from tests.caches import dataset, pack, scan_table, split

CLASSES = ["control", "patient"]
N, T, R = 40, 24, 10
HYPER = {"hidden": 8, "n_blocks": 1, "n_heads": 2, "head_dim": 4, "window": 6}


def train(cache, folds, fold, out, epochs, seed=0):
    rates = {"learning_rate": 1e-3, "peak_learning_rate": 2e-2, "warmup_epochs": 1}
    model = Model(name="tiny", model="bolt", hyper=HYPER, training=Training(epochs=epochs, batch_size=8, **rates))
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
    explain_inner(SeriesCache(cache), folder / "run/fold-0/inner", range(2), "cpu")
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
    written = dict(zip(table["scan_id"], weights, strict=True))
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    models = [load_bolt(folder / f"fold-{fold}")[0] for fold in range(2)]
    unseen = []
    for fold in range(2):
        own = read_table(folder / f"fold-{fold}/predictions.tsv", text=("scan_id",)).groupby("role")["scan_id"]
        scans = own.get_group("test").tolist()
        unseen += scans
        assert not set(scans) & set(own.get_group("train"))
        series = [cache.series(position[scan]) for scan in scans]
        right, wrong = (importance_of(models[which], series, "cpu") for which in (fold, 1 - fold))
        for scan, held_out, trained_on in zip(scans, right, wrong, strict=True):
            np.testing.assert_allclose(written[scan], held_out, rtol=1e-4, atol=1e-7)
            assert not np.allclose(written[scan], trained_on, rtol=1e-2)
    assert table["scan_id"].tolist() == unseen


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
    for fold in ("0", "mean", "sd"):
        assert table.loc[table["fold"] == fold, "level"].tolist() == list(LEVELS) * 9
    without, same, *_ = regressed(False)
    assert same.tobytes() == coefficients.tobytes()
    fitted = table[table["importance"] != "inner"].reset_index(drop=True)
    pd.testing.assert_frame_equal(fitted, without.reset_index(drop=True))
    rows = table[table["fold"] == "0"].set_index(["importance", "tokens"])
    for tokens in ("important", "wrong class"):
        chosen = {}
        for folder in (run / "fold-0", run / "fold-0/inner"):
            own, weights = read_importance(folder)
            weights = weights if tokens == "important" else read_controls(folder)[tokens]
            chosen |= {scan: top_tokens(w, 5) for scan, w in zip(own["scan_id"], weights, strict=True)}
        by_hand = pd.DataFrame(FoldScans(cache, outer, CLASSES, where=run).regress(chosen)[0])
        for metric in ("accuracy", "auc"):
            assert by_hand[metric].tolist() == rows.loc[("inner", tokens), metric].tolist()
    of_inner, as_fitted = (rows.loc[(which, "important"), ["accuracy", "auc"]] for which in ("inner", "fitted"))
    assert (of_inner.to_numpy() != as_fitted.to_numpy()).any()  # other volumes, other regressions
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
