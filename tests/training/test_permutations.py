"""Cross-validation repeated on permuted labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bolt.config import Model
from bolt.evaluate.chance import LEVEL
from bolt.evaluate.metrics import write_metrics
from bolt.io.files import read_json
from bolt.training.features import permuted_aucs, train_features
from bolt.training.outputs import Training
from tests.caches import dataset, pack, scan_table, split

CLASSES = ["no", "yes"]
SVM = Model(name="svm", model="svm", family="connectivity")


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> tuple[Path, Path]:
    """24 scans of 12 people; with "yes" the first two ROIs are correlated."""
    folder, random = tmp_path_factory.mktemp("toy"), np.random.default_rng(0)
    people = [f"p{i // 2:02d}" for i in range(24)]
    labels = [CLASSES[i // 2 % 2] for i in range(24)]
    series = [random.standard_normal((40, 4)) for _ in labels]
    for values, label in zip(series, labels, strict=True):
        values[:, 1] += 2 * (label == "yes") * values[:, 0]
    scans = scan_table(labels).assign(subject=people, group=people)
    return pack(folder, series, scans), split(folder, scans, 3)


@pytest.mark.slow
def test_real_labels_stand_out_from_permuted_ones(toy, tmp_path) -> None:
    trainings = [Training(fold, 0, tmp_path / f"fold-{fold}") for fold in range(3)]
    assert train_features(*toy, SVM, dataset(CLASSES, 40), trainings) == [None] * 3
    null = permuted_aucs(*toy, SVM, dataset(CLASSES, 40), trainings, 60)
    assert null.shape == (60,) and abs(np.nanmean(null) - 0.5) < 0.15 and len(np.unique(null)) > 20
    write_metrics(tmp_path, CLASSES, range(3), tmp_path, null)
    found = read_json(tmp_path / "summary.json")["chance"]
    assert found["value"] > 0.9 and found["p"] < 0.05 and found["widened"] is None
    assert found["n_permutations"] == np.isfinite(null).sum() and found["bar"] == pytest.approx(
        np.nanquantile(null, 1 - LEVEL, method="higher")
    )


def test_permutations_depend_on_the_seed_alone(toy) -> None:
    trainings = [Training(fold, 0, Path("unused")) for fold in range(2)]
    first, again = (permuted_aucs(*toy, SVM, dataset(CLASSES, 40), trainings, 4) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    last = [trainings[0], trainings[1]._replace(seed=1)]  # labels are drawn once for all folds, by the first one's seed
    np.testing.assert_array_equal(permuted_aucs(*toy, SVM, dataset(CLASSES, 40), last, 4), first)
    other = permuted_aucs(*toy, SVM, dataset(CLASSES, 40), [t._replace(seed=1) for t in trainings], 4)
    assert not np.array_equal(first, other)
