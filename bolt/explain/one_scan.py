"""Explanation of one scan: landmarks by Algorithm 1, and the contribution of each ROI at the landmarks.

Contributions are integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365) of the log odds of the class, along
the path from the scan with its landmarks at the ROIs' means (zero, because series are z-scored) to the scan itself.
They are signed, and over all ROIs they add up to the change of the log odds along that path. A small change means that
the volumes next to the landmarks carry the same information.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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
    models: Sequence[BolT], series: NDArray[np.floating], target: int, n_landmarks: int
) -> ScanExplanation:
    """Explain a class for one scan: the average over models, at the landmarks of the average importance.

    Parameters
    ----------
    models : sequence of BolT
        On the CPU; left in evaluation mode.
    series : (T, R) float array
        z-scored.
    target : int
        Position of the class to explain.
    n_landmarks : int
    """
    weights = np.mean([importance_of(model, [series], torch.device("cpu"), [target])[0] for model in models], axis=0)
    landmarks = top_tokens(weights, n_landmarks)
    scan = torch.from_numpy(np.ascontiguousarray(series, np.float32))[None]
    without = scan.clone()
    without[:, landmarks.copy()] = 0
    averaged = [_of_model(model.eval(), scan, without, target) for model in models]
    probabilities, contributions, odds = (np.mean(values, axis=0) for values in zip(*averaged, strict=True))
    return ScanExplanation(probabilities, target, weights, landmarks, contributions, float(odds[0]), float(odds[1]))


def _of_model(
    model: BolT, scan: Tensor, without: Tensor, target: int
) -> tuple[NDArray[np.float64], NDArray[np.float32], list[float]]:
    """Return a model's probabilities, each ROI's contribution, and the log odds with and without the landmarks."""

    def odds(scans: Tensor) -> Tensor:
        return log_odds(model(scans).logits, target)

    parts = IntegratedGradients(odds).attribute(scan, baselines=without, n_steps=STEPS, internal_batch_size=BATCH)
    with torch.inference_mode():
        logits = model(torch.cat([scan, without])).logits
    probabilities = logits[0].double().softmax(-1).numpy()
    return probabilities, parts[0].sum(0).detach().numpy(), log_odds(logits, target).tolist()


def log_odds(logits: Tensor, target: int) -> Tensor:
    """Return the log odds of one class against all others, (batch,), from logits (batch, classes)."""
    others = [i for i in range(logits.shape[1]) if i != target]
    return logits[:, target] - logits[:, others].logsumexp(-1)
