"""Training on permuted labels: labels move by unit, and the true ones are out of reach."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bolt.config import Model, Sanity, Training
from bolt.config.layout import ModelRun
from bolt.explain.trust.permuted import permuted_labels, train_permuted, write_permuted_cache
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table, write_status
from bolt.training.loop import Fit
from bolt.training.runner import train_fold
from tests.caches import dataset, pack, scan_table, split


def scans(labels: list[str], per_subject: int = 2, per_group: int = 1, role: str = "train") -> pd.DataFrame:
    subject = [f"sub-{i:03d}" for i in range(len(labels)) for _ in range(per_subject)]
    return pd.DataFrame(
        {
            "scan_id": [f"{s}_run-{i % per_subject}" for i, s in enumerate(subject)],
            "subject": subject,
            "group": [f"g{i // (per_subject * per_group):03d}" for i in range(len(subject))],
            "label": [label for label in labels for _ in range(per_subject)],
            "role": role,
        }
    )


def test_labels_move_by_unit_and_as_many_stay() -> None:
    table = scans(["a", "b", "b"] * 40)
    moved = permuted_labels(table, 0)
    assert (moved.groupby(table["subject"]).nunique() == 1).all()
    assert moved.value_counts().to_dict() == table["label"].value_counts().to_dict()
    by_chance = (1 / 3) ** 2 + (2 / 3) ** 2
    assert (moved == table["label"]).mean() == pytest.approx(by_chance, abs=0.12)
    pd.testing.assert_series_equal(moved, permuted_labels(table.sample(frac=1, random_state=1), 0).sort_index())
    assert not moved.equals(permuted_labels(table, 1))


def test_families_of_one_label_stay_together() -> None:
    table = scans([label for label in "ab" * 20 for _ in range(3)], per_group=3)
    moved = permuted_labels(table, 0)
    assert (moved.groupby(table["group"]).nunique() == 1).all() and not moved.equals(table["label"])


def test_families_of_several_labels_are_taken_apart_but_not_their_subjects() -> None:
    table = scans(list("ab" * 30), per_group=2)
    moved = permuted_labels(table, 0)
    assert (moved.groupby(table["subject"]).nunique() == 1).all()
    assert (moved.groupby(table["group"]).nunique() == 2).any() and (moved.groupby(table["group"]).nunique() == 1).any()


def test_tasks_of_a_subject_are_exchanged_scan_by_scan() -> None:
    """Exchanged between subjects as a whole, every scan would keep its task."""
    table = scans(["?"] * 30, per_subject=3).assign(label=["rest", "motor", "language"] * 30)
    assert (permuted_labels(table, 0) == table["label"]).mean() < 0.5


def test_roles_do_not_mix_and_test_scans_keep_their_labels() -> None:
    parts = [scans(["a"] * 10, role="validation"), scans(["a", "b"] * 20, role="train"), scans(["b"] * 6, role="test")]
    table = pd.concat(parts).reset_index(drop=True)
    table["subject"] = table["group"] = table["scan_id"] = [f"{i:03d}" for i in range(len(table))]
    moved = permuted_labels(table, 3)
    for role, part in table.groupby("role"):
        assert sorted(moved[part.index]) == sorted(part["label"]), role
    assert moved[table["role"] == "test"].equals(table.loc[table["role"] == "test", "label"])


MODEL = Model(
    name="toy",
    model="bolt",
    hyper={"hidden": 8, "n_blocks": 1, "n_heads": 2, "head_dim": 4, "window": 6},
    training=Training(epochs=2, batch_size=4, warmup_epochs=1),
)
DATASET = dataset(["no", "yes"], crop=20)


@pytest.fixture
def toy(tmp_path: Path) -> tuple[ModelRun, Path]:
    """A run with its cache, whose fold 0 has failed; and the folds."""
    random, table = np.random.default_rng(0), scan_table(["no", "yes"] * 10)
    run, folds = ModelRun(tmp_path / "results", "x", "v", "m", 0), split(tmp_path, table, outer=4)
    cache = pack(tmp_path / "data", [random.standard_normal((24, 5)) for _ in range(20)], table)
    shutil.copytree(cache, run.cache)
    write_status(run.fold(0) / "status.json", "failed", "train", DataError("the loss is not finite"))
    train_fold(run.cache, folds, MODEL, DATASET, fold=1, seed=0, out=run.fold(1), device="cpu")
    return run, folds


def test_no_true_label_of_training_is_left_in_what_is_trained_on(toy: tuple, tmp_path: Path) -> None:
    run, folds = toy
    cache = run.cache
    write_permuted_cache(cache, folds, 1, 0, tmp_path / "out")
    before, after = (read_table(c / "index.tsv", text=("scan_id", "label")) for c in (cache, tmp_path / "out"))
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.suffix != ".json") == [
        "index.tsv", "rois.tsv", "series.npy",
    ]  # fmt: skip
    pd.testing.assert_frame_equal(before.drop(columns="label"), after.drop(columns="label"))
    roles = read_table(folds, text=("scan_id",)).query("fold == 1").set_index("scan_id")["role"]
    role = before["scan_id"].map(roles)
    moved = before["label"] != after["label"]
    assert moved[role == "train"].any() and not moved[role == "test"].any()
    np.testing.assert_array_equal(np.load(cache / "series.npy"), np.load(tmp_path / "out" / "series.npy"))


def test_a_fold_is_trained_apart_from_the_runs(toy: tuple, tmp_path: Path) -> None:
    run, folds = toy
    train_permuted(run, folds, MODEL, DATASET, fold=1, device="cpu")
    assert read_json(run.permuted / "checkpoint.json")["fold"] == 1
    assert not (run.permuted / "cache").exists()
    learned, true = (read_table(f / "predictions.tsv", text=("label",)) for f in (run.permuted, run.fold(1)))
    same = learned["label"] == true["label"]
    assert same[learned["role"] == "test"].all() and not same.all()
    first = (run.permuted / "checkpoint.safetensors").read_bytes()
    assert first != (run.fold(1) / "checkpoint.safetensors").read_bytes()
    shutil.rmtree(run.permuted)
    train_permuted(run, folds, MODEL, DATASET, fold=1, device="cpu")
    assert (run.permuted / "checkpoint.safetensors").read_bytes() == first
    assert sorted(p.name for p in run.folder.iterdir()) == ["fold-0", "fold-1"]


def test_an_interrupted_training_goes_on(toy: tuple, tmp_path: Path, monkeypatch, every_epoch_saved) -> None:
    run, folds = toy
    train_permuted(run, folds, MODEL, DATASET, fold=1, device="cpu")
    whole = (run.permuted / "checkpoint.safetensors").read_bytes()
    shutil.rmtree(run.permuted)
    real, calls = Fit._validate, []

    def stop(self, part):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, part)

    monkeypatch.setattr(Fit, "_validate", stop)
    with pytest.raises(KeyboardInterrupt):
        train_permuted(run, folds, MODEL, DATASET, fold=1, device="cpu")
    assert (run.permuted / "resume.safetensors").is_file() and not (run.permuted / "cache").exists()
    train_permuted(run, folds, MODEL, DATASET, fold=1, device="cpu")
    assert len(calls) == 3  # one epoch was left
    assert (run.permuted / "checkpoint.safetensors").read_bytes() == whole


def test_the_fold_does_not_change_with_what_has_finished() -> None:
    assert Sanity().fold_of([4, 5, 8]) == Sanity().fold_of([4]) == 4
    assert Sanity(fold=5).fold_of([4, 5, 8]) == 5


def test_a_fold_that_failed_or_is_not_there_is_refused(toy: tuple) -> None:
    run, folds = toy
    for fold in (0, 7):
        with pytest.raises(DataError, match=f"fold {fold} of the run has not finished"):
            train_permuted(run, folds, MODEL, DATASET, fold=fold, device="cpu")
