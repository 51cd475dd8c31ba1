"""Dropout as a Triton kernel, with the masks of `masks.kept_of`; imported where there is a GPU."""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from bolt.models.parts import masks

BLOCK = 128
"""Groups of eight elements of a program."""


class Dropout(torch.autograd.Function):
    """A tensor with elements dropped and the others scaled, and its gradient; the mask is not kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int, seed: masks.Seed) -> Tensor:
        """Drop `dropped` of 2**16 elements."""
        ctx.rest = dropped, seed
        x = x.contiguous()
        out, n_groups = torch.empty_like(x), -(-x.numel() // masks.NUMBERS)
        if n_groups:
            rest = (seed, dropped, masks.scale_of(dropped), x.numel())
            _drop[(triton.cdiv(n_groups, BLOCK),)](x, out, *rest, THERE=isinstance(seed, Tensor), BLOCK=BLOCK)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        """Drop the same elements of the gradient."""
        return Dropout.apply(gradient, *ctx.rest), None, None


@triton.jit
def numbers(a, b, c, d):
    """Return the eight numbers of 16 bits of each counter, (..., 2, 2, 2), signed, from its four words."""
    words = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.join(words & 0xFFFF, words >> 16) ^ 0x8000


@triton.jit(do_not_specialize=["seed", "dropped", "n"])
def _drop(x, out, seed, dropped, scale, n, THERE: tl.constexpr, BLOCK: tl.constexpr):
    """Compute some groups; a seed that is `THERE` is on the device."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    group = (first + tl.arange(0, BLOCK)).to(tl.uint32)
    key = tl.load(seed) if THERE else seed
    a, b, c, d = tl.philox(key, group, 0 * group, 0 * group, 0 * group, 10)
    kept = tl.reshape(numbers(a, b, c, d), (BLOCK * 8,)) >= dropped
    place = first * 8 + tl.arange(0, BLOCK * 8)
    value = tl.load(x + place, mask=place < n, other=0)
    tl.store(out + place, tl.where(kept, value * scale, 0.0), mask=place < n)
