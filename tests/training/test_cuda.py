"""Training on a GPU: every network in every precision, and the paper's model at its size."""

import numpy as np
import pytest
import torch

from bolt.config import load_model
from bolt.explain.importance import importance_of
from bolt.io.files import read_json, read_table
from bolt.series.cache import SeriesCache
from bolt.training.runner import Training, load_checkpoint, predict, train_folds
from tests.models.conformance import TORCH, small
from tests.training.test_runner import DATASET, TEXT, write_toy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("name", TORCH)
def test_a_network_is_trained_deterministically_and_predicts_as_on_the_cpu(tmp_path, name, precision):
    toy = write_toy(tmp_path / "toy", lengths=[60] * 12)
    model = small(name)
    training = model.training.model_copy(update={"epochs": 2, "batch_size": 4, "precision": precision})
    dataset = DATASET.model_copy(update={"crop": 60})
    for out in ("one", "two"):
        trainings = [Training(1, 0, tmp_path / out)]
        assert train_folds(*toy, model.model_copy(update={"training": training}), dataset, trainings) == [None]
    assert read_json(tmp_path / "one/checkpoint.json")["precision"] == precision
    one, two = ((tmp_path / out / "checkpoint.safetensors").read_bytes() for out in ("one", "two"))
    assert one == two
    net, info = load_checkpoint(tmp_path / "one")
    predicted = read_table(tmp_path / "one/predictions.tsv", text=TEXT)
    on_cpu = predict(net, SeriesCache(toy[0]), range(len(predicted)), "cpu", info=info)
    np.testing.assert_allclose(predicted[["p_no", "p_yes"]], on_cpu, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_the_papers_model_learns_and_is_explained(tmp_path, precision):
    toy = write_toy(tmp_path / "toy", lengths=[100] * 12)
    model = load_model("bolt")
    training = model.training.model_copy(update={"epochs": 2, "precision": precision})
    trainings = [Training(1, 0, tmp_path / "run")]
    dataset = DATASET.model_copy(update={"crop": 100})
    assert train_folds(*toy, model.model_copy(update={"training": training}), dataset, trainings) == [None]
    net, _ = load_checkpoint(tmp_path / "run")
    series = [np.random.default_rng(0).standard_normal((n, 6)).astype(np.float32) for n in (100, 60)]
    on_cpu = importance_of(net, series, "cpu", targets=[0, 1])
    for ours, theirs in zip(importance_of(net, series, "cuda", targets=[0, 1]), on_cpu, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * theirs.max())
