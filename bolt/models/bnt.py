"""Brain Network Transformer: attention between the rows of a connectivity matrix, then clusters of ROIs.

Kan et al. Brain Network Transformer. NeurIPS 2022. https://doi.org/10.48550/arXiv.2210.06681
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bolt.models.base import ConnectivityModel, ModelOutput
from bolt.models.layers import EncoderLayer
from bolt.models.parts.connectivity import pearson
from bolt.models.registry import register


@register("bnt")
class BrainNetworkTransformer(ConnectivityModel):
    """Brain Network Transformer on Pearson correlations.

    Each ROI is a token, its correlations are its features. After the transformer, one perceptron over all tokens gives
    each ROI an embedding; ROIs are softly assigned to fixed orthonormal centres, whose pooled embeddings are
    classified.

    Parameters
    ----------
    n_rois, n_classes : int
    n_layers : int
    n_heads : int
        If it does not divide the number of ROIs, profiles are padded with zeros.
    feedforward : int
        Inner width of the transformer's MLPs.
    dropout : float
        In the transformer.
    clusters : int
        Number of centres; at most the number of ROIs.
    bottleneck : int
        Width of the perceptron over all tokens.

    Attributes
    ----------
    centres : Tensor
        (clusters, rois), drawn with the initial weights and not learned, as published. All rows have unit length; the
        published code does not normalise the first.
    """

    matrices_in_words = "Pearson correlations between all pairs of ROIs"

    centres: Tensor

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        n_layers: int = 2,
        n_heads: int = 4,
        feedforward: int = 1024,
        dropout: float = 0.1,
        clusters: int = 100,
        bottleneck: int = 32,
    ) -> None:
        super().__init__()
        self.padding = -n_rois % n_heads
        width = n_rois + self.padding
        layers = [EncoderLayer(width, n_heads, feedforward, dropout) for _ in range(n_layers)]
        self.transformer = nn.TransformerEncoder(layers[0], n_layers, enable_nested_tensor=False)
        self.transformer.layers = nn.ModuleList(layers)  # whose copies of the first would start with its weights
        self.embed = nn.Sequential(
            nn.Flatten(),
            nn.Linear(n_rois * width, bottleneck),
            nn.LeakyReLU(),
            nn.Linear(bottleneck, bottleneck),
            nn.LeakyReLU(),
            nn.Linear(bottleneck, n_rois**2),
            nn.Unflatten(1, (n_rois, n_rois)),
        )
        clusters = min(clusters, n_rois)
        self.register_buffer("centres", nn.init.orthogonal_(torch.empty(clusters, n_rois)))
        self.reduce = nn.Sequential(nn.Linear(n_rois, 8), nn.LeakyReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(8 * clusters, 256), nn.LeakyReLU(), nn.Linear(256, 32), nn.LeakyReLU())
        self.classifier = nn.Linear(32, n_classes)

    def matrices(self, x: Tensor) -> Tensor:
        """Compute Pearson correlations, (batch, 1, rois, rois)."""
        return pearson(x)[:, None]

    def assignments(self, embedded: Tensor) -> Tensor:
        """Assign ROIs to clusters: shares (batch, rois, clusters) from embeddings (batch, rois, rois)."""
        return (embedded @ self.centres.T).square().softmax(-1)

    def classify(self, matrices: Tensor) -> ModelOutput:
        """Classify correlations (batch, 1, rois, rois)."""
        embedded = self.embed(self.transformer(functional.pad(matrices[:, 0], (0, self.padding))))
        pooled = self.assignments(embedded).mT @ embedded
        features = self.head(self.reduce(pooled))
        return ModelOutput(logits=self.classifier(features), cls=features, losses={})
