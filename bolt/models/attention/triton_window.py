"""`window.attend_sets` as Triton kernels, for GPUs; imported where there is one.

A program computes some queries, or keys, of a set in one head. Attention weights are not kept: the backward pass
computes them again from the logarithm of their sum. Nothing is added atomically, so gradients do not depend on the
order of programs.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from bolt.models.parts import masks

ROWS, KEYS = 32, 32
"""Queries and keys of a block."""
CHUNKS = 8
"""Parts of the sets over which the gradient of the bias is summed side by side."""


class Attend(torch.autograd.Function):
    """Attention of sets of queries, (sets, queries, h·d); parameters are those of `window.attend_sets`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, tile: Tensor, sets: Any, drop: Any, cls: bool) -> Tensor:
        """Compute the outputs."""
        q, kv, tile = q.contiguous(), kv.contiguous(), tile.contiguous()
        n_sets, n_queries = sets.queries.shape
        out, sums = q.new_empty(n_sets, n_queries, q.shape[1]), q.new_empty(n_sets, len(tile), n_queries)
        common, settings = _common(q, kv, tile, sets, drop, cls)
        _forward[n_sets, len(tile), triton.cdiv(n_queries, ROWS)](*common, out, sums, **settings)
        ctx.save_for_backward(q, kv, tile, out, sums)
        ctx.rest = sets, drop, cls
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Compute the gradients of queries, keys and values, and bias."""
        q, kv, tile, out, sums = ctx.saved_tensors
        sets, drop, cls = ctx.rest
        (n_sets, n_queries), n_keys, n_heads = sets.queries.shape, sets.keys.shape[1], len(tile)
        given = given.contiguous()
        common, settings = _common(q, kv, tile, sets, drop, cls)
        inner = given.unflatten(2, (n_heads, -1)).mul(out.unflatten(2, (n_heads, -1))).sum(-1).contiguous()
        of_queries, of_keys = torch.empty_like(given), kv.new_empty(n_sets, n_keys, kv.shape[1])
        of_tile = tile.new_empty(CHUNKS, *tile.shape)
        blocks = triton.cdiv(n_queries, ROWS), triton.cdiv(n_keys, KEYS)
        back = (*common, given, sums, inner)
        _of_queries[n_sets, n_heads, blocks[0]](*back, of_queries, **settings)
        _of_keys[n_sets, n_heads, blocks[1]](*back, of_keys, **settings)
        _of_tile[n_heads * CHUNKS, *blocks](*back, of_tile, n_sets, CHUNKS=CHUNKS, **settings)
        dq = torch.zeros_like(q).index_add_(0, sets.queries.flatten(), of_queries.flatten(0, 1))
        dkv = torch.zeros_like(kv).index_add_(0, sets.keys.flatten(), of_keys.flatten(0, 1))
        return dq, dkv, of_tile.sum(0), None, None, None


def _common(
    q: Tensor, kv: Tensor, tile: Tensor, sets: Any, drop: Any, cls: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what all kernels take: arguments, and settings for which they are compiled."""
    n_heads, d = len(tile), q.shape[1] // len(tile)
    tables = (part.contiguous() for part in (sets.queries, sets.keys, sets.outside, sets.slot, sets.first))
    dropped, seed = (0, 0) if drop is None else drop
    arguments = (q, kv, tile, *tables, seed, dropped, masks.scale_of(dropped), d**-0.5, *tile.shape[1:])
    tensor_float = torch.backends.cuda.matmul.fp32_precision == "tf32"  # type: ignore[attr-defined]
    return arguments, {
        "HEADS": n_heads, "D": d, "WIDE": max(16, triton.next_power_of_2(d)), "CLS": int(cls), "DROP": dropped > 0,
        "THERE": isinstance(seed, Tensor), "PRECISION": "tf32" if tensor_float else "ieee", "ROWS": ROWS, "KEYS": KEYS,
    }  # fmt: skip


@triton.jit
def _queries(q, queries, slot, one, head, block, n_queries, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr,
             ROWS: tl.constexpr):  # fmt: skip
    """Return numbers, rows of q, slots and values of a block of queries of a set."""
    rows, channels = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    there = rows < n_queries
    place = one * n_queries + rows
    token = tl.load(queries + place, mask=there, other=0)
    slots = tl.load(slot + place, mask=there, other=0)
    at = token[:, None] * (HEADS * D) + head * D + channels[None]
    return rows, token, slots, tl.load(q + at, mask=there[:, None] & (channels[None] < D), other=0)


@triton.jit
def _keys(kv, keys, outside, one, head, start, n_keys, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr,
          KEYS: tl.constexpr):  # fmt: skip
    """Return numbers, existence, keys and values of a block of keys of a set."""
    columns, channels = start + tl.arange(0, KEYS), tl.arange(0, WIDE)
    place = one * n_keys + columns
    row = tl.load(keys + place, mask=columns < n_keys, other=0)
    there = tl.load(outside + place, mask=columns < n_keys, other=1) == 0
    at = kv + row[:, None] * (2 * HEADS * D) + head * D + channels[None]
    exists = there[:, None] & (channels[None] < D)
    return columns, there, tl.load(at, mask=exists, other=0), tl.load(at + HEADS * D, mask=exists, other=0)


