"""Dropout is the same with and without the compiled library, so a training does not depend on a compiler."""

import numpy as np
import pytest
import torch

from bolt.config import load_model
from bolt.io.files import read_table
from bolt.models.compiled import library
from bolt.training.runner import Training, load_checkpoint, train_folds
from tests.models.conformance import small_model
from tests.training.test_runner import DATASET, write_toy


def trained(toy, out, device="cpu", **hyper):
    """Train a small BolT with much dropout everywhere; return its history and weights."""
    model = small_model(load_model("bolt"))
    shares = {"dropout": 0.3, "input_dropout": 0.2, "roi_dropout": 0.2}
    training = model.training.model_copy(update={"epochs": 3, "batch_size": 4})
    model = model.model_copy(update={"hyper": model.hyper | shares | hyper, "training": training})
    assert train_folds(*toy, model, DATASET, [Training(1, 0, out)], device=device) == [None]
    net, _ = load_checkpoint(out)
    return read_table(out / "history.tsv"), torch.cat([p.detach().flatten() for p in net.parameters()])


@pytest.mark.parametrize("hyper", [{}, {"cls_token": "global"}, {"dropout_before_fusion": True}], ids=str)
def test_a_training_is_the_same_without_the_library(chosen, hyper, tmp_path):
    chosen("")
    if library.library() is None:
        pytest.skip("no C++ compiler")
    toy = write_toy(tmp_path / "toy")
    histories, weights = [], []
    for level in ("", "0"):
        chosen(level)
        history, values = trained(toy, tmp_path / f"run{level}", **hyper)
        histories.append(history)
        weights.append(values)
    np.testing.assert_allclose(*(history["train_loss"] for history in histories), rtol=1e-4)
    np.testing.assert_allclose(*(history["validation_loss"] for history in histories), rtol=1e-4)
    torch.testing.assert_close(*weights, rtol=0, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_training_is_the_same_on_a_gpu(tmp_path):
    toy = write_toy(tmp_path / "toy")
    (ours, on_gpu), (theirs, on_cpu) = (trained(toy, tmp_path / device, device) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(ours["train_loss"], theirs["train_loss"], rtol=1e-3)
    torch.testing.assert_close(on_gpu, on_cpu, rtol=0, atol=1e-3)
