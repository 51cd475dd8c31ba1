"""BrainGNN: ROI-aware graph convolutions, with pooling to the most important ROIs.

Li et al. BrainGNN: Interpretable brain graph neural network for fMRI analysis. Medical Image Analysis 74, 2021.
https://doi.org/10.1016/j.media.2021.102233

Graphs are dense: a weight of 0 means no edge. Symbols: N nodes, K nodes kept by a pooling layer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.models.base import ConnectivityModel, ModelOutput
from bolt.models.layers import BatchNorm, Dropout, check_rules
from bolt.models.parts.connectivity import ledoit_wolf, partial_correlation
from bolt.models.registry import register

EPS = 1e-10  # keeps the logarithms of the pooling loss finite
LARGEST = 1 - 1e-6  # correlations are clamped to ± this before Fisher's transform


class Pooled(NamedTuple):
    """A graph after pooling.

    Attributes
    ----------
    nodes : Tensor
        (batch, K, features), in the order of the ROIs.
    graph : Tensor
        (batch, K, K).
    kept : Tensor
        (batch, K) positions of the kept nodes among all N.
    scores : Tensor
        (batch, N) scores of all nodes before pooling, within (0, 1).
    length : Tensor
        () norm of the direction onto which features are projected for their scores.
    """

    nodes: Tensor
    graph: Tensor
    kept: Tensor
    scores: Tensor
    length: Tensor


class RoiConvolution(nn.Module):
    """Graph convolution with ROI-specific weights, each a mixture of the weights of a few communities.

    A node becomes the mean of itself and its neighbours, weighted by the softmax of the edges; its edge to itself has
    weight 1.
    """

    def __init__(self, n_rois: int, n_in: int, n_out: int, communities: int) -> None:
        super().__init__()
        self.n_in, self.n_out = n_in, n_out
        self.memberships = nn.Linear(n_rois, communities, bias=False)
        self.weights = nn.Linear(communities, n_in * n_out)
        self.bias = nn.Parameter(torch.empty(n_out).uniform_(-1, 1) / math.sqrt(n_in))

    def forward(self, nodes: Tensor, graph: Tensor, rois: Tensor | None = None) -> Tensor:
        """Convolve nodes (batch, N, in) along edges (batch, N, N), to (batch, N, out).

        `rois`, (batch, N), are the ROIs that the nodes stand for; by default all ROIs in order.
        """
        # an ROI's one-hot code selects its column
        weights = self.weights(self.memberships.weight.T.relu()).view(-1, self.n_in, self.n_out)
        if rois is None:
            messages = torch.einsum("bni,nio->bno", nodes, weights)
        else:
            messages = (nodes[:, :, None] @ weights[rois])[:, :, 0]
        edges = graph.masked_fill(graph == 0, -math.inf)
        edges = edges.diagonal_scatter(torch.ones_like(edges[:, 0]), dim1=1, dim2=2)
        return edges.softmax(-1) @ messages + self.bias


class TopPooling(nn.Module):
    """Keep a share of the nodes, those with the largest scores, and multiply each by its score."""

    def __init__(self, n_features: int, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio
        self.direction = nn.Parameter(torch.empty(n_features).uniform_(-1, 1) / math.sqrt(n_features))

    def forward(self, nodes: Tensor, graph: Tensor) -> Pooled:
        """Pool nodes (batch, N, features) and edges (batch, N, N)."""
        length = self.direction.norm()
        scores = (nodes @ (self.direction / length)).sigmoid()
        # of nodes that score alike, as in graphs without an edge, the first are kept: `topk` keeps others on a GPU
        best_first = scores.argsort(descending=True, stable=True)
        kept = best_first[:, : math.ceil(self.ratio * nodes.shape[1])].sort().values
        scan = torch.arange(len(kept), device=kept.device)[:, None]
        nodes = (nodes * scores[:, :, None])[scan, kept]
        graph = graph[scan[:, :, None], kept[:, :, None], kept[:, None]]
        return Pooled(nodes, graph, kept, scores, length)


@register("braingnn")
class BrainGNN(ConnectivityModel):
    """BrainGNN: node features are an ROI's correlations, edges are partial correlations.

    Parameters
    ----------
    n_rois, n_classes : int
    communities : int
        Number of weight sets that ROIs mix.
    hidden, inner : int
        Width of the convolutions and the first linear layer; width of the second linear layer.
    ratio : float
        Share of the nodes that each pooling layer keeps.
    dropout : float
    edge_share : float
        Share of ROI pairs that become edges: those with the largest partial correlations, if positive. An ROI without
        an edge is joined to the ROI with which its partial correlation is largest.
    complete : bool
        Make every pair an edge, weighted by its absolute partial correlation, as in the published code.
    unit_weight, pooling_weight, consistency_weight : float
        Weights of the loss terms: unit length of the pooling directions; scores far apart within a scan (TPK); scores
        alike within a class (GLC).
    official_quirk : bool
        Compute TPK and GLC as the published code does: from the scores of the kept nodes only, in descending order, and
        passed through the sigmoid once more (for GLC twice more).

    Notes
    -----
    Covariances are shrunk (Ledoit and Wolf), because partial correlations of more ROIs than volumes do not exist
    otherwise. The losses use the scores of all ROIs in atlas order, as the article defines them.

    A version by the authors of BolT (GraphCorr: Sivgin et al. 2024, doi:10.1109/JBHI.2024.3415000) has the same share
    of edges, but reads correlations without Fisher's z and keeps the last epoch.
    """

    matrices_in_words = (
        "graphs of ROIs, with Fisher z-transformed correlations as node features and partial correlations as edges "
        "(both from Ledoit–Wolf shrunk covariances)"
    )
    scans_interact = True

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        communities: int = 8,
        hidden: int = 32,
        inner: int = 512,
        ratio: float = 0.5,
        dropout: float = 0.5,
        edge_share: float = 0.1,
        complete: bool = False,
        unit_weight: float = 1.0,
        pooling_weight: float = 0.1,
        consistency_weight: float = 0.1,
        official_quirk: bool = False,
    ) -> None:
        super().__init__()
        rule = "must be above 0 and at most 1, not {}"
        check_rules(
            ratio=(0 < ratio <= 1, rule.format(ratio)), edge_share=(0 < edge_share <= 1, rule.format(edge_share))
        )
        self.n_classes, self.edge_share, self.complete, self.quirk = n_classes, edge_share, complete, official_quirk
        self.unit_weight, self.pooling_weight = unit_weight, pooling_weight
        self.consistency_weight, self.ratio = consistency_weight, ratio
        self.convolutions = nn.ModuleList(RoiConvolution(n_rois, n, hidden, communities) for n in (n_rois, hidden))
        self.poolings = nn.ModuleList(TopPooling(hidden, ratio) for _ in range(2))
        layers: list[nn.Module] = []
        for n_in, n_out in ((4 * hidden, hidden), (hidden, inner)):
            layers += [nn.Linear(n_in, n_out), nn.ReLU(), BatchNorm(n_out), Dropout(dropout)]
        self.head = nn.Sequential(*layers)
        self.classifier = nn.Linear(inner, n_classes)

    @property
    def matrix_settings(self) -> tuple[float, bool]:
        """Return the share of edges, and whether all are used."""
        return self.edge_share, self.complete

    def matrices(self, x: Tensor) -> Tensor:
        """Compute Fisher's z of the correlations (diagonal 0) and the edge weights, (batch, 2, rois, rois)."""
        covariance = ledoit_wolf(x)
        sd = covariance.diagonal(dim1=1, dim2=2).sqrt()
        sd = torch.where(sd > 0, sd, 1)
        correlation = (covariance / (sd[:, :, None] * sd[:, None])).float()
        partial = partial_correlation(covariance)
        return torch.stack([_fisher_z(correlation), self._edges(partial)], 1)

    def _edges(self, partial: Tensor) -> Tensor:
        """Turn partial correlations into edge weights, 0 for no edge; both (batch, rois, rois)."""
        weights = _fisher_z(partial).abs()
        n_rois = partial.shape[1]
        if self.complete or n_rois == 1:
            return weights
        pairs = partial[:, *torch.triu_indices(n_rois, n_rois, 1, device=partial.device)]
        least = pairs.topk(math.ceil(self.edge_share * pairs.shape[1])).values[:, -1]
        chosen = (partial >= least[:, None, None]) & (partial > 0)
        chosen.diagonal(dim1=1, dim2=2).fill_(False)
        others = partial - 2 * torch.eye(n_rois, device=partial.device)  # an ROI is not its own neighbour
        nearest = functional.one_hot(others.argmax(-1), n_rois).bool() & ~chosen.any(-1, keepdim=True)
        return weights * (chosen | nearest | nearest.mT)

    def classify(self, matrices: Tensor) -> ModelOutput:
        """Classify node features and edges (batch, 2, rois, rois)."""
        nodes, graph = matrices.unbind(1)
        rois, readouts, scores, losses = None, [], [], {}
        for layer, (convolve, pool) in enumerate(zip(self.convolutions, self.poolings, strict=True), start=1):
            if layer > 1:
                graph = _two_steps(graph)
            pooled: Pooled = pool(convolve(nodes, graph, rois), graph)
            nodes, graph, rois = pooled.nodes, pooled.graph, pooled.kept
            readouts += [nodes.amax(1), nodes.mean(1)]
            scores.append(pooled.scores.gather(1, pooled.kept) if self.quirk else pooled.scores)
            losses[f"unit_{layer}"] = self.unit_weight * (pooled.length - 1).square()
            losses[f"tpk_{layer}"] = self.pooling_weight * self._pooling_loss(scores[-1])
        features = self.head(torch.cat(readouts, 1))
        return ModelOutput(self.classifier(features), features, losses, scores=scores[0])

    def _pooling_loss(self, scores: Tensor) -> Tensor:
        """Compute TPK of scores (batch, nodes), which drives large scores to 1 and small ones to 0."""
        scores, n, ratio = scores.float().sort(descending=True).values, scores.shape[1], self.ratio
        n_large, n_small = math.ceil(ratio * n), n - math.ceil(ratio * n)
        if self.quirk:
            scores, n_large = scores.sigmoid(), int(min(ratio, 1 - ratio) * n)
            n_small = n_large
        large, small = scores[:, :n_large], scores[:, n - n_small :]
        terms = [-(part + EPS).log().mean() for part in (large, 1 - small) if part.numel()]
        return torch.stack(terms).sum() if terms else scores.new_zeros(())

    def label_losses(self, output: ModelOutput, truth: Tensor) -> dict[str, Tensor]:
        """Compute GLC: trace(SᵀLS) / n² summed over classes; S are the scores of a class's n scans, L = n I - 1."""
        assert output.scores is not None
        scores = output.scores.float()
        if self.quirk:
            scores = scores.sort(descending=True).values.sigmoid().sigmoid()
        members = functional.one_hot(truth, self.n_classes).to(scores)
        sizes = members.sum(0)
        means = members.T @ scores / sizes.clamp(min=1)[:, None]
        spread = (scores - means[truth]).square().sum(1)  # n times its sum over a class is the trace
        return {"glc": self.consistency_weight * (spread / sizes[truth]).sum()}


def _fisher_z(correlation: Tensor) -> Tensor:
    """Compute Fisher's z, with 0 on the diagonal."""
    z = correlation.clamp(-LARGEST, LARGEST).arctanh()
    z.diagonal(dim1=1, dim2=2).fill_(0)
    return z


def _two_steps(graph: Tensor) -> Tensor:
    """Connect nodes by paths of at most two edges: (A + I)² with a zero diagonal."""
    step = graph + torch.eye(graph.shape[1], device=graph.device, dtype=graph.dtype)
    graph = step @ step
    return graph.diagonal_scatter(torch.zeros_like(graph[:, 0]), dim1=1, dim2=2)
