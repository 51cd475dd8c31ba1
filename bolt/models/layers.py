"""Layers and checks shared by several models."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.io.errors import ConfigError, DataError


def dropout(x: Tensor, p: float) -> Tensor:
    """Apply dropout; on a CPU several times faster than `torch.nn.functional.dropout`.

    Four elements share one random number of 64 bits, so the share of zeros is exact to 2**-16; the remaining elements
    are scaled by that share.
    """
    if not p or x.device.type != "cpu":
        return functional.dropout(x, p)
    dropped = min(round(p * 2**16), 2**16 - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
    return _Masked.apply(x, kept, 2**16 / (2**16 - dropped))


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
    q: Tensor,
    k: Tensor,
    v: Tensor,
    n_heads: int,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
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
    scale : float, optional
        Of the scores; by default 1 / √(head size).

    Returns
    -------
    Tensor
        (batch, queries, heads × head size).
    """
    q, k, v = (tokens.unflatten(-1, (n_heads, -1)).transpose(1, 2) for tokens in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    return out.transpose(1, 2).flatten(2)


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
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        n_layers: int,
        n_heads: int,
        positions: int,
        dropout: float,
        activation: Literal["relu", "gelu"],
    ) -> None:
        super().__init__()
        check_heads(hidden, n_heads)
        self.positions = nn.Parameter(0.02 * torch.randn(positions, hidden))
        self.norm, self.dropout = nn.LayerNorm(hidden, eps=1e-12), Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                hidden, n_heads, inner, dropout, activation, layer_norm_eps=1e-12, batch_first=True
            )
            for _ in range(n_layers)
        )
        self.pooler = nn.Linear(hidden, hidden)
        initialise(self)

    def forward(self, cls: Tensor, tokens: Tensor) -> Tensor:
        """Encode tokens (batch, tokens, hidden) behind a shared CLS token (hidden,)."""
        x = torch.cat([cls.expand(len(tokens), 1, -1), tokens], dim=1)
        positions = torch.cat([self.positions[:1], at_positions(self.positions[1:], tokens.shape[1])])
        x = self.dropout(self.norm(x + positions))
        for layer in self.layers[:-1]:
            x = layer(x)
        return self.pooler(_first_token(cast("nn.TransformerEncoderLayer", self.layers[-1]), x)).tanh()


def _first_token(layer: nn.TransformerEncoderLayer, x: Tensor) -> Tensor:
    """Apply a post-norm transformer layer to (batch, tokens, hidden) as far as its first token, (batch, hidden), goes.

    The other tokens, which nothing reads, would double the cost of a model of two layers.
    """
    token = x[:, :1]
    token = layer.norm1(token + layer.dropout1(layer.self_attn(token, x, x, need_weights=False)[0]))
    inner = layer.dropout(layer.activation(layer.linear1(token)))
    return layer.norm2(token + layer.dropout2(layer.linear2(inner)))[:, 0]


class BatchNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d` that uses its running statistics for a training batch with one value per feature.

    Such a batch has no variance, and torch refuses it.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (batch, features) or (batch, features, time)."""
        if self.training and input.numel() == input.shape[1]:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)
