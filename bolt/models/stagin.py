"""STAGIN: a graph network on windowed connectivity, then a transformer over the windows.

Kim, Ye, Kim. Learning dynamic graph representation of brain connectome with spatio-temporal attention. NeurIPS 2021.
https://arxiv.org/abs/2105.13495

Symbols: T volumes, W window, s stride, F windows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import BatchNorm, Dropout, check_heads, check_length, check_rules
from bolt.models.parts.connectivity import pearson
from bolt.models.registry import register

PRODUCTS = 2**25  # correlations or inner products of ROIs in memory at a time


@register("stagin")
class STAGIN(SeriesModel):
    """STAGIN with the squeeze-excitation readout; defaults are the published values.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden : int
        Width of the vectors of ROIs and windows.
    n_layers : int
        Graph layers, each with its own readout, transformer layer and classifier.
    n_heads : int
        Heads of the transformers; must divide `hidden`.
    window, stride : int
        W and s, in volumes.
    density : float
        Share of a window's correlations, the highest, that become edges.
    attention_dropout : float
        In the readouts and transformers.
    dropout : float
        On the logits of each layer, before they are summed.
    orthogonality_weight : float
        Weight of the loss term that keeps the ROIs of a window distinct.

    Notes
    -----
    Windows begin every `stride` volumes, and every complete window is used. The published code stops one volume short:
    if T - W is a multiple of s it drops the last window, and it cannot read a scan of exactly W volumes. The paper's
    crops and scans are not affected (T of 100, 150, 600, 1200: 17, 34, 184, 384 windows in both).

    The summaries of windows are summed over time, as published, so longer scans have larger logits.

    An ROI is always its own neighbour, even if it is constant within a window and has no correlations.
    """

    whole_windows = True
    scans_interact = True

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
        check_heads(hidden, n_heads)
        check_rules(
            window=(window >= 2, "must be at least 2"), density=(0 < density < 1, "must be above 0 and below 1")
        )
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

    def adjacency(self, x: Tensor) -> Tensor:
        """Compute adjacency, 0 or 1, in each window of series (batch, time, rois): (batch, F, rois, rois).

        The correlations are computed for several windows at a time, so that memory holds few besides the result.
        """
        check_length(x.shape[1], self.min_length)
        n_rois = x.shape[2]
        windows = x.unfold(1, self.window, self.stride).mT  # (batch, F, volumes, rois), a view
        edges = x.new_empty(*windows.shape[:2], n_rois, n_rois)
        above = n_rois**2 - int(round((1 - self.density) * (n_rois**2 - 1), 6))  # values from the percentile on
        at_once = max(1, PRODUCTS // (len(x) * n_rois**2))
        for some, result in zip(windows.split(at_once, 1), edges.split(at_once, 1), strict=True):
            correlations = pearson(some.flatten(0, 1))
            threshold = correlations.flatten(1).topk(above, sorted=False).values.amin(1)
            chosen = correlations > threshold[:, None, None]
            result.copy_((chosen & chosen.mT).view_as(result))  # a product may round a pair's two values differently
        edges.diagonal(dim1=2, dim2=3).fill_(1)
        return edges

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` are summaries by layer, (batch, layers, hidden)."""
        with torch.no_grad():
            edges = self.adjacency(x)
        ends = range(self.window - 1, x.shape[1], self.stride)  # the last volume of each window
        time = self.time(x[:, : ends[-1] + 1])[0][:, ends]
        # the first layer reads the one-hot code of an ROI and the GRU state at the window's last volume
        roi_weight, time_weight = self.node.weight.split([x.shape[2], time.shape[2]], dim=1)
        nodes = roi_weight.mT + nn.functional.linear(time, time_weight, self.node.bias)[:, :, None]
        logits, summaries, terms = [], [], []
        for graph, summary, classifier in zip(self.graphs, self.summaries, self.classifiers, strict=True):
            nodes = graph(nodes, edges)
            summaries.append(summary(nodes).sum(1))
            logits.append(classifier(summaries[-1]))
            if self.training:
                terms.append(self._similarity(nodes.flatten(0, 1)).mean())
        losses = {"orthogonality": self.orthogonality_weight * torch.stack(terms).sum()} if terms else {}
        return ModelOutput(torch.stack(logits).sum(0), torch.stack(summaries, 1), losses)

    def _similarity(self, nodes: Tensor) -> Tensor:
        """Compute `similarity`; inner products are kept for the backward pass if those of all layers are few."""
        if len(self.graphs) * len(nodes) * nodes.shape[1] ** 2 <= PRODUCTS:
            return similarity(nodes)
        parts = nodes.split(max(1, PRODUCTS // nodes.shape[1] ** 2))
        return torch.cat([checkpoint(similarity, part, use_reentrant=False) for part in parts])


class GraphLayer(nn.Module):
    """Graph isomorphism layer with a learned weight for the node itself."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.zeros(1))  # ε of the graph isomorphism network
        layers = [layer for _ in range(2) for layer in (nn.Linear(hidden, hidden), BatchNorm(hidden), nn.ReLU())]
        self.mlp = nn.Sequential(*layers)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Update nodes (batch, F, rois, hidden): MLP(A x + ε x), where A has ones on its diagonal."""
        gathered = edges @ nodes + self.own * nodes
        return self.mlp(gathered.flatten(0, 2)).view_as(nodes)


class Readout(nn.Module):
    """Squeeze and excitation: the mean over ROIs determines the weight of each ROI."""

    def __init__(self, hidden: int, n_rois: int, dropout: float) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Linear(hidden, hidden), BatchNorm(hidden), nn.GELU())
        self.excite = nn.Linear(hidden, n_rois)
        self.dropout = Dropout(dropout)

    def forward(self, nodes: Tensor) -> Tensor:
        """Average nodes (batch, F, rois, hidden), weighted, to (batch, F, hidden)."""
        weight = self.excite(self.squeeze(nodes.mean(2).flatten(0, 1))).sigmoid().view(nodes.shape[:3])
        return (nodes * self.dropout(weight)[..., None]).mean(2)


class WindowAttention(nn.Module):
    """Transformer layer over windows, without a skip connection around the attention."""

    def __init__(self, hidden: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(hidden, n_heads, batch_first=True)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 2 * hidden), nn.ReLU(), Dropout(dropout), nn.Linear(2 * hidden, hidden)
        )
        self.dropout = Dropout(dropout)

    def forward(self, windows: Tensor) -> Tensor:
        """Attend between windows, (batch, F, hidden) to the same shape."""
        attended = self.attention(windows, windows, windows, need_weights=False)[0]
        attended = self.attention_norm(self.dropout(attended))
        return self.mlp_norm(attended + self.dropout(self.mlp(attended)))


def similarity(nodes: Tensor) -> Tensor:
    """Measure how far the ROIs of windows, (windows, rois, hidden), are from orthogonal, (windows,).

    The inner products of the ROIs, each row divided by its largest, minus the identity; then the Frobenius norm of the
    upper triangle and diagonal. An ROI whose features are all zero adds 1 on the diagonal.
    """
    inner = nodes @ nodes.mT
    largest = inner.amax(2, keepdim=True)
    inner = inner / torch.where(largest > 0, largest, 1)
    return (inner - torch.eye(nodes.shape[1], device=nodes.device)).triu().flatten(1).norm(dim=1)
