"""Importance of training scans from models that did not see them; and that noise stays noise, whoever explains it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config import Folds, Model, Training
from bolt.explain.importance import explain_fold, explain_inner, importance_of, load_bolt
from bolt.explain.landmarks import landmark_regression, top_tokens
from bolt.explain.token_regression import LEVELS, FoldScans
from bolt.explain.weights import CONTROLS_FILE, read_controls, read_importance, write_controls, write_importance
from bolt.folds.inner import make_inner_folds
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.files import read_table, write_status, write_table
from bolt.series.cache import SeriesCache
from bolt.training.runner import train_fold
from tests.caches import dataset, pack, scan_table, split

CLASSES = ["control", "patient"]
N, T, R = 40, 24, 10
HYPER = {"hidden": 8, "n_blocks": 2, "n_heads": 2, "head_dim": 4, "window": 6}


def tiny(epochs: int) -> Model:
    rates = {"learning_rate": 1e-3, "peak_learning_rate": 1e-2, "warmup_epochs": 1}
    return Model(name="tiny", model="bolt", hyper=HYPER, training=Training(epochs=epochs, batch_size=8, **rates))


def made(folder: Path, seed: int, test_shift: float = 0.0) -> tuple[Path, pd.DataFrame, Path]:
    """Cache, scans and folds of noise with random labels; `test_shift` changes the test scans of fold 0."""
    random = np.random.default_rng(seed)
    labels = random.permutation(CLASSES * (N // 2)).tolist()
    scans = scan_table(labels)
    folds = split(folder, scans, 2)
    table = read_table(folds, text=("scan_id",))
    tests = set(table.loc[(table["fold"] == 0) & (table["role"] == "test"), "scan_id"])
    series = [random.standard_normal((T, R)) for _ in labels]
    ramp = test_shift * np.arange(T)[:, None]
    series = [x + ramp if scan in tests else x for x, scan in zip(series, scans["scan_id"], strict=True)]
    return pack(folder, series, scans), scans, folds


def inner_of(folder: Path, seed: int = 0, **options: float) -> tuple[Path, Path]:
    """Two inner models of fold 0, and what they explain; the cache, and the run's folder."""
    cache, scans, folds = made(folder, seed, **options)
    table = read_table(folds, text=("scan_id", "subject", "group"))
    inner = folder / "inner.tsv"
    write_table(make_inner_folds(table, scans, 0, Folds(outer=2), 2), inner, FOLD_COLUMNS)
    out = folder / "run/fold-0/inner"
    for fold in range(2):
        train_fold(
            cache, inner, tiny(2), dataset(CLASSES, T), fold=fold, seed=0, out=out / f"fold-{fold}", device="cpu"
        )
    explain_inner(SeriesCache(cache), out, range(2), "cpu")
    return cache, folder / "run"


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return inner_of(tmp_path_factory.mktemp("inner"))


