"""A batch of training scans, its parts, mixtures of its scans and its seeds; and what a memory shortage is called.

Seeds make a training independent of interruptions and of anything else in the process. The order and crops of an epoch
are drawn from (seed, fold, epoch), dropout and all other draws of a step from (seed, fold, epoch, step), those that mix
scans apart. So an interrupted training resumes exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bolt.io.errors import MemoryShortage
from bolt.io.resource_errors import is_gpu_shortage, is_shortage
from bolt.models.base import ConnectivityModel, SeriesModel
from bolt.training.device import copied_to

Key = tuple[int, int, int, int]
"""Seed, fold, epoch and step."""
Places = tuple[slice | Tensor, slice | Tensor]
"""Positions of some scans of a batch, on the host and on the device."""


class Draw(NamedTuple):
    """What is drawn for a step: all on the host, or all on the device."""

    which: Tensor  # (batch,) scans
    lengths: Tensor  # (batch,) volumes of each
    own: Tensor  # (batch,) positions of the scans in mixtures, and of those that are mixed with them; or (0,)
    partner: Tensor
    seeds: Tensor  # of the places that drop
    numbers: Tensor  # share of the own scan in a mixture, and rates of the optimiser, float64
    series: Tensor  # (batch, time) rows of the pool, or values (batch, time, rois) or matrices


class Batch(NamedTuple):
    """What a training step learns from; tensors are on the device, but perhaps for `lengths`."""

    x: Tensor  # series (batch, time, rois) or connectivity matrices
    lengths: Tensor  # (batch,) volumes of each scan
    truth: Tensor  # (batch,) labels
    covariates: Tensor | None = None  # (batch, n)
    other: Tensor | None = None  # (batch,) labels of the scans with which they are mixed
    share: float | Tensor = 1.0  # of the own scan and label in a mixture

    def part(self, places: Places) -> Batch:
        """Return some of the scans, as long as the longest of them."""
        on_host, on_device = places
        lengths = self.lengths[on_host]
        x, truth = self.x[on_device][:, : int(lengths.max())], self.truth[on_device]
        covariates = None if self.covariates is None else self.covariates[on_device]
        other = None if self.other is None else self.other[on_device]
        return Batch(x, lengths, truth, covariates, other, self.share)


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


def draw_mixture(lengths: Tensor, alpha: float, key: Key) -> tuple[float, Tensor, Tensor]:
    """Draw how scans of a batch are mixed with each other (Zhang et al. 2018, arXiv:1710.09412), one share for all.

    Parameters
    ----------
    lengths : Tensor
        (batch,) volumes of each scan; a mixture is as long as the shorter of its two scans.
    alpha : float
        Both parameters of the beta distribution of the share.
    key : tuple of int
        Seed, fold, epoch and step.

    Returns
    -------
    share : float
        Of the own scan.
    own, partner : Tensor
        (batch,) positions of the scans of each mixture, sorted by length, as in `bolt.training.loop.Fit._epoch`.
    """
    random = np.random.default_rng([*key, 1])  # without the 1, as for `seed_step`
    share, chosen = random.beta(alpha, alpha), torch.from_numpy(random.permutation(len(lengths)))
    order = torch.minimum(lengths, lengths[chosen]).argsort(stable=True)
    return share, order, chosen[order]


def mixed(batch: Batch, share: float | Tensor, own: Tensor, partner: Tensor) -> Batch:
    """Mix the scans of a batch; positions are where its lengths are."""
    lengths = torch.minimum(batch.lengths[own], batch.lengths[partner])
    own, partner = copied_to(batch.x.device, own), copied_to(batch.x.device, partner)

    def mix(values: Tensor) -> Tensor:
        return share * values[own] + (1 - share) * values[partner]

    covariates = None if batch.covariates is None else mix(batch.covariates)
    return Batch(mix(batch.x), lengths, batch.truth[own], covariates, batch.truth[partner], share)


def restored(values: Tensor, parts: Sequence[Places], order: Tensor | None) -> Tensor:
    """Return values (batch, …) of parts of a batch, one after the other, in the order before it was sorted."""
    places = torch.arange(len(values))
    passed = torch.cat([places[on_host] for on_host, _ in parts])
    passed = passed if order is None else order[passed]
    return values if passed.equal(places) else values[copied_to(values.device, passed.argsort())]


@contextmanager
def explain_shortage(what: str, hint: str) -> Iterator[None]:
    """Turn a memory shortage within the block into an error that names what did not fit.

    Raises
    ------
    MemoryShortage
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        raise MemoryShortage(f"{what} does not fit in the {memory_owner(error)}'s memory", hint=hint) from None


def memory_owner(error: Exception) -> str:
    """Return which memory is short: that of the GPU or of the computer."""
    return "GPU" if is_gpu_shortage(error) else "computer"


def learns_from_batches(net: SeriesModel) -> bool:
    """Return whether the scans of a training batch interact: batch normalisation, or losses over a batch's classes.

    The loss of all other models is a mean over scans, so the gradient of a batch is the sum of its parts' gradients.
    """
    normalised = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules())
    return normalised or type(net).label_losses is not SeriesModel.label_losses


def needs_equal_lengths(net: SeriesModel) -> bool:
    """Return whether all series of a training batch must be equally long: they interact, and it takes no lengths.

    Passed apart, by length, short scans would be normalised by their own statistics, which may be those of a site, and
    a few of them would count as much as all others in the running statistics with which scans are predicted.
    """
    return learns_from_batches(net) and not net.takes_lengths and not isinstance(net, ConnectivityModel)
