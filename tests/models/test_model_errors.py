"""All models report bad input by the same messages."""

from __future__ import annotations

import numpy as np
import pytest

from bolt.config import Dataset, load_model
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table
from bolt.models.registry import has_epochs, shortest_of
from bolt.models.suitability import shortest_scan
from bolt.training.outputs import Training
from bolt.training.trainers import train_folds
from tests.models.conformance import CROP, TORCH, make, small
from tests.training.test_runner import LENGTHS, ROLES, write_toy

DATASET = Dataset(name="toy", source="series", path="x", label="label", classes=["no", "yes"], crop=CROP, site="site")


def train(toy, name, out, dataset=DATASET):
    model = one_epoch(small(name))
    if "mean_fd" in model.covariates:
        index = read_table(toy[0] / "index.tsv", text=("scan_id",))
        index.assign(mean_fd=np.arange(len(index)) / 10).to_csv(toy[0] / "index.tsv", sep="\t", index=False)
    return train_folds(*toy, model, dataset, [Training(1, 0, out)], device="cpu", progress=False)[0]


def one_epoch(model):
    training = model.training.model_copy(update={"epochs": 1}) if has_epochs(model.model) else model.training
    members = [one_epoch(member) for member in model.members]
    return model.model_copy(update={"training": training, "members": members})


KINDS = ("bnt", "motion_only", "ensemble", "svm", "bolt")
"""Trained in epochs on connectivity or on series; fitted at once to covariates or to connectivity; of members."""


@pytest.mark.parametrize("name", KINDS)
def test_a_class_without_a_training_scan(name, tmp_path):
    labels = ["no"] * 8 + ["yes"] * 4
    error = train(write_toy(tmp_path, labels=labels), name, tmp_path / "run")
    assert isinstance(error, DataError) and "fold 1 has no training scan of class 'yes'" in str(error)
    assert not (tmp_path / "run/predictions.tsv").exists()


@pytest.mark.parametrize("name", [name for name in KINDS if name != "motion_only"])
def test_a_series_that_is_not_finite(name, tmp_path):
    def spoil(series):
        series[3][2, 1] = np.nan

    error = train(write_toy(tmp_path, change=spoil), name, tmp_path / "run")
    assert isinstance(error, DataError) and "scan 'sub-03_task-rest' has NaN or Inf" in str(error)


@pytest.mark.parametrize("name", TORCH)
def test_the_shortest_scan_is_known_before_a_model_is_built(name):
    model = small(name)
    if name != "gc_lstm":  # whose window follows from the data
        assert shortest_of(model.model, model.hyper) == make(name, 6, 2).min_length


def test_the_shortest_scan_is_not_always_the_window():
    assert shortest_scan(load_model("hatnet")) == 31
    assert shortest_scan(load_model("longformer")) == 2


@pytest.mark.parametrize("name", ["bolt", "gc_lstm", "hatnet", "longformer", "bnt"])
def test_a_scan_shorter_than_its_window_is_listed(name, tmp_path):
    shortest = make(name, 6, 2).min_length
    out = tmp_path / "run"
    assert train(write_toy(tmp_path, lengths=[*LENGTHS[:10], 40, shortest - 1]), name, out) is None
    (row,) = read_table(out / "exclusions.tsv", text=("scan_id",)).itertuples()
    assert row.scan_id == f"sub-{len(ROLES) - 1:02d}_task-rest"
    assert f"{shortest - 1} volumes, fewer than the {shortest} that the model needs. " in row.reason
    assert f"min_n_volumes: {shortest}" in row.reason
    if shortest > 2 and name != "gc_lstm":  # whose window follows the crop
        with pytest.raises(ConfigError, match="are shorter than the .* needs.*Lengthen 'crop'"):
            short = DATASET.model_copy(update={"crop": shortest - 1})
            train(write_toy(tmp_path / "short"), name, tmp_path / "crop", dataset=short)
