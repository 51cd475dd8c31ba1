"""Steps that a GPU replays, with a stand-in for its graphs: the same weights as steps launched one by one."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from bolt.io.files import read_table
from bolt.models.registry import create_model
from bolt.series.cache import SeriesCache
from bolt.training import graph, loop, prediction
from bolt.training.batches import Draw
from bolt.training.outputs import Classes
from tests.training.test_runner import LENGTHS, equal, run, short_model, weights


class StandIn:
    """Records as a GPU does: each replay reads what is given from the same place, and writes to the same place."""

    def __init__(self, monkeypatch, fails=False):
        self.recorded, self.replayed, self.fails = 0, 0, fails
        monkeypatch.setattr(loop, "read_on_device", lambda net, device: net.lengths_on_device)
        monkeypatch.setattr(prediction, "read_on_device", lambda net, device: net.lengths_on_device)
        monkeypatch.setattr(graph, "record", self.record)
        of_fit = loop.Fit.optimizer

        def remember(fit):
            self.fit, self.adam = fit, of_fit(fit)
            return self.adam

        monkeypatch.setattr(loop.Fit, "optimizer", remember)

    def record(self, work):
        """Nothing is computed while it is recorded: the weights stay as they are."""
        self.recorded += not self.fails
        states = [net.state_dict() for net in (self.fit.net, self.fit.average) if net]
        tensors = [value for state in states for value in state.values()]
        tensors += self.adam.state.values()
        before = [value.clone() for value in tensors]
        result = work()
        for value, old in zip(tensors, before, strict=True):
            value.copy_(old)
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        result.fill_(torch.nan)

        def start():
            self.replayed += 1
            with _disable_current_modes():
                result.copy_(work())

        return start, result


class Touching(TorchDispatchMode):
    """Notes operations that use some memory."""

    def __init__(self, tensors):
        super().__init__()
        self.places, self.noted = {tensor.untyped_storage().data_ptr() for tensor in tensors}, []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        used = {
            tensor.untyped_storage().data_ptr() for tensor in tree_leaves((args, result)) if torch.is_tensor(tensor)
        }
        if used & self.places and not operation.is_view:
            self.noted.append(operation.__name__)
        return result


def test_the_host_starts_two_operations_besides_the_graph(toy, tmp_path, monkeypatch):
    """It copies what is drawn, starts the graph, and keeps its result; no value is read."""
    stand_in, noted = StandIn(monkeypatch), []
    replay = graph._Graph.replay

    def note(recorded, given):
        weights = stand_in.fit.net.parameters()
        with Touching([recorded.place, recorded.result, *weights]) as touching:
            result = replay(recorded, given)
        noted.append(touching.noted)
        return result

    monkeypatch.setattr(graph._Graph, "replay", note)
    run(toy, tmp_path, short_model("bolt", mixup=0.4, average_weights=0.9, clip_gradient=1.0))
    assert noted == [["copy_.default", "clone.default"]] * stand_in.replayed and noted


def one_by_one(steps, draw):
    """Launch a step, in place of a graph."""
    return steps.step(*draw)


CASES = {
    "as shipped": ({}, {}),
    "mixed, averaged, clipped": ({"mixup": 0.4, "average_weights": 0.9, "clip_gradient": 1.0}, {}),
    "other dropout": ({}, {"input_dropout": 0.2, "roi_dropout": 0.2, "dropout_before_fusion": True}),
    "random crops": ({"crop_range": [0.5, 1.0]}, {}),
    "momentum that changes": ({"schedule": "one_cycle", "optimizer": "adam", "weight_decay": 0.01}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_replayed_steps_give_the_same_weights(toy, tmp_path, monkeypatch, case):
    """With scans of different length, a smaller last batch, and after a kill."""
    training, hyper = CASES[case]
    model = short_model("bolt", **training)
    model = model.model_copy(update={"hyper": model.hyper | {"dropout": 0.3} | hyper})

    def die(row):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", 0.0)
    stand_in = StandIn(monkeypatch)
    run(toy, tmp_path / "replayed", model)
    assert (stand_in.recorded, stand_in.replayed) == (2, 10) or case == "random crops"  # of twelve steps
    assert stand_in.recorded <= graph.MOST_GRAPHS and stand_in.replayed > 0
    with pytest.raises(KeyboardInterrupt):
        run(toy, tmp_path / "killed", model, watching=lambda training: nullcontext(die))
    run(toy, tmp_path / "killed", model)
    monkeypatch.setattr(graph.StepGraphs, "__call__", one_by_one)
    run(toy, tmp_path / "plain", model)
    assert equal(weights(tmp_path / "killed"), weights(tmp_path / "plain"))
    assert equal(weights(tmp_path / "replayed"), weights(tmp_path / "plain"))
    histories = [read_table(tmp_path / out / "history.tsv") for out in ("replayed", "plain")]
    assert histories[0].equals(histories[1])


def test_a_training_that_ends_early_frees_its_graphs(toy, tmp_path, monkeypatch):
    stand_in = StandIn(monkeypatch)

    def prune(row):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(toy, tmp_path, short_model("bolt", epochs=2), watching=lambda training: nullcontext(prune))
    assert stand_in.fit.graphs.graphs == {} and not stand_in.fit.graphs.possible


def test_what_cannot_be_recorded_is_launched_as_usual(toy, tmp_path, monkeypatch, caplog):
    StandIn(monkeypatch, fails=True)
    run(toy, tmp_path / "failed", short_model("bolt"))
    monkeypatch.setattr(graph.StepGraphs, "__call__", one_by_one)
    run(toy, tmp_path / "plain", short_model("bolt"))
    assert equal(weights(tmp_path / "failed"), weights(tmp_path / "plain"))
    assert caplog.text.count("not replayed") == 1


def test_a_padded_training_is_that_of_packed_scans(toy, tmp_path, monkeypatch):
    """Without dropout, whose masks have other addresses where scans differ in length."""
    model = short_model("bolt", mixup=0.4, learning_rate=1e-5, peak_learning_rate=1e-4)
    model = model.model_copy(update={"hyper": model.hyper | {"dropout": 0.0}})
    assert len(set(LENGTHS)) > 2
    run(toy, tmp_path / "packed", model)
    StandIn(monkeypatch)
    run(toy, tmp_path / "padded", model)
    losses = [read_table(tmp_path / out / "history.tsv")["train_loss"] for out in ("packed", "padded")]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    torch.testing.assert_close(weights(tmp_path / "padded"), weights(tmp_path / "packed"), rtol=0, atol=1e-3)


@pytest.mark.parametrize("case", ["mixed, averaged, clipped", "momentum that changes"])
def test_a_step_reads_no_value_on_the_host(toy, tmp_path, monkeypatch, case):
    """Tensors of the meta device have none."""
    monkeypatch.setattr(loop, "read_on_device", lambda net, device: True)
    monkeypatch.setattr(prediction, "read_on_device", lambda net, device: True)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # it does not know the device
    training, _ = CASES[case]
    cache = SeriesCache(toy[0])
    scans = prediction.Scans(prediction.Pool(cache, "cpu"), range(12), truth=np.arange(12) % 2)
    model = short_model("bolt", **training)
    net = create_model("bolt", 6, 2, **model.hyper).train()
    fit = loop.Fit(net, scans, None, Classes(["no", "yes"]), model, 20, 0, 0, tmp_path, "")
    random = torch.Generator().manual_seed(0)
    draw = fit._draw(torch.arange(8), random, (0, 0, 1, 1), fit.optimizer().rates(1))
    net.to("meta")
    scans.pool.data, scans.truth = scans.pool.data.to("meta"), scans.truth.to("meta")
    scans.pool.device = torch.device("meta")
    result = fit._whole_step(fit.optimizer(), Draw(*(part.to("meta") for part in draw)))
    assert result.shape == (1 + 8 * 2,) and all(weight.grad is not None for weight in net.parameters())
