"""Layers and checks shared by several models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

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


def in_chunks(x: Tensor, length: int, encode: Callable[[Tensor], Tensor]) -> Tensor:
    """Average features over consecutive chunks of a scan.

    For models that learn one vector per position from training crops: in a longer scan, vectors of later positions
    would be untrained.

    The last chunk ends with the scan. If `length` does not divide the scan, it overlaps the chunk before it, and the
    volumes in both count twice. So no volume is lost, and no chunk is shorter than a training crop.

    Parameters
    ----------
    x : Tensor
        (batch, time, rois).
    length : int
        Volumes per chunk; a scan of at most this length is read in one piece.
    encode : callable
        Maps series (batch, at most `length`, rois) to features (batch, n).

    Returns
    -------
    Tensor
        (batch, n).
    """
    starts = [*range(0, x.shape[1] - length, length), max(x.shape[1] - length, 0)]
    if len(starts) == 1:
        return encode(x)
    chunks = torch.cat([x[:, start : start + length] for start in starts])
    return encode(chunks).unflatten(0, (len(starts), len(x))).mean(0)


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

    Learned positions, layer norm and dropout; torch's post-norm transformer layers; then a linear layer and tanh on
    the CLS token. (Unlike BERT, torch's layer also has dropout inside the MLP.)

    Parameters
    ----------
    hidden, inner, n_layers, n_heads : int
    positions : int
        Largest number of tokens, the CLS token included.
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
        x = self.dropout(self.norm(x + self.positions[: x.shape[1]]))
        for layer in self.layers:
            x = layer(x)
        return self.pooler(x[:, 0]).tanh()


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
