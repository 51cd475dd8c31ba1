"""Layers and checks shared by several models."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.io.errors import ConfigError, DataError
from bolt.models.parts import masks

log = logging.getLogger(__name__)


def dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout, with the same mask on every device (`masks`).

    The share of zeros is exact to 2**-16; the remaining elements are scaled by that share.
    """
    dropped = masks.dropped_of(p)
    if not dropped:
        return x
    seed = masks.draw_seed()
    if x.is_cuda and x.dtype != torch.float64 and (in_triton := dropout_in_triton()) is not None:
        return in_triton(x, dropped, seed)
    return keep(x, masks.kept_of(x, dropped, seed), masks.scale_of(dropped))


@cache
def dropout_in_triton() -> Callable[[Tensor, int, masks.Seed], Tensor] | None:
    """Return dropout in Triton, of a tensor on a GPU, or None where Triton is missing or has no C compiler."""
    try:
        from bolt.models.parts.triton_masks import Dropout

        Dropout.apply(torch.zeros(1, device="cuda"), 0, 0)
    except Exception as error:  # of many kinds, from Triton, its compilers and the driver
        log.info("dropout is computed by torch, which is slower, without Triton: %s", error)
        return None
    return Dropout.apply


def keep(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    """Scale the elements that are kept, and set the others to zero."""
    return cast("Tensor", _Masked.apply(x, kept, scale))


class _Masked(torch.autograd.Function):
    """`x * kept * scale` and its gradient, computed in place; torch would make two more copies of each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        return kept.to(x.dtype).mul_(scale).mul_(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (kept,) = ctx.saved_tensors
        return _Masked.apply(gradient, kept, ctx.scale), None, None


class Dropout(nn.Module):
    """`nn.Dropout` computed by `dropout`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements in training, return `x` in evaluation."""
        return dropout(x, self.p) if self.training else x


class FeedForward(nn.Sequential):
    """Linear, GELU, dropout, linear; (..., hidden) to (..., hidden)."""

    def __init__(self, hidden: int, inner: int, dropout: float) -> None:
        super().__init__(nn.Linear(hidden, inner), nn.GELU(), Dropout(dropout), nn.Linear(inner, hidden))


def check_rules(**rules: tuple[bool, str]) -> None:
    """Refuse a setting that breaks its rule.

    Parameters
    ----------
    **rules : (bool, str)
        By setting: whether its rule holds, and the rule in words ("must be ...").

    Raises
    ------
    ConfigError
    """
    for key, (holds, rule) in rules.items():
        if not holds:
            raise ConfigError(f"'{key}' {rule}", where=f"hyper.{key}", hint="Correct it in the model's configuration")


def check_heads(hidden: int, n_heads: int) -> None:
    """Refuse a number of heads that does not divide the hidden size (ConfigError)."""
    if n_heads < 1 or hidden % n_heads:
        raise ConfigError(
            f"{n_heads} attention heads do not divide a hidden size of {hidden}",
            where="hyper.n_heads",
            hint="Set 'n_heads' to a divisor of 'hidden', or 'hidden' to a multiple of 'n_heads'",
        )


def check_length(volumes: int, min_length: int) -> None:
    """Refuse a scan with fewer volumes than the model can read (DataError)."""
    if volumes < min_length:
        raise DataError(
            f"the scan has {volumes} volumes, but the model needs at least {min_length}",
            hint="Exclude the scan, or shorten the window in the model's configuration if it has one",
        )


def at_positions(table: Tensor, n: int) -> Tensor:
    """Return the learned vectors of the first `n` positions; after the end of the table they repeat from its start.

    Positions are learned from training crops, so a longer scan has positions that were never trained. As Longformer
    does to extend the positions of RoBERTa (Beltagy et al. 2020, arXiv:2004.05150), copies of the trained ones are
    used, which preserves what was learned about neighbours everywhere but at the seams.

    Parameters
    ----------
    table : Tensor
        (positions, hidden).
    n : int

    Returns
    -------
    Tensor
        (n, hidden).
    """
    return table.repeat(-(-n // len(table)), 1)[:n]


def attention(
    q: Tensor, k: Tensor, v: Tensor, n_heads: int, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Compute multi-head scaled dot-product attention.

    Parameters
    ----------
    q, k, v : Tensor
        (batch, queries or keys, heads × head size).
    n_heads : int
    mask : Tensor, optional
        Broadcast to (batch, heads, queries, keys): boolean, true for visible keys; or numbers added to the scores.
    dropout : float
        On attention weights; give 0 in evaluation.

    Returns
    -------
    Tensor
        (batch, queries, heads × head size).
    """
    q, k, v = (tokens.unflatten(-1, (n_heads, -1)).transpose(1, 2) for tokens in (q, k, v))
    out = _weights(q, k, mask, dropout) @ v if dropout else functional.scaled_dot_product_attention(q, k, v, mask)
    return out.transpose(1, 2).flatten(2)


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, p: float) -> Tensor:
    """Return attention weights after dropout; torch's own function draws other masks on other devices."""
    scores = q * q.shape[-1] ** -0.5 @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return dropout(scores.softmax(-1), p)


