"""Steps that a GPU replays, with a stand-in for its graphs: the same weights as steps launched one by one."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from bolt.io.files import read_table
from bolt.models.parts import masks
from bolt.training import graph, loop, prediction
from tests.training.test_runner import LENGTHS, equal, run, short_model, weights


class StandIn:
    """Records as a GPU does: each replay reads batch and seeds from the same places, and writes to the same places."""

    def __init__(self, monkeypatch, fails=False):
        self.recorded, self.replayed, self.fails = 0, 0, fails
        monkeypatch.setattr(loop, "read_on_device", lambda net, device: net.lengths_on_device)
        monkeypatch.setattr(prediction, "read_on_device", lambda net, device: net.lengths_on_device)
        monkeypatch.setattr(graph, "record", self.record)
        before = graph._Graph.__init__

        def remember(made, net, *rest):
            self.parameters = list(net.parameters())
            before(made, net, *rest)

        monkeypatch.setattr(graph._Graph, "__init__", remember)

    def record(self, work):
        if self.fails:
            work()
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recorded += 1
        parameters, given, seeds = self.parameters, masks._given[-1], []
        with masks.given_seeds(seeds.append(seed) or seed for seed in given):
            results = work()
        gradients = [parameter.grad for parameter in parameters]
        for place in (*results, *gradients):  # nothing is computed while it is recorded
            place.fill_(torch.nan)

        def start():
            self.replayed += 1
            for parameter in parameters:
                parameter.grad = None
            with masks.given_seeds(iter(seeds)):
                found = work()
            for place, value in zip((*results, *gradients), (*found, *(p.grad for p in parameters)), strict=True):
                place.copy_(value)
            for parameter, place in zip(parameters, gradients, strict=True):
                parameter.grad = place

        return start, results


def one_by_one(steps, batch):
    """Launch a step, in place of a graph."""
    return steps.gradient(batch)


CASES = {
    "as shipped": ({}, {}),
    "mixed, averaged, clipped": ({"mixup": 0.4, "average_weights": 0.9, "clip_gradient": 1.0}, {}),
    "other dropout": ({}, {"input_dropout": 0.2, "roi_dropout": 0.2, "dropout_before_fusion": True}),
    "random crops": ({"crop_range": [0.5, 1.0]}, {}),
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
