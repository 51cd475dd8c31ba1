"""Training on permuted labels: labels move by unit, and the true ones are out of reach."""

import shutil

import numpy as np
import pandas as pd
import pytest

from bolt.config import Model, Sanity, Training
from bolt.config.layout import ModelRun
from bolt.explain.trust.permuted import permuted_labels, train_permuted, write_permuted_cache
from bolt.folds.splits import FOLD_COLUMNS
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_status, write_table
from bolt.series.cache import INDEX_COLUMNS, SeriesCache
from bolt.training.loop import Fit
from bolt.training.trainers import train_fold
from tests.caches import dataset, pack, reseal, scan_table, split


def test_labels_move_between_units_of_a_role_and_test_scans_keep_theirs():
    """Two scans a subject: which units there are, tests/folds/test_splits.py asks."""
    labels, roles = ("a" * 10 + "ab" * 20 + "b" * 6), ["validation"] * 10 + ["train"] * 40 + ["test"] * 6
    subject = np.repeat([f"{i:03d}" for i in range(len(labels))], 2)
    table = pd.DataFrame({"subject": subject, "group": subject, "role": np.repeat(roles, 2)})
    table = table.assign(scan_id=[f"{i:03d}" for i in range(len(table))], label=np.repeat(list(labels), 2))
    moved = permuted_labels(table, 3)
    for role, part in table.groupby("role"):
        assert sorted(moved[part.index]) == sorted(part["label"]), role
    assert moved[table["role"] == "test"].equals(table.loc[table["role"] == "test", "label"])
    assert (moved.groupby(table["subject"]).nunique() == 1).all()
    assert (moved == table["label"])[table["role"] == "train"].mean() == pytest.approx(0.5, abs=0.2)  # chance
    pd.testing.assert_series_equal(moved, permuted_labels(table.sample(frac=1, random_state=1), 3).sort_index())


HYPER = {"hidden": 8, "n_blocks": 1, "n_heads": 2, "head_dim": 4, "window": 6}
MODEL = Model(name="toy", model="bolt", hyper=HYPER, training=Training(epochs=2, batch_size=4, warmup_epochs=1))
DATASET = dataset(["no", "yes"], crop=20)


@pytest.fixture
def toy(tmp_path):
    """A run with its cache, whose fold 0 has failed; and the folds."""
    random, table = np.random.default_rng(0), scan_table(["no", "yes"] * 10)
    run, folds = ModelRun(tmp_path / "results", "x", "v", "m", 0), split(tmp_path, table, outer=4)
    cache = pack(tmp_path / "data", [random.standard_normal((24, 5)) for _ in range(20)], table)
    shutil.copytree(cache, run.cache)
    write_status(run.fold(0) / "status.json", "failed", "train", DataError("the loss is not finite"))
    train_fold(run.cache, folds, MODEL, DATASET, fold=1, seed=0, out=run.fold(1), device="cpu")
    return run, folds


def test_no_true_label_of_training_is_left_in_what_is_trained_on(toy, tmp_path):
    (run, folds), out = toy, tmp_path / "out"
    joined = SeriesCache(run.cache).index.assign(joined="a b")  # as in datasets whose scans are joined
    write_table(joined, run.cache / "index.tsv", INDEX_COLUMNS)
    reseal(run.cache)
    write_permuted_cache(run.cache, folds, 1, 0, out)
    before, after = (read_table(c / "index.tsv", text=("scan_id", "label")) for c in (run.cache, out))
    assert {p.name for p in out.iterdir() if p.suffix != ".json"} == {"index.tsv", "rois.tsv", "series.npy"}
    pd.testing.assert_frame_equal(before.drop(columns="label"), after.drop(columns="label"))
    roles = read_table(folds, text=("scan_id",)).query("fold == 1").set_index("scan_id")["role"]
    role, moved = before["scan_id"].map(roles), before["label"] != after["label"]
    assert moved[role == "train"].any() and not moved[role == "test"].any()
    np.testing.assert_array_equal(np.load(run.cache / "series.npy"), np.load(out / "series.npy"))


def test_people_whose_recordings_are_copies_get_one_label(tmp_path):
    table = scan_table(["no", "no", "yes", "yes"] * 10)
    pack(tmp_path, [np.random.default_rng(i).standard_normal((24, 5)) for i in range(40)], table)
    pairs = np.repeat(np.arange(20), 2)  # as with 'duplicates: group'
    folds = table.assign(group=[f"joined {pair}" for pair in pairs], fold=0, role="train")
    write_table(folds[list(FOLD_COLUMNS)], tmp_path / "folds.tsv", FOLD_COLUMNS)
    write_permuted_cache(tmp_path / "cache", tmp_path / "folds.tsv", 0, 0, tmp_path / "out")
    moved = read_table(tmp_path / "out/index.tsv", text=("label",))["label"]
    assert (moved.groupby(pairs).nunique() == 1).all() and (moved != table["label"]).any()


def test_a_fold_is_trained_apart_from_the_runs_and_goes_on_where_it_stopped(toy, monkeypatch, every_epoch_saved):
    run, folds = toy

    def train():
        train_permuted(run, folds, MODEL, DATASET, fold=1, device="cpu")
        return (run.permuted / "checkpoint.safetensors").read_bytes()

    whole = train()
    assert read_json(run.permuted / "checkpoint.json")["fold"] == 1 and not (run.permuted / "cache").exists()
    learned, true = (read_table(f / "predictions.tsv", text=("label",)) for f in (run.permuted, run.fold(1)))
    same = learned["label"] == true["label"]
    assert same[learned["role"] == "test"].all() and not same.all()
    assert whole != (run.fold(1) / "checkpoint.safetensors").read_bytes()
    assert sorted(p.name for p in run.folder.iterdir()) == ["fold-0", "fold-1"]
    shutil.rmtree(run.permuted)
    real, calls = Fit._validate, []

    def stop(self, part):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, part)

    monkeypatch.setattr(Fit, "_validate", stop)
    with pytest.raises(KeyboardInterrupt):
        train()
    assert (run.permuted / "resume.safetensors").is_file() and not (run.permuted / "cache").exists()
    assert train() == whole and len(calls) == 3  # one epoch was left


def test_a_fold_that_failed_or_is_not_there_is_refused(toy):
    for fold in (0, 7):
        with pytest.raises(DataError, match=f"fold {fold} of the run has not finished"):
            train_permuted(*toy, MODEL, DATASET, fold=fold, device="cpu")


def test_the_fold_does_not_change_with_what_has_finished():
    assert Sanity().fold_of([4, 5, 8]) == Sanity().fold_of([4]) == 4
    assert Sanity(fold=5).fold_of([4, 5, 8]) == 5
