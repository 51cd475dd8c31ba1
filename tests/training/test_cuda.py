"""Training on a GPU: every network in every precision, and the paper's model at its size."""

from functools import partial

import numpy as np
import pytest
import torch

from bolt.config import load_model
from bolt.explain.importance import importance_of
from bolt.io.files import read_json, read_table
from bolt.series.cache import SeriesCache
from bolt.training.device import has_tensor_float
from bolt.training.runner import load_checkpoint, predict
from tests.models.conformance import TORCH, small
from tests.training.test_runner import DATASET, ROLES, TEXT, run, run_folds, short_model, weights, write_toy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
on_gpu = partial(run, device="cuda")


def with_training(model, **training):
    return model.model_copy(update={"training": model.training.model_copy(update=training)})


def of_crops(crop):
    return DATASET.model_copy(update={"crop": crop})


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("name", TORCH)
def test_a_network_is_trained_deterministically_and_predicts_as_on_the_cpu(tmp_path, name, precision):
    toy = write_toy(tmp_path / "toy", lengths=[60] * 12)
    model = with_training(small(name), epochs=2, batch_size=4, precision=precision)
    for out in ("one", "two"):
        on_gpu(toy, tmp_path / out, model, of_crops(60))
    used = "float32" if precision == "tf32" and not has_tensor_float(torch.device("cuda")) else precision
    assert read_json(tmp_path / "one/checkpoint.json")["precision"] == used
    one, two = ((tmp_path / out / "checkpoint.safetensors").read_bytes() for out in ("one", "two"))
    assert one == two
    net, info = load_checkpoint(tmp_path / "one")
    predicted = read_table(tmp_path / "one/predictions.tsv", text=TEXT)
    on_cpu = predict(net, SeriesCache(toy[0]), range(len(predicted)), "cpu", info=info)
    np.testing.assert_allclose(predicted[["p_no", "p_yes"]], on_cpu, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_the_papers_model_learns_and_is_explained(tmp_path, precision):
    toy = write_toy(tmp_path / "toy", lengths=[100] * 12)
    model = with_training(load_model("bolt"), epochs=2, precision=precision)
    net, _ = load_checkpoint(on_gpu(toy, tmp_path / "run", model, of_crops(100)))
    series = [np.random.default_rng(0).standard_normal((n, 6)).astype(np.float32) for n in (100, 60)]
    on_cpu = importance_of(net, series, "cpu", targets=[0, 1])
    for ours, theirs in zip(importance_of(net, series, "cuda", targets=[0, 1]), on_cpu, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * theirs.max())


@pytest.mark.parametrize(
    ("name", "free"), [("bolt", 2**40), ("bolt", 0), ("cnn_lstm", 2**40), ("bnt", 2**40), ("braingnn", 2**40)]
)
def test_folds_side_by_side_equal_folds_alone(tmp_path, monkeypatch, name, free):
    """With scans of different length, mixed and averaged. Without free memory the series are left on the host."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (free, 2**40))
    toy = write_toy(tmp_path / "toy", more=[ROLES[::-1]])
    model = short_model(name, mixup=0.4, average_weights=0.9, clip_gradient=1.0)
    assert run_folds(toy, tmp_path / "together", (1, 2), model, device="cuda") == [None, None]
    for fold in (1, 2):
        assert run_folds(toy, tmp_path / "alone", [fold], model, device="cuda") == [None]
        first, second = (tmp_path / f"{out}/{fold}/checkpoint.safetensors" for out in ("together", "alone"))
        assert first.read_bytes() == second.read_bytes()


def test_a_training_equals_that_on_the_cpu_to_rounding(tmp_path):
    """Dropout and mixtures included: both draw the same masks (with scans of the crop's length) and partners."""
    toy = write_toy(tmp_path / "toy", lengths=[30] * 12)
    model = short_model("bolt", mixup=0.4, learning_rate=1e-5, peak_learning_rate=1e-4)
    dropped = {"dropout": 0.3, "input_dropout": 0.2, "roi_dropout": 0.2}
    model = model.model_copy(update={"hyper": model.hyper | dropped})
    places = [run(toy, tmp_path / device, model, device=device) for device in ("cpu", "cuda")]
    np.testing.assert_allclose(*(read_table(out / "history.tsv")["train_loss"] for out in places), rtol=1e-3)
    torch.testing.assert_close(*map(weights, places), rtol=0, atol=1e-3)


def test_a_batch_that_does_not_fit_is_split(tmp_path, caplog):
    """The gradient is that of the whole batch, but for dropout, whose masks differ."""
    toy = write_toy(tmp_path / "toy", lengths=[600] * 12)
    model = with_training(load_model("bolt"), epochs=1, batch_size=8)
    on_gpu(toy, tmp_path / "whole", model, of_crops(600))
    needed = torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.6 * needed / torch.cuda.mem_get_info()[1])
    try:
        on_gpu(toy, tmp_path / "parts", model, of_crops(600))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "do not fit in the GPU's memory" in caplog.text
