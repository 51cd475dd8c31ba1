"""BAnD's encoder against BERT's equations."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bolt.models.band import Band
from bolt.models.layers import BertEncoder
from tests.models.conformance import joint_attention


def by_hand(encoder: BertEncoder, cls: torch.Tensor, tokens: torch.Tensor, activation) -> torch.Tensor:
    """Pooled CLS token of one sequence (tokens, hidden)."""
    x = torch.cat([cls[None], tokens])
    x = encoder.norm(x + encoder.positions[: len(x)])
    for layer in encoder.layers:
        x = layer.norm1(x + joint_attention(layer.self_attn, x, x))
        x = layer.norm2(x + layer.linear2(activation(layer.linear1(x))))
    return encoder.pooler(x[0]).tanh()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_encoder_is_berts(activation):
    torch.manual_seed(0)
    encoder = BertEncoder(8, 12, 2, 2, 20, 0.1, activation).eval()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    cls, tokens = torch.randn(8), torch.randn(3, 11, 8)
    expected = torch.stack([by_hand(encoder, cls, each, getattr(functional, activation)) for each in tokens])
    torch.testing.assert_close(encoder(cls, tokens), expected, rtol=1e-4, atol=1e-5)
    with torch.inference_mode():  # torch has another path there
        torch.testing.assert_close(encoder(cls, tokens), expected, rtol=1e-4, atol=1e-5)


def test_one_window_for_the_whole_scan_in_which_the_order_of_volumes_counts():
    torch.manual_seed(0)
    model, x = Band(5, 2, hidden=16, inner=16, n_heads=2, crop=40).eval(), torch.randn(1, 40, 5, requires_grad=True)
    model(x).logits[0, 0].backward()
    assert (x.grad[0].abs().sum(1) > 0).all()
    assert not torch.allclose(model(x).logits, model(x.flip(1)).logits)
