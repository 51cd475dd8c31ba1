"""IFT-Net-style: a transformer and a convolutional branch that feed one another.

After Zhao et al. IFT-Net: Interactive fusion transformer network for quantitative analysis of pediatric
echocardiography. Medical Image Analysis 82, 2022. https://doi.org/10.1016/j.media.2022.102648
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.io.errors import ConfigError
from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout, FeedForward, attention, check_at_least, check_heads, check_length, in_chunks
from bolt.models.registry import register


@register("ift_net")
class IFTNet(SeriesModel):
    """A one-dimensional encoder in the style of IFT-Net; the least certain of the competing methods.

    The original segments images with a pyramid of two branches and a decoder. All that the BolT paper says of its
    version is: one-dimensional convolutional projections in the attention layers, a linear layer from ROIs to the
    hidden size, a classifier of the output's features. What is kept here of the original: in each block of the
    transformer branch attention over time, then over channels, then an MLP; beside it two convolutions; and after it an
    exchange between the branches, by a pointwise convolution one way and a channel gate the other. What is chosen:
    blocks of one width in place of the pyramid, no decoder, plain sums after each step, no multi-scale gates.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, n_blocks, n_heads : int
    mlp_ratio : float
    kernel : int
        Volumes of every convolution; odd.
    reduction : int
        Of the keys and values over time: the stride of their convolution.
    dropout : float
        On embeddings and the output of each sub-layer; the published code has none.
    crop : int
        Volumes of a training crop; each has a learned position. A longer scan is read in stretches of this length,
        whose features are averaged (`layers.in_chunks`).
    """

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        return int(settings["reduction"]) + 1

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 256,
        n_blocks: int = 4,
        n_heads: int = 8,
        mlp_ratio: float = 4.0,
        kernel: int = 3,
        reduction: int = 2,
        dropout: float = 0.0,
        crop: int = 600,
    ) -> None:
        super().__init__()
        check_heads(hidden, n_heads)
        check_at_least(1, kernel=kernel, reduction=reduction, n_blocks=n_blocks, crop=crop)
        if kernel % 2 == 0:
            raise ConfigError(
                f"a kernel of {kernel} has no middle", where="hyper.kernel", hint="Set it to an odd number"
            )
        self.crop = crop
        # after the reduction two volumes are left: batch norm needs them where a training batch holds one scan
        self.min_length = reduction + 1
        self.projection, self.dropout = nn.Linear(n_rois, hidden), Dropout(dropout)
        self.positions = nn.Parameter(torch.empty(crop, hidden))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.ModuleList(
            _Block(hidden, n_heads, round(hidden * mlp_ratio), kernel, reduction, dropout) for _ in range(n_blocks)
        )
        self.norm = nn.LayerNorm(2 * hidden)
        self.classifier = nn.Linear(2 * hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the mean over time of both branches, (batch, 2 ×
        hidden)."""
        check_length(x, self.min_length)
        features = in_chunks(x, max(self.crop, self.min_length), self._features)
        return ModelOutput(self.classifier(features), features, {})

    def _features(self, x: Tensor) -> Tensor:
        convolved = self.projection(x)
        tokens = self.dropout(convolved + self.positions[: x.shape[1]])
        for block in self.blocks:
            tokens, convolved = block(tokens, convolved)
        return self.norm(torch.cat([tokens, convolved], dim=2)).mean(1)


class Convolution(nn.Module):
    """Convolution over time and batch norm, (batch, time, channels) to (batch, time / stride, channels)."""

    def __init__(self, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(channels, channels, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.convolution(x.transpose(1, 2))).transpose(1, 2)


class _TimeAttention(nn.Module):
    """Attention over time; projections are a convolution of each channel, then a linear layer over channels."""

    def __init__(self, hidden: int, n_heads: int, kernel: int, reduction: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Sequential(Convolution(hidden, kernel, groups=hidden), nn.Linear(hidden, hidden))
        shared = Convolution(hidden, kernel, reduction, groups=hidden)
        self.key_value = nn.Sequential(shared, nn.Linear(hidden, 2 * hidden))
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        key, value = self.key_value(x).chunk(2, dim=-1)
        return self.output(attention(self.query(x), key, value, self.n_heads))


class _ChannelAttention(nn.Module):
    """Attention of channels to channels of the same head. Scores are means over time, so that a longer scan does not
    sharpen them."""

    def __init__(self, hidden: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (self.n_heads, -1)).permute(0, 2, 3, 1) for part in self.qkv(x).chunk(3, dim=-1))
        out = functional.scaled_dot_product_attention(q, k, v, scale=1 / x.shape[1])
        return self.output(out.permute(0, 3, 1, 2).flatten(2))


class _Block(nn.Module):
    def __init__(self, hidden: int, n_heads: int, inner: int, kernel: int, reduction: int, dropout: float) -> None:
        super().__init__()
        self.steps = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), step, Dropout(dropout))
            for step in (
                _TimeAttention(hidden, n_heads, kernel, reduction),
                _ChannelAttention(hidden, n_heads),
                FeedForward(hidden, inner, dropout),
            )
        )
        self.convolutions = nn.Sequential(
            Convolution(hidden, kernel), nn.ReLU(), Convolution(hidden, kernel), nn.ReLU()
        )
        squeezed = max(hidden // 16, 8)
        self.gate = nn.Sequential(nn.Linear(hidden, squeezed), nn.ReLU(), nn.Linear(squeezed, hidden), nn.Sigmoid())
        self.to_tokens = nn.Linear(hidden, hidden)

    def forward(self, tokens: Tensor, convolved: Tensor) -> tuple[Tensor, Tensor]:
        """Both (batch, time, hidden)."""
        for step in self.steps:
            tokens = tokens + step(tokens)
        convolved = self.convolutions(convolved)
        gate = self.gate(tokens.mean(1, keepdim=True))
        return tokens + self.to_tokens(convolved), convolved + gate * tokens
