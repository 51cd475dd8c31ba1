"""STAGIN: a graph network on windowed connectivity, a transformer over the windows.

Kim, Ye, Kim. Learning dynamic graph representation of brain connectome with spatio-temporal attention. NeurIPS 2021.
https://arxiv.org/abs/2105.13495

Symbols: T volumes, W window, s stride, F windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bolt.io.errors import ConfigError, DataError
from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import BatchNorm, Dropout
from bolt.models.parts.connectivity import pearson
from bolt.models.registry import register

PRODUCTS = 2**25  # of ROIs with ROIs in memory at a time, for the orthogonality term


@register("stagin")
class STAGIN(SeriesModel):
    """STAGIN with the squeeze-excitation readout, its published values as defaults.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden : int
        Width of ROIs and windows.
    n_layers : int
        Graph layers, each with a readout, a transformer layer and a classifier of its own.
    n_heads : int
        Of the transformers; must divide `hidden`.
    window, stride : int
        W and s, volumes.
    density : float
        Share of a window's correlations, the highest, that are edges.
    attention_dropout : float
        Of the readouts and transformers.
    dropout : float
        Of the logits of each layer, before they are summed.
    orthogonality_weight : float
        Of the term that keeps the ROIs of a window different from one another.

    Notes
    -----
    Windows begin every `stride` volumes, and each that fits is used. The published code stops one volume short: where
    T - W is a multiple of s it leaves the last window out, and it cannot read a scan of exactly W volumes. None of the
    paper's crops and scans is such a case (T of 100, 150, 600, 1200: 17, 34, 184, 384 windows either way).

    The summaries of windows are summed over time, as published: longer scans have larger logits.

    Adam's momentum is not cycled against the learning rate in training, as the published code does.

    An ROI is its own neighbour, also where it is constant within a window and correlates with nothing.
    """

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        return int(settings["window"])

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 128,
        n_layers: int = 4,
        n_heads: int = 1,
        window: int = 50,
        stride: int = 3,
        density: float = 0.3,
        attention_dropout: float = 0.1,
        dropout: float = 0.5,
        orthogonality_weight: float = 1e-5,
    ) -> None:
        super().__init__()
        rules = {
            "window": (window >= 2, "must be at least 2"),
            "stride": (stride >= 1, "must be at least 1"),
            "density": (0 < density < 1, "must be above 0 and below 1"),
            "n_heads": (hidden % n_heads == 0, f"must divide 'hidden', {hidden}"),
        }
        for key, (holds, problem) in rules.items():
            if not holds:
                raise ConfigError(f"STAGIN's '{key}' {problem}", where=f"hyper.{key}", hint="Correct the value")
        self.window, self.stride, self.min_length = window, stride, window
        self.density, self.orthogonality_weight = density, orthogonality_weight
        self.time = nn.GRU(n_rois, hidden, batch_first=True)
        self.node = nn.Linear(n_rois + hidden, hidden)
        self.graphs = nn.ModuleList(GraphLayer(hidden) for _ in range(n_layers))
        self.summaries = nn.ModuleList(
            nn.Sequential(
                Readout(hidden, n_rois, attention_dropout), WindowAttention(hidden, n_heads, attention_dropout)
            )
            for _ in range(n_layers)
        )
        self.classifiers = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, n_classes), Dropout(dropout)) for _ in range(n_layers)
        )

    def window_starts(self, length: int) -> range:
        """First volume of each window of a scan of `length` volumes."""
        return range(0, length - self.window + 1, self.stride)

    def adjacency(self, x: Tensor) -> Tensor:
        """Neighbours in each window of series (batch, time, rois): 0 and 1, (batch, F, rois, rois).

        Window after window, so that of the correlations only one window's are in memory.
        """
        starts = self.window_starts(x.shape[1])
        if not starts:
            raise DataError(
                f"the scan has {x.shape[1]} volumes, fewer than the model's window of {self.window}",
                hint="Leave the scan out, or set 'window' in the model's configuration to at most its length",
            )
        edges = x.new_zeros(len(x), len(starts), x.shape[2], x.shape[2])
        below = int(round((1 - self.density) * (x.shape[2] ** 2 - 1), 6)) + 1  # values up to the percentile
        for number, start in enumerate(starts):
            correlations = pearson(x[:, start : start + self.window])
            threshold = correlations.flatten(1).kthvalue(below).values
            edges[:, number] = (correlations > threshold[:, None, None]).to(x.dtype)
        edges.diagonal(dim1=2, dim2=3).fill_(1)
        return edges

    def forward(self, x: Tensor) -> ModelOutput:
        """`cls` are the summaries of the layers, (batch, layers, hidden)."""
        with torch.no_grad():
            edges = self.adjacency(x)
        ends = [start + self.window - 1 for start in self.window_starts(x.shape[1])]
        time = self.time(x[:, : ends[-1] + 1])[0][:, ends]
        # the first layer's input is an ROI's number as a one-hot vector, beside the state of the window's last volume
        of_roi, of_time = self.node.weight.split([x.shape[2], time.shape[2]], dim=1)
        nodes = of_roi.mT + nn.functional.linear(time, of_time, self.node.bias)[:, :, None]
        logits, summaries, terms = [], [], []
        for graph, summary, classifier in zip(self.graphs, self.summaries, self.classifiers, strict=True):
            nodes = graph(nodes, edges)
            summaries.append(summary(nodes).sum(1))
            logits.append(classifier(summaries[-1]))
            if self.training:
                parts = nodes.flatten(0, 1).split(max(1, PRODUCTS // nodes.shape[2] ** 2))
                terms.append(torch.cat([checkpoint(alikeness, part, use_reentrant=False) for part in parts]).mean())
        losses = {"orthogonality": self.orthogonality_weight * torch.stack(terms).sum()} if terms else {}
        return ModelOutput(torch.stack(logits).sum(0), torch.stack(summaries, 1), losses)


class GraphLayer(nn.Module):
    """Graph isomorphism layer with a learned weight of the node itself: nodes (batch, F, rois, hidden) to the same."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(
            nn.Linear(hidden, hidden),
            BatchNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            BatchNorm(hidden),
            nn.ReLU(),
        )

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        gathered = edges @ nodes + self.own * nodes  # the ROI itself is among its neighbours
        return self.mlp(gathered.flatten(0, 2)).view_as(nodes)


