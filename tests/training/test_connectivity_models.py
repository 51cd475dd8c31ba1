"""Training of connectivity networks on whole scans or crops, and loss terms that need labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bolt.config import Dataset, Model, Training
from bolt.models.braingnn import BrainGNN
from bolt.models.brainnetcnn import BrainNetCNN
from bolt.series.cache import SeriesCache
from bolt.training.loop import Fit
from bolt.training.runner import train_fold
from tests.training.test_runner import DATASET, LENGTHS, ROLES, write_toy

SMALL = {
    "brainnetcnn": {"edge_channels": [2], "graph_channels": 4, "linear": [4]},
    "braingnn": {"hidden": 4, "inner": 4},
}
TRAINED_LENGTHS = [length for length, role in zip(LENGTHS, ROLES, strict=True) if role == "train"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("toy"))


def train(toy, out, name, dataset=DATASET, connectivity="scan", **training):
    settings = Training(**{"epochs": 2, "batch_size": 5, "schedule": "constant", **training})
    model = Model(name=name, model=name, hyper=SMALL[name], connectivity=connectivity, training=settings)
    train_fold(*toy, model, dataset, fold=1, seed=0, out=out, device="cpu")


def inputs_of_training(toy, out, monkeypatch, **settings):
    """Return the scans and the model's inputs of each training step."""
    seen = []
    original = Fit._inputs

    def record(fit, which, *crop):
        x = original(fit, which, *crop)
        seen.append((which.tolist(), x.numpy().copy()))
        return x

    with monkeypatch.context() as patch:
        patch.setattr(Fit, "_inputs", record)
        train(toy, out, "brainnetcnn", **settings)
    return seen


def test_whole_scans_are_learned_by_default(toy, tmp_path, monkeypatch):
    seen = inputs_of_training(toy, tmp_path, monkeypatch)
    cache = SeriesCache(toy[0])
    assert len(seen) == 4 and len(set(TRAINED_LENGTHS)) == 3  # of different lengths, some longer than a crop
    for which, matrices in seen:
        due = [np.corrcoef(cache.series(i).T) for i in which]  # the training scans are the first of the cache
        np.testing.assert_allclose(matrices[:, 0], due, atol=1e-5)


def test_crops_are_stretches_of_a_crops_length_and_new_at_each_step(toy, tmp_path, monkeypatch):
    seen = inputs_of_training(toy, tmp_path, monkeypatch, connectivity="crop")
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


def test_validation_and_test_scans_are_whole_in_either_case(toy, tmp_path, monkeypatch):
    lengths = []
    original = BrainNetCNN.matrices
    monkeypatch.setattr(BrainNetCNN, "matrices", lambda net, x: (lengths.append(x.shape[1]), original(net, x))[1])
    train(toy, tmp_path, "brainnetcnn", connectivity="crop", epochs=1)
    # two training steps, one with the scan that is shorter than a crop; then whole scans only
    assert sorted(lengths[:3]) == [18, DATASET.crop, DATASET.crop]
    assert set(lengths[3:]) == set(LENGTHS)


# ---- loss terms that need the labels ---------------------------------------------------------------------------------
def label_losses_asked(toy, out, monkeypatch, **settings):
    """Return the labels of each batch for which BrainGNN's own loss term was computed."""
    asked = []
    original = BrainGNN.label_losses
    with monkeypatch.context() as patch:
        patch.setattr(
            BrainGNN, "label_losses", lambda net, o, truth: (asked.append(truth.tolist()), original(net, o, truth))[1]
        )
        train(toy, out, "braingnn", **settings)
    return asked


def test_label_losses_are_of_training_batches(toy, tmp_path, monkeypatch):
    asked = label_losses_asked(toy, tmp_path, monkeypatch)
    assert [len(batch) for batch in asked] == [5, 3, 5, 3]
    assert sorted(asked[0] + asked[1]) == [0] * 4 + [1] * 4


def test_label_losses_count(toy, tmp_path, monkeypatch):
    train(toy, tmp_path / "as-is", "braingnn", epochs=1)
    monkeypatch.setattr(BrainGNN, "label_losses", lambda net, output, truth: {"glc": torch.tensor(100.0)})
    train(toy, tmp_path / "more", "braingnn", epochs=1)
    loss = [
        float((tmp_path / name / "history.tsv").read_text().split("\n")[1].split("\t")[2]) for name in ("as-is", "more")
    ]
    assert 95 < loss[1] - loss[0] < 101


def test_no_label_losses_of_mixed_scans(toy, tmp_path, monkeypatch):
    assert not label_losses_asked(toy, tmp_path, monkeypatch, mixup=1)


def test_no_label_losses_of_numbers(tmp_path, monkeypatch):
    toy = write_toy(tmp_path / "numbers", labels=[float(i) for i in range(12)])
    ages = Dataset(name="toy", source="series", path=DATASET.path, label="age", classes=None, crop=20)
    assert not label_losses_asked(toy, tmp_path / "out", monkeypatch, dataset=ages)
