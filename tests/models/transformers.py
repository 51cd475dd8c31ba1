"""Helpers of the tests of transformer baselines."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.models.conformance import SMALL

NAMES = ("swint", "longformer", "band", "tff", "ift_net", "hatnet")
WITH_POSITIONS = ("longformer", "band", "ift_net")


def tiny(name: str, **changed: object) -> dict[str, object]:
    """Return small settings of a model, with positions for 64 volumes if it learns positions."""
    return SMALL[name] | ({"crop": 64} if name in WITH_POSITIONS else {}) | changed


def attended(q: Tensor, k: Tensor, v: Tensor, n_heads: int, seen: Tensor | None = None, bias: Tensor | float = 0.0):
    """Compute attention explicitly, of (tokens, n) each; `seen` (queries, keys) and `bias` (heads, queries, keys)."""
    heads = []
    size = q.shape[1] // n_heads
    for head in range(n_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = q[:, columns] @ k[:, columns].T / size**0.5
        scores = scores + (bias[head] if isinstance(bias, Tensor) else bias)
        if seen is not None:
            scores[~seen] = -torch.inf
        heads.append(scores.softmax(1) @ v[:, columns])
    return torch.cat(heads, dim=1)


def joint_attention(layer: nn.MultiheadAttention, query: Tensor, key: Tensor) -> Tensor:
    """Compute torch's attention layer explicitly, of (tokens, n) each."""
    (wq, wk, wv), (bq, bk, bv) = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
    return layer.out_proj(attended(query @ wq.T + bq, key @ wk.T + bk, key @ wv.T + bv, layer.num_heads))