def test_each_training_scan_is_explained_once_by_a_model_that_did_not_see_it(inner: tuple[Path, Path]) -> None:
    cache, run = inner
    folder = run / "fold-0/inner"
    table, weights = read_importance(folder)
    outer = read_table(cache.parent / "folds.tsv", text=("scan_id",)).query("fold == 0 and role != 'test'")
    unseen, seen = [], []
    for fold in range(2):
        own = read_table(folder / f"fold-{fold}/predictions.tsv", text=("scan_id",))
        unseen += own.loc[own["role"] == "test", "scan_id"].tolist()
        seen.append(set(own.loc[own["role"] == "train", "scan_id"]))
    assert table["scan_id"].tolist() == unseen and sorted(unseen) == sorted(outer["scan_id"])
    assert not seen[0] & set(unseen[: N // 4]) and not seen[1] & set(unseen[N // 4 :])
    assert (table["role"] == "test").all() and all(len(w) == T and w.max() > 0 for w in weights)


def test_the_importance_of_a_scan_is_that_of_the_model_that_held_it_out(inner: tuple[Path, Path]) -> None:
    cache, folder = SeriesCache(inner[0]), inner[1] / "fold-0/inner"
    table, weights = read_importance(folder)
    written = dict(zip(table["scan_id"], weights, strict=True))
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    models = [load_bolt(folder / f"fold-{fold}")[0] for fold in range(2)]
    for fold in range(2):
        own = read_table(folder / f"fold-{fold}/predictions.tsv", text=("scan_id",))
        scans = own.loc[own["role"] == "test", "scan_id"]
        series = [cache.series(position[scan]) for scan in scans]
        right, wrong = (importance_of(models[which], series, "cpu") for which in (fold, 1 - fold))
        for scan, held_out, trained_on in zip(scans, right, wrong, strict=True):
            np.testing.assert_allclose(written[scan], held_out, rtol=1e-4, atol=1e-7)
            assert not np.allclose(written[scan], trained_on, rtol=1e-2)


def test_outer_test_scans_play_no_part(inner: tuple[Path, Path], tmp_path: Path) -> None:
    _, run = inner
    _, other = inner_of(tmp_path, test_shift=5.0)
    for name in ("importance.npy", CONTROLS_FILE, "importance.tsv", "fold-0/checkpoint.safetensors"):
        assert (other / "fold-0/inner" / name).read_bytes() == (run / "fold-0/inner" / name).read_bytes(), name


def test_the_table_has_a_row_of_inner_importance(inner: tuple[Path, Path], tmp_path: Path) -> None:
    cache, run = SeriesCache(inner[0]), Path(shutil.copytree(inner[1], tmp_path / "run"))
    folds = read_table(inner[0].parent / "folds.tsv", text=("scan_id",))
    outer = folds.loc[folds["fold"] == 0, ["scan_id", "role"]].assign(predicted="control")
    random = np.random.default_rng(0)
    write_importance(outer, [random.random(T) for _ in range(N)], run / "fold-0")
    write_controls([random.random((2, T)) for _ in range(N)], run / "fold-0")
    table, coefficients, *_ = landmark_regression(cache, run, [0], CLASSES, random_draws=1, inner=True)
    kinds = table.loc[table["fold"] == "0", ["importance", "tokens"]].drop_duplicates()
    by_model = ["important", "wrong class", "fixed class", "random direction"]
    expected = [[importance, name] for importance in ("fitted", "inner") for name in by_model]
    assert kinds.to_numpy().tolist() == [*expected, ["none", "random"]]
    for fold in ("0", "mean", "sd"):
        assert table.loc[table["fold"] == fold, "level"].tolist() == list(LEVELS) * 9
    without, same, *_ = landmark_regression(cache, run, [0], CLASSES, random_draws=1, inner=False)
    assert "inner" not in set(without["importance"]) and same.tobytes() == coefficients.tobytes()
    pd.testing.assert_frame_equal(
        table[table["importance"] != "inner"].reset_index(drop=True), without.reset_index(drop=True)
    )
    own, values = read_importance(run / "fold-0/inner")
    unseen = {scan: top_tokens(w, 5) for scan, w in zip(own["scan_id"], values, strict=True)}
    outer_table, outer_values = read_importance(run / "fold-0")
    fitted = {scan: top_tokens(w, 5) for scan, w in zip(outer_table["scan_id"], outer_values, strict=True)}
    by_hand = FoldScans(cache, outer_table, CLASSES, where=run).regress(fitted | unseen)[0]
    rows = table[(table["fold"] == "0") & (table["importance"] == "inner") & (table["tokens"] == "important")]
    assert [row["accuracy"] for row in by_hand] == rows["accuracy"].tolist()
    as_fitted = table[(table["fold"] == "0") & (table["importance"] == "fitted") & (table["tokens"] == "important")]
    differing = rows[["accuracy", "auc"]].to_numpy() != as_fitted[["accuracy", "auc"]].to_numpy()
    assert differing.any()  # other volumes, other regressions
    unseen_wrong, fitted_wrong = (
        {scan: top_tokens(w, 5) for scan, w in zip(of["scan_id"], read_controls(folder)["wrong class"], strict=True)}
        for of, folder in ((own, run / "fold-0/inner"), (outer_table, run / "fold-0"))
    )
    by_hand = FoldScans(cache, outer_table, CLASSES, where=run).regress(fitted_wrong | unseen_wrong)[0]
    rows = table[(table["fold"] == "0") & (table["importance"] == "inner") & (table["tokens"] == "wrong class")]
    assert [row["auc"] for row in by_hand] == rows["auc"].tolist()
    write_importance(own.iloc[1:], [np.ones(T)] * (len(own) - 1), run / "fold-0/inner")  # one scan is missing
    write_controls([np.ones((2, T))] * (len(own) - 1), run / "fold-0/inner")
    table, *_ = landmark_regression(cache, run, [0], CLASSES, random_draws=1, inner=True)
    assert "inner" not in set(table["importance"])


@pytest.mark.parametrize("epochs", [1, 40], ids=["untrained", "overfitted"])
def test_noise_is_at_chance_whatever_explains_it(tmp_path: Path, epochs: int) -> None:
    found = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        cache, _, folds = made(folder, seed)
        for fold in range(2):
            out = folder / f"run/fold-{fold}"
            train_fold(cache, folds, tiny(epochs), dataset(CLASSES, T), fold=fold, seed=seed, out=out, device="cpu")
            explain_fold(SeriesCache(cache), out, "cpu")
            own = read_table(out / "predictions.tsv", text=("label", "predicted"))
            own = own[own["role"] == "train"]
            assert (
                epochs == 1 or (own["label"] == own["predicted"]).mean() > 0.9
            )  # it knows its training scans by heart
        table, *_ = landmark_regression(SeriesCache(cache), folder / "run", range(2), CLASSES, random_draws=2)
        found.append(table[table["fold"].isin(["0", "1"]) & (table["tokens"] == "important")])
    together = pd.concat(found).groupby("level")[["accuracy", "auc"]].mean()
    assert together.to_numpy() == pytest.approx(0.5, abs=0.12)


def test_labels_that_choose_tokens_would_show(tmp_path: Path) -> None:
    """The same noise, its tokens chosen by the true label: what the test above must be able to see."""
    path, scans, folds = made(tmp_path, 0)
    cache, table = SeriesCache(path), read_table(folds, text=("scan_id",))
    sign = dict(zip(scans["scan_id"], np.where(scans["label"] == "patient", 1, -1), strict=True))
    place = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    for fold, own in table.groupby("fold"):
        weights = [1e3 + sign[s] * cache.series(place[s])[:, 0] for s in own["scan_id"]]
        write_importance(own[["scan_id", "role"]].assign(predicted="x"), weights, tmp_path / f"run/fold-{fold}")
        write_controls([np.stack([w, w]) for w in weights], tmp_path / f"run/fold-{fold}")
        write_status(tmp_path / f"run/fold-{fold}/status.json", "ok", "train")
    found, *_ = landmark_regression(cache, tmp_path / "run", [0, 1], CLASSES, random_draws=1)
    important = found[(found["fold"] == "mean") & (found["tokens"] == "important")].set_index("level")
    assert important.at["scan", "auc"] > 0.8
