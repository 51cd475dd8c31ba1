"""A batch of training scans, its parts, and mixtures of its scans.

Batches that do not fit in memory: split into halves on a GPU, reported as an error elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bolt.io.errors import BoltError, MemoryShortage
from bolt.io.resource_errors import is_gpu_shortage, is_shortage
from bolt.models.base import ConnectivityModel, SeriesModel
from bolt.training.device import copied_to
from bolt.training.seeding import Key, mixing_generator

Places = tuple[slice | Tensor, slice | Tensor]
"""Positions of some scans of a batch, on the host and on the device."""


class Batch(NamedTuple):
    """What a training step learns from; tensors are on the device, but for `lengths`."""

    x: Tensor  # series (batch, time, rois) or connectivity matrices
    lengths: Tensor  # (batch,) volumes of each scan, on the host
    truth: Tensor  # (batch,) labels
    covariates: Tensor | None = None  # (batch, n)
    other: Tensor | None = None  # (batch,) labels of the scans with which they are mixed
    share: float = 1.0  # of the own scan and label in a mixture

    def part(self, places: Places) -> Batch:
        """Return some of the scans, as long as the longest of them."""
        on_host, on_device = places
        lengths = self.lengths[on_host]
        return Batch(
            self.x[on_device][:, : int(lengths.max())],
            lengths,
            self.truth[on_device],
            None if self.covariates is None else self.covariates[on_device],
            None if self.other is None else self.other[on_device],
            self.share,
        )


def mixed(batch: Batch, alpha: float, key: Key) -> tuple[Batch, Tensor]:
    """Mix the scans of a batch with each other (Zhang et al. 2018, arXiv:1710.09412), one share for all.

    A mixture is as long as the shorter of its two scans.

    Parameters
    ----------
    batch : Batch
    alpha : float
        Both parameters of the beta distribution of the share.
    key : tuple of int
        Seed, fold, epoch and step.

    Returns
    -------
    batch : Batch
        Sorted by length (see `bolt.training.loop.Fit._by_length`).
    order : Tensor
        (batch,) positions before it was sorted, on the host.
    """
    random, device = mixing_generator(*key), batch.x.device
    share, chosen = random.beta(alpha, alpha), torch.from_numpy(random.permutation(len(batch.x)))
    lengths = torch.minimum(batch.lengths, batch.lengths[chosen])
    order = lengths.argsort(stable=True)
    own, partner = copied_to(device, order), copied_to(device, chosen[order])

    def mix(values: Tensor) -> Tensor:
        return share * values[own] + (1 - share) * values[partner]

    covariates = None if batch.covariates is None else mix(batch.covariates)
    truth, other = batch.truth[own], batch.truth[partner]
    return Batch(mix(batch.x), lengths[order], truth, covariates, other, share), order


def restored(values: Tensor, parts: Sequence[Places], order: Tensor | None) -> Tensor:
    """Return values (batch, …) of parts of a batch, one after the other, in the order before it was sorted."""
    places = torch.arange(len(values))
    passed = torch.cat([places[on_host] for on_host, _ in parts])
    passed = passed if order is None else order[passed]
    return values if passed.equal(places) else values[copied_to(values.device, passed.argsort())]


log = logging.getLogger(__name__)


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


@dataclass
class BatchSplitter:
    """Splits training batches into parts that fit in memory: the whole batch, until a GPU runs out of memory.

    Attributes
    ----------
    net : SeriesModel
    title : str
        Names the training in messages.
    part_size : int or None
        Scans per part; None for whole batches.
    """

    net: SeriesModel
    title: str
    part_size: int | None = None

    def parts(self, n: int) -> list[slice]:
        """Return the parts of a batch of `n` scans."""
        size = self.part_size or n
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def halve(self, n: int, on_gpu: bool) -> None:
        """Halve the size of parts, after a part of a batch of `n` scans did not fit.

        Raises
        ------
        MemoryShortage
            A single scan does not fit; or the memory is not a GPU's, where smaller parts would hardly help.
        """
        size = min(self.part_size or n, n)
        if not on_gpu:
            raise MemoryShortage(
                f"{self.title}: a batch of {size} scans does not fit in the computer's memory",
                hint="Give the job more memory, run fewer jobs side by side, or lower 'training: batch_size' in the "
                "model's configuration",
            )
        torch.cuda.empty_cache()
        if size == 1:
            raise MemoryShortage(
                f"{self.title}: a single scan does not fit in the GPU's memory",
                hint="Shorten 'crop' of the dataset, choose a smaller model, free the GPU, or set 'device: cpu'",
            )
        self.part_size = size // 2
        if not learns_from_batches(self.net):
            log.warning(
                "%s: %d scans do not fit in the GPU's memory, trying %d at a time", self.title, size, self.part_size
            )

    def check_splittable(self, n: int) -> None:
        """Refuse to split a batch of `n` scans that interact, once a size that fits is known.

        Raises
        ------
        BoltError
            With the batch size that fits.
        """
        if self.part_size is not None and self.part_size < n and learns_from_batches(self.net):
            raise BoltError(
                f"{self.title}: a batch of {n} scans does not fit in the GPU's memory, and this model's batches cannot "
                "be split",
                hint=f"Set 'training: batch_size: {self.part_size}' in the model's configuration: that fits",
            )
