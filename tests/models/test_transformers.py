"""Transformer baselines: errors, positions, schedules and learning of all; four of them by hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bolt.config import load_model
from bolt.io.errors import ConfigError
from bolt.models.band import Band
from bolt.models.ift_net import IFTNet, _ChannelAttention, _TimeAttention
from bolt.models.layers import BertEncoder
from bolt.models.longformer import Longformer
from bolt.models.registry import create_model
from bolt.models.tff import TFF
from bolt.training.schedule import learning_rate
from tests.models.conformance import SMALL, attended, joint_attention

NAMES = ("swint", "longformer", "band", "tff", "ift_net", "hatnet")
WITH_POSITIONS = ("longformer", "band", "ift_net")


def tiny(name: str, **changed: object) -> dict[str, object]:
    """Return small settings of a model, with positions for 64 volumes if it learns positions."""
    return SMALL[name] | ({"crop": 64} if name in WITH_POSITIONS else {}) | changed


@pytest.mark.parametrize("name", [*NAMES, "stagin"])
def test_heads_must_divide_the_hidden_size(name):
    with pytest.raises(ConfigError, match="3 attention heads do not divide a hidden size of .*'n_heads'"):
        create_model(name, 5, 2, **tiny(name, n_heads=3))


@pytest.mark.parametrize("name", WITH_POSITIONS)
def test_long_scans_are_read_whole_and_positions_repeat(name):
    """The same as a model that has learned the repeated positions for the whole length."""
    torch.manual_seed(0)
    short, long = (create_model(name, 5, 3, **tiny(name, crop=crop)).eval() for crop in (30, 75))
    weights = short.state_dict()
    (key,) = [key for key in weights if key.endswith("positions")]
    n_before = len(weights[key]) - 30  # the CLS token's position
    first, rest = weights[key].normal_().split([n_before, 30])
    long.load_state_dict(weights | {key: torch.cat([first, rest, rest, rest[:15]])})
    x = torch.randn(2, 75, 5)
    torch.testing.assert_close(short(x).logits, long(x).logits)
    torch.testing.assert_close(short(x[:, :30]).logits, long(x[:, :30]).logits)


@pytest.mark.parametrize("name", NAMES)
def test_learns_which_rois_move_together(name):
    """Of z-scored scans, whose mean over time says nothing: ROIs 0 and 1 are correlated, or anticorrelated."""
    torch.manual_seed(1)
    truth = torch.arange(96) % 2
    x = torch.randn(96, 48, 6)
    x[..., 1] = (2 * truth - 1)[:, None] * x[..., 0] + 0.3 * x[..., 1]
    x = (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True)
    net = create_model(name, 6, 2, **tiny(name, dropout=0.0))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(40):
        out = net(x[:48])
        optimizer.zero_grad()
        (torch.nn.functional.cross_entropy(out.logits, truth[:48]) + sum(out.losses.values())).backward()
        optimizer.step()
    with torch.no_grad():
        assert (net.eval()(x[48:]).logits.argmax(1) == truth[48:]).float().mean() > 0.9


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "rates"),  # of learning, by epoch
    [
        ("swint", 30, 32, {0: 2e-7, 1.5: 2e-4, 30: 2e-6}),
        ("longformer", 40, 32, {1: 1.001e-4, 2: 2e-4, 21: 1.001e-4, 40: 2e-7}),
        ("band", 30, 32, {0: 1e-4, 12: 6.67e-5, 21: 5e-5, 30: 3.33e-5}),
        ("tff", 30, 32, {0.1: 1e-5, 30: 1e-5}),
        ("ift_net", 30, 8, {30: 1e-4}),
        ("hatnet", 100, 32, {0: 1e-7, 3: 1e-4, 54: 1e-4, 55: 5e-5, 100: 5e-5}),
        ("brainnetcnn", 20, 16, {0: 1e-4}),
        ("braingnn", 50, 100, {0: 1e-2}),
    ],
)
def test_the_papers_training(name, epochs, batch_size, rates):
    training = load_model(name).training
    assert (training.epochs, training.batch_size, training.optimizer) == (epochs, batch_size, "adam")
    for epoch, rate in rates.items():
        assert learning_rate(training, epoch) == pytest.approx(rate, rel=1e-6), epoch
    largest = max(learning_rate(training, e / 4) for e in range(4 * epochs + 1))
    assert largest == pytest.approx(max(rates.values()))


def test_settings_of_published_code():
    assert all(load_model(name).connectivity == "crop" for name in ("brainnetcnn", "braingnn"))
    assert all(load_model(name).training.epoch_choice == "best_validation" for name in ("bnt", "braingnn"))


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


def test_band_reads_the_whole_scan_and_the_order_of_volumes_counts():
    torch.manual_seed(0)
    model, x = Band(5, 2, hidden=16, inner=16, n_heads=2, crop=40).eval(), torch.randn(1, 40, 5, requires_grad=True)
    model(x).logits[0, 0].backward()
    assert (x.grad[0].abs().sum(1) > 0).all()
    assert not torch.allclose(model(x).logits, model(x.flip(1)).logits)


# ---- TFF: its windows ------------------------------------------------------------------------------------------------
def tff() -> TFF:
    torch.manual_seed(0)
    return TFF(5, 3, hidden=16, inner=16, n_heads=2).eval()


@pytest.mark.parametrize(("time", "windows"), [(600, 59), (20, 1), (29, 1), (30, 2)])
def test_tffs_windows_of_20_every_10_volumes(time, windows):
    assert tff()(torch.randn(1, time, 5)).cls.shape == (1, windows, 16)


def test_tffs_logits_are_the_mean_of_those_of_windows_apart():
    model, x = tff(), torch.randn(2, 47, 5)
    apart = torch.stack([model(x[:, start : start + 20]).logits for start in (0, 10, 20)])
    torch.testing.assert_close(model(x).logits, apart.mean(0))


def test_positions_suffice_for_longer_windows():
    model = TFF(5, 3, hidden=16, inner=16, n_heads=2, window=40, stride=40)
    assert model(torch.randn(1, 80, 5)).cls.shape == (1, 2, 16)
    assert model.min_length == 40


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


def test_both_branches_of_ift_net_reach_the_classifier_and_one_another():
    torch.manual_seed(0)
    model, x = IFTNet(5, 2, hidden=16, n_blocks=2, n_heads=2, crop=30).eval(), torch.randn(1, 30, 5)
    block = model.blocks[0]
    tokens, convolved = (torch.randn(1, 30, 16, requires_grad=True) for _ in range(2))
    after_tokens, after_convolved = block(tokens, convolved)
    assert torch.autograd.grad(after_tokens.sum(), convolved, retain_graph=True)[0].any()
    assert torch.autograd.grad(after_convolved.sum(), tokens)[0].any()
    assert model(x).cls.shape == (1, 32)


# ---- Longformer: its band and CLS token against full attention under a mask, by hand ---------------------------------
def longformer(window: int = 6) -> Longformer:
    torch.manual_seed(0)
    model = Longformer(5, 3, hidden=12, n_blocks=3, n_heads=3, window=window, crop=64).eval()
    for parameter in model.parameters():  # large enough to matter
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def longformer_by_hand(model: Longformer, x: torch.Tensor) -> torch.Tensor:
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
def test_longformer_equals_full_attention_under_a_mask(time, window):
    model, x = longformer(window), torch.randn(2, time, 5)
    with torch.no_grad():
        expected = torch.stack([longformer_by_hand(model, scan) for scan in x])
        torch.testing.assert_close(model(x).logits, expected, rtol=1e-4, atol=1e-4)


def test_a_band_of_the_papers_window_is_ten_volumes_on_either_side():
    assert Longformer(5, 2, hidden=40, n_heads=4).reach == 10
