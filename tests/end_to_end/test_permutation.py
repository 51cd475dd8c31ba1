"""Labels that mean nothing are predicted by chance; where a leak is planted on purpose, the same check finds it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from bolt.config import Training, load_model
from bolt.folds.check import series_contents
from bolt.folds.splits import audit_folds
from bolt.io.errors import LeakError
from bolt.io.files import read_table
from bolt.models.registry import fitted_at_once
from bolt.series.cache import SeriesCache
from bolt.training import runner
from bolt.training.trainers import train_folds
from tests.caches import dataset, pack, scan_table, split
from tests.models.conformance import small

CLASSES = ["A", "B"]
N, TIME, ROIS, FOLDS = 48, 50, 20, 3
CHEAP = ["svm", "motion_only", "meanmlp", "lstm", "brainnetcnn", "bolt"]
QUICK = Training(epochs=10, batch_size=12, schedule="constant", learning_rate=5e-3)

pytestmark = pytest.mark.slow


def series() -> list[np.ndarray]:
    """Scans in which a pair of ROIs goes together in the first half of the subjects, and another pair in the rest."""
    random = np.random.default_rng(0)
    scans = []
    for i in range(N):
        values = random.standard_normal((TIME, ROIS))
        pair = [0, 1] if i < N // 2 else [2, 3]
        values[:, pair] += 2 * random.standard_normal((TIME, 1))
        scans.append(values)
    return scans


def permuted(number: int) -> list[str]:
    return np.random.default_rng([7, number]).permutation(np.repeat(CLASSES, N // 2)).tolist()


def moved(number: int) -> np.ndarray:
    return np.random.default_rng([8, number]).gamma(4, 0.04, N)


def train(folder, name, cache, folds, epochs=QUICK.epochs) -> pd.DataFrame:
    """Predictions of the test scans of all folds."""
    model = small(name)
    trainings = [runner.Training(fold, 0, folder / name / f"fold-{fold}") for fold in range(FOLDS)]
    at_once = fitted_at_once(load_model(name).model)
    model = model if at_once else model.model_copy(update={"training": QUICK.model_copy(update={"epochs": epochs})})
    assert train_folds(cache, folds, model, dataset(CLASSES, 40), trainings, device="cpu") == [None] * FOLDS
    tables = [read_table(each.folder / "predictions.tsv", text=("label", "predicted")) for each in trainings]
    return pd.concat(tables).query("role == 'test'")


def suspicion(tables: list[pd.DataFrame]) -> str:
    """Words, where the pooled accuracy is outside the 99 % interval of guesses; else nothing."""
    table = pd.concat(tables)
    right, n = int((table["label"] == table["predicted"]).sum()), len(table)
    low, high = binom.interval(0.99, n, table["label"].value_counts(normalize=True).max())
    return "" if low <= right <= high else f"{right} of {n} right, where chance gives {low:.0f} to {high:.0f}"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Three permutations of the labels, each with its cache and folds."""
    made = []
    for number in range(3):
        folder = tmp_path_factory.mktemp(f"permuted-{number}")
        scans = scan_table(permuted(number), mean_fd=moved(number))
        made.append((folder, pack(folder, series(), scans), split(folder, scans, FOLDS, seed=number)))
    return made


@pytest.mark.parametrize("name", CHEAP)
def test_permuted_labels_are_predicted_by_chance(honest, name):
    assert suspicion([train(folder, name, cache, folds) for folder, cache, folds in honest]) == ""


def test_the_labels_as_they_were_are_found(tmp_path):
    """The same set with its real labels: chance is not all that can be done."""
    scans = scan_table(np.repeat(CLASSES, N // 2).tolist())
    table = train(tmp_path, "svm", pack(tmp_path, series(), scans), split(tmp_path, scans, FOLDS))
    assert (table["label"] == table["predicted"]).mean() > 0.9


@pytest.mark.parametrize("name", ["svm", "meanmlp", "bolt"])
def test_labels_written_into_a_series_are_noticed(tmp_path, name):
    labels = permuted(0)
    scans, values = scan_table(labels), series()
    for one, label in zip(values, labels, strict=True):
        one[10:22, 4] += 5
        one[10:22, 5] += 5 if label == "A" else -5
    cache, folds = pack(tmp_path, values, scans), split(tmp_path, scans, FOLDS)
    # after 10 epochs meanMLP is right in 55 to 85 %, depending on the draws of dropout
    assert "right, where chance gives" in suspicion([train(tmp_path, name, cache, folds, epochs=40)])


def test_displacement_made_of_the_labels_is_noticed(tmp_path):
    labels = permuted(0)
    scans = scan_table(labels, mean_fd=moved(0) + 0.5 * (np.array(labels) == "A"))
    cache, folds = pack(tmp_path, series(), scans), split(tmp_path, scans, FOLDS)
    assert "right, where chance gives" in suspicion([train(tmp_path, "motion_only", cache, folds)])


def test_a_twin_scan_in_training_is_noticed(tmp_path):
    """Every scan twice, under two names: twins are in the training part of each other's test."""
    labels = permuted(0)
    scans = scan_table(labels * 2)
    cache = pack(tmp_path, series() * 2, scans)
    one = read_table(split(tmp_path, scan_table(labels), FOLDS), text=("scan_id", "subject", "group"))
    twin = one.assign(fold=(one["fold"] + 1) % FOLDS)
    for column, letter in (("scan_id", "s"), ("subject", "p"), ("group", "p")):
        twin[column] = [f"{letter}{int(name[1:]) + N:03d}" for name in one[column]]
    both = pd.concat([one, twin])
    both.to_csv(tmp_path / "folds.tsv", sep="\t", index=False)
    assert "right, where chance gives" in suspicion([train(tmp_path, "svm", cache, tmp_path / "folds.tsv")])
    with pytest.raises(LeakError):  # and the audit, which `folds` and `bolt check-folds` run, refuses such a table
        audit_folds(both, scans, contents={"series": series_contents(SeriesCache(cache))})
