"""Integrated gradients: what each value of a scan adds to the decision. A rival of Algorithm 1.

Sundararajan, Taly and Yan 2017, Axiomatic attribution for deep networks, arXiv:1703.01365; computed by captum.
"""

from __future__ import annotations

import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

PASSES = 8
"""Points of the path in one pass."""


def integrated_gradients(model: nn.Module, x: Tensor, target: Tensor, steps: int) -> Tensor:
    """What each value adds to a class's logit, beside a scan of zeros (the mean of a z-scored series).

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
        (batch, time, rois). Over a scan they sum to the logit less that of zeros, but for what `steps` leave out.
    """
    method = IntegratedGradients(lambda scans: model(scans).logits)
    with torch.enable_grad():
        found: Tensor = method.attribute(
            x.detach(), baselines=0.0, target=target, n_steps=steps, internal_batch_size=max(PASSES, len(x))
        )
    return found.detach()


def volume_weights(attributions: Tensor) -> Tensor:
    """Weight of every volume, (batch, time): the sum over ROIs of absolute attributions."""
    return attributions.abs().sum(-1)
