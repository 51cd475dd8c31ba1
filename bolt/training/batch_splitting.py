"""Batches that memory does not hold: worked on in halves on a GPU, told in words elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from bolt.io.errors import BoltError, MemoryShortage
from bolt.io.resource_errors import is_shortage
from bolt.models.base import SeriesModel

log = logging.getLogger(__name__)


@contextmanager
def room_for(what: str, hint: str) -> Iterator[None]:
    """Turn a shortage of memory within the block into an error that says what it had no room for.

    Raises
    ------
    MemoryShortage
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        raise MemoryShortage(f"{whose(error)} memory does not hold {what}", hint=hint) from None


def whose(error: Exception) -> str:
    """Whose memory a shortage is of."""
    return "the GPU's" if isinstance(error, torch.OutOfMemoryError) else "the computer's"


def learns_from_batches(net: SeriesModel) -> bool:
    """Whether scans of a batch matter to one another in training: batch normalisation, terms over a batch's classes.

    The loss of all other models is a mean over scans, so that a batch's gradient is the sum of its parts'.
    """
    normalised = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules())
    return normalised or type(net).label_losses is not SeriesModel.label_losses


@dataclass
class Room:
    """How many scans of a training batch are worked on at once: all, until a GPU has no memory for them.

    Attributes
    ----------
    net : SeriesModel
    title : str
        Names the training, for messages.
    at_once : int or None
        None: whole batches.
    """

    net: SeriesModel
    title: str
    at_once: int | None = None

    def parts(self, n: int) -> list[slice]:
        """The parts of a batch of `n` scans, one after the other."""
        size = self.at_once or n
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def shrink(self, n: int, on_gpu: bool) -> None:
        """Take half as many scans at once from now on, after `n` (or as many as were taken) did not fit.

        Raises
        ------
        MemoryShortage
            A single scan does not fit; or the memory is not a GPU's, where smaller parts would hardly help.
        """
        now = min(self.at_once or n, n)
        if not on_gpu:
            raise MemoryShortage(
                f"the computer's memory does not hold a batch of {now} scans: {self.title}",
                hint="Give the job more memory, run fewer jobs side by side, or lower 'training: batch_size' in the "
                "model's configuration",
            )
        torch.cuda.empty_cache()
        if now == 1:
            raise MemoryShortage(
                f"the GPU's memory does not hold a single scan: {self.title}",
                hint="Shorten 'crop' of the dataset, choose a smaller model, free the GPU, or set 'device: cpu'",
            )
        self.at_once = now // 2
        if not learns_from_batches(self.net):
            log.warning("%s: %d scans do not fit in the GPU's memory; %d at once do", self.title, now, self.at_once)

    def settle(self, n: int) -> None:
        """Once `parts` of `n` scans have fitted: refuse them where scans of a batch matter to one another.

        Raises
        ------
        BoltError
            With the size of a batch that fits.
        """
        if self.at_once is not None and self.at_once < n and learns_from_batches(self.net):
            raise BoltError(
                f"the GPU's memory does not hold a batch of {n} scans, and this model's batches cannot be worked on in "
                f"parts: {self.title}",
                hint=f"Set 'training: batch_size: {self.at_once}' in the model's configuration: that fits",
            )
