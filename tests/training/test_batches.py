"""Batches that do not fit in memory, simulated by a model that raises, as no test can rely on a full GPU; parts."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

from bolt.config import Model, Training
from bolt.io.errors import BoltError
from bolt.models import bolt, registry
from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.brainnetcnn import BrainNetCNN
from bolt.series.cache import SeriesCache
from bolt.training import batches, loop, runner
from bolt.training.batches import Batch, draw_mixture, learns_from_batches, mixed, restored
from bolt.training.runner import load_checkpoint, predict, train_folds
from tests.models.conformance import TORCH, make
from tests.training.test_runner import DATASET, raises, run, short_model, write_toy

GPU = torch.OutOfMemoryError("CUDA out of memory")
LIMIT = {"scans": 100, "error": GPU}


class Hungry(SeriesModel):
    """A model that fits at most `LIMIT` scans at once."""

    def __init__(self, n_rois: int, n_classes: int, *, normalise: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(n_rois) if normalise else nn.Identity()
        self.linear = nn.Linear(n_rois, n_classes)
        self.asked: list[int] = []

    def forward(self, x):
        if self.training or LIMIT.get("predicts"):
            self.asked.append(len(x))
            if len(x) > LIMIT["scans"]:
                raise LIMIT["error"]
        features = self.norm(x.mean(1))
        return ModelOutput(self.linear(features), features, {"size": 0.1 * features.square().mean()})


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    real = registry.known_models()
    monkeypatch.setitem(registry._MODELS, "hungry", Hungry)
    monkeypatch.setattr(registry, "known_models", lambda: [*real, "hungry"])
    monkeypatch.setattr("bolt.training.runner.code_fingerprint", lambda *_: "")  # the model has no file


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Training scans that all fill a crop, so that batches are not parted by length."""
    return write_toy(tmp_path_factory.mktemp("memory"), lengths=[30] * 8 + [24, 18, 24, 30])


def train(toy, out, monkeypatch, scans=100, error=GPU, hyper=None, **training):
    monkeypatch.setitem(LIMIT, "scans", scans)
    monkeypatch.setitem(LIMIT, "error", error)
    settings = {"epochs": 3, "batch_size": 7, "warmup_epochs": 1, "learning_rate": 1e-2, "peak_learning_rate": 0.1}
    model = Model(name="h", model="hungry", hyper=hyper or {}, training=Training(**{**settings, **training}))
    return train_folds(*toy, model, DATASET, [runner.Training(1, 0, out)], device="cpu")[0]


def state(folder):
    return load_checkpoint(folder)[0].state_dict()


