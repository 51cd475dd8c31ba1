"""HATNet: attention among the words of a bag, then among bags; volumes are words and windows are bags.

Mehta et al. HATNet: An end-to-end holistic attention network for diagnosis of breast biopsy images. 2020.
https://doi.org/10.48550/arXiv.2007.13007
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout, check_heads, check_length, check_rules, multihead
from bolt.models.registry import register


@register("hatnet")
class HATNet(SeriesModel):
    """HATNet on ROI series: a 1D CNN with ROIs as channels; its output is split into windows, as in the BolT paper.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, n_heads : int
        256 and 4 in the published script.
    channels : int
        Channels of the convolutions.
    window : int
        Words per bag, counted after the convolutions. Words after the last complete bag are not read.
    stride : int
        Stride of the last convolution: 2 halves the sequence.
    global_words : bool
        Let words attend to the words of all bags, as in the published code, whose images have few. By default they
        attend to the words of their own bag, as the BolT paper describes it.
    dropout, word_dropout, attention_dropout : float
        On the output of each layer; on the weights of words and bags; on attention weights, as published.
    """

    whole_windows = True
    scans_interact = True

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        """Return the volumes that give one bag after the convolutions."""
        return (int(settings["window"]) - 1) * int(settings["stride"]) + 1

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 256,
        n_heads: int = 4,
        channels: int = 256,
        window: int = 16,
        stride: int = 2,
        global_words: bool = False,
        dropout: float = 0.4,
        word_dropout: float = 0.2,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_rules(window=(window >= 2, "must be at least 2"))
        self.window = window
        self.min_length = (window - 1) * stride + 1
        layers: list[nn.Module] = []
        for width, step in ((n_rois, 1), (channels, 1), (channels, stride)):
            convolution = nn.Conv1d(width, channels, 3, step, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm1d(channels), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers)
        self.bags = HolisticAttention(
            channels, hidden, n_heads, window, dropout, word_dropout, global_words, attention_dropout
        )
        self.classifier = nn.Linear(hidden, n_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv1d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")
            elif isinstance(layer, nn.MultiheadAttention):
                for weight in layer.in_proj_weight.chunk(3):  # three layers in the published code
                    nn.init.xavier_uniform_(weight)
            elif isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the weighted bag, (batch, hidden)."""
        check_length(x.shape[1], self.min_length)
        words = self.convolutions(x.transpose(1, 2)).transpose(1, 2)
        bags = words.shape[1] // self.window
        features = self.bags(words[:, : bags * self.window].unflatten(1, (bags, self.window)))
        return ModelOutput(self.classifier(features), features, {})


class HolisticAttention(nn.Module):
    """Pool words into bags and bags into one vector, for plain words and for words after self-attention.

    The published model weights bags by the matrix that weights words, because an image has as many bags as a bag has
    words. The number of bags of a scan grows with its length, so their energies are used directly.
    """

    def __init__(
        self,
        channels: int,
        hidden: int,
        n_heads: int,
        window: int,
        dropout: float,
        word_dropout: float,
        global_words: bool,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_heads(hidden, n_heads)
        self.global_words = global_words
        attention = partial(nn.MultiheadAttention, hidden, n_heads, attention_dropout, batch_first=True)
        self.project = nn.Linear(channels, hidden)
        self.word_norm = nn.LayerNorm(hidden, eps=1e-6)
        self.word_attention = attention()
        self.word_mlp = _Residual(hidden, 4 * hidden, dropout)
        self.word_weights = nn.Linear(window, window, bias=False)
        self.attended_bag_mlp = _Residual(hidden, hidden // 2, dropout)
        self.plain_bag_mlp = _Residual(hidden, hidden // 2, dropout)
        self.bag_norm, self.query_norm = nn.LayerNorm(hidden, eps=1e-6), nn.LayerNorm(hidden, eps=1e-6)
        self.bag_attention = attention()
        self.context_norm = nn.LayerNorm(hidden)
        self.context_attention = attention()
        self.bag_mlp = _Residual(hidden, 4 * hidden, dropout)
        self.scan_mlp = _Residual(hidden, hidden // 2, dropout)
        self.dropout, self.word_dropout = Dropout(dropout), Dropout(word_dropout)

    def forward(self, words: Tensor) -> Tensor:
        """Pool words (batch, bags, window, channels) to (batch, hidden)."""
        plain = self.project(words)
        sequences = plain.flatten(1, 2) if self.global_words else plain.flatten(0, 1)
        attended = sequences + self.dropout(multihead(self.word_attention, self.word_norm(sequences)))
        attended = self.word_mlp(attended).view_as(plain)
        bags = self.plain_bag_mlp(self._weighted(plain, self.word_weights(_energy(plain))))
        context = self.attended_bag_mlp(self._weighted(attended, self.word_weights(_energy(attended))))
        bags = self._context(bags, self.context_norm(context))
        return self.scan_mlp(self._weighted(bags, _energy(bags)))

    def _context(self, bags: Tensor, context: Tensor) -> Tensor:
        """Let bags of plain words attend to bags of attended words; both (batch, bags, hidden)."""
        query = bags + self.dropout(multihead(self.bag_attention, self.bag_norm(bags)))
        attended = multihead(self.context_attention, self.query_norm(query), context)
        return self.bag_mlp(bags + self.dropout(attended))

    def _weighted(self, items: Tensor, scores: Tensor) -> Tensor:
        """Sum items (..., n, hidden), weighted by the softmax of their scores (..., n)."""
        weights = self.word_dropout(scores.softmax(dim=-1))
        return (weights[..., None, :] @ items).squeeze(-2)


class _Residual(nn.Module):
    """Pre-norm MLP with a skip connection."""

    def __init__(self, hidden: int, inner: int, dropout: float) -> None:
        super().__init__()
        norm, first, last = nn.LayerNorm(hidden, eps=1e-6), nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.layers = nn.Sequential(norm, first, nn.ReLU(), Dropout(dropout), last, Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Add the MLP's output to `x`, (..., hidden)."""
        return x + self.layers(x)


def _energy(x: Tensor) -> Tensor:
    """Divide the norm of each vector by its number of elements, (..., hidden) to (...)."""
    return torch.linalg.vector_norm(x, dim=-1) / x.shape[-1]
