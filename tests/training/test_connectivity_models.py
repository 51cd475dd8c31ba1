"""Training of connectivity networks on whole scans or crops, and loss terms that need labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bolt.config import Training
from bolt.io.files import read_table
from bolt.models.braingnn import BrainGNN
from bolt.models.brainnetcnn import BrainNetCNN
from bolt.models.registry import create_model
from bolt.series.cache import SeriesCache
from bolt.training.loop import Fit
from bolt.training.prediction import Pool, Scans
from bolt.training.trainers import train_fold
from tests.models.conformance import small
from tests.training.test_runner import DATASET, LENGTHS, NUMBERS, ROLES, write_toy

TRAINED_LENGTHS = [length for length, role in zip(LENGTHS, ROLES, strict=True) if role == "train"]


def train(toy, out, name, dataset=DATASET, connectivity="scan", **training):
    settings = Training(**{"epochs": 2, "batch_size": 5, "schedule": "constant", **training})
    model = small(name).model_copy(update={"connectivity": connectivity, "training": settings})
    train_fold(*toy, model, dataset, fold=1, seed=0, out=out, device="cpu")


@pytest.fixture
def seen(spied):
    """The scans and the model's inputs of each training step."""
    noted = []
    spied(Fit, "_matrices", lambda x, fit, net, which, *crop: noted.append((which.tolist(), x.numpy().copy())))
    return noted


def test_whole_scans_are_learned_by_default(toy, tmp_path, seen):
    train(toy, tmp_path, "brainnetcnn")
    cache = SeriesCache(toy[0])
    assert len(seen) == 4 and len(set(TRAINED_LENGTHS)) == 3  # of different lengths, some longer than a crop
    for which, matrices in seen:
        due = [np.corrcoef(cache.series(i).T) for i in which]  # the training scans are the first of the cache
        np.testing.assert_allclose(matrices[:, 0], due, atol=1e-5)


def test_matrices_of_a_scan_do_not_depend_on_the_scans_beside_it(toy):
    """Or a resumed training, and folds side by side, had other last digits."""
    scans = [Scans(Pool(SeriesCache(toy[0]), "cpu"), range(12)) for _ in range(2)]
    net = create_model("braingnn", 6, 2)
    one_by_one = torch.cat([scans[0].matrices(net, [i]) for i in range(12)])
    assert torch.equal(scans[1].matrices(net, range(12)), one_by_one)


def test_crops_are_stretches_of_a_crops_length_and_new_at_each_step(toy, tmp_path, seen):
    train(toy, tmp_path, "brainnetcnn", connectivity="crop")
    cache = SeriesCache(toy[0])
    found: dict[int, list[int]] = {}
    for which, matrices in seen:
        for i, matrix in zip(which, matrices[:, 0], strict=True):
            series = cache.series(i)
            starts = range(max(len(series) - DATASET.crop, 0) + 1)
            # a scan shorter than the crop is used whole, each volume once
            due = [np.corrcoef(series[start : start + DATASET.crop].T) for start in starts]
            found.setdefault(i, []).append(int(np.abs(np.array(due) - matrix).max((1, 2)).argmin()))
            assert np.abs(due[found[i][-1]] - matrix).max() < 1e-5
    assert min(TRAINED_LENGTHS) < DATASET.crop < max(TRAINED_LENGTHS)
    assert sorted(found) == list(range(8)) and any(first != second for first, second in found.values())


def test_validation_and_test_scans_are_whole_in_either_case(toy, tmp_path, spied):
    lengths = []
    spied(BrainNetCNN, "matrices", lambda _, net, x: lengths.append(x.shape[1]))
    train(toy, tmp_path, "brainnetcnn", connectivity="crop", epochs=1)
    # two training steps, one with the scan that is shorter than a crop; then whole scans only
    assert sorted(lengths[:3]) == [18, DATASET.crop, DATASET.crop]
    assert set(lengths[3:]) == set(LENGTHS)


# ---- loss terms that need the labels ---------------------------------------------------------------------------------
def test_label_losses_are_of_training_batches_and_not_of_mixed_scans_or_numbers(toy, tmp_path, spied):
    asked = []
    spied(BrainGNN, "label_losses", lambda _, net, output, truth: asked.append(truth.tolist()))
    train(toy, tmp_path / "run", "braingnn")
    assert [len(batch) for batch in asked] == [5, 3, 5, 3]
    assert sorted(asked[0] + asked[1]) == [0] * 4 + [1] * 4
    train(toy, tmp_path / "mixed", "braingnn", mixup=1)
    numbers = write_toy(tmp_path / "numbers", labels=[float(i) for i in range(12)])
    train(numbers, tmp_path / "out", "braingnn", dataset=NUMBERS)
    assert len(asked) == 4


def test_label_losses_count(toy, tmp_path, monkeypatch):
    train(toy, tmp_path / "as-is", "braingnn", epochs=1)
    monkeypatch.setattr(BrainGNN, "label_losses", lambda net, output, truth: {"glc": torch.tensor(100.0)})
    train(toy, tmp_path / "more", "braingnn", epochs=1)
    loss = [read_table(tmp_path / name / "history.tsv")["train_loss"][0] for name in ("as-is", "more")]
    assert 95 < loss[1] - loss[0] < 101
