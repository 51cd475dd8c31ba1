"""FW-MSA: fused window multi-head self-attention, the heart of BolT.

Symbols: T volumes, W window, L fringe, F windows, N hidden size, h heads, d head size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class FusedWindowAttention(nn.Module):
    """FW-MSA with token fusion (the paper's section 2.1, equations 1 to 3).

    Keys and values are projected once a token, then shared by the windows. Fusion averages a token's
    outputs over its windows before the output projection, which is linear, so the order is free.

    Parameters
    ----------
    hidden, n_heads, head_dim : int
        N, h and d.
    window, fringe : int
        W and L, volumes.
    dropout : float
        On attention weights and on the output.
    """

    distance: Tensor

    def __init__(self, hidden: int, n_heads: int, head_dim: int, window: int, fringe: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.head_dim, self.window, self.fringe = n_heads, head_dim, window, fringe
        inner, receptive = n_heads * head_dim, window + 2 * fringe
        self.query = nn.Linear(hidden, inner)
        self.key_value = nn.Linear(hidden, 2 * inner)
        self.output = nn.Linear(inner, hidden)
        self.dropout = nn.Dropout(dropout)
        # B of equation 2: one entry a relative distance, [-(W+L-1), W+L-1], for pairs of BOLD tokens,
        # and one a position for pairs with the CLS token.
        self.bias_distance = nn.Parameter(torch.empty(2 * (window + fringe) - 1, n_heads))
        self.bias_cls_to_bold = nn.Parameter(torch.empty(1, n_heads, 1, receptive))
        self.bias_bold_to_cls = nn.Parameter(torch.empty(1, n_heads, window, 1))
        self.bias_cls_to_cls = nn.Parameter(torch.empty(1, n_heads, 1, 1))
        for bias in (self.bias_distance, self.bias_cls_to_bold, self.bias_bold_to_cls, self.bias_cls_to_cls):
            nn.init.trunc_normal_(bias, std=0.02)
        key, query = torch.arange(-fringe, window + fringe), torch.arange(window)
        self.register_buffer("distance", query[:, None] - key + window + fringe - 1, persistent=False)

    def forward(
        self, queries: Tensor, keys: Tensor, cls: Tensor, starts: Tensor, attention: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend within each window and fuse.

        Parameters
        ----------
        queries : Tensor
            BOLD tokens (batch, T, N).
        keys : Tensor
            BOLD tokens (batch, T or more, N): `queries`, and what follows the last volume, if anything.
        cls : Tensor
            (batch, F, N).
        starts : Tensor
            First volume of each window, (F,).
        attention : list, optional
            Receives the attention map (batch, h, F, 1 + W, 1 + W + 2L), CLS first.

        Returns
        -------
        tuple of Tensor
            New BOLD tokens (batch, T, N) and CLS tokens (batch, F, N).
        """
        base = starts[:, None] + torch.arange(self.window, device=starts.device)
        near = starts[:, None] + torch.arange(-self.fringe, self.window + self.fringe, device=starts.device)
        outside = (near < 0) | (near >= keys.shape[1])
        near = near.clamp(0, keys.shape[1] - 1)

        query = self._heads(self._windows(self.query(queries), base), self.query(cls))
        # one gather for keys and values, then split
        bold_kv, cls_kv = self._windows(self.key_value(keys), near), self.key_value(cls)
        key, value = (self._heads(b, c) for b, c in zip(bold_kv.chunk(2, -1), cls_kv.chunk(2, -1), strict=True))

        scores = (query * self.head_dim**-0.5) @ key.transpose(-1, -2) + self._bias()[:, :, None]
        blocked = functional.pad(outside, (1, 0), value=False)  # the CLS key is always there
        weights = scores.masked_fill(blocked[:, None], -torch.inf).softmax(-1)
        if attention is not None:
            attention.append(weights)
        mixed = (self.dropout(weights) @ value).permute(0, 2, 3, 1, 4).flatten(3)  # (batch, F, 1 + W, h·d)
        fused = self._fuse(mixed[:, :, 1:], base, queries.shape[1])
        return self.dropout(self.output(fused)), self.dropout(self.output(mixed[:, :, 0]))

    def _heads(self, bold: Tensor, cls: Tensor) -> Tensor:
        """(batch, F, n, h·d) and (batch, F, h·d) to (batch, h, F, 1 + n, d), CLS first."""
        tokens = torch.cat([cls[:, :, None], bold], dim=2)
        return tokens.unflatten(-1, (self.n_heads, self.head_dim)).permute(0, 3, 1, 2, 4)

    @staticmethod
    def _windows(tokens: Tensor, index: Tensor) -> Tensor:
        """(batch, T, c) to (batch, F, n, c) by the (F, n) index of volumes."""
        return tokens.index_select(1, index.flatten()).unflatten(1, index.shape)

    @staticmethod
    def _fuse(mixed: Tensor, base: Tensor, length: int) -> Tensor:
        """Mean over the windows that hold a token (equation 3): (batch, F, W, c) to (batch, T, c)."""
        index = base.flatten()
        total = mixed.new_zeros(mixed.shape[0], length, mixed.shape[-1]).index_add(1, index, mixed.flatten(1, 2))
        times = mixed.new_zeros(length).index_add(0, index, mixed.new_ones(len(index)))
        return total / times[:, None]

    def _bias(self) -> Tensor:
        """B, (1, h, 1 + W, 1 + W + 2L)."""
        pairs = self.bias_distance[self.distance].permute(2, 0, 1)[None]
        first = torch.cat([self.bias_cls_to_cls, self.bias_cls_to_bold], dim=-1)
        return torch.cat([first, torch.cat([self.bias_bold_to_cls, pairs], dim=-1)], dim=-2)
