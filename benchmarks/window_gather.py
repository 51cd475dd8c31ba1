"""Implement BolT naively, as the baseline of `bolt_speed.py`: gather every window, then compute.

The order of operations follows the published code: windows are gathered with their fringes before layer norm and
projections, so a token is projected once per window that contains it, and the last block computes BOLD tokens that are
not used. Outputs, gradients and relevance equal those of BolT with both edges masked.

Symbols: B scans, T volumes, W window, L fringe, F windows, N hidden size, h heads, d head size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.models.bolt import BolT


class Output(NamedTuple):
    """Logits (B, classes), CLS tokens of the windows (B, F, N) and the weighted CWR term, named as in BolT's output."""

    logits: Tensor
    cls: Tensor
    losses: dict[str, Tensor]


class WindowAttention(nn.Module):
    """Attention of gathered windows; parameters are named as in BolT."""

    def __init__(self, hidden: int, n_heads: int, head_dim: int, window: int, fringe: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.head_dim, self.window, self.fringe = n_heads, head_dim, window, fringe
        inner = n_heads * head_dim
        self.query = nn.Linear(hidden, inner)
        self.key_value = nn.Linear(hidden, 2 * inner)
        self.output = nn.Linear(inner, hidden)
        self.attention_dropout, self.output_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.bias_distance = nn.Parameter(torch.empty(2 * (window + fringe) - 1, n_heads))
        self.bias_cls_to_bold = nn.Parameter(torch.empty(1, n_heads, 1, window + 2 * fringe))
        self.bias_bold_to_cls = nn.Parameter(torch.empty(1, n_heads, window, 1))
        self.bias_cls_to_cls = nn.Parameter(torch.empty(1, n_heads, 1, 1))

    def forward(self, base: Tensor, receptive: Tensor, outside: Tensor, maps: list[Tensor] | None) -> Tensor:
        """Attend from windows (B, F, 1 + W, N), CLS first, to (B, F, 1 + W + 2L, N) except keys `outside`."""
        query = self._heads(self.query(base))
        key, value = (self._heads(part) for part in self.key_value(receptive).chunk(2, dim=-1))
        scores = query @ key.transpose(-1, -2) * self.head_dim**-0.5 + self._bias()
        weights = scores.masked_fill_(outside, -torch.inf).softmax(-1)  # (B, F, h, 1 + W, 1 + W + 2L)
        if maps is not None:
            maps.append(weights)
        mixed = self.attention_dropout(weights) @ value
        return self.output_dropout(self.output(mixed.transpose(2, 3).flatten(3)))

    def _heads(self, tokens: Tensor) -> Tensor:
        """Reshape (B, F, n, h·d) to (B, F, h, n, d)."""
        return tokens.unflatten(-1, (self.n_heads, self.head_dim)).transpose(2, 3)

    def _bias(self) -> Tensor:
        """Return the relative position bias, (1, h, 1 + W, 1 + W + 2L)."""
        device = self.bias_distance.device
        query = torch.arange(self.window, device=device)
        key = torch.arange(-self.fringe, self.window + self.fringe, device=device)
        distance = query[:, None] - key + self.window + self.fringe - 1
        pairs = self.bias_distance[distance].permute(2, 0, 1)[None]
        from_cls = torch.cat([self.bias_cls_to_cls, self.bias_cls_to_bold], dim=3)
        return torch.cat([from_cls, torch.cat([self.bias_bold_to_cls, pairs], dim=3)], dim=2)


class WindowBlock(nn.Module):
    """Pad, gather, attend, fuse, then apply the MLP; pre-norm, with skip connections."""

    def __init__(self, attention: WindowAttention, hidden: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(hidden), attention
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, hidden))

    def forward(self, bold: Tensor, cls: Tensor, starts: Tensor, maps: list[Tensor] | None) -> tuple[Tensor, Tensor]:
        """Map BOLD tokens (B, T, N) and CLS tokens (B, F, N) to those of the next block."""
        length, window, fringe = bold.shape[1], self.attention.window, self.attention.fringe
        padded = functional.pad(bold, (0, 0, fringe, fringe))
        base = starts[:, None] + torch.arange(window, device=starts.device)
        receptive = starts[:, None] + torch.arange(window + 2 * fringe, device=starts.device)  # in `padded`
        outside = (receptive < fringe) | (receptive >= length + fringe)
        outside = functional.pad(outside, (1, 0), value=False)[:, None, None]  # the CLS key is never masked

        windows = self.attention(
            self.attention_norm(torch.cat([cls[:, :, None], gather(bold, base)], dim=2)),
            self.attention_norm(torch.cat([cls[:, :, None], gather(padded, receptive)], dim=2)),
            outside,
            maps,
        )
        bold = bold + fuse(windows[:, :, 1:], base, length)
        cls = cls + windows[:, :, 0]
        return bold + self.mlp(self.mlp_norm(bold)), cls + self.mlp(self.mlp_norm(cls))


