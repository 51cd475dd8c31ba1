"""Transformer baselines: errors and positions of all; four of them by hand."""

import pytest
import torch
from torch.nn import functional

from bolt.io.errors import ConfigError
from bolt.models.ift_net import _ChannelAttention, _TimeAttention
from bolt.models.layers import BertEncoder
from bolt.models.longformer import Longformer
from bolt.models.registry import create_model
from bolt.models.tff import TFF
from tests.models.conformance import SMALL, attended, joint_attention

WITH_POSITIONS = ("longformer", "band", "ift_net")


@pytest.mark.parametrize("name", ["swint", "longformer", "band", "tff", "ift_net", "hatnet", "stagin"])
def test_heads_must_divide_the_hidden_size(name):
    with pytest.raises(ConfigError, match="3 attention heads do not divide a hidden size of .*'n_heads'"):
        create_model(name, 5, 2, **SMALL[name] | {"n_heads": 3})


@pytest.mark.parametrize("name", WITH_POSITIONS)
def test_long_scans_are_read_whole_and_positions_repeat(name):
    """The same as a model that has learned the repeated positions for the whole length."""
    torch.manual_seed(0)
    short, long = (create_model(name, 5, 3, **SMALL[name], crop=crop).eval() for crop in (30, 75))
    weights = short.state_dict()
    (key,) = [key for key in weights if key.endswith("positions")]
    n_before = len(weights[key]) - 30  # the CLS token's position
    first, rest = weights[key].normal_().split([n_before, 30])
    long.load_state_dict(weights | {key: torch.cat([first, rest, rest, rest[:15]])})
    x = torch.randn(2, 75, 5)
    torch.testing.assert_close(short(x).logits, long(x).logits)
    torch.testing.assert_close(short(x[:, :30]).logits, long(x[:, :30]).logits)


# ---- BAnD: its encoder against BERT's equations ----------------------------------------------------------------------
def encoded_by_hand(encoder: BertEncoder, cls: torch.Tensor, tokens: torch.Tensor, activation) -> torch.Tensor:
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
    expected = torch.stack([encoded_by_hand(encoder, cls, each, getattr(functional, activation)) for each in tokens])
    torch.testing.assert_close(encoder(cls, tokens), expected, rtol=1e-4, atol=1e-5)
    with torch.inference_mode():  # torch has another path there
        torch.testing.assert_close(encoder(cls, tokens), expected, rtol=1e-4, atol=1e-5)


# ---- TFF: its windows ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [{}, {"window": 40, "stride": 9}])  # more positions than published
def test_tffs_logits_are_the_mean_of_those_of_windows_apart(settings):
    window, stride = settings.values() if settings else (20, 10)
    model, x = TFF(5, 3, hidden=16, inner=16, n_heads=2, **settings).eval(), torch.randn(2, 67, 5)
    apart = torch.stack([model(x[:, start : start + window]).logits for start in range(0, 68 - window, stride)])
    torch.testing.assert_close(model(x).logits, apart.mean(0))
    assert len(model.encoder.positions) > window


@pytest.mark.slow
def test_signals_keep_their_size_in_a_narrower_model() -> None:
    """With BERT's standard deviation of 0.02 whatever the width, scans differed 30 times less at a width of 400."""
    x = torch.randn(24, 40, 200, generator=torch.Generator().manual_seed(0))
    spread = {}
    for hidden, inner in ((2640, 3072), (400, 1600), (160, 640)):
        torch.manual_seed(0)
        model = TFF(200, 2, hidden=hidden, inner=inner, n_heads=16).eval()
        weights = model.encoder.pooler.weight
        assert weights.std().item() == pytest.approx(0.02 * (2640 / hidden) ** 0.5, rel=0.02)
        with torch.no_grad():
            spread[hidden] = model(x).cls.mean(1).std(0).mean().item()
    assert spread[400] == pytest.approx(spread[2640], rel=0.3) and spread[160] == pytest.approx(spread[2640], rel=0.5)


# ---- IFT-Net: its parts against their equations ----------------------------------------------------------------------
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


# ---- Longformer: its band and CLS token against full attention under a mask, by hand ---------------------------------
def longformer_by_hand(model: Longformer, x: torch.Tensor, window: int) -> torch.Tensor:
    """Logits of one scan (time, rois); every row of every block is computed."""
    size = len(x) + 1
    tokens = model.norm(torch.cat([model.cls[0], model.projection(x)]) + model.positions[:size])
    volume = torch.arange(size)
    seen = 2 * (volume[:, None] - volume).abs() <= window
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
def test_longformer_equals_full_attention_under_a_mask(time, window):
    torch.manual_seed(0)
    model, x = (
        Longformer(5, 3, hidden=12, n_blocks=3, n_heads=3, window=window, crop=64).eval(),
        torch.randn(2, time, 5),
    )
    for parameter in model.parameters():  # large enough to matter
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        expected = torch.stack([longformer_by_hand(model, scan, window) for scan in x])
        torch.testing.assert_close(model(x).logits, expected, rtol=1e-4, atol=1e-4)
