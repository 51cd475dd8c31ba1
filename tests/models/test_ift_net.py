"""The parts of the IFT-Net-style model against their equations."""

from __future__ import annotations

import torch

from bolt.models.ift_net import IFTNet, _ChannelAttention, _TimeAttention
from tests.models.conformance import attended


def test_channels_attend_to_channels_of_their_head():
    torch.manual_seed(0)
    layer, x = _ChannelAttention(6, 2), 3 * torch.randn(1, 9, 6)
    q, k, v = layer.qkv(x[0]).chunk(3, dim=1)
    heads = []
    for head in (slice(0, 3), slice(3, 6)):
        weights = (q[:, head].T @ k[:, head] / 9).softmax(1)
        heads.append(v[:, head] @ weights.T)
    torch.testing.assert_close(layer(x)[0], layer.output(torch.cat(heads, dim=1)))


def test_keys_and_values_over_time_are_half_as_many():
    torch.manual_seed(0)
    layer, x = _TimeAttention(6, 2, kernel=3, reduction=2).eval(), torch.randn(1, 9, 6)
    assert layer.key_value(x).shape == (1, 5, 12)
    expected = attended(layer.query(x)[0], *layer.key_value(x)[0].chunk(2, dim=1), 2)
    torch.testing.assert_close(layer(x)[0], layer.output(expected))


def test_both_branches_reach_the_classifier_and_one_another():
    torch.manual_seed(0)
    model, x = IFTNet(5, 2, hidden=16, n_blocks=2, n_heads=2, crop=30).eval(), torch.randn(1, 30, 5)
    block = model.blocks[0]
    tokens, convolved = (torch.randn(1, 30, 16, requires_grad=True) for _ in range(2))
    after_tokens, after_convolved = block(tokens, convolved)
    assert torch.autograd.grad(after_tokens.sum(), convolved, retain_graph=True)[0].any()
    assert torch.autograd.grad(after_convolved.sum(), tokens)[0].any()
    assert model(x).cls.shape == (1, 32)
