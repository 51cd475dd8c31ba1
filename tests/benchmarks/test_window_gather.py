"""Check that the speed benchmark's baseline equals BolT: same outputs, gradients and relevance."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks.window_gather import WindowGather, relevance
from bolt.explain.relevance import relevance as bolt_relevance
from bolt.models.bolt import BolT


def pair(**hyper) -> tuple[BolT, WindowGather]:
    """Return a small BolT with random parameters and the baseline with its weights, in evaluation mode."""
    torch.manual_seed(0)
    settings = {"hidden": 8, "n_blocks": 3, "n_heads": 2, "head_dim": 3, "window": 5, "cwr_weight": 0.7, **hyper}
    model = BolT(6, 3, **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return model, WindowGather(model).eval()


# 17 divides into windows of 5 with stride 2; 18 leaves a tail; 5 is one window, whose fringes are wider than the scan
cases = pytest.mark.parametrize(
    ("hyper", "length"),
    [({}, 17), ({}, 18), ({}, 5), ({"mlp_ratio": 2.0}, 17), ({"hidden": 6, "input_projection": False}, 18)],
)


def assert_equal(ours, theirs) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@cases
def test_outputs_and_gradients(hyper, length):
    model, baseline = pair(**hyper)
    x, y = torch.randn(2, length, 6, dtype=torch.float64), torch.tensor([0, 2])
    ours, theirs = model(x), baseline(x)
    assert_equal(ours.logits, theirs.logits)
    assert_equal(ours.cls, theirs.cls)
    assert_equal(ours.losses["cwr"], theirs.losses["cwr"])
    for out in (ours, theirs):
        (cross_entropy(out.logits, y) + sum(out.losses.values())).backward()
    gradients = {name: parameter.grad for name, parameter in baseline.named_parameters()}
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert_equal(parameter.grad, gradients[name])


@cases
def test_relevance(hyper, length):
    model, baseline = pair(**hyper)
    x = torch.randn(1, length, 6, dtype=torch.float64)
    theirs = relevance(baseline, x)
    assert theirs.max() > 1e-3  # there is something to agree on
    assert_equal(bolt_relevance(model, x), theirs)


def test_a_dropped_tail_has_no_relevance():
    model, baseline = pair(tail="drop")
    x = torch.randn(1, 18, 6, dtype=torch.float64)
    theirs = relevance(baseline, x)
    assert (theirs[..., 17] == 0).all()
    assert_equal(bolt_relevance(model, x), theirs)


def test_weights_are_a_copy_and_dropout_is_on_in_training():
    model, baseline = pair()
    before = baseline.cls.clone()
    with torch.no_grad():
        model.cls.add_(1)
    assert torch.equal(baseline.cls, before)
    x = torch.randn(2, 17, 6, dtype=torch.float64)
    assert torch.equal(baseline(x).logits, baseline(x).logits)
    baseline.train()
    assert not torch.equal(baseline(x).logits, baseline(x).logits)
