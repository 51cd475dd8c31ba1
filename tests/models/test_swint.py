"""SwinT's windows against explicit full attention under a mask."""

import pytest
import torch
from torch.nn import functional

from bolt.models.swint import SwinT
from tests.models.conformance import attended


def rolled(time: int, window: int, shift: int) -> torch.Tensor:
    """Return which volumes see which in the original.

    The padded sequence is rolled and cut into windows, and volumes brought together by the roll are masked.
    """
    place = (torch.arange(-(-time // window) * window) - shift) % (-(-time // window) * window)
    together = torch.stack([place // window, place < len(place) - shift])[:, :time]
    return (together[:, :, None] == together[:, None]).all(0)


def by_hand(model: SwinT, x: torch.Tensor) -> torch.Tensor:
    """Compute the logits of one scan (time, rois)."""
    time = len(x)
    tokens = model.projection(x)
    for m, block in enumerate(model.blocks):
        layer = block.attention
        shift = layer.window // 2 if m % 2 and time > layer.window else 0
        distance = (torch.arange(time)[:, None] - torch.arange(time)).clamp(1 - layer.window, layer.window - 1)
        bias = layer.bias[distance + layer.window - 1].permute(2, 0, 1)
        q, k, v = layer.qkv(block.attention_norm(tokens)).chunk(3, dim=1)
        tokens = tokens + layer.output(attended(q, k, v, layer.n_heads, rolled(time, layer.window, shift), bias))
        inner = functional.gelu(block.mlp[0](block.mlp_norm(tokens)))
        tokens = tokens + block.mlp[3](inner)
    return model.classifier(model.norm(tokens).mean(0))


@pytest.mark.parametrize("time", [1, 4, 6, 7, 12, 17, 24])
def test_equals_full_attention_under_a_mask(time):
    torch.manual_seed(0)
    model, x = SwinT(5, 3, hidden=12, n_blocks=4, n_heads=3, window=6).eval(), torch.randn(2, time, 5)
    for block in model.blocks:  # large enough to matter
        torch.nn.init.normal_(block.attention.bias)
        torch.nn.init.normal_(block.attention.qkv.weight, std=0.5)
    with torch.no_grad():
        expected = torch.stack([by_hand(model, scan) for scan in x])
        torch.testing.assert_close(model(x).logits, expected, rtol=1e-4, atol=1e-5)


def test_heads_of_another_size():
    assert SwinT(5, 2, hidden=10, n_heads=3, head_dim=4)(torch.randn(1, 9, 5)).logits.shape == (1, 2)


def test_stochastic_depth_leaves_out_whole_branches_of_scans():
    torch.manual_seed(0)
    block = SwinT(5, 2, hidden=12, n_blocks=2, n_heads=3, window=6, dropout=0.0, drop_path=0.5).blocks[1].train()
    more = block._path(torch.ones(2000, 3, 4)).flatten(1)
    assert set(more.unique().tolist()) == {0.0, 2.0}
    assert (more == more[:, :1]).all()
    assert float(more.mean()) == pytest.approx(1, abs=0.1)
