"""Layers that more than one model uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.io.errors import ConfigError, DataError


def dropout(x: Tensor, p: float) -> Tensor:
    """`torch.nn.functional.dropout`, several times faster on a CPU: four elements share a random number of 64 bits.

    The share of zeros is exact to 2**-16, and what is kept is scaled by that share.
    """
    if not p or x.device.type != "cpu":
        return functional.dropout(x, p)
    dropped = min(round(p * 2**16), 2**16 - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
    return x * kept * (2**16 / (2**16 - dropped))


class Dropout(nn.Module):
    """`nn.Dropout` by `dropout`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x


class FeedForward(nn.Sequential):
    """Linear, GELU, dropout, linear; (..., hidden) to (..., hidden)."""

    def __init__(self, hidden: int, inner: int, dropout: float) -> None:
        super().__init__(nn.Linear(hidden, inner), nn.GELU(), Dropout(dropout), nn.Linear(inner, hidden))


def check_heads(hidden: int, n_heads: int) -> None:
    """Refuse a number of heads that does not divide the hidden size (ConfigError)."""
    if n_heads < 1 or hidden % n_heads:
        raise ConfigError(
            f"{n_heads} attention heads do not divide a hidden size of {hidden}",
            where="hyper.n_heads",
            hint="Set 'n_heads' to a divisor of 'hidden', or 'hidden' to a multiple of 'n_heads'",
        )


def check_at_least(minimum: int, **settings: int) -> None:
    """Refuse settings below a minimum (ConfigError)."""
    for key, value in settings.items():
        if value < minimum:
            raise ConfigError(f"'{key}' is {value}", where=f"hyper.{key}", hint=f"Set it to at least {minimum}")


def check_length(x: Tensor, min_length: int) -> None:
    """Refuse series (batch, time, rois) of fewer volumes than a model can read (DataError)."""
    if x.shape[1] < min_length:
        raise DataError(
            f"the scan has {x.shape[1]} volumes, the model needs at least {min_length}",
            hint="Leave the scan out, or shorten 'window' in the model's configuration if it has one",
        )


def in_chunks(x: Tensor, length: int, read: Callable[[Tensor], Tensor]) -> Tensor:
    """The mean of what `read` says of consecutive stretches of a scan, the last of which ends with the scan.

    For models with a learned vector a position, made for training crops: in a scan that is longer, later positions
    would never have been learned.

    The last stretch overlaps the one before it where `length` does not divide the scan: volumes of both count twice. No
    volume counts less than once, and a stretch is never shorter than those that were learned from.

    Parameters
    ----------
    x : Tensor
        (batch, time, rois).
    length : int
        Volumes of a stretch; a scan of at most this is read in one piece.
    read : callable
        Features (batch, n) of series (batch, at most `length`, rois).

    Returns
    -------
    Tensor
        (batch, n).
    """
    starts = [*range(0, x.shape[1] - length, length), max(x.shape[1] - length, 0)]
    if len(starts) == 1:
        return read(x)
    chunks = torch.cat([x[:, start : start + length] for start in starts])
    return read(chunks).unflatten(0, (len(starts), len(x))).mean(0)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    n_heads: int,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Torch's scaled dot-product attention of several heads.

    Parameters
    ----------
    q, k, v : Tensor
        (batch, queries or keys, heads × head size).
    n_heads : int
    mask : Tensor, optional
        Broadcast to (batch, heads, queries, keys): true where a key is seen, or numbers added to the scores.
    dropout : float
        On attention weights; give 0 in evaluation.
    scale : float, optional
        Of the scores; by default 1 / √(head size).

    Returns
    -------
    Tensor
        (batch, queries, heads × head size).
    """
    q, k, v = (part.unflatten(-1, (n_heads, -1)).transpose(1, 2) for part in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    return out.transpose(1, 2).flatten(2)


def initialise(module: nn.Module, std: float = 0.02) -> None:
    """Draw every weight matrix of linear and attention layers from N(0, std²), and clear their biases, as BERT does."""
    for layer in module.modules():
        if isinstance(layer, nn.MultiheadAttention):
            nn.init.normal_(layer.in_proj_weight, std=std)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)


class BertEncoder(nn.Module):
    """BERT's encoder and pooler: tokens (batch, tokens, hidden) behind a CLS token to features (batch, hidden).

    Learned positions, layer norm and dropout; torch's transformer layers, normalised after each sum; then a linear
    layer and tanh on the CLS token. (Torch's layer drops out within the MLP too, which BERT does not.)

    Parameters
    ----------
    hidden, inner, n_layers, n_heads : int
    positions : int
        Of tokens, the CLS token included.
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
        """Of one CLS token (hidden,) for all, and of tokens (batch, tokens, hidden)."""
        x = torch.cat([cls.expand(len(tokens), 1, -1), tokens], dim=1)
        x = self.dropout(self.norm(x + self.positions[: x.shape[1]]))
        for layer in self.layers:
            x = layer(x)
        return self.pooler(x[:, 0]).tanh()


class BatchNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d`; a training batch of one value a feature, which has no variance, is normed as in evaluation."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.numel() == input.shape[1]:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)
