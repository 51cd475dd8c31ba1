"""Learning-rate schedules."""

from __future__ import annotations

import math

from bolt.config import Training


def learning_rate(training: Training, epoch: float) -> float:
    """Return the learning rate of a step.

    Parameters
    ----------
    training : Training
        Describes the schedules.
    epoch : float
        Epochs completed after the step, fractions included.
    """
    if training.schedule == "constant":
        return training.learning_rate
    warm = min(training.warmup_epochs, training.epochs)
    if epoch < warm:
        return _between(training.learning_rate, training.peak_learning_rate, epoch / warm, training.schedule)
    if training.schedule == "step":
        passed = max(0, math.ceil((epoch - warm) / training.step_epochs) - 1)
        return training.peak_learning_rate * training.step_factor**passed
    down = (epoch - warm) / max(training.epochs - warm, 1)
    return _between(training.peak_learning_rate, training.final_learning_rate, down, training.schedule)


def _between(start: float, end: float, share: float, schedule: str) -> float:
    """Interpolate between two rates; for ``cosine`` along half a wave."""
    if schedule == "cosine":
        share = (1 - math.cos(math.pi * share)) / 2
    return start + (end - start) * share
