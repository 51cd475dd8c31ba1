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
    """Linear, layer norm, ReLU and dropout on each volume, mean over time, a linear layer.

    Each volume is processed on its own, so the model sees the distribution of volumes but not their order.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden : int
    dropout : float

    Notes
    -----
    The published code averages the logits of the volumes over time. Because the classifier is linear, the mean hidden
    vector gives the same logits.
    """

    def __init__(self, n_rois: int, n_classes: int, *, hidden: int = 160, dropout: float = 0.49) -> None:
        super().__init__()
        self.volume = nn.Sequential(nn.Linear(n_rois, hidden), nn.LayerNorm(hidden), nn.ReLU(), Dropout(dropout))
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the mean hidden vector, (batch, hidden)."""
        features = self.volume(x).mean(1)
        return ModelOutput(self.classifier(features), features, {})