class Readout(nn.Module):
    """Squeeze and excitation: the mean over ROIs says how much each ROI counts. (batch, F, rois, hidden) to
    (batch, F, hidden)."""

    def __init__(self, hidden: int, n_rois: int, dropout: float) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(hidden, hidden), BatchNorm(hidden), nn.GELU())
        self.excite = nn.Linear(hidden, n_rois)
        self.dropout = Dropout(dropout)

    def forward(self, nodes: Tensor) -> Tensor:
        share = self.excite(self.squeeze(nodes.mean(2).flatten(0, 1))).sigmoid().view(nodes.shape[:3])
        return (nodes * self.dropout(share)[..., None]).mean(2)


class WindowAttention(nn.Module):
    """Transformer layer over windows, without a path around the attention; (batch, F, hidden) to the same."""

    def __init__(self, hidden: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(hidden, n_heads, batch_first=True)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 2 * hidden), nn.ReLU(), Dropout(dropout), nn.Linear(2 * hidden, hidden)
        )
        self.dropout = Dropout(dropout)

    def forward(self, windows: Tensor) -> Tensor:
        attended = self.attention(windows, windows, windows, need_weights=False)[0]
        attended = self.attention_norm(self.dropout(attended))
        return self.mlp_norm(attended + self.dropout(self.mlp(attended)))


def alikeness(nodes: Tensor) -> Tensor:
    """How far the ROIs of windows are from orthogonal, (windows,); nodes (windows, rois, hidden).

    The Frobenius norm of the upper triangle, with its diagonal, of the ROIs' inner products, each row divided by its
    largest, minus the identity. An ROI whose features are all zero counts as one that is not orthogonal to itself.
    """
    inner = nodes @ nodes.mT
    largest = inner.amax(2, keepdim=True)
    inner = inner / torch.where(largest > 0, largest, 1)
    return (inner - torch.eye(nodes.shape[1], device=nodes.device)).triu().flatten(1).norm(dim=1)
