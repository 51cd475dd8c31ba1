"""TFF: a BERT encoder of short windows, averaged over the scan.

Malkiel, Rosenman, Wolf, Hendler. Self-supervised transformers for fMRI representation. MIDL, PMLR 172, 2022.
https://proceedings.mlr.press/v172/malkiel22a.html
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import BertEncoder, check_length, check_rules
from bolt.models.registry import register

PUBLISHED_WIDTH = 2640  # of the hidden layer
POSITIONS = 30  # as in the published code; a window of 20 and the CLS token use 21


@register("tff")
class TFF(SeriesModel):
    """TFF on ROI series: a linear layer replaces its 3D CNN, without pre-training, as in the BolT paper.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, inner, n_layers, n_heads : int
        As in the published code: 103 million parameters.
    window, stride : int
        In volumes. Windows are encoded separately; volumes after the last complete window are not read.
    dropout : float

    Notes
    -----
    Initial weights have BERT's standard deviation of 0.02 at the published width, and a larger one in a narrower
    model, so that signals keep their size: with 0.02 at a width of 400, logits of scans differ by 0.002 instead of
    0.07, and the model hardly learns.

    The CLS token is a learned function of a constant, as published. The mean over windows is taken before the
    classifier; because that is linear, the result equals the mean of the windows' logits.
    """

    whole_windows = True

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 2640,
        inner: int = 3072,
        n_layers: int = 2,
        n_heads: int = 16,
        window: int = 20,
        stride: int = 10,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_rules(stride=(stride <= window, f"is {stride} volumes, but must be at most the window of {window}"))
        self.window, self.stride, self.min_length = window, stride, window
        self.projection = nn.Linear(n_rois, hidden)
        self.cls = nn.Sequential(nn.Linear(hidden, hidden), nn.LeakyReLU())
        std = 0.02 * (PUBLISHED_WIDTH / hidden) ** 0.5
        self.encoder = BertEncoder(hidden, inner, n_layers, n_heads, max(POSITIONS, window + 1), dropout, "gelu", std)
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois).

        `cls` are the pooled CLS tokens of the windows, (batch, windows, hidden).
        """
        check_length(x.shape[1], self.min_length)
        windows = self.projection(x).unfold(1, self.window, self.stride).transpose(2, 3)
        cls = self.cls(torch.full_like(windows[0, 0, 0], 0.5))
        pooled = self.encoder(cls, windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
        return ModelOutput(self.classifier(pooled.mean(1)), pooled, {})
