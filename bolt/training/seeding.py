"""What a training draws depends on itself alone.

Order and crops of an epoch come from a seed made of (seed, fold, epoch), dropout and whatever else a step draws from
(seed, fold, epoch, step): an interrupted training goes on exactly where it stopped, and nothing else that runs in the
process can change it.
"""

from __future__ import annotations

import numpy as np
import torch


def seed_step(seed: int, fold: int, epoch: int = 0, step: int = 0) -> None:
    """Seed torch's global state: for the initial weights (epoch 0), or for what one step draws (steps from 1)."""
    torch.manual_seed(int(np.random.SeedSequence([seed, fold, epoch, step]).generate_state(1)[0]))


def epoch_generator(seed: int, fold: int, epoch: int) -> torch.Generator:
    """A generator for the order and the crops of one epoch."""
    own = np.random.SeedSequence([seed, fold, epoch]).generate_state(2)[1]
    return torch.Generator().manual_seed(int(own))
