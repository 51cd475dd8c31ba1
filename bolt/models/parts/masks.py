"""Masks of dropout from a counter: the same on every device, with and without the compiled library.

A place that drops takes one seed from torch's generator of the CPU (`draw_seed`), which is seeded at each step. Whether
an element is kept is then a function of the seed and of the element's address: Philox-4x32 (Salmon et al. 2011,
doi:10.1145/2063384.2063405) turns the address of eight elements into eight numbers of 16 bits. It has the usual ten
rounds, because fewer would save little where it is fast. So a mask can be computed again instead of being kept, and for
any part of a tensor.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from bolt.models.compiled.library import library

log = logging.getLogger(__name__)
Words = TypeVar("Words", Tensor, np.ndarray)
ROUNDS = 10
NUMBERS = 8
"""From one counter."""
LOW = 2**32 - 1
SPAN = 1024
"""Groups of eight elements of a line into which a tensor is cut."""
AT_ONCE = {"cpu": 2**15, "cuda": 2**22}
"""Groups that torch computes at a time, by device: in a CPU's cache."""


class _MaskCall(ctypes.Structure):
    """The struct `MaskCall` of call.h."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in ("dropped", "n_lines", "n_groups")),
        *((name, ctypes.c_void_p) for name in ("lines", "kept")),
    )


Seed = int | Tensor
"""A tensor, (), is on the device and not read by the host."""
_given: list[Iterator[Tensor]] = []


def new_seeds(n: int) -> Tensor:
    """Draw seeds of masks (n,) from torch's generator of the CPU, so a GPU does not wait."""
    return torch.randint(2**63 - 1, (n,))


def draw_seed() -> Seed:
    """Return a new seed, or the next of those that are given."""
    return next(_given[-1]) if _given else int(new_seeds(1))


@contextmanager
def given_seeds(seeds: Iterator[Tensor]) -> Iterator[None]:
    """Take seeds from the device within the block, where a graph finds new ones in each replay."""
    _given.append(seeds)
    try:
        yield
    finally:
        _given.pop()


def dropped_of(p: float) -> int:
    """Return how many of 2**16 elements are dropped; never all."""
    return min(round(p * 2**16), 2**16 - 1)


def scale_of(dropped: int) -> float:
    """Return the factor of the elements that are kept."""
    return 2**16 / (2**16 - dropped)


def kept_of(x: Tensor, dropped: int, seed: Seed) -> Tensor:
    """Return which elements of a tensor are kept: bool, shaped like `x` and on its device."""
    n_groups = -(-x.numel() // NUMBERS)
    span = min(n_groups, SPAN)
    lines = torch.zeros(-(-n_groups // max(span, 1)), 4, dtype=torch.int64, device=x.device)
    lines[:, 0] = span * torch.arange(len(lines), device=x.device)
    return kept_of_lines(lines, span, dropped, seed).flatten()[: x.numel()].view(x.shape)


def kept_of_lines(lines: Tensor, n_groups: int, dropped: int, seed: Seed) -> Tensor:
    """Return which elements of lines of elements are kept.

    Parameters
    ----------
    lines : Tensor
        (lines, 4), int64: the first group of eight elements of the line, and three numbers that tell lines apart. The
        low 32 bits of each count.
    n_groups : int
        Number of groups of a line.
    dropped : int
        As from `dropped_of`.
    seed : int or Tensor

    Returns
    -------
    Tensor
        (lines, 8 `n_groups`) bool.
    """
    if lines.device.type == "cpu" and (kernel := library()) is not None:
        lines, kept = lines.contiguous(), torch.empty(len(lines), n_groups * NUMBERS, dtype=torch.bool)
        call = _MaskCall(int(seed), dropped, len(lines), n_groups, lines.data_ptr(), kept.data_ptr())
        kernel.library.write_mask(ctypes.byref(call), ctypes.c_int64(kernel.level))
        return kept
    return in_torch(lines, n_groups, dropped, seed)


def in_torch(lines: Tensor, n_groups: int, dropped: int, seed: Seed) -> Tensor:
    """Compute `kept_of_lines` in torch, on a CPU in NumPy, which multiplies and shifts integers in half the time."""
    at_once = max(1, AT_ONCE.get(lines.device.type, AT_ONCE["cuda"]) // max(n_groups, 1))
    groups = torch.arange(n_groups, device=lines.device)
    kept = torch.empty(len(lines), n_groups * NUMBERS, dtype=torch.bool, device=lines.device)
    for some, kept_of_some in zip(lines.split(at_once), kept.split(at_once), strict=True):
        first, *rest = some.unsqueeze(1).unbind(-1)
        counter = [first + groups, *rest]
        if lines.device.type == "cpu":
            halves = tuple(map(torch.from_numpy, philox([word.numpy() for word in counter], int(seed))))
        else:
            halves = philox(counter, seed)
        numbers = torch.stack(torch.broadcast_tensors(*halves), dim=-1).view(torch.int16)
        torch.ge(numbers.flatten(1), dropped - 2**15, out=kept_of_some)
    return kept


def philox(counter: list[Words], seed: Seed) -> tuple[Words, Words]:
    """Compute Philox-4x32.

    Parameters
    ----------
    counter : list of Tensor or ndarray
        Four words, int64, that can be broadcast; their low 32 bits count.
    seed : int or Tensor
        The key, 64 bits.

    Returns
    -------
    tuple of Tensor or ndarray
        The first and second two words of the result in an int64 each, the earlier word in its low half.
    """
    key0, key1 = seed & LOW, seed >> 32 & LOW
    x0, x1, x2, x3 = counter
    x0, x2 = x0 & LOW, x2 & LOW
    for _ in range(ROUNDS):  # the high halves of x1 and x3 may hold anything
        product0, product1 = x0 * 0xD2511F53, x2 * 0xCD9E8D57
        x0, x2 = (product1 >> 32) ^ x1, (product0 >> 32) ^ x3
        x0 ^= key0
        x0 &= LOW
        x2 ^= key1
        x2 &= LOW
        x1, x3 = product1, product0
        key0, key1 = key0 + 0x9E3779B9 & LOW, key1 + 0xBB67AE85 & LOW
    return (x1 << 32) | x0, (x3 << 32) | x2