@triton.jit
def _scores(query, key, tile, rows, columns, there, head, n_queries, n_keys, PRECISION: tl.constexpr):
    """Return the scores of queries, which are scaled, and keys."""
    place = (head * n_queries + rows[:, None]) * n_keys + columns[None]
    bias = tl.load(tile + place, mask=(rows < n_queries)[:, None] & there[None], other=0)
    return tl.where(there[None], tl.dot(query, tl.trans(key), input_precision=PRECISION) + bias, float("-inf"))


@triton.jit
def _kept(seed, dropped, token, slots, columns, first, one, head, CLS: tl.constexpr, THERE: tl.constexpr):
    """Return which weights are kept, as `window._kept`."""
    if THERE:
        seed = tl.load(seed)
    bold = tl.load(first + one) + columns - CLS
    group, number = (bold >> 3)[None] + 0 * slots[:, None], (bold & 7)[None] + 0 * slots[:, None]
    line = slots[:, None] + 0 * group
    if CLS:
        of_cls = (columns == 0)[None]
        group, number = tl.where(of_cls, line >> 3, group), tl.where(of_cls, line & 7, number)
        line = tl.where(of_cls, 4294967295, line)
    row, of_head = token[:, None] + 0 * group, head + 0 * group
    a, b, c, d = tl.philox(seed, group.to(tl.uint32), row.to(tl.uint32), of_head.to(tl.uint32), line.to(tl.uint32), 10)
    word = tl.where(number < 4, tl.where(number < 2, a, b), tl.where(number < 6, c, d))
    half = (word >> ((number & 1) * 16).to(tl.uint32)) & 0xFFFF
    return (half ^ 0x8000) >= dropped


