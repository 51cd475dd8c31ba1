"""What every torch model takes and returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class ModelOutput(NamedTuple):
    """What a model's forward pass returns.

    Attributes
    ----------
    logits : Tensor
        (batch, classes).
    cls : Tensor
        The features that the classifier saw; for BolT the CLS tokens, (batch, windows, hidden).
    losses : dict
        Loss terms beside cross entropy, already weighted, by name.
    """

    logits: Tensor
    cls: Tensor
    losses: dict[str, Tensor]


class SeriesModel(nn.Module):
    """A model of ROI series: takes (batch, time, rois), returns `ModelOutput`.

    Attributes
    ----------
    inputs : str
        What it takes: ``series``.
    min_length : int
        The shortest scan, in volumes, that the model can read.
    """

    inputs = "series"
    min_length: int = 1
