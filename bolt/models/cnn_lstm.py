"""CNN-LSTM: convolutions along time, then an LSTM.

The paper cites Zhao, Li, Jiao, Du, Fan. A 3D convolutional encapsulated long short-term memory (3DConv-LSTM) model for
denoising fMRI data. MICCAI 2020. https://doi.org/10.1007/978-3-030-59728-3_47. That network removes noise from images;
how the paper "adopted [it] to use 1D convolutions" was not published.
"""

from __future__ import annotations

from torch import Tensor, nn

from bolt.io.errors import ConfigError
from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import BatchNorm, Dropout
from bolt.models.registry import register


@register("cnn_lstm")
class CNNLSTM(SeriesModel):
    """Two convolutions along time with the ROIs as channels; an LSTM; the mean of its states over time; linear.

    Parameters
    ----------
    n_rois, n_classes : int
    channels : int
        Of both convolutions.
    kernel : int
        Volumes that a convolution sees; odd, so that the length stays.
    hidden : int
        Of the LSTM.
    dropout : float
        On the mean hidden state.

    Notes
    -----
    In the original the convolutions are inside the gates of the LSTM. In one dimension those would run along the ROIs,
    whose order in an atlas is no neighbourhood; time is the dimension that a convolution can use here.
    """

    min_length = 2  # one volume of one scan has no variance to norm a batch by

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
        if kernel % 2 == 0:
            raise ConfigError(
                "CNN-LSTM's 'kernel' must be odd", where="hyper.kernel", hint=f"Set it to {kernel - 1} or {kernel + 1}"
            )
        layers: list[nn.Module] = []
        for width in (n_rois, channels):
            layers += [nn.Conv1d(width, channels, kernel, padding=kernel // 2), BatchNorm(channels), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers)
        self.lstm = nn.LSTM(channels, hidden, batch_first=True)
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        features = self.lstm(self.convolutions(x.mT).mT)[0].mean(1)
        return ModelOutput(self.classifier(self.dropout(features)), features, {})