def multihead(layer: nn.MultiheadAttention, x: Tensor, context: Tensor | None = None) -> Tensor:
    """Apply torch's layer to queries (batch, n, hidden) and keys (batch, m, hidden), with the dropout of `attention`.

    Without `context` the queries are the keys. In evaluation torch computes it.
    """
    context = x if context is None else context
    if not (layer.training and layer.dropout):
        return cast("Tensor", layer(x, context, context, need_weights=False)[0])
    weights, biases = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
    q, k, v = map(functional.linear, (x, context, context), weights, biases)
    return cast("Tensor", layer.out_proj(attention(q, k, v, layer.num_heads, dropout=layer.dropout)))


Activation = Literal["relu", "gelu"]


class EncoderLayer(nn.TransformerEncoderLayer):
    """Torch's post-norm transformer layer, (batch, tokens, hidden) to the same shape, with the dropout of `dropout`.

    Parameters
    ----------
    hidden, n_heads, inner : int
    dropout : float
    activation : {"relu", "gelu"}
    epsilon : float
        Of the layer norms.
    """

    def __init__(
        self,
        hidden: int,
        n_heads: int,
        inner: int,
        dropout: float,
        activation: Activation = "relu",
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__(hidden, n_heads, inner, dropout, activation, layer_norm_eps=epsilon, batch_first=True)
        for name in ("dropout", "dropout1", "dropout2"):
            setattr(self, name, Dropout(dropout))

    def forward(self, src: Tensor, *args: Any, **options: Any) -> Tensor:
        """Update tokens; in evaluation torch does it."""
        return self.update(src, src) if self.training else super().forward(src, *args, **options)

    def update(self, tokens: Tensor, context: Tensor) -> Tensor:
        """Update some tokens, which attend to all of `context`."""
        tokens = self.norm1(tokens + self.dropout1(multihead(self.self_attn, tokens, context)))
        inner = self.dropout(self.activation(self.linear1(tokens)))
        return cast("Tensor", self.norm2(tokens + self.dropout2(self.linear2(inner))))


def initialise(module: nn.Module, std: float = 0.02) -> None:
    """Draw all weights of linear and attention layers from N(0, std²) and zero their biases, as BERT does."""
    for layer in module.modules():
        if isinstance(layer, nn.MultiheadAttention):
            nn.init.normal_(layer.in_proj_weight, std=std)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)


class BertEncoder(nn.Module):
    """BERT's encoder and pooler: a CLS token and tokens (batch, tokens, hidden) to features (batch, hidden).

    Learned positions (`at_positions`), layer norm and dropout; torch's post-norm transformer layers; then a linear
    layer and tanh on the CLS token. (Unlike BERT, torch's layer also has dropout inside the MLP.)

    Parameters
    ----------
    hidden, inner, n_layers, n_heads : int
    positions : int
        Number of positions that are learned, that of the CLS token included; in longer sequences they repeat.
    dropout : float
        On embeddings, attention weights and the output of each sub-layer.
    activation : {"relu", "gelu"}
    std : float
        Of the initial weights.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        n_layers: int,
        n_heads: int,
        positions: int,
        dropout: float,
        activation: Activation,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        check_heads(hidden, n_heads)
        self.positions = nn.Parameter(0.02 * torch.randn(positions, hidden))
        self.norm, self.dropout = nn.LayerNorm(hidden, eps=1e-12), Dropout(dropout)
        layers = (EncoderLayer(hidden, n_heads, inner, dropout, activation, 1e-12) for _ in range(n_layers))
        self.layers = nn.ModuleList(layers)
        self.pooler = nn.Linear(hidden, hidden)
        initialise(self, std)

    def forward(self, cls: Tensor, tokens: Tensor) -> Tensor:
        """Encode tokens (batch, tokens, hidden) behind a shared CLS token (hidden,)."""
        x = torch.cat([cls.expand(len(tokens), 1, -1), tokens], dim=1)
        positions = torch.cat([self.positions[:1], at_positions(self.positions[1:], tokens.shape[1])])
        x = self.dropout(self.norm(x + positions))
        for layer in self.layers[:-1]:
            x = layer(x)
        last = cast("EncoderLayer", self.layers[-1])  # nothing reads its other tokens, which would cost as much
        return self.pooler(last.update(x[:, :1], x)[:, 0]).tanh()


class BatchNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d` that uses its running statistics for a training batch with one value per feature.

    Such a batch has no variance, and torch refuses it.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (batch, features) or (batch, features, time)."""
        if self.training and input.numel() == input.shape[1]:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)
