"""Layers that more than one model uses."""

from __future__ import annotations

from torch import nn


class FeedForward(nn.Sequential):
    """Linear, GELU, dropout, linear; (..., hidden) to (..., hidden)."""

    def __init__(self, hidden: int, inner: int, dropout: float) -> None:
        super().__init__(nn.Linear(hidden, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, hidden))
