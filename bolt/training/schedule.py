"""Learning-rate schedules, and the momentum that goes with one of them."""

from __future__ import annotations

import math

from bolt.config import Training

BETAS = (0.9, 0.999)
"""Adam's decay rates of the moving averages: torch's defaults."""
HIGH_BETA, LOW_BETA = 0.95, 0.85
"""Limits of the first of them with the schedule ``one_cycle``: the defaults of torch's ``OneCycleLR``."""


def learning_rate(training: Training, epoch: float, step: float = 0.0) -> float:
    """Return the learning rate of a step.

    Parameters
    ----------
    training : Training
        Describes the schedules.
    epoch : float
        Epochs completed after the step, fractions included.
    step : float
        Share of an epoch that one step takes. ``one_cycle`` needs it: its first step has exactly the initial rate.
    """
    if training.schedule == "constant":
        return training.learning_rate
    if training.schedule == "one_cycle":
        rates = training.learning_rate, training.peak_learning_rate, training.final_learning_rate
        return _one_cycle(training, epoch, step, *rates)
    warm = min(training.warmup_epochs, training.epochs)
    if epoch < warm:
        return _between(training.learning_rate, training.peak_learning_rate, epoch / warm, training.schedule)
    if training.schedule == "step":
        passed = max(0, math.ceil((epoch - warm) / training.step_epochs) - 1)
        return training.peak_learning_rate * training.step_factor**passed
    down = (epoch - warm) / max(training.epochs - warm, 1)
    return _between(training.peak_learning_rate, training.final_learning_rate, down, training.schedule)


def betas(training: Training, epoch: float, step: float) -> tuple[float, float]:
    """Return Adam's decay rates in a step; parameters are those of `learning_rate`.

    With ``one_cycle`` the first falls while the learning rate rises, and rises while it falls.
    """
    if training.schedule != "one_cycle":
        return BETAS
    return _one_cycle(training, epoch, step, HIGH_BETA, LOW_BETA, HIGH_BETA), BETAS[1]


def _one_cycle(training: Training, epoch: float, step: float, start: float, peak: float, end: float) -> float:
    """Follow two half waves, as torch's ``OneCycleLR``: the first step is at `start`, the last at `end`."""
    warm = min(training.warmup_epochs, training.epochs)
    if epoch < warm:
        return _between(start, peak, (epoch - step) / (warm - step), "cosine")
    return _between(peak, end, (epoch - warm) / max(training.epochs - warm, step), "cosine")


def _between(start: float, end: float, share: float, schedule: str) -> float:
    """Interpolate between two rates; for ``cosine`` along half a wave."""
    if schedule == "cosine":
        share = (1 - math.cos(math.pi * share)) / 2
    return start + (end - start) * share
