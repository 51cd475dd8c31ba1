"""Explanation of one scan: landmarks by Algorithm 1, and the contribution of each ROI at the landmarks.

Contributions are integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365) of the log odds of the class, along
the path from the scan with its landmarks at the ROIs' means (zero, because series are z-scored) to the scan itself.
They are signed, and over all ROIs they add up to the change of the log odds along that path. A small change means that
the volumes next to the landmarks carry the same information.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bolt.explain.importance import importance_of
from bolt.explain.landmarks import top_tokens
from bolt.models.bolt import BolT

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress not found")  # captum imports the notebook's progress bar
    from captum.attr import IntegratedGradients

STEPS = 24
"""Points of the path at which gradients are taken (Gauss-Legendre)."""
BATCH = 4
"""Points per forward and backward pass."""


@dataclass(frozen=True)
class ScanExplanation:
    """The explanation of one scan.

    Attributes
    ----------
    probabilities : (classes,) array
    target : int
        Position of the explained class.
    weights : (T,) array
        Importance of each volume, not negative.
    landmarks : (k,) int array
        The most important rows of the series, in descending order of importance.
    contributions : (R,) array
        Of each ROI at the landmarks, in log odds of the class.
    log_odds, log_odds_without : float
        Of the class for the scan as it is, and with its landmarks replaced by the mean.
    """

    probabilities: NDArray[np.floating]
    target: int
    weights: NDArray[np.floating]
    landmarks: NDArray[np.integer]
    contributions: NDArray[np.floating]
    log_odds: float
    log_odds_without: float


def explain_scan(
    model: BolT,
    series: NDArray[np.floating],
    target: int | None = None,
    tokens: int = 5,
    landmarks: NDArray[np.integer] | None = None,
) -> ScanExplanation:
    """Explain a class for one scan; by default the predicted one.

    Parameters
    ----------
    model : BolT
        On the CPU; left in evaluation mode.
    series : (T, R) float array
        z-scored.
    target : int, optional
        Position of the class to explain.
    tokens : int
        Number of landmarks.
    landmarks : (k,) int array, optional
        Volumes that are taken for landmarks instead of the most important ones.
    """
    model.eval()
    x = torch.from_numpy(np.ascontiguousarray(series, np.float32))[None]
    with torch.inference_mode():
        probabilities = model(x).logits.double().softmax(-1)[0].numpy()
    target = int(probabilities.argmax()) if target is None else target
    (weights,) = importance_of(model, [series], torch.device("cpu"), [target])
    landmarks = top_tokens(weights, tokens) if landmarks is None else landmarks
    without = x.clone()
    without[:, landmarks.copy()] = 0

    def odds(scans: Tensor) -> Tensor:
        return log_odds(model(scans).logits, target)

    parts = IntegratedGradients(odds).attribute(x, baselines=without, n_steps=STEPS, internal_batch_size=BATCH)
    with torch.inference_mode():
        before, after = odds(torch.cat([x, without])).tolist()
    return ScanExplanation(probabilities, target, weights, landmarks, parts[0].sum(0).detach().numpy(), before, after)


def log_odds(logits: Tensor, target: int) -> Tensor:
    """Return the log odds of one class against all others, (batch,), from logits (batch, classes)."""
    others = [i for i in range(logits.shape[1]) if i != target]
    return logits[:, target] - logits[:, others].logsumexp(-1)
