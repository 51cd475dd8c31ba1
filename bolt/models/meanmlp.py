"""meanMLP: a small perceptron on every volume, averaged over time.

Popov, Mahmood, Fu, Yang, Calhoun, Plis. A simple but tough-to-beat baseline for fMRI time-series classification.
NeuroImage 303:120909, 2024. https://doi.org/10.1016/j.neuroimage.2024.120909
"""

from __future__ import annotations

from torch import Tensor, nn

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import Dropout
from bolt.models.registry import register


@register("meanmlp")
class MeanMLP(SeriesModel):
    """Linear, layer norm, ReLU, dropout on each volume; mean over time; linear.

    Volumes do not know of one another, nor of their order: what it learns is the distribution of single volumes.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden : int
    dropout : float

    Notes
    -----
    The published code averages the logits of the volumes over time. The classifier is linear, so the mean hidden vector
    gives the same logits; it is returned as `cls`, (batch, hidden).
    """

    def __init__(self, n_rois: int, n_classes: int, *, hidden: int = 160, dropout: float = 0.49) -> None:
        super().__init__()
        self.volume = nn.Sequential(nn.Linear(n_rois, hidden), nn.LayerNorm(hidden), nn.ReLU(), Dropout(dropout))
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        features = self.volume(x).mean(1)
        return ModelOutput(self.classifier(features), features, {})
