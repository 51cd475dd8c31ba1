"""Longformer's band and CLS token against full attention under a mask, by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bolt.models.longformer import Longformer
from tests.models.conformance import attended


def tiny(window: int = 6) -> Longformer:
    torch.manual_seed(0)
    model = Longformer(5, 3, hidden=12, n_blocks=3, n_heads=3, window=window, crop=64).eval()
    for parameter in model.parameters():  # large enough to matter
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def by_hand(model: Longformer, x: torch.Tensor) -> torch.Tensor:
    """Logits of one scan (time, rois); every row of every block is computed."""
    size = len(x) + 1
    tokens = torch.cat([model.cls[0], model.projection(x)]) + model.positions[:size]
    tokens = model.norm(tokens)
    volume = torch.arange(size)
    seen = (volume[:, None] - volume).abs() <= model.reach
    seen[:, 0] = True
    for block in model.blocks:
        layer = block.attention
        near = attended(*layer.local(tokens).chunk(3, dim=1), layer.n_heads, seen)
        key, value = layer.global_key_value(tokens).chunk(2, dim=1)
        cls = attended(layer.global_query(tokens[:1]), key, value, layer.n_heads)
        tokens = block.attention_norm(tokens + layer.output(torch.cat([cls, near[1:]])))
        tokens = block.mlp_norm(tokens + block.mlp[3](functional.gelu(block.mlp[0](tokens))))
    return model.classifier(tokens[0])


@pytest.mark.parametrize("window", [1, 6, 7, 40])
@pytest.mark.parametrize("time", [1, 2, 6, 13, 24])
def test_equals_full_attention_under_a_mask(time, window):
    model, x = tiny(window), torch.randn(2, time, 5)
    with torch.no_grad():
        expected = torch.stack([by_hand(model, scan) for scan in x])
        torch.testing.assert_close(model(x).logits, expected, rtol=1e-4, atol=1e-4)


def test_a_band_of_the_papers_window_is_ten_volumes_on_either_side():
    assert Longformer(5, 2, hidden=40, n_heads=4).reach == 10
