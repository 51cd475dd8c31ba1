"""IFT-Net-style: a transformer branch and a convolutional branch that exchange features.

After Zhao et al. IFT-Net: Interactive fusion transformer network for quantitative analysis of pediatric
echocardiography. Medical Image Analysis 82, 2022. https://doi.org/10.1016/j.media.2022.102648
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout, FeedForward, at_positions, attention, check_heads, check_length, check_rules
from bolt.models.registry import register


@register("ift_net")
class IFTNet(SeriesModel):
    """A one-dimensional encoder in the style of IFT-Net; the least certain of the competing methods.

    The original segments images with a pyramid of two branches and a decoder. All that the BolT paper states about its
    version is: ROIs as input channels, one-dimensional convolutional projections in the attention layers, a linear
    layer from ROIs to the hidden size, a sigmoid of the output features; and about the original, that a convolution
    shortens the sequence before the transformer, which is not done here. Kept from the original: each block of the
    transformer branch attends over time, then over channels, then applies an MLP; beside it run two convolutions; after
    it the branches exchange features, by a pointwise convolution in one direction and a channel gate in the other.
    Chosen here: blocks of one width instead of the pyramid, no decoder, plain sums after each step, no multi-scale
    gates.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, n_blocks, n_heads : int
    mlp_ratio : float
    kernel : int
        Kernel size of every convolution, in volumes; odd.
    reduction : int
        Stride of the convolution that makes keys and values over time.
    dropout : float
        On embeddings and the output of each sub-layer; the published code has none.
    crop : int
        Length of a training crop in volumes; each position has a learned embedding. Longer scans are read whole ("as a
        single sequence"), and positions repeat (`layers.at_positions`).
    """

    scans_interact = True

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        """Return the volumes of which two are left after the reduction."""
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
        check_rules(kernel=(kernel % 2 == 1, f"must be odd, such as {kernel - 1} or {kernel + 1}"))
        # two volumes remain after the reduction: batch norm needs them if a training batch holds one scan
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
        """Classify z-scored ROI series (batch, time, rois).

        `cls` is the mean over time of both branches, (batch, 2 × hidden).
        """
        check_length(x.shape[1], self.min_length)
        convolved = self.projection(x)
        tokens = self.dropout(convolved + at_positions(self.positions, x.shape[1]))
        for block in self.blocks:
            tokens, convolved = block(tokens, convolved)
        features = self.norm(torch.cat([tokens, convolved], dim=2)).mean(1)
        return ModelOutput(self.classifier(features), features, {})


class Convolution(nn.Module):
    """Convolution over time and batch norm."""

    def __init__(self, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(channels, channels, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve (batch, time, channels) to (batch, time / stride, channels)."""
        return self.norm(self.convolution(x.transpose(1, 2))).transpose(1, 2)


class _TimeAttention(nn.Module):
    """Attention over time; projections are a depthwise convolution, then a linear layer over channels."""

    def __init__(self, hidden: int, n_heads: int, kernel: int, reduction: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Sequential(Convolution(hidden, kernel, groups=hidden), nn.Linear(hidden, hidden))
        shared = Convolution(hidden, kernel, reduction, groups=hidden)
        self.key_value = nn.Sequential(shared, nn.Linear(hidden, 2 * hidden))
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over the time axis of (batch, time, hidden)."""
        key, value = self.key_value(x).chunk(2, dim=-1)
        return self.output(attention(self.query(x), key, value, self.n_heads))


class _ChannelAttention(nn.Module):
    """Attention between the channels of a head; scores are means over time, so they do not grow with scan length."""

    def __init__(self, hidden: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over the channel axis of (batch, time, hidden)."""
        q, k, v = (part.unflatten(2, (self.n_heads, -1)).permute(0, 2, 3, 1) for part in self.qkv(x).chunk(3, dim=-1))
        out = functional.scaled_dot_product_attention(q, k, v, scale=1 / x.shape[1])
        return self.output(out.permute(0, 3, 1, 2).flatten(2))


class _Block(nn.Module):
    """One block of both branches, and the exchange between them."""

    def __init__(self, hidden: int, n_heads: int, inner: int, kernel: int, reduction: int, dropout: float) -> None:
        super().__init__()
        over_time = _TimeAttention(hidden, n_heads, kernel, reduction)
        steps = over_time, _ChannelAttention(hidden, n_heads), FeedForward(hidden, inner, dropout)
        self.steps = nn.ModuleList(nn.Sequential(nn.LayerNorm(hidden), step, Dropout(dropout)) for step in steps)
        self.convolutions = nn.Sequential(
            Convolution(hidden, kernel), nn.ReLU(), Convolution(hidden, kernel), nn.ReLU()
        )
        squeezed = max(hidden // 16, 8)
        self.gate = nn.Sequential(nn.Linear(hidden, squeezed), nn.ReLU(), nn.Linear(squeezed, hidden), nn.Sigmoid())
        self.to_tokens = nn.Linear(hidden, hidden)

    def forward(self, tokens: Tensor, convolved: Tensor) -> tuple[Tensor, Tensor]:
        """Update tokens and convolved features, both (batch, time, hidden)."""
        for step in self.steps:
            tokens = tokens + step(tokens)
        convolved = self.convolutions(convolved)
        gate = self.gate(tokens.mean(1, keepdim=True))
        return tokens + self.to_tokens(convolved), convolved + gate * tokens
