"""Functional connectivity of batches of series in torch, computed at every training step on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from bolt.models.base import full_precision

RIDGE = 1e-10  # relative to the mean variance: makes a covariance of two volumes invertible, affects no other


def pearson(x: Tensor) -> Tensor:
    """Compute Pearson correlations between all ROIs.

    Parameters
    ----------
    x : Tensor
        Series, (batch, time, rois).

    Returns
    -------
    Tensor
        (batch, rois, rois) float32 within [-1, 1], never NaN. A constant ROI has zeros in its row and column, including
        the diagonal.
    """
    return inner_products(unit_series(x))


def inner_products(series: Tensor) -> Tensor:
    """Compute Pearson correlations (..., rois, rois) from the result of `unit_series`."""
    with full_precision(series.device):
        return (series.mT @ series).clamp(-1, 1)


def unit_series(x: Tensor) -> Tensor:
    """Centre series (batch, time, rois) and scale them to length 1, in float32; those of constant ROIs become 0."""
    x = x.float()
    constant = x.amax(1, keepdim=True) == x.amin(1, keepdim=True)
    x = (x - x.mean(1, keepdim=True)).masked_fill(constant, 0)
    # scale to a largest deviation of 1 first, because squares of tiny deviations underflow to 0
    x = x / x.abs().amax(1, keepdim=True).masked_fill(constant, 1)
    return x / x.norm(dim=1, keepdim=True).masked_fill(constant, 1)


def ledoit_wolf(x: Tensor) -> Tensor:
    """Compute covariances with Ledoit-Wolf shrinkage towards a multiple of the identity.

    Parameters
    ----------
    x : Tensor
        Series, (batch, time, rois).

    Returns
    -------
    Tensor
        (batch, rois, rois) float64; equal to `sklearn.covariance.LedoitWolf` applied to each scan.

    References
    ----------
    Ledoit and Wolf 2004, Journal of Multivariate Analysis 88:365, doi:10.1016/S0047-259X(03)00096-4
    """
    x = x.double()
    x = x - x.mean(1, keepdim=True)
    n, p = x.shape[1:]
    covariance = x.mT @ x / n
    mean = covariance.diagonal(dim1=1, dim2=2).mean(1)
    squared_norm = covariance.square().sum((1, 2))
    distance = squared_norm / p - mean.square()  # squared distance of the covariance from the target
    noise = (x.square().sum(2).square().mean(1) - squared_norm) / (n * p)  # its sampling variance over volumes
    noise = torch.minimum(noise.clamp(min=0), distance)
    share = torch.where(noise > 0, noise / distance, 0)[:, None, None]
    target = mean[:, None, None] * torch.eye(p, dtype=x.dtype, device=x.device)
    return (1 - share) * covariance + share * target


def partial_correlation(covariance: Tensor) -> Tensor:
    """Compute partial correlations: between two ROIs, with the linear effect of all others removed.

    For the precision matrix P this is -P_ij / sqrt(P_ii P_jj).

    Parameters
    ----------
    covariance : Tensor
        (batch, rois, rois); must be shrunk (`ledoit_wolf`) if there are fewer volumes than ROIs.

    Returns
    -------
    Tensor
        (batch, rois, rois) float32 within [-1, 1] with diagonal 1; an ROI without variance has zeros elsewhere.
    """
    covariance = covariance.double()
    variance = covariance.diagonal(dim1=1, dim2=2)
    ridge = (RIDGE * variance.mean(1, keepdim=True)).expand_as(variance)
    ridge = ridge + torch.where(variance > 0, 0, 1)
    precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance + ridge.diag_embed()))
    scale = precision.diagonal(dim1=1, dim2=2).rsqrt()
    partial = (-scale[:, :, None] * precision * scale[:, None, :]).clamp(-1, 1).float()
    partial.diagonal(dim1=1, dim2=2).fill_(1)
    return partial
