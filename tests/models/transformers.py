"""Helpers of the tests of transformer baselines."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.models.conformance import SMALL
from tests.models.recurrent import zscored

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


def together_or_opposed(n: int = 96, time: int = 48, n_rois: int = 6) -> tuple[Tensor, Tensor]:
    """Simulate scans of two classes in which ROIs 0 and 1 are correlated, or anticorrelated."""
    torch.manual_seed(1)
    truth = torch.arange(n) % 2
    x = torch.randn(n, time, n_rois)
    x[..., 1] = (2 * truth - 1)[:, None] * x[..., 0] + 0.3 * x[..., 1]
    return zscored(x), truth
