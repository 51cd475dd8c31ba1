"""LSTM on the series, averaged over time.

Dvornek, Ventola, Pelphrey, Duncan. Identifying autism from resting-state fMRI using long short-term memory networks.
MLMI 2017. https://doi.org/10.1007/978-3-319-67389-9_42
"""

from __future__ import annotations

from torch import Tensor, nn

from bolt.models.base import ModelOutput, SeriesModel, without_onednn
from bolt.models.layers import Dropout
from bolt.models.registry import register


@register("lstm")
class LSTM(SeriesModel):
    """One LSTM layer, the mean of its hidden states over time, dropout, a linear layer.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden : int
    dropout : float
        On the mean hidden state.

    Notes
    -----
    The original applies dropout to inputs and recurrent connections, with one mask per sequence, and has one sigmoid
    unit. Here dropout is applied to the mean hidden state, and there is one logit per class, which for two classes is
    an equivalent classifier.
    """

    def __init__(self, n_rois: int, n_classes: int, *, hidden: int = 32, dropout: float = 0.5) -> None:
        super().__init__()
        self.lstm = nn.LSTM(n_rois, hidden, batch_first=True)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the mean hidden state, (batch, hidden)."""
        with without_onednn(x.device):
            features = self.lstm(x)[0].mean(1)
        return ModelOutput(self.classifier(self.dropout(features)), features, {})
