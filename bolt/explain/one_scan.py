"""What a model says of one scan, and what that rests on: moments by Algorithm 1, regions at these moments by integrated
gradients (Sundararajan et al. 2017, arXiv:1703.01365).

The contribution of an ROI is its share in the change of the class's log odds between the scan as it is and the scan
with its landmarks at the ROIs' means (zero, as series are z-scored). It is signed, in log odds, and the contributions
of all ROIs add up to that change: a small change says that the landmarks' neighbours tell the model the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from captum.attr import IntegratedGradients
from numpy.typing import NDArray
from torch import Tensor

from bolt.explain.landmarks import top_tokens
from bolt.explain.relevance import importance
from bolt.models.bolt import BolT

STEPS = 24
"""Points of the path from mean to value at which gradients are taken (Gauss and Legendre)."""
AT_ONCE = 4


@dataclass(frozen=True)
class OneScan:
    """The explanation of one scan.

    Attributes
    ----------
    probabilities : (classes,) array
    target : int
        The class that is explained.
    weights : (T,) array
        Importance of each volume, not negative.
    landmarks : (k,) int array
        The most important rows of the series, the most important first.
    contributions : (R,) array
        Of each ROI at the landmarks, in log odds of the class.
    log_odds, log_odds_without : float
        Of the class for the scan, and with its landmarks replaced by the mean.
    """

    probabilities: NDArray[np.floating]
    target: int
    weights: NDArray[np.floating]
    landmarks: NDArray[np.integer]
    contributions: NDArray[np.floating]
    log_odds: float
    log_odds_without: float


def explain_scan(model: BolT, series: NDArray[np.floating], target: int | None = None, tokens: int = 5) -> OneScan:
    """Explain a class for one scan; by default the predicted one.

    Parameters
    ----------
    model : BolT
        On the CPU; left in evaluation mode.
    series : (T, R) float array
        z-scored.
    target : int, optional
        Class to explain.
    tokens : int
        Landmarks.
    """
    model.eval()
    x = torch.from_numpy(np.ascontiguousarray(series, np.float32))[None]
    with torch.inference_mode():
        probabilities = model(x).logits.double().softmax(-1)[0].numpy()
    target = int(probabilities.argmax()) if target is None else target
    weights = importance(model, x, torch.tensor([target]))[0].detach().numpy()
    landmarks = top_tokens(weights, tokens)
    without = x.clone()
    without[:, torch.from_numpy(landmarks.copy())] = 0

    def odds(scans: Tensor) -> Tensor:
        return log_odds(model(scans).logits, target)

    parts = IntegratedGradients(odds).attribute(x, baselines=without, n_steps=STEPS, internal_batch_size=AT_ONCE)
    with torch.inference_mode():
        before, after = odds(torch.cat([x, without])).tolist()
    contributions = parts[0].sum(0).detach().numpy()
    return OneScan(probabilities, target, weights, landmarks, contributions, before, after)


def log_odds(logits: Tensor, target: int) -> Tensor:
    """Log odds of one class against all others, (batch,), of logits (batch, classes)."""
    others = [i for i in range(logits.shape[1]) if i != target]
    return logits[:, target] - logits[:, others].logsumexp(-1)
