"""`masks.kept_of_lines` as a Triton kernel, for GPUs; imported where there is one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256
"""Groups of a program."""


def kept_of_lines(lines: Tensor, n_groups: int, dropped: int, seed: int | Tensor) -> Tensor:
    """Compute `masks.kept_of_lines`."""
    kept = torch.empty(len(lines), n_groups, dtype=torch.int64, device=lines.device)
    if kept.numel():
        grid = (triton.cdiv(kept.numel(), BLOCK),)
        there = isinstance(seed, Tensor)
        _write[grid](lines.contiguous(), kept, seed, dropped, kept.numel(), n_groups, THERE=there, BLOCK=BLOCK)
    return kept.view(torch.bool)


@triton.jit(do_not_specialize=["seed", "dropped", "n", "n_groups"])
def _write(lines, kept, seed, dropped, n, n_groups, THERE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write a block of groups: the eight bytes of a group are one number. A seed that is `THERE` is on the device."""
    if THERE:
        seed = tl.load(seed)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    line = lines + place // n_groups * 4
    group = (tl.load(line, mask=there, other=0) + place % n_groups).to(tl.uint32)
    row = tl.load(line + 1, mask=there, other=0).to(tl.uint32)
    head = tl.load(line + 2, mask=there, other=0).to(tl.uint32)
    slot = tl.load(line + 3, mask=there, other=0).to(tl.uint32)
    a, b, c, d = tl.philox(seed, group, row, head, slot, 10)
    first = _two(a, dropped) | (_two(b, dropped) << 16)
    second = _two(c, dropped) | (_two(d, dropped) << 16)
    tl.store(kept + place, first | (second << 32), mask=there)


@triton.jit
def _two(word, dropped):  # type: ignore[no-untyped-def]
    """Return the bytes of the two numbers of a word; numbers are signed."""
    low = ((word & 0xFFFF) ^ 0x8000) >= dropped
    high = ((word >> 16) ^ 0x8000) >= dropped
    return low.to(tl.int64) | (high.to(tl.int64) << 8)