@pytest.mark.parametrize(
    ("training", "text"),
    [
        ({}, "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ({"mixup": 1.0, "clip_gradient": 0.05}, "CUDA error: out of memory"),
        ({}, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        ({}, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        ({}, "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
    ],
)
def test_halves_give_the_gradient_of_the_whole(toy, tmp_path, monkeypatch, caplog, spied, training, text):
    """Whichever of a GPU's libraries finds no memory."""
    assert train(toy, tmp_path / "whole", monkeypatch, **training) is None
    asked = []
    spied(loop.Fit, "_gradient", lambda _, fit, *rest: asked.append(fit.net.asked))
    assert train(toy, tmp_path / "parts", monkeypatch, scans=2, error=RuntimeError(text), **training) is None
    whole, parts = (state(tmp_path / name) for name in ("whole", "parts"))
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-5)
    # 8 scans in batches of 7 and 1: halved to 3 and to 1 once, and remembered in all later steps
    assert asked[0] == [7, 3, *[1] * 24]
    assert caplog.text.count("do not fit in the GPU's memory") == 2  # 7, and 3


def test_each_attempt_draws_alike(toy, tmp_path, monkeypatch):
    """So a run that met the shortage earlier, or was resumed, has the same weights."""
    drawn: list[list[float]] = []
    real = loop.Fit._gradient

    def note(self, x, *rest):
        drawn.append(torch.rand(2).tolist())
        return real(self, x, *rest)

    monkeypatch.setattr(loop.Fit, "_gradient", note)
    assert train(toy, tmp_path, monkeypatch, scans=4, epochs=1, mixup=1.0) is None
    assert drawn[0] == drawn[1] != drawn[2]  # 7 scans, 3 of them, 3 more


TOGETHER = {"scans": 3, "hyper": {"normalise": True}, "batch_size": 8}


@pytest.mark.parametrize(
    ("place", "how", "words"),
    [
        (None, TOGETHER, "a batch of 8 scans does not fit.*batch_size: 2'"),  # batch normalisation is not split
        (None, {"scans": 0}, "a single scan does not fit in the GPU's memory.*'device: cpu'"),
        (None, {"scans": 3, "error": MemoryError()}, "a batch of 7 scans does not fit in the computer's .*batch_size"),
        ("bolt.training.loop.Fit._batch", {}, "a batch of 7 scans does not fit in the GPU's memory.*batch_size"),
        ("bolt.training.loop.Adam", {}, "the state of the optimiser does not fit in the GPU's memory"),
    ],
)
def test_a_shortage_that_smaller_batches_do_not_help_ends_the_fold(toy, tmp_path, monkeypatch, place, how, words):
    if place:
        monkeypatch.setattr(place, raises(GPU))
    error = train(toy, tmp_path, monkeypatch, **how)
    assert isinstance(error, BoltError) and re.search(f"(?s)h, fold 1, seed 0: {words}", str(error))


@pytest.mark.parametrize("error", [GPU, MemoryError()], ids=["gpu", "computer"])
def test_prediction_takes_fewer_scans_at_once(toy, monkeypatch, error):
    cache = SeriesCache(toy[0])
    torch.manual_seed(0)
    net = Hungry(cache.n_rois, 2)
    due = predict(net, cache, range(12))
    for key, value in {"predicts": True, "scans": 2, "error": error}.items():
        monkeypatch.setitem(LIMIT, key, value)
    np.testing.assert_allclose(predict(net, cache, range(12)), due, rtol=1e-6)
    monkeypatch.setitem(LIMIT, "scans", 0)
    with pytest.raises(BoltError, match="a scan of 18 volumes does not fit"):
        predict(net, cache, range(12))


def test_a_model_of_connectivity_predicts_few_scans_at_once(tmp_path, spied):
    cache, asked = SeriesCache(write_toy(tmp_path, lengths=[10] * 40, roles=["train"] * 40)[0]), []
    spied(BrainNetCNN, "classify", lambda _, net, given: asked.append(len(given)))
    predict(make("brainnetcnn", cache.n_rois, 2), cache, range(40))
    assert asked == [16, 16, 8]


def test_any_other_error_is_a_crash(toy, tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="shapes differ"):
        train(toy, tmp_path, monkeypatch, scans=3, error=RuntimeError("shapes differ"))


@pytest.mark.parametrize("name", TORCH)
def test_models_whose_batches_cannot_be_split_are_known(name):
    """Without dropout, the gradient of a batch is the sum of its parts' gradients, unless the model is an exception."""
    net = make(name, 9, 2).train()
    for module in net.modules():
        if hasattr(module, "p"):
            module.p = 0.0
        for key in ("dropout", "input_dropout", "word_dropout", "drop_path"):
            if isinstance(getattr(module, key, None), float):
                setattr(module, key, 0.0)
    x, truth = torch.randn(6, 30, 9, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1] * 3)

    def gradient(parts):
        net.zero_grad()
        for part in parts:
            output = net(x[part])
            loss = nn.functional.cross_entropy(output.logits, truth[part]) + sum(output.losses.values())
            (loss * len(x[part]) / 6).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    whole, parts = gradient([slice(0, 6)]), gradient([slice(0, 4), slice(4, 6)])
    alike = torch.allclose(whole, parts, atol=1e-5, rtol=1e-3)
    assert alike or learns_from_batches(net), "gradients differ: an unknown interaction between scans of a batch"


# ---- batches of training scans: parts, mixtures, and their order -----------------------------------------------------
LENGTHS = torch.tensor([5, 3, 5, 4])


def batch() -> Batch:
    x = torch.arange(4.0)[:, None, None] + torch.zeros(4, 5, 2)
    return Batch(x, LENGTHS, torch.arange(4), torch.arange(4.0)[:, None])


def test_a_mixture_is_sorted_and_as_long_as_the_shorter_scan_and_shares_no_draws_with_dropout() -> None:
    before = torch.random.get_rng_state()
    share, order, partner = draw_mixture(LENGTHS, 0.4, (0, 1, 2, 3))
    found = mixed(batch(), share, order, partner)
    assert torch.random.get_rng_state().equal(before)
    assert found.other is not None and found.covariates is not None and 0 < share < 1 and found.share == share
    assert found.truth.tolist() == order.tolist() and sorted(found.other.tolist()) == [0, 1, 2, 3]
    shorter = torch.minimum(LENGTHS[found.truth], LENGTHS[found.other])
    assert found.lengths.equal(shorter) and found.lengths.equal(shorter.sort().values)
    expected = found.share * found.truth + (1 - found.share) * found.other
    assert found.x[:, 0, 0].tolist() == pytest.approx(expected.tolist())
    assert found.covariates[:, 0].tolist() == pytest.approx(expected.tolist())


def test_the_share_is_of_the_beta_distribution_that_is_configured(toy, tmp_path, spied) -> None:
    shares = {}
    spied(loop, "draw_mixture", lambda drawn, lengths, alpha, key: shares.update({key: drawn[0]}))
    run(toy, tmp_path, short_model("lstm", epochs=1, mixup=0.4))
    assert shares == {key: np.random.default_rng([*key, 1]).beta(0.4, 0.4) for key in shares} and len(shares) == 3


def test_results_return_to_the_order_of_the_batch() -> None:
    parts = [(torch.tensor([1]),) * 2, (torch.tensor([3]),) * 2, (torch.tensor([0, 2]),) * 2]
    passed = torch.tensor([1, 3, 0, 2])
    assert restored(passed, parts, None).tolist() == [0, 1, 2, 3]  # type: ignore[arg-type]
    order = torch.tensor([2, 0, 3, 1])
    assert restored(order, [(slice(0, 4), slice(0, 4))], order).tolist() == [0, 1, 2, 3]
    assert restored(order[passed], parts, order).tolist() == [0, 1, 2, 3]  # type: ignore[arg-type]


def test_a_step_of_equal_scans_copies_no_positions_to_the_device(tmp_path, monkeypatch) -> None:
    """Each such copy would take time at every step of a GPU."""
    copied: list[int] = []
    monkeypatch.setattr(batches, "copied_to", lambda device, values: copied.append(len(values)) or values)
    toy = write_toy(tmp_path, lengths=[DATASET.crop + 5] * 12)
    run(toy, tmp_path / "plain", short_model("bolt", epochs=2))
    assert not copied
    run(toy, tmp_path / "mixed", short_model("bolt", epochs=1, mixup=1.0))
    assert copied


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_windows_are_computed_once_for_the_same_lengths_in_any_order(tmp_path, spied, mixup) -> None:
    """On a GPU, computing them again for every batch would take longer than the step."""
    asked = []
    spied(bolt, "windows_of", lambda _, lengths, *rest: asked.append(lengths))
    lengths = [DATASET.crop + 5, DATASET.crop - 4, DATASET.crop - 8] * 4
    run(write_toy(tmp_path, lengths=lengths), tmp_path / "run", short_model("bolt", epochs=2, mixup=mixup))
    ragged = [lengths for lengths in asked if len(set(lengths)) > 1]
    assert ragged and all(list(lengths) == sorted(lengths) for lengths in ragged)
