"""TFF: a BERT encoder of short windows, averaged over the scan.

Malkiel, Rosenman, Wolf, Hendler. Self-supervised transformers for fMRI representation. MIDL, PMLR 172, 2022.
https://proceedings.mlr.press/v172/malkiel22a.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bolt.io.errors import ConfigError
from bolt.models.base import ModelOutput, SeriesModel
from bolt.models.layers import BertEncoder, check_at_least, check_length
from bolt.models.registry import register

POSITIONS = 30  # the published code's, of which a window of 20 and the CLS token use 21


@register("tff")
class TFF(SeriesModel):
    """TFF on ROI series: a linear layer in place of its 3D CNN and no pre-training, as in the BolT paper.

    Parameters
    ----------
    n_rois, n_classes : int
    hidden, inner, n_layers, n_heads : int
        The published code has 2640 and 3072 (103 million parameters), two layers and 16 heads.
    window, stride : int
        Volumes. Windows are encoded apart; what is left after the last whole one is not read.
    dropout : float

    Notes
    -----
    The CLS token is a learned function of a constant, as published. The mean is taken before the classifier, which is
    linear, so that it is the mean of the windows' logits as well.
    """

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        return int(settings["window"])

    def __init__(
        self,
        n_rois: int,
        n_classes: int,
        *,
        hidden: int = 400,
        inner: int = 1600,
        n_layers: int = 2,
        n_heads: int = 16,
        window: int = 20,
        stride: int = 10,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_at_least(1, window=window, stride=stride, n_layers=n_layers)
        if stride > window:
            raise ConfigError(
                f"a stride of {stride} volumes leaves gaps between windows of {window}",
                where="hyper.stride",
                hint="Set it to at most the window",
            )
        self.window, self.stride, self.min_length = window, stride, window
        self.projection = nn.Linear(n_rois, hidden)
        self.cls = nn.Sequential(nn.Linear(hidden, hidden), nn.LeakyReLU())
        self.encoder = BertEncoder(hidden, inner, n_layers, n_heads, max(POSITIONS, window + 1), dropout, "gelu")
        self.classifier = nn.Linear(hidden, n_classes)

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify z-scored ROI series (batch, time, rois); `cls` are the windows' pooled CLS tokens, (batch, windows,
        hidden)."""
        check_length(x, self.min_length)
        windows = self.projection(x).unfold(1, self.window, self.stride).transpose(2, 3)
        cls = self.cls(torch.full_like(windows[0, 0, 0], 0.5))
        pooled = self.encoder(cls, windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
        return ModelOutput(self.classifier(pooled.mean(1)), pooled, {})
