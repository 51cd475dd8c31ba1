"""Integrated gradients: what each value of a scan adds to a class's logit. An alternative to Algorithm 1.

Sundararajan, Taly and Yan 2017, Axiomatic attribution for deep networks, arXiv:1703.01365; computed by captum.
"""

from __future__ import annotations

import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

PASSES = 8
"""Points of the path per forward and backward pass."""


def integrated_gradients(model: nn.Module, x: Tensor, target: Tensor, steps: int) -> Tensor:
    """Attribute a class's logit to each value, relative to a scan of zeros (the mean of z-scored series).

    Parameters
    ----------
    model : Module
        In evaluation mode; returns `bolt.models.base.ModelOutput`.
    x : Tensor
        (batch, time, rois).
    target : Tensor
        The class of each scan whose logit is explained, (batch,).
    steps : int
        Points of the path from zeros to the scan (Gauss-Legendre).

    Returns
    -------
    Tensor
        (batch, time, rois). Over a scan they add up to the logit minus that of zeros, but for the error of a finite
        number of `steps`.
    """
    method = IntegratedGradients(lambda scans: model(scans).logits)
    with torch.enable_grad():
        attributions: Tensor = method.attribute(
            x.detach(), baselines=0.0, target=target, n_steps=steps, internal_batch_size=max(PASSES, len(x))
        )
    return attributions.detach()


def volume_weights(attributions: Tensor) -> Tensor:
    """Return the weight of each volume, (batch, time): the sum over ROIs of absolute attributions."""
    return attributions.abs().sum(-1)
