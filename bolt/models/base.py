"""Interface of every torch model: what it takes and returns, and steps that depend on the precision of its training."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class ModelOutput(NamedTuple):
    """Output of a model's forward pass.

    Attributes
    ----------
    logits : Tensor
        (batch, classes).
    cls : Tensor
        The features that the classifier reads; for BolT the CLS tokens, (batch, windows, hidden).
    losses : dict
        Loss terms besides cross entropy, already weighted, by name.
    scores : Tensor or None
        Importance of each ROI, (batch, rois), if the model computes it.
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
        Length of the shortest scan that the model can read, in volumes.
    takes_lengths : bool
        Whether the forward pass takes the volumes of each scan as `lengths`, so that scans of different length share a
        batch.
    lengths_on_device : bool
        Whether `lengths` may also be a tensor that the host does not read, and a training step does nothing else on the
        host either, so that a GPU can replay it (`bolt.training.graph`).
    whole_windows : bool
        Whether volumes after the last whole window are not read. (BolT has the setting `tail` for that.)
    scans_interact : bool
        Whether the scans of a training batch interact: by batch normalisation, or by `label_losses`. Such batches are
        not split, and unless it takes lengths, all their crops are as long as their shortest scan. (Training finds this
        out itself; the attribute tells those who describe a model without building it.)

    Notes
    -----
    Two settings are filled in from the data if the configuration does not give them: `tr`, the median TR of the
    training scans in seconds, and `crop`, the length of a training crop in volumes. A model that needs one of them
    takes it as a keyword argument.
    """

    inputs = "series"
    min_length: int = 1
    takes_lengths = False
    lengths_on_device = False
    whole_windows = False
    scans_interact = False

    @classmethod
    def shortest(cls, settings: Mapping[str, Any]) -> int:
        """Return `min_length` of a model with these settings, without building it.

        Parameters
        ----------
        settings : mapping
            All settings of the model, defaults included. If the window depends on the data, the result is the minimum
            that any such model needs.
        """
        return int(settings["window"]) if cls.whole_windows and "window" in settings else cls.min_length

    def label_losses(self, output: ModelOutput, truth: Tensor) -> dict[str, Tensor]:
        """Compute further loss terms, already weighted, that need the classes of a training batch, (batch,).

        They are used in training only, when the target is a class and scans are not mixed (`mixup`).
        """
        return {}


class ConnectivityModel(SeriesModel):
    """A model of static connectivity: computes matrices from series, then classifies the matrices.

    The two steps are separate because in training the matrices of a scan may come from a crop or from its whole series
    (`connectivity: scan` in the model's configuration), and whole series differ in length.

    Attributes
    ----------
    matrices_in_words : str
        What `matrices` computes, for the methods text.
    """

    inputs = "connectivity"
    matrices_in_words = "connectivity matrices"
    min_length = 2

    @property
    def matrix_settings(self) -> tuple[Any, ...]:
        """Return the settings on which `matrices` depends, so that models with equal ones share them."""
        return ()

    def matrices(self, x: Tensor) -> Tensor:
        """Compute connectivity matrices (batch, kinds, rois, rois) from series (batch, time, rois)."""
        raise NotImplementedError

    def classify(self, matrices: Tensor) -> ModelOutput:
        """Classify connectivity matrices (batch, kinds, rois, rois)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> ModelOutput:
        """Classify ROI series (batch, time, rois) by their connectivity."""
        return self.classify(self.matrices(x))


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switch automatic lower precision off within the block, on devices that have it."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def without_onednn(device: torch.device) -> AbstractContextManager[object]:
    """Compute bfloat16 on a CPU without oneDNN, whose LSTM raises where AVX-512 is missing."""
    if device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)
    return nullcontext()
