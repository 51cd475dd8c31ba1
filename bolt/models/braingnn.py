"""BrainGNN: graph convolutions that know their ROI, with pooling to the ROIs that matter.

Li et al. BrainGNN: Interpretable brain graph neural network for fMRI analysis. Medical Image Analysis 74, 2021.
https://doi.org/10.1016/j.media.2021.102233

Graphs are dense: a weight of 0 is no edge. Symbols: N nodes, K nodes that a pooling keeps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.io.errors import ConfigError
from bolt.models.base import ConnectivityModel, ModelOutput
from bolt.models.parts.connectivity import ledoit_wolf, partial_correlation
from bolt.models.registry import register

EPS = 1e-10  # within the logarithms of the pooling loss
LARGEST = 1 - 1e-6  # correlations are moved this far from ±1 before Fisher's transform


class Pooled(NamedTuple):
    """What is left after pooling.

    Attributes
    ----------
    nodes : Tensor
        (batch, K, features), in the order of the ROIs.
    graph : Tensor
        (batch, K, K).
    kept : Tensor
        (batch, K) positions among the nodes before.
    scores : Tensor
        (batch, N) of all nodes before, within (0, 1).
    length : Tensor
        () of the direction in which the features are scored.
    """

    nodes: Tensor
    graph: Tensor
    kept: Tensor
    scores: Tensor
    length: Tensor


class RoiConvolution(nn.Module):
    """Graph convolution whose weights are a mixture, for each ROI its own, of those of a few communities.

    A node becomes the mean of itself and its neighbours, weighted by the softmax of the edges; a node's edge to itself
    weighs 1.
    """

    def __init__(self, n_rois: int, n_in: int, n_out: int, communities: int) -> None:
        super().__init__()
        self.n_in, self.n_out = n_in, n_out
        self.memberships = nn.Linear(n_rois, communities, bias=False)
        self.weights = nn.Linear(communities, n_in * n_out)
        self.bias = nn.Parameter(torch.empty(n_out).uniform_(-1, 1) / math.sqrt(n_in))

    def forward(self, nodes: Tensor, graph: Tensor, rois: Tensor | None = None) -> Tensor:
        """Of nodes (batch, N, in) and edges (batch, N, N); `rois` (batch, N) says which they are, by default all."""
        # an ROI's one-hot code chooses its column
        weights = self.weights(self.memberships.weight.T.relu()).view(-1, self.n_in, self.n_out)
        if rois is None:
            own = torch.einsum("bni,nio->bno", nodes, weights)
        else:
            own = (nodes[:, :, None] @ weights[rois])[:, :, 0]
        edges = graph.masked_fill(graph == 0, -math.inf)
        edges = edges.diagonal_scatter(torch.ones_like(edges[:, 0]), dim1=1, dim2=2)
        return edges.softmax(-1) @ own + self.bias


class TopPooling(nn.Module):
    """Keep the share of the nodes with the largest scores, each times its score."""

    def __init__(self, n_features: int, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio
        self.direction = nn.Parameter(torch.empty(n_features).uniform_(-1, 1) / math.sqrt(n_features))

    def forward(self, nodes: Tensor, graph: Tensor) -> Pooled:
        length = self.direction.norm()
        scores = (nodes @ (self.direction / length)).sigmoid()
        kept = scores.topk(math.ceil(self.ratio * nodes.shape[1])).indices.sort().values
        scan = torch.arange(len(kept), device=kept.device)[:, None]
        left = (nodes * scores[:, :, None])[scan, kept]
        graph = graph[scan[:, :, None], kept[:, :, None], kept[:, None]]
        return Pooled(left, graph, kept, scores, length)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that takes its running statistics for a training batch of one scan, which has none itself."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 1:
            return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


@register("braingnn")
class BrainGNN(ConnectivityModel):
    """BrainGNN: an ROI's features are its correlations, its edges partial correlations.

    Parameters
    ----------
    n_rois, n_classes : int
    communities : int
        Sets of weights that ROIs mix.
    hidden, inner : int
        Width of the convolutions and of the first linear layer; of the second one.
    ratio : float
        Share of the nodes that a pooling keeps.
    dropout : float
    edge_share : float
        Share of the pairs of ROIs that are edges, those of the largest partial correlations, as far as positive. An ROI
        left without any is joined to the one it has the largest with.
    complete : bool
        Every pair is an edge, of the size of its partial correlation, as in the published code.
    unit_weight, pooling_weight, consistency_weight : float
        Of the loss terms: pooling directions of length 1; scores that are far apart within a scan (TPK); scores alike
        within a class (GLC).
    official_quirk : bool
        TPK and GLC on the scores as the published code has them: of the kept nodes alone, in descending order, and once
        more through the sigmoid (GLC: twice).

    Notes
    -----
    Covariances are shrunk (Ledoit and Wolf), without which there are no partial correlations of more ROIs than volumes.
    The losses' scores are those of all ROIs in their order, as the article defines them.
    """

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
        for name, value in {"ratio": ratio, "edge_share": edge_share}.items():
            if not 0 < value <= 1:
                raise ConfigError(f"{name} is {value}", where=f"hyper.{name}", hint="Set a share above 0, at most 1")
        self.n_classes, self.edge_share, self.complete, self.quirk = n_classes, edge_share, complete, official_quirk
        self.unit_weight, self.pooling_weight = unit_weight, pooling_weight
        self.consistency_weight, self.ratio = consistency_weight, ratio
        self.convolutions = nn.ModuleList(RoiConvolution(n_rois, n, hidden, communities) for n in (n_rois, hidden))
        self.poolings = nn.ModuleList(TopPooling(hidden, ratio) for _ in range(2))
        self.head = nn.Sequential(
            nn.Linear(4 * hidden, hidden),
            nn.ReLU(),
            BatchNorm(hidden),
            nn.Dropout(dropout),
            nn.Linear(hidden, inner),
            nn.ReLU(),
            BatchNorm(inner),
            nn.Dropout(dropout),
        )
        self.classifier = nn.Linear(inner, n_classes)

    def matrices(self, x: Tensor) -> Tensor:
        """Fisher's z of the correlations, with 0 on the diagonal, and edges: (batch, 2, rois, rois)."""
        covariance = ledoit_wolf(x)
        sd = covariance.diagonal(dim1=1, dim2=2).sqrt()
        sd = torch.where(sd > 0, sd, 1)
        correlation = (covariance / (sd[:, :, None] * sd[:, None])).float()
        partial = partial_correlation(covariance)
        return torch.stack([_fisher_z(correlation), self._edges(partial)], 1)

    def _edges(self, partial: Tensor) -> Tensor:
        """Weights of edges, 0 where there is none, of partial correlations; both (batch, rois, rois)."""
        weights = _fisher_z(partial).abs()
        n_rois = partial.shape[1]
        if self.complete or n_rois == 1:
            return weights
        pairs = partial[:, *torch.triu_indices(n_rois, n_rois, 1, device=partial.device)]
        least = pairs.topk(math.ceil(self.edge_share * pairs.shape[1])).values[:, -1]
        chosen = (partial >= least[:, None, None]) & (partial > 0)
        chosen.diagonal(dim1=1, dim2=2).fill_(False)
        others = partial - 2 * torch.eye(n_rois, device=partial.device)  # nobody is one's own nearest
        nearest = functional.one_hot(others.argmax(-1), n_rois).bool() & ~chosen.any(-1, keepdim=True)
        return weights * (chosen | nearest | nearest.mT)

    def classify(self, matrices: Tensor) -> ModelOutput:
        nodes, graph = matrices.unbind(1)
        rois, readouts, scores, losses = None, [], [], {}
        for layer, (convolve, pool) in enumerate(zip(self.convolutions, self.poolings, strict=True), start=1):
            if layer > 1:
                graph = _two_steps(graph)
            pooled: Pooled = pool(convolve(nodes, graph, rois), graph)
            nodes, graph, rois = pooled.nodes, pooled.graph, pooled.kept  # the second layer's is not used again
            readouts += [nodes.amax(1), nodes.mean(1)]
            scores.append(pooled.scores.gather(1, pooled.kept) if self.quirk else pooled.scores)
            losses[f"unit_{layer}"] = self.unit_weight * (pooled.length - 1).square()
            losses[f"tpk_{layer}"] = self.pooling_weight * self._pooling_loss(scores[-1])
        features = self.head(torch.cat(readouts, 1))
        return ModelOutput(self.classifier(features), features, losses, scores=scores[0])

    def _pooling_loss(self, scores: Tensor) -> Tensor:
        """TPK: large scores to 1, small ones to 0; of scores (batch, nodes)."""
        scores, n, ratio = scores.float().sort(descending=True).values, scores.shape[1], self.ratio
        n_large, n_small = math.ceil(ratio * n), n - math.ceil(ratio * n)
        if self.quirk:
            scores, n_large = scores.sigmoid(), int(min(ratio, 1 - ratio) * n)
            n_small = n_large
        large, small = scores[:, :n_large], scores[:, n - n_small :]
        terms = [-(part + EPS).log().mean() for part in (large, 1 - small) if part.numel()]
        return torch.stack(terms).sum() if terms else scores.new_zeros(())

    def label_losses(self, output: ModelOutput, truth: Tensor) -> dict[str, Tensor]:
        """GLC: trace(SᵀLS) / n² of each class, S being the scores of its n scans and L = n I - 1."""
        assert output.scores is not None
        scores = output.scores.float()
        if self.quirk:
            scores = scores.sort(descending=True).values.sigmoid().sigmoid()
        members = functional.one_hot(truth, self.n_classes).to(scores)
        sizes = members.sum(0)
        means = members.T @ scores / sizes.clamp(min=1)[:, None]
        spread = (scores - means[truth]).square().sum(1)  # of a class, n times their sum is the trace (Lagrange)
        return {"glc": self.consistency_weight * (spread / sizes[truth]).sum()}


def _fisher_z(correlation: Tensor) -> Tensor:
    """Fisher's z, with 0 on the diagonal."""
    z = correlation.clamp(-LARGEST, LARGEST).arctanh()
    z.diagonal(dim1=1, dim2=2).fill_(0)
    return z


def _two_steps(graph: Tensor) -> Tensor:
    """Weights of the paths of at most two edges, (A + I)², without those from a node to itself."""
    step = graph + torch.eye(graph.shape[1], device=graph.device, dtype=graph.dtype)
    graph = step @ step
    return graph.diagonal_scatter(torch.zeros_like(graph[:, 0]), dim1=1, dim2=2)
