"""BAnD: a BERT encoder of the whole scan.

Nguyen et al. Attend and decode: 4D fMRI task state decoding using attention models. ML4H at NeurIPS, PMLR 136, 2020.
https://proceedings.mlr.press/v136/nguyen20a.html
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import BertEncoder, Dropout, check_length
from bolt.models.registry import register


@register("band")
class Band(SeriesModel):
    """BAnD on ROI series: a linear layer replaces its 3D CNN, as in the BolT paper.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, inner, n_heads : int
        512, 512 and 8 in the published code.
    n_layers : int
        The published code trains one and fine-tunes two.
    dropout : float
    crop : int
        Length of a training crop in volumes; each position has a learned embedding. Longer scans are read whole ("no
        windowing"), and positions repeat (`layers.at_positions`). In the original all scans have one length.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 512,
        inner: int = 512,
        n_layers: int = 2,
        n_heads: int = 8,
        dropout: float = 0.2,
        crop: int = 600,
    ) -> None:
        super().__init__()
        self.projection, self.cls = nn.Linear(n_rois, hidden), nn.Parameter(torch.randn(hidden))
        self.encoder = BertEncoder(hidden, inner, n_layers, n_heads, crop + 1, dropout, "relu")
        self.dropout, self.classifier = Dropout(dropout), nn.Linear(hidden, n_classes)
        for layer in (self.projection, self.classifier):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the pooled CLS token, (batch, hidden)."""
        check_length(x.shape[1], self.min_length)
        features = self.encoder(self.cls, self.projection(x))
        return ModelOutput(self.classifier(self.dropout(features)), features, {})
