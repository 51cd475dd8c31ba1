"""What every torch model takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

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
    scores : Tensor or None
        How much each ROI counts, (batch, rois), where a model says so.
    """

    logits: Tensor
    cls: Tensor
    losses: dict[str, Tensor]
    scores: Tensor | None = None


class SeriesModel(nn.Module):
    """A model of ROI series: takes (batch, time, rois), returns `ModelOutput`.

    Attributes
    ----------
    inputs : str
        What it learns from: ``series``, or ``connectivity`` (`ConnectivityModel`).
    min_length : int
        The shortest scan, in volumes, that the model can read.

    Notes
    -----
    Two settings are filled in from the data where the configuration does not give them: `tr`, the median TR of the
    training scans in seconds, and `crop`, the volumes of a training crop. A model that wants one takes it as a keyword.
    """

    inputs = "series"
    min_length: int = 1

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        """`min_length` of a model with these settings (all, defaults too), without building it.

        Of a model whose window follows from the data it is what every such model needs.
        """
        return cls.min_length

    def label_losses(self, output: ModelOutput, truth: Tensor) -> dict[str, Tensor]:
        """Further loss terms, already weighted, that need the classes of a training batch, (batch,).

        They are asked for in training alone, where the target is a class and scans are not mixed (`mixup`).
        """
        return {}


class ConnectivityModel(SeriesModel):
    """A model of static connectivity: makes matrices of series, and classifies these.

    The two are apart because in training a scan's matrices may come from its whole series (`connectivity: scan` in the
    model's configuration), whose lengths differ, or from a crop.
    """

    inputs = "connectivity"
    min_length = 2

    def matrices(self, x: Tensor) -> Tensor:
        """What is classified, of series (batch, time, rois): (batch, kinds, rois, rois)."""
        raise NotImplementedError

    def classify(self, matrices: Tensor) -> ModelOutput:
        """Of (batch, kinds, rois, rois)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> ModelOutput:
        return self.classify(self.matrices(x))
