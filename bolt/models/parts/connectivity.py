"""Functional connectivity of batches of series, in torch: on any device, at every training step."""

from __future__ import annotations

import torch
from torch import Tensor

RIDGE = 1e-10  # of the mean variance: lets a covariance of two volumes be inverted, changes no other


def pearson(x: Tensor) -> Tensor:
    """Pearson correlations of all ROIs with all.

    Parameters
    ----------
    x : Tensor
        Series, (batch, time, rois).

    Returns
    -------
    Tensor
        (batch, rois, rois) float32 within [-1, 1]. An ROI that is constant has zeros in its row and column, on the
        diagonal too; never NaN.
    """
    x = x.float()
    constant = x.amax(1, keepdim=True) == x.amin(1, keepdim=True)
    x = (x - x.mean(1, keepdim=True)).masked_fill(constant, 0)
    # to a largest deviation of 1 first: the square of a tiny one would be 0
    x = x / x.abs().amax(1, keepdim=True).masked_fill(constant, 1)
    x = x / x.norm(dim=1, keepdim=True).masked_fill(constant, 1)
    with torch.autocast(x.device.type, enabled=False):
        return (x.mT @ x).clamp(-1, 1)


def ledoit_wolf(x: Tensor) -> Tensor:
    """Covariance, shrunk towards a multiple of the identity by the share of Ledoit and Wolf.

    Parameters
    ----------
    x : Tensor
        Series, (batch, time, rois).

    Returns
    -------
    Tensor
        (batch, rois, rois) float64; what `sklearn.covariance.LedoitWolf` gives each scan.

    References
    ----------
    Ledoit and Wolf 2004, Journal of Multivariate Analysis 88:365, doi:10.1016/S0047-259X(03)00096-4
    """
    x = x.double()
    x = x - x.mean(1, keepdim=True)
    n, p = x.shape[1:]
    covariance = x.mT @ x / n
    mean = covariance.diagonal(dim1=1, dim2=2).mean(1)
    length = covariance.square().sum((1, 2))
    distance = length / p - mean.square()  # squared, of the covariance from the target
    noise = (x.square().sum(2).square().mean(1) - length) / (n * p)  # of the covariance, by its spread over volumes
    noise = torch.minimum(noise.clamp(min=0), distance)
    share = torch.where(noise > 0, noise / distance, 0)[:, None, None]
    target = mean[:, None, None] * torch.eye(p, dtype=x.dtype, device=x.device)
    return (1 - share) * covariance + share * target


def partial_correlation(covariance: Tensor) -> Tensor:
    """Correlation of any two ROIs with the linear effect of all others removed.

    Of the precision P this is -P_ij / sqrt(P_ii P_jj).

    Parameters
    ----------
    covariance : Tensor
        (batch, rois, rois); shrunk where there are fewer volumes than ROIs (`ledoit_wolf`).

    Returns
    -------
    Tensor
        (batch, rois, rois) float32 within [-1, 1], the diagonal 1; an ROI without variance has zeros beside it.
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
