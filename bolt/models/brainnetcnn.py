"""BrainNetCNN: convolutions over the rows and columns of a connectivity matrix.

Kawahara et al. BrainNetCNN: Convolutional neural networks for brain networks; towards predicting neurodevelopment.
NeuroImage 146, 2017. https://doi.org/10.1016/j.neuroimage.2016.09.046
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from bolt.io.errors import ConfigError
from bolt.models.base import ConnectivityModel, ModelOutput
from bolt.models.layers import Dropout
from bolt.models.parts.connectivity import pearson
from bolt.models.registry import register

SLOPE = 0.33  # of LeakyReLU, everywhere in the original


class Rows(nn.Module):
    """Convolution with a kernel of one matrix row: (batch, in, rois, rois) to (batch, out, rois).

    Computed as a matrix product, which takes half the time of `nn.Conv2d` on a CPU.
    """

    def __init__(self, n_in: int, n_out: int, n_rois: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_rois, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out, 1))
        _draw(self.weight, n_in * n_rois)

    def forward(self, x: Tensor) -> Tensor:
        """Sum each row of `x`, weighted, over columns and channels."""
        rows, weight = x.transpose(1, 2).flatten(2), self.weight.flatten(0, 1)  # one product for all channels
        return (rows @ weight).mT + self.bias


class EdgeToEdge(nn.Module):
    """Weighted sum of the edges that share a node: (batch, in, rois, rois) to (batch, out, rois, rois)."""

    def __init__(self, n_in: int, n_out: int, n_rois: int) -> None:
        super().__init__()
        self.rows, self.columns = Rows(n_in, n_out, n_rois), Rows(n_in, n_out, n_rois)

    def forward(self, x: Tensor) -> Tensor:
        """Sum the row and the column of every edge."""
        return self.rows(x)[..., None] + self.columns(x.mT)[..., None, :]


def _draw(weight: Tensor, n_inputs: int) -> None:
    """Initialise a weight as Caffe's "Xavier" does: uniform with variance 1 / inputs."""
    nn.init.uniform_(weight, -math.sqrt(3 / n_inputs), math.sqrt(3 / n_inputs))


@register("brainnetcnn")
class BrainNetCNN(ConnectivityModel):
    """BrainNetCNN on Pearson correlations.

    Parameters
    ----------
    n_rois, n_classes : int
    edge_channels : sequence of int
        Channels of the edge-to-edge layers, one number per layer.
    node_channels : int
        Channels of the edge-to-node layer.
    graph_channels : int
        Channels of the node-to-graph layer.
    linear : sequence of int
        Widths of the hidden linear layers.
    dropout : float
        After the node-to-graph layer and each hidden linear layer.

    Notes
    -----
    The defaults are the article's largest network (second-hand). Later PyTorch versions have `edge_channels` 32 and 64
    and `node_channels` 1; the one by the authors of BolT (GraphCorr: Sivgin et al. 2024,
    doi:10.1109/JBHI.2024.3415000) also has batch normalisation after the first linear layer and a one-cycle learning
    rate. Weights are initialised by Caffe's "Xavier" rule.
    """

    matrices_in_words = "Pearson correlations between all pairs of ROIs"

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        edge_channels: Sequence[int] = (32, 32),
        node_channels: int = 64,
        graph_channels: int = 256,
        linear: Sequence[int] = (128, 30),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if not edge_channels or min(*edge_channels, node_channels, graph_channels, *linear) < 1:
            raise ConfigError(
                "BrainNetCNN needs an edge-to-edge layer, and at least one channel in each layer",
                where="hyper",
                hint="Set edge_channels: [32, 32], node_channels: 64, graph_channels: 256, linear: [128, 30]",
            )
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise([1, *edge_channels]):
            layers += [EdgeToEdge(n_in, n_out, n_rois), nn.LeakyReLU(SLOPE, inplace=True)]
        layers += [Rows(edge_channels[-1], node_channels, n_rois), nn.LeakyReLU(SLOPE), nn.Flatten()]
        widths = [node_channels * n_rois, graph_channels, *linear]  # node-to-graph reads all nodes, so it is linear too
        for n_in, n_out in pairwise(widths):
            layers += [nn.Linear(n_in, n_out), nn.LeakyReLU(SLOPE), Dropout(dropout)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(widths[-1], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                _draw(module.weight, module.in_features)
                nn.init.zeros_(module.bias)

    def matrices(self, x: Tensor) -> Tensor:
        """Compute Pearson correlations, (batch, 1, rois, rois)."""
        return pearson(x)[:, None]

    def classify(self, matrices: Tensor) -> ModelOutput:
        """Classify correlations (batch, 1, rois, rois)."""
        features = self.features(matrices)
        return ModelOutput(logits=self.classifier(features), cls=features, losses={})
