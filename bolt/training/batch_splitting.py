"""Batches that do not fit in memory: split into halves on a GPU, reported as an error elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from bolt.io.errors import BoltError, MemoryShortage
from bolt.io.resource_errors import is_gpu_shortage, is_shortage
from bolt.models.base import ConnectivityModel, SeriesModel

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
