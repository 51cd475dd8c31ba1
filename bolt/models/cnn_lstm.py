"""CNN-LSTM: convolutions along time, then an LSTM.

The paper cites Zhao, Li, Jiao, Du, Fan. A 3D convolutional encapsulated long short-term memory (3DConv-LSTM) model for
denoising fMRI data. MICCAI 2020. https://doi.org/10.1007/978-3-030-59728-3_47. That network denoises images; how the
paper "adopted [it] to use 1D convolutions" was not published.
"""

from __future__ import annotations

from torch import Tensor, nn

from bolt.models.base import ModelOutput, SeriesModel, without_onednn
from bolt.models.layers import BatchNorm, Dropout, check_rules
from bolt.models.registry import register


@register("cnn_lstm")
class CNNLSTM(SeriesModel):
    """Two convolutions along time with ROIs as channels, an LSTM, the mean of its states over time, a linear layer.

    Parameters
    ----------
    n_rois, n_classes : int
    channels : int
        Channels of both convolutions.
    kernel : int
        Volumes that a convolution sees; odd, so that the length is unchanged.
    hidden : int
        Width of the LSTM.
    dropout : float
        On the mean hidden state.

    Notes
    -----
    In the original the convolutions are inside the LSTM's gates and run over space. In one dimension they would run
    along the ROIs, but neighbours in an atlas's list need not be neighbours in the brain; so they run along time.
    """

    scans_interact = True
    min_length = 2  # batch norm needs a variance, also in a batch of one scan

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        channels: int = 128,
        kernel: int = 3,
        hidden: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_rules(kernel=(kernel % 2 == 1, f"must be odd, such as {kernel - 1} or {kernel + 1}"))
        layers: list[nn.Module] = []
        for width in (n_rois, channels):
            layers += [nn.Conv1d(width, channels, kernel, padding=kernel // 2), BatchNorm(channels), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers)
        self.lstm = nn.LSTM(channels, hidden, batch_first=True)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` is the mean hidden state, (batch, hidden)."""
        features = self.convolutions(x.mT).mT
        with without_onednn(x.device):
            features = self.lstm(features)[0].mean(1)
        return ModelOutput(self.classifier(self.dropout(features)), features, {})
