"""Seeds of a training, which make it independent of interruptions and of anything else in the process.

The order and crops of an epoch are drawn from (seed, fold, epoch), dropout and all other draws of a step from (seed,
fold, epoch, step), those that mix scans apart. So an interrupted training resumes exactly where it stopped.
"""

from __future__ import annotations

import numpy as np
import torch

Key = tuple[int, int, int, int]
"""Seed, fold, epoch and step."""


def seed_step(seed: int, fold: int, epoch: int = 0, step: int = 0) -> None:
    """Seed torch's global state for the initial weights (epoch 0) or for one step (steps from 1)."""
    number = int(np.random.SeedSequence([seed, fold, epoch, step]).generate_state(1)[0])
    if torch.cuda.is_available():
        torch.manual_seed(number)
    else:  # without preparing devices that are not there, which takes a millisecond a step
        torch.default_generator.manual_seed(number)


def epoch_generator(seed: int, fold: int, epoch: int) -> torch.Generator:
    """Return a generator for the order and the crops of one epoch."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, fold, epoch]).generate_state(2)[1]))


def mixing_generator(seed: int, fold: int, epoch: int, step: int) -> np.random.Generator:
    """Return a generator for the share and the partners with which the scans of one step are mixed."""
    return np.random.default_rng([seed, fold, epoch, step, 1])  # without the 1, as for `seed_step`
