"""Dropout: its share, its scale, and when it does nothing; transformer layers as in torch."""

import pytest
import torch

from bolt.models.layers import BatchNorm, Dropout, EncoderLayer, attention, dropout, multihead


@pytest.mark.parametrize(("p", "dtype"), [(0.1, torch.float32), (0.5, torch.float64), (0.9, torch.bfloat16)])
def test_share_and_scale(p, dtype):
    torch.manual_seed(0)
    x = torch.full((37, 1013), 2.0, dtype=dtype)
    out = dropout(x, p)
    assert out.dtype == dtype
    assert (out == 0).double().mean() == pytest.approx(p, abs=4 * (p * (1 - p) / x.numel()) ** 0.5)
    torch.testing.assert_close(out[out != 0].unique(), torch.tensor([2 / (1 - p)], dtype=dtype), rtol=1e-2, atol=0)


def test_the_gradient_goes_where_the_values_went():
    x = torch.ones(50, 8, requires_grad=True)
    out = dropout(x, 0.3)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_nothing_is_dropped_in_evaluation_or_at_zero():
    x = torch.randn(5, 7)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


NEARLY_NONE = 1e-9
"""Dropout that drops nothing, though it is not 0: what is computed with dropout can be compared with what is not."""


@pytest.mark.parametrize("mask", [None, "bool", "numbers"])
def test_attention_with_dropout_is_that_without_but_for_its_mask(mask):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    if mask:
        mask = torch.rand(2, 1, 5, 7) < 0.7 if mask == "bool" else torch.randn(1, 2, 5, 7)
    if mask is not None and mask.dtype == torch.bool:
        mask[..., 0] = True  # every query sees a key
    ours, theirs = (attention(q, k, v, 2, mask, p) for p in (NEARLY_NONE, 0.0))
    torch.testing.assert_close(ours, theirs)


def test_multihead_with_dropout_is_torchs_but_for_its_mask():
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, dropout=NEARLY_NONE, batch_first=True)
    torch.nn.init.normal_(layer.in_proj_bias)
    x, context = torch.randn(3, 5, 8), torch.randn(3, 7, 8)
    torch.testing.assert_close(multihead(layer.train(), x, context), layer.eval()(x, context, context)[0])
    layer.dropout = 0.5
    torch.testing.assert_close(multihead(layer.eval(), x, context), layer(x, context, context)[0])
    assert not torch.equal(multihead(layer.train(), x, context), multihead(layer, x, context))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer_is_torchs_but_for_its_masks(activation):
    torch.manual_seed(0)
    layer = EncoderLayer(8, 2, 12, NEARLY_NONE, activation, 1e-6).train()
    same = torch.nn.TransformerEncoderLayer(8, 2, 12, 0.0, activation, layer_norm_eps=1e-6, batch_first=True).train()
    same.load_state_dict(layer.state_dict())
    x = torch.randn(3, 5, 8)
    torch.testing.assert_close(layer(x), same(x))
    torch.testing.assert_close(layer.update(x[:, :2], x), same(x)[:, :2])
    assert sum(isinstance(part, torch.nn.Dropout) for part in layer.modules()) == 0


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1)])
def test_batch_norm_of_one_value_a_feature_is_that_of_evaluation(shape):
    norm, x = BatchNorm(4), torch.randn(shape)
    norm(torch.randn(8, *shape[1:]))
    mean = norm.running_mean.clone()
    torch.testing.assert_close(norm(x), norm.eval()(x))
    assert torch.equal(norm.running_mean, mean)


def test_batch_norm_is_that_of_torch_otherwise():
    x = torch.randn(5, 4, 3)
    torch.testing.assert_close(BatchNorm(4)(x), torch.nn.BatchNorm1d(4)(x))