@triton.jit
def _forward(
    q, kv, tile, queries, keys, outside, slot, first, seed, dropped, larger, scale, n_queries, n_keys, out, sums,
    HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, CLS: tl.constexpr, DROP: tl.constexpr,
    THERE: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Compute some queries of a set: their mixed values, and the logarithm of the sum of their weights."""
    one, head, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    rows, token, slots, query = _queries(q, queries, slot, one, head, block, n_queries, HEADS, D, WIDE, ROWS)
    query = query * scale
    mixed, total = tl.zeros_like(query), tl.sum(tl.zeros_like(query), axis=1)
    top = total + float("-inf")
    for start in range(0, n_keys, KEYS):
        columns, there, key, value = _keys(kv, keys, outside, one, head, start, n_keys, HEADS, D, WIDE, KEYS)
        scores = _scores(query, key, tile, rows, columns, there, head, n_queries, n_keys, PRECISION)
        new = tl.maximum(top, tl.max(scores, axis=1))
        base = tl.where(new == float("-inf"), 0.0, new)
        weights, shrink = tl.exp(scores - base[:, None]), tl.exp(top - base)
        total = total * shrink + tl.sum(weights, axis=1)
        if DROP:
            kept = _kept(seed, dropped, token, slots, columns, first, one, head, CLS, THERE)
            weights = tl.where(kept, weights * larger, 0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        top = new
    there, channels = rows < n_queries, tl.arange(0, WIDE)
    place = (one * n_queries + rows)[:, None] * (HEADS * D) + head * D + channels[None]
    tl.store(out + place, mixed / total[:, None], mask=there[:, None] & (channels[None] < D))
    tl.store(sums + (one * HEADS + head) * n_queries + rows, top + tl.log(total), mask=there)


@triton.jit
def _slopes(
    query, key, value, given, tile, rows, columns, there, token, slots, sums, inner, first, seed, dropped, larger, one,
    head, n_queries, n_keys, HEADS: tl.constexpr, CLS: tl.constexpr, DROP: tl.constexpr, THERE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the weights of some queries and keys that are kept, and the gradient of their scores."""
    present = rows < n_queries
    scores = _scores(query, key, tile, rows, columns, there, head, n_queries, n_keys, PRECISION)
    total = tl.load(sums + (one * HEADS + head) * n_queries + rows, mask=present, other=0)
    within = tl.load(inner + (one * n_queries + rows) * HEADS + head, mask=present, other=0)
    weights = tl.where(present[:, None], tl.exp(scores - total[:, None]), 0.0)
    slopes = tl.dot(given, tl.trans(value), input_precision=PRECISION)
    mixing = weights
    if DROP:
        kept = _kept(seed, dropped, token, slots, columns, first, one, head, CLS, THERE)
        slopes, mixing = tl.where(kept, slopes * larger, 0.0), tl.where(kept, weights * larger, 0.0)
    return mixing.to(query.dtype), (weights * (slopes - within[:, None])).to(query.dtype)


@triton.jit
def _given(given, rows, one, head, n_queries, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """Return the gradient of some queries' outputs."""
    channels = tl.arange(0, WIDE)
    place = (one * n_queries + rows)[:, None] * (HEADS * D) + head * D + channels[None]
    return tl.load(given + place, mask=(rows < n_queries)[:, None] & (channels[None] < D), other=0)


@triton.jit
def _of_queries(
    q, kv, tile, queries, keys, outside, slot, first, seed, dropped, larger, scale, n_queries, n_keys, given, sums,
    inner, out, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, CLS: tl.constexpr, DROP: tl.constexpr,
    THERE: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of some queries of a set."""
    one, head, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    rows, token, slots, query = _queries(q, queries, slot, one, head, block, n_queries, HEADS, D, WIDE, ROWS)
    query = query * scale
    of_output, gradient = _given(given, rows, one, head, n_queries, HEADS, D, WIDE), tl.zeros_like(query)
    for start in range(0, n_keys, KEYS):
        columns, there, key, value = _keys(kv, keys, outside, one, head, start, n_keys, HEADS, D, WIDE, KEYS)
        _, slopes = _slopes(
            query, key, value, of_output, tile, rows, columns, there, token, slots, sums, inner, first, seed, dropped,
            larger, one, head, n_queries, n_keys, HEADS, CLS, DROP, THERE, PRECISION,
        )  # fmt: skip
        gradient += tl.dot(slopes, key, input_precision=PRECISION)
    channels = tl.arange(0, WIDE)
    place = (one * n_queries + rows)[:, None] * (HEADS * D) + head * D + channels[None]
    tl.store(out + place, gradient * scale, mask=(rows < n_queries)[:, None] & (channels[None] < D))


@triton.jit
def _of_keys(
    q, kv, tile, queries, keys, outside, slot, first, seed, dropped, larger, scale, n_queries, n_keys, given, sums,
    inner, out, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, CLS: tl.constexpr, DROP: tl.constexpr,
    THERE: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of some keys and values of a set."""
    one, head, start = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2) * KEYS
    columns, there, key, value = _keys(kv, keys, outside, one, head, start, n_keys, HEADS, D, WIDE, KEYS)
    of_key, of_value = tl.zeros_like(key), tl.zeros_like(key)
    for block in range(0, tl.cdiv(n_queries, ROWS)):
        rows, token, slots, query = _queries(q, queries, slot, one, head, block, n_queries, HEADS, D, WIDE, ROWS)
        query = query * scale
        of_output = _given(given, rows, one, head, n_queries, HEADS, D, WIDE)
        mixing, slopes = _slopes(
            query, key, value, of_output, tile, rows, columns, there, token, slots, sums, inner, first, seed, dropped,
            larger, one, head, n_queries, n_keys, HEADS, CLS, DROP, THERE, PRECISION,
        )  # fmt: skip
        of_key += tl.dot(tl.trans(slopes), query, input_precision=PRECISION)
        of_value += tl.dot(tl.trans(mixing), of_output, input_precision=PRECISION)
    channels = tl.arange(0, WIDE)
    place = (one * n_keys + columns)[:, None] * (2 * HEADS * D) + head * D + channels[None]
    exists = (columns < n_keys)[:, None] & (channels[None] < D)
    tl.store(out + place, of_key, mask=exists)
    tl.store(out + place + HEADS * D, of_value, mask=exists)


@triton.jit
def _of_tile(
    q, kv, tile, queries, keys, outside, slot, first, seed, dropped, larger, scale, n_queries, n_keys, given, sums,
    inner, out, n_sets, CHUNKS: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr,
    CLS: tl.constexpr, DROP: tl.constexpr, THERE: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a block of the bias, summed over a part of the sets."""
    head, chunk = tl.program_id(0) // CHUNKS, tl.program_id(0) % CHUNKS
    block, start = tl.program_id(1), tl.program_id(2) * KEYS
    rows, columns = block * ROWS + tl.arange(0, ROWS), start + tl.arange(0, KEYS)
    place = (head * n_queries + rows[:, None]) * n_keys + columns[None]
    inside = (rows < n_queries)[:, None] & (columns < n_keys)[None]
    gradient = 0 * tl.load(tile + place, mask=inside, other=0)
    for number in range(chunk, n_sets, CHUNKS):
        one = number + 0 * tl.program_id(0).to(tl.int64)
        columns, there, key, value = _keys(kv, keys, outside, one, head, start, n_keys, HEADS, D, WIDE, KEYS)
        rows, token, slots, query = _queries(q, queries, slot, one, head, block, n_queries, HEADS, D, WIDE, ROWS)
        query = query * scale
        of_output = _given(given, rows, one, head, n_queries, HEADS, D, WIDE)
        _, slopes = _slopes(
            query, key, value, of_output, tile, rows, columns, there, token, slots, sums, inner, first, seed, dropped,
            larger, one, head, n_queries, n_keys, HEADS, CLS, DROP, THERE, PRECISION,
        )  # fmt: skip
        gradient += slopes
    tl.store(out + chunk * HEADS * n_queries * n_keys + place, gradient, mask=inside)
