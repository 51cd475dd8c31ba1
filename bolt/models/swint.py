"""SwinT along time: attention within windows that shift by half a window from block to block.

Liu et al. Swin Transformer: Hierarchical vision transformer using shifted windows. ICCV 2021.
https://doi.org/10.1109/ICCV48922.2021.00986
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout, FeedForward, attention, check_heads, check_length, dropout
from bolt.models.registry import register


@register("swint")
class SwinT(SeriesModel):
    """SwinT, one-dimensional, with blocks, hidden size, heads and window as in BolT (the BolT paper's comparison).

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, n_blocks, n_heads : int
    head_dim : int, optional
        By default hidden / n_heads, as in the original; BolT's heads have 20 dimensions.
    window : int
        In volumes; every second block shifts its windows by half of it.
    mlp_ratio : float
    dropout : float
        On the tokens, attention weights and the output of each sub-layer.
    drop_path : float
        Stochastic depth of the last block; grows linearly from 0 in the first.

    Notes
    -----
    There is no CLS token and no patch merging: the classifier reads the mean token after the final norm.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 400,
        n_blocks: int = 4,
        n_heads: int = 40,
        head_dim: int | None = None,
        window: int = 20,
        mlp_ratio: float = 4.0,
        dropout: float = 0.1,
        drop_path: float = 0.1,
    ) -> None:
        super().__init__()
        if head_dim is None:
            check_heads(hidden, n_heads)
            head_dim = hidden // n_heads
        self.projection, self.dropout = nn.Linear(n_rois, hidden), Dropout(dropout)
        self.blocks = nn.ModuleList()
        for m in range(n_blocks):
            attend = WindowAttention(hidden, n_heads, head_dim, window, window // 2 if m % 2 else 0, dropout)
            depth = drop_path * m / max(n_blocks - 1, 1)
            self.blocks.append(_Block(attend, hidden, round(hidden * mlp_ratio), dropout, depth))
        self.norm = nn.LayerNorm(hidden)
        self.classifier = nn.Linear(hidden, n_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the mean token, (batch, hidden)."""
        check_length(x.shape[1], self.min_length)
        tokens = self.dropout(self.projection(x))
        for block in self.blocks:
            tokens = block(tokens)
        features = self.norm(tokens).mean(1)
        return ModelOutput(self.classifier(features), features, {})


class WindowAttention(nn.Module):
    """Attention within windows of `window` tokens, the first of which begins `shift` tokens before the scan.

    Windows that extend beyond the scan are padded, and the padding is masked. The original achieves the same by rolling
    the sequence and masking pairs that the roll brings together. A sequence of a single window is not shifted, as in
    the original.
    """

    def __init__(self, hidden: int, n_heads: int, head_dim: int, window: int, shift: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.window, self.shift, self.dropout = n_heads, window, shift, dropout
        self.qkv = nn.Linear(hidden, 3 * n_heads * head_dim)
        self.bias = nn.Parameter(torch.empty(2 * window - 1, n_heads))  # indexed by query - key + window - 1
        self.output = nn.Linear(n_heads * head_dim, hidden)
        nn.init.trunc_normal_(self.bias, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Attend within windows, (batch, time, hidden) to the same shape."""
        batch, time, _ = x.shape
        before = self.shift if time > self.window else 0
        count = -(-(before + time) // self.window)
        padded = pad(x, (0, 0, before, count * self.window - before - time))
        q, k, v = self.qkv(padded).view(batch * count, self.window, -1).chunk(3, dim=-1)
        mask = self._mask(before, time, count).repeat(batch, 1, 1, 1)
        out = attention(q, k, v, self.n_heads, mask, self.dropout if self.training else 0.0)
        return self.output(out.reshape(batch, count * self.window, -1)[:, before : before + time])

    def _mask(self, before: int, time: int, count: int) -> Tensor:
        """Return the bias of scores, -Inf for keys in the padding: (windows, heads, window, window)."""
        device = self.bias.device
        position = torch.arange(self.window, device=device)
        bias = self.bias[position[:, None] - position + self.window - 1].permute(2, 0, 1)
        volume = torch.arange(count * self.window, device=device).view(count, 1, 1, self.window) - before
        return bias.masked_fill((volume < 0) | (volume >= time), -torch.inf)


class _Block(nn.Module):
    """Pre-norm block of attention and MLP, each skipped at random in training (stochastic depth)."""

    def __init__(self, attend: WindowAttention, hidden: int, inner: int, dropout: float, drop_path: float) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(hidden), attend
        self.mlp_norm, self.mlp = nn.LayerNorm(hidden), FeedForward(hidden, inner, dropout)
        self.dropout, self.drop_path = Dropout(dropout), drop_path

    def forward(self, x: Tensor) -> Tensor:
        """Update tokens (batch, time, hidden)."""
        x = x + self._path(self.dropout(self.attention(self.attention_norm(x))))
        return x + self._path(self.dropout(self.mlp(self.mlp_norm(x))))

    def _path(self, branch: Tensor) -> Tensor:
        """Keep or drop the whole branch of each scan (stochastic depth, Huang et al. 2016, arXiv:1603.09382)."""
        if not self.training:
            return branch
        return branch * dropout(branch.new_ones(len(branch), 1, 1), self.drop_path)
