"""Longformer: attention within a band around each volume, and a CLS token with global attention.

Beltagy, Peters, Cohan. Longformer: The long-document transformer. 2020. https://doi.org/10.48550/arXiv.2004.05150
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout, FeedForward, at_positions, attention, check_heads, check_length, initialise
from bolt.models.registry import register


@register("longformer")
class Longformer(SeriesModel):
    """Longformer with blocks, hidden size, heads and window as in BolT (the BolT paper's comparison).

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, n_blocks, n_heads : int
    window : int
        A volume attends to volumes at most half of this before or after it: 21 volumes for BolT's 20.
    mlp_ratio : float
    dropout : float
        On embeddings, attention weights and the output of each sub-layer.
    crop : int
        Length of a training crop in volumes; each position has a learned embedding. Longer scans are read whole, and
        positions repeat, as the original extends those of RoBERTa (`layers.at_positions`).

    Notes
    -----
    The CLS token's queries, and the keys and values to which it attends, have separate projections, as published. The
    volumes of the last block do not reach the classifier, so its projections for volumes (`local`) are never trained;
    they are kept, and counted as parameters, as in the published models.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 400,
        n_blocks: int = 4,
        n_heads: int = 40,
        window: int = 20,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        crop: int = 600,
    ) -> None:
        super().__init__()
        check_heads(hidden, n_heads)
        self.reach = window // 2
        self.projection = nn.Linear(n_rois, hidden)
        self.norm, self.dropout = nn.LayerNorm(hidden), Dropout(dropout)
        self.blocks = nn.ModuleList(
            _Block(hidden, n_heads, round(hidden * mlp_ratio), dropout) for _ in range(n_blocks)
        )
        self.classifier = nn.Linear(hidden, n_classes)
        initialise(self)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, hidden))
        self.positions = nn.Parameter(0.02 * torch.randn(crop + 1, hidden))

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the CLS token, (batch, hidden)."""
        check_length(x.shape[1], self.min_length)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), self.projection(x)], dim=1)
        positions = torch.cat([self.positions[:1], at_positions(self.positions[1:], x.shape[1])])
        tokens = self.dropout(self.norm(tokens + positions))
        band = Band(x.shape[1], self.reach, x.device)
        for block in self.blocks:
            tokens = block(tokens, band, cls_only=block is self.blocks[-1])
        features = tokens[:, 0]
        return ModelOutput(self.classifier(features), features, {})


class Band:
    """The band of volumes to which each volume attends: those at most `reach` away.

    Queries are split into blocks. A block sees its own keys and `reach` more on either side, masked to the band, so
    that time and memory grow linearly with scan length.

    Attributes
    ----------
    mask : Tensor
        (blocks, 1, queries per block, 1 + keys per block) bool, true for visible keys; the first is the CLS token's.
    """

    def __init__(self, time: int, reach: int, device: torch.device) -> None:
        self.time, self.reach, self.block = time, reach, max(2 * reach, 1)
        self.count = -(-time // self.block)
        first = self.block * torch.arange(self.count, device=device)[:, None, None, None]
        query = first + torch.arange(self.block, device=device)[:, None]
        key = first + torch.arange(self.block + 2 * reach, device=device) - reach
        near = ((query - key).abs() <= reach) & (key >= 0) & (key < time)
        self.mask = pad(near, (1, 0), value=True)

    def queries(self, x: Tensor) -> Tensor:
        """Split queries (batch, time, n) into (batch × blocks, queries per block, n)."""
        return pad(x, (0, 0, 0, self.count * self.block - self.time)).reshape(-1, self.block, x.shape[2])

    def keys(self, cls: Tensor, x: Tensor) -> Tensor:
        """Gather keys of the CLS token (batch, 1, n) and of volumes (batch, time, n) into (batch × blocks, keys, n)."""
        padded = pad(x, (0, 0, self.reach, self.reach + self.count * self.block - self.time))
        near = padded.unfold(1, self.block + 2 * self.reach, self.block).transpose(2, 3)
        return torch.cat([cls[:, None].expand(-1, self.count, -1, -1), near], dim=2).flatten(0, 1)


class _Attention(nn.Module):
    """Global attention of the CLS token, banded attention of the volumes."""

    def __init__(self, hidden: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.local = nn.Linear(hidden, 3 * hidden)
        self.global_query, self.global_key_value = nn.Linear(hidden, hidden), nn.Linear(hidden, 2 * hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, tokens: Tensor, band: Band, cls_only: bool) -> Tensor:
        """Attend: (batch, 1 + time, hidden) to the same shape, or to (batch, 1, hidden) with `cls_only`."""
        dropout = self.dropout if self.training else 0.0
        key, value = self.global_key_value(tokens).chunk(2, dim=-1)
        cls = attention(self.global_query(tokens[:, :1]), key, value, self.n_heads, dropout=dropout)
        return self.output(cls if cls_only else torch.cat([cls, self._local(tokens, band, dropout)], dim=1))

    def _local(self, tokens: Tensor, band: Band, dropout: float) -> Tensor:
        """Attend within the band, to (batch, time, hidden)."""
        q, k, v = self.local(tokens).chunk(3, dim=-1)
        k, v = (band.keys(projected[:, :1], projected[:, 1:]) for projected in (k, v))
        mask = band.mask.repeat(len(tokens), 1, 1, 1)
        out = attention(band.queries(q[:, 1:]), k, v, self.n_heads, mask, dropout)
        return out.reshape(len(tokens), -1, q.shape[2])[:, : band.time]


class _Block(nn.Module):
    """Post-norm block of attention and MLP, as in RoBERTa."""

    def __init__(self, hidden: int, n_heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.attention_norm = _Attention(hidden, n_heads, dropout), nn.LayerNorm(hidden)
        self.mlp, self.mlp_norm = FeedForward(hidden, inner, 0.0), nn.LayerNorm(hidden)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, band: Band, cls_only: bool) -> Tensor:
        """Update tokens (batch, 1 + time, hidden); with `cls_only` return the CLS token alone."""
        attended = self.attention(tokens, band, cls_only)
        tokens = self.attention_norm(tokens[:, : attended.shape[1]] + self.dropout(attended))
        return self.mlp_norm(tokens + self.dropout(self.mlp(tokens)))