class WindowGather(nn.Module):
    """A copy of a BolT that computes window by window.

    Parameters
    ----------
    model : BolT
        Source of settings and weights, which are copied. Its fringe keys must be masked at both ends (`mask_right`).
    dropout : float
        Applied to attention weights, the output projection and inside the MLP.
    """

    def __init__(self, model: BolT, dropout: float = 0.1) -> None:
        super().__init__()
        weights = dict(model.named_parameters())
        n_classes, hidden = weights["classifier.weight"].shape
        inner = len(weights["blocks.0.mlp.0.bias"])
        self.window, self.window_starts, self.cwr_weight = model.window, model.window_starts, model.cwr_weight
        has_projection = "projection.weight" in weights
        n_rois = weights["projection.weight"].shape[1] if has_projection else hidden
        self.projection = nn.Linear(n_rois, hidden) if has_projection else nn.Identity()
        self.cls = nn.Parameter(torch.empty(1, 1, hidden))
        self.blocks = nn.ModuleList()
        for block in model.blocks:
            a: Any = block.attention
            attention = WindowAttention(hidden, a.n_heads, a.head_dim, a.window, a.fringe, dropout)
            self.blocks.append(WindowBlock(attention, hidden, inner, dropout))
        self.norm = nn.LayerNorm(hidden)
        self.classifier = nn.Linear(hidden, n_classes)
        self.to(model.cls)  # device and dtype
        self.load_state_dict(weights)

    def forward(self, x: Tensor, maps: list[Tensor] | None = None) -> Output:
        """Classify scans (B, T, R); `maps` receives each block's attention, (B, F, h, 1 + W, 1 + W + 2L)."""
        starts = self.window_starts(x.shape[1])
        bold = self.projection(x[:, : int(starts[-1]) + self.window])
        starts = starts.to(x.device)
        cls = self.cls.expand(len(x), len(starts), -1)
        for block in self.blocks:
            bold, cls = block(bold, cls, starts, maps)
        cls = self.norm(cls)
        cwr = (cls - cls.mean(1, keepdim=True)).square().mean()
        return Output(self.classifier(cls.mean(1)), cls, {"cwr": self.cwr_weight * cwr})


def gather(tokens: Tensor, index: Tensor) -> Tensor:
    """Gather (B, T, N) into (B, F, n, N) by an (F, n) index of volumes."""
    return tokens.index_select(1, index.flatten()).unflatten(1, index.shape)


def fuse(windows: Tensor, base: Tensor, length: int) -> Tensor:
    """Average each token over the windows that contain it: (B, F, W, N) to (B, T, N)."""
    index = base.flatten()
    total = windows.new_zeros(len(windows), length, windows.shape[-1]).index_add(1, index, windows.flatten(1, 2))
    count = windows.new_zeros(length).index_add(0, index, windows.new_ones(len(index)))
    return total / count[:, None]


def relevance(model: WindowGather, x: Tensor) -> Tensor:
    """Return the relevance of every volume to every window's CLS token for the predicted class (Algorithm 1).

    Uses a full backward pass and complete (F + T) x (F + T) maps, as in the published code.

    Parameters
    ----------
    model : WindowGather
        In evaluation mode. Gradients of its parameters are cleared.
    x : Tensor
        One scan, (1, time, rois).

    Returns
    -------
    Tensor
        (1, windows, time); zero for volumes in a dropped tail.
    """
    maps: list[Tensor] = []
    (logits,) = model(x, maps).logits
    for weights in maps:
        weights.retain_grad()
    logits[logits.argmax()].backward()
    starts, length = model.window_starts(x.shape[1]).tolist(), x.shape[1]
    total = torch.eye(len(starts) + length, dtype=x.dtype, device=x.device)
    for weights in maps:
        assert weights.grad is not None
        total = total + global_map(weights.detach()[0], weights.grad[0], starts, length) @ total
    model.zero_grad()
    return total[None, : len(starts), len(starts) :]


def global_map(weights: Tensor, gradients: Tensor, starts: list[int], length: int) -> Tensor:
    """Average one block's (F, h, 1 + W, 1 + W + 2L) over the windows that contain each entry: (F + T, F + T)."""
    n_windows, window = len(starts), weights.shape[2] - 1
    fringe, covered = (weights.shape[3] - 1 - window) // 2, starts[-1] + window
    total = weights.new_zeros(n_windows + length, n_windows + length)
    count = torch.zeros_like(total)
    for number, start in enumerate(starts):
        mean = (weights[number] * gradients[number]).clamp(min=0).mean(0)
        left, right = max(start - fringe, 0), min(start + window + fringe, covered)
        inside = slice(1 + left - start + fringe, 1 + right - start + fringe)
        cls = slice(number, number + 1)
        base = slice(n_windows + start, n_windows + start + window)
        near = slice(n_windows + left, n_windows + right)
        for rows, part in ((cls, mean[:1]), (base, mean[1:])):
            for columns, values in ((cls, part[:, :1]), (near, part[:, inside])):
                total[rows, columns] += values
                count[rows, columns] += 1
    return total / count.clamp(min=1)
