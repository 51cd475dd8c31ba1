"""`window.attend` as Triton kernels, for GPUs; imported where there is one.

A program computes a block of queries, or of keys, of a scan in one head. The windows of a query are its slots: they
differ in the keys that they contain, but not in the scores. The backward pass computes weights again from the logarithm
of their sum. Nothing is added atomically, so gradients do not depend on the order of programs.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from bolt.models.attention.window import Drop, Shape, draw_drop
from bolt.models.base import full_precision
from bolt.models.parts import masks
from bolt.models.parts.triton_masks import numbers

SIZE = 32
"""Queries or keys of a block."""
WARPS = {"ieee": 4, "tf32": 2}
"""Of a program, by precision, for up to 32 channels: products on tensor cores leave fewer instructions to share."""
KINDS = {"none": 0, "local": 1, "global": 2}
INTEGERS = [
    "seed", "dropped", "n_cls", "window", "fringe", "reach", "field", "n_bias", "slots", "cls_blocks", "reached",
    "n_blocks",
]  # fmt: skip
"""Arguments for whose values kernels are not compiled anew."""


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Compute `window.attend`; products in TensorFloat-32 if it is switched on, or `q` is in half precision."""
    drop, dtype = draw_drop(dropout), torch.float64 if q.dtype == torch.float64 else torch.float32
    with full_precision(q.device):
        tensor_float = torch.backends.cuda.matmul.fp32_precision == "tf32"  # type: ignore[attr-defined]
        precision = "tf32" if tensor_float or q.dtype.itemsize == 2 else "ieee"
        out: Tensor = _Attend.apply(q.to(dtype), kv.to(dtype), bias.to(dtype), shape, drop, precision)
    return out.to(q.dtype)


class _Attend(torch.autograd.Function):
    """Attention with its gradient."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, drop: Drop | None, precision: str
    ) -> Tensor:
        q, kv, bias = q.contiguous(), kv.contiguous(), bias.contiguous()
        out, apart = torch.zeros_like(q), q.new_empty(len(q), shape.windows.most, q.shape[1])
        sums = q.new_empty(len(q), shape.windows.most, shape.n_heads)
        common, settings = _common(q, kv, bias, shape, drop, precision)
        _forward[len(shape.windows.lengths), shape.n_heads, _blocks(shape)](*common, out, apart, sums, **settings)
        ctx.save_for_backward(q, kv, bias, apart, sums)
        ctx.rest = shape, drop, precision
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, kv, bias, apart, sums = ctx.saved_tensors
        shape, drop, precision = ctx.rest
        windows, heads, (near, field, width, one) = shape.windows, shape.n_heads, shape.bias_sizes
        common, settings = _common(q, kv, bias, shape, drop, precision)
        places, n_scans, n_blocks = windows.places(shape.beyond, q.device), len(windows.lengths), _blocks(shape)
        reached = (shape.reach + SIZE - 2) // SIZE  # blocks of keys on either side of one of queries
        given = given * (places.share[: len(q), None].to(q.dtype) * (masks.scale_of(drop.dropped) if drop else 1.0))
        inner = (given[:, None] * apart).unflatten(2, (heads, -1)).sum(-1)
        (dq, dkv), (pull, kept) = map(torch.zeros_like, (q, kv)), map(torch.empty_like, (sums, sums))
        of_near = q.new_zeros(n_scans, heads, n_blocks, 2 * reached + 1, 2, SIZE)
        of_field, of_width = q.new_zeros(windows.n_cls, heads, field), q.new_zeros(windows.n_windows, heads, width)
        back = (*common, given, sums, inner, pull, kept)
        _of_queries[n_scans, heads, n_blocks](*back, dq, of_near, of_field, reached, n_blocks, **settings)
        key_blocks = triton.cdiv(max(windows.lengths) + shape.beyond, SIZE)
        _of_keys[n_scans, heads, key_blocks](*back, dkv, n_blocks, **settings)
        if windows.n_cls:
            of_cls = (places.scan_of_cls, dkv, of_width)
            _of_cls_keys[windows.n_cls, heads](*back, *of_cls, BOLD=shape.bold_rows, **settings)
        # keys in the block `number` after that of their queries are at distances below and from `number` · SIZE
        below, above = of_near.sum((0, 2)).unbind(2)
        distances = pad(below.flatten(1), (0, SIZE)) + pad(above.flatten(1), (SIZE, 0))
        first = SIZE * (reached + 1) - shape.reach + 1
        to_self = pull[: windows.n_cls, 0].sum(0)[:, None] if windows.n_cls else bias.new_zeros(heads, one)
        parts = distances[:, first : first + near], of_field.sum(0), of_width.sum(0), to_self
        return dq, dkv, torch.cat(parts, dim=1), None, None, None


def _blocks(shape: Shape) -> int:
    """Return the number of blocks of queries of the longest scan; those of CLS tokens come first."""
    n_bold = triton.cdiv(max(shape.windows.lengths), SIZE) if shape.bold_rows else 0
    return triton.cdiv(max(shape.windows.counts), SIZE) + n_bold


def _common(
    q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, drop: Drop | None, precision: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what all kernels take: arguments, and settings for which they are compiled."""
    windows, d, places = shape.windows, q.shape[1] // shape.n_heads, shape.windows.places(shape.beyond, q.device)
    dropped, seed = (0, 0) if drop is None else drop
    sizes = windows.n_cls, windows.window, shape.fringe, shape.reach, shape.bias_sizes[1], bias.shape[1], windows.most
    tables = places.table, places.starts, places.earliest, places.times
    arguments = (q, kv, bias, *tables, seed, dropped, masks.scale_of(dropped), d**-0.5, *sizes)
    wide = max(16, triton.next_power_of_2(d))
    return (*arguments, triton.cdiv(max(windows.counts), SIZE)), {
        "HEADS": shape.n_heads, "D": d, "WIDE": wide, "KIND": KINDS[windows.cls_token],
        "DROP": dropped > 0, "THERE": isinstance(seed, Tensor), "PRECISION": precision, "SIZE": SIZE,
        "num_warps": WARPS[precision] * max(1, min(wide // 32, 4)),
    }  # fmt: skip


class Here(NamedTuple):
    """The scan and the head of a program."""

    kv: Any
    bias: Any  # of the head
    starts: Any
    head: Any
    first_key: Any  # row of kv
    n_keys: Any
    cls: Any  # first CLS token
    seed: Any
    dropped: Any
    window: Any
    fringe: Any
    zero_cls: Any  # columns of the bias: BOLD to CLS
    to_self: Any  # CLS to CLS


class Rows(NamedTuple):
    """A block of queries."""

    row: Any  # of q
    count: Any  # number of slots
    first: Any  # first window
    place: Any  # from which distances to keys count
    of_cls: Any  # whether they are CLS tokens
    span: Any  # keys of a slot, those outside the scan included
    zero: Any  # columns of the bias: distance 0
    begin: Any  # the first
    end: Any  # after the last


@triton.jit
def _here(kv, bias, table, starts, seed, dropped, scan, head, window, fringe, reach, field, n_bias,
          THERE: tl.constexpr):  # fmt: skip
    """Describe a scan."""
    line = table + scan * 7
    return Here(
        kv, bias + head * n_bias, starts, head, tl.load(line + 2).to(tl.int32), tl.load(line + 3).to(tl.int32),
        tl.load(line + 4).to(tl.int32), tl.load(seed) if THERE else seed, dropped, window, fringe,
        2 * reach - 1 + field, n_bias - 1,
    )  # fmt: skip


@triton.jit
def _rows(here, table, earliest, times, scan, block, n_cls, reach, field, cls_blocks, KIND: tl.constexpr,
          SIZE: tl.constexpr):  # fmt: skip
    """Describe a block of queries."""
    line, number = table + scan * 7, tl.arange(0, SIZE)
    span = here.window + 2 * here.fringe
    if block < cls_blocks:
        number += block * SIZE
        count = (number < (tl.load(line + 6) if KIND == 1 else 1)).to(tl.int32)
        row, first = here.cls + number, here.cls + number if KIND == 1 else 0 * number
        place = 0 * number
        if KIND == 1:
            place = tl.load(here.starts + first, mask=count > 0, other=0).to(tl.int32) - here.fringe
        span = here.n_keys if KIND == 2 else span  # a global CLS token attends to the scan
        rows = Rows(row, count, first, place, block < cls_blocks, span, 2 * reach - 1, 2 * reach - 1, here.zero_cls)
    else:
        number += (block - cls_blocks) * SIZE
        token, there = tl.load(line).to(tl.int32) + number, number < tl.load(line + 1)
        count = tl.load(times + token, mask=there, other=0).to(tl.int32)
        first = tl.load(earliest + token, mask=there, other=0).to(tl.int32)
        rows = Rows(n_cls + token, count, first, number, block < cls_blocks, span, reach - 1, 0 * reach, 2 * reach - 1)
    return rows


@triton.jit
def _values(x, row, there, head, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """Return a head's values of some rows (rows, HEADS · D), or zeros."""
    channels = tl.arange(0, WIDE)
    at = x + row[:, None] * (HEADS * D) + head * D + channels[None]
    return tl.load(at, mask=there[:, None] & (channels[None] < D), other=0)


@triton.jit
def _store(x, row, there, head, value, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """Write a head's values of some rows."""
    channels = tl.arange(0, WIDE)
    at = x + row[:, None] * (HEADS * D) + head * D + channels[None]
    tl.store(at, value, mask=there[:, None] & (channels[None] < D))


@triton.jit
def _key_value(here, start, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, SIZE: tl.constexpr):
    """Return the volumes of a block of BOLD keys, the keys, and their values."""
    keys = start + tl.arange(0, SIZE)
    row, there = 2 * (here.first_key + keys), keys < here.n_keys
    key = _values(here.kv, row, there, here.head, HEADS, D, WIDE)
    return keys, key, _values(here.kv, row + 1, there, here.head, HEADS, D, WIDE)


@triton.jit
def _low(here, rows, j, KIND: tl.constexpr):
    """Return the first key of a slot of some queries, perhaps before the scan; 2**30 where there is no such slot."""
    low = tl.load(here.starts + rows.first + j, mask=j < rows.count, other=2**30).to(tl.int32) - here.fringe
    return tl.where(rows.of_cls & (j < rows.count), 0, low) if KIND == 2 else low


@triton.jit
def _range(here, rows, first, last, SIZE: tl.constexpr):
    """Return the first key of slots from `first` to `last`, rounded down to a block, and the one after the last."""
    begin = tl.minimum(tl.maximum(tl.min(first, axis=0), 0), here.n_keys) // SIZE * SIZE
    end = tl.max(tl.where((rows.count > 0) & (last < 2**29), last + rows.span, 0), axis=0)
    return begin, tl.minimum(end, here.n_keys)


@triton.jit
def _scores(here, rows, query, key, keys, PRECISION: tl.constexpr):
    """Return the scores of queries, which are scaled, and keys."""
    column = keys[None] - rows.place[:, None] + rows.zero
    there = (column >= rows.begin) & (column < rows.end) & (keys < here.n_keys)[None]
    bias = tl.load(here.bias + column, mask=there, other=float("-inf"))
    return tl.dot(query, tl.trans(key), input_precision=PRECISION) + bias


@triton.jit
def _inside(rows, keys, low):
    """Return which keys belong to a slot of queries."""
    after = keys[None] - low[:, None]
    return (after >= 0) & (after < rows.span)


@triton.jit
def _kept(here, rows, start, j, SIZE: tl.constexpr):
    """Return which weights of a slot are kept, as `window._kept`; a counter serves eight keys."""
    row = rows.row.to(tl.uint32)[:, None]
    group = (start // 8 + tl.arange(0, SIZE // 8)).to(tl.uint32)[None]
    row, group = row + 0 * group, group + 0 * row
    head, slot = (0 * row + here.head).to(tl.uint32), (0 * row + j).to(tl.uint32)
    a, b, c, d = tl.philox(here.seed, group, row, head, slot, 10)
    return tl.reshape(numbers(a, b, c, d), (SIZE, SIZE)) >= here.dropped


@triton.jit
def _kept_cls(here, rows, j):
    """Return which weights of CLS keys are kept: a line of its own, with an element for each slot."""
    row, number = rows.row.to(tl.uint32), j % 8
    group, head = (0 * row + j // 8).to(tl.uint32), (0 * row + here.head).to(tl.uint32)
    a, b, c, d = tl.philox(here.seed, group, row, head, 0 * row + 4294967295, 10)
    word = tl.where(number < 4, tl.where(number < 2, a, b), tl.where(number < 6, c, d))
    return (((word >> (number % 2 * 16)) & 0xFFFF) ^ 0x8000) >= here.dropped


@triton.jit
def _cls(here, rows, query, low, j, HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr):
    """Return the score of the CLS key of a slot, the key, and its value."""
    there = j < rows.count
    token = rows.first + j if KIND == 1 else 0 * rows.row + here.cls
    key = _values(here.kv, 2 * token, there, here.head, HEADS, D, WIDE)
    value = _values(here.kv, 2 * token + 1, there, here.head, HEADS, D, WIDE)
    column = tl.where(rows.of_cls, here.to_self, here.zero_cls + rows.place - low - here.fringe)
    score = tl.sum(query * key, axis=1) + tl.load(here.bias + column, mask=there, other=0)
    return tl.where(there, score, float("-inf")), key, value


@triton.jit(do_not_specialize=INTEGERS)
def _forward(
    q, kv, bias, table, starts, earliest, times, seed, dropped, larger, scale, n_cls, window, fringe, reach, field,
    n_bias, slots, cls_blocks, out, apart, sums,
    HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr, DROP: tl.constexpr,
    THERE: tl.constexpr, PRECISION: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Compute some queries: their mixed values, and by slot these and the logarithm of the sum of weights."""
    scan, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    here = _here(kv, bias, table, starts, seed, dropped, scan, head, window, fringe, reach, field, n_bias, THERE)
    rows = _rows(here, table, earliest, times, scan, block, n_cls, reach, field, cls_blocks, KIND, SIZE)
    query = _values(q, rows.row, rows.count > 0, head, HEADS, D, WIDE) * scale
    mean = tl.zeros_like(query)
    for j in range(0, tl.max(rows.count, axis=0)):
        mixed, low, there = tl.zeros_like(query), _low(here, rows, j, KIND), j < rows.count
        begin, end = _range(here, rows, low, low, SIZE)
        total = tl.sum(mixed, axis=1)
        top = total + float("-inf")
        if KIND > 0:
            top, _, mixed = _cls(here, rows, query, low, j, HEADS, D, WIDE, KIND)
            total = tl.where(there, 1.0, total)
            if DROP:
                mixed = tl.where(_kept_cls(here, rows, j)[:, None], mixed, 0.0)
        for start in range(begin, end, SIZE):
            keys, key, value = _key_value(here, start, HEADS, D, WIDE, SIZE)
            scores = _scores(here, rows, query, key, keys, PRECISION)
            scores = tl.where(_inside(rows, keys, low), scores, float("-inf"))
            new = tl.maximum(top, tl.max(scores, axis=1))
            base = tl.where(new == float("-inf"), 0.0, new)
            weights, shrink = tl.exp(scores - base[:, None]), tl.exp(top - base)
            total = total * shrink + tl.sum(weights, axis=1)
            if DROP:
                weights = tl.where(_kept(here, rows, start, j, SIZE), weights, 0.0)
            mixed = mixed * shrink[:, None] + tl.dot(weights, value, input_precision=PRECISION)
            top = new
        mixed = mixed / tl.where(there, total, 1.0)[:, None]
        at = rows.row.to(tl.int64) * slots + j
        tl.store(sums + at * HEADS + head, top + tl.log(total), mask=there)
        _store(apart, at, there, head, mixed, HEADS, D, WIDE)
        mean += mixed
    mean = mean * (larger / tl.maximum(rows.count, 1).to(mean.dtype))[:, None]
    _store(out, rows.row, rows.count > 0, head, mean, HEADS, D, WIDE)


@triton.jit
def _slopes(
    here, rows, query, key, value, keys, start, of_output, sums, inner, slots, HEADS: tl.constexpr, KIND: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return the weights of some queries and keys that are kept, and the gradient of scores, summed over slots."""
    scores = _scores(here, rows, query, key, keys, PRECISION)
    of_weights = tl.dot(of_output, tl.trans(value), input_precision=PRECISION)
    mixing, slopes = tl.zeros_like(scores), tl.zeros_like(scores)
    for j in range(0, tl.max(rows.count, axis=0)):
        at = (rows.row * slots + j) * HEADS + here.head
        log = tl.load(sums + at, mask=j < rows.count, other=float("inf"))
        mean = tl.load(inner + at, mask=j < rows.count, other=0)
        weights = tl.exp(scores - log[:, None])
        weights = tl.where(_inside(rows, keys, _low(here, rows, j, KIND)), weights, 0.0)
        kept = tl.where(_kept(here, rows, start, j, SIZE), weights, 0.0) if DROP else weights
        mixing += kept
        slopes += kept * of_weights - weights * mean[:, None]
    return mixing, slopes


@triton.jit(do_not_specialize=INTEGERS)
def _of_queries(
    q, kv, bias, table, starts, earliest, times, seed, dropped, larger, scale, n_cls, window, fringe, reach, field,
    n_bias, slots, cls_blocks, given, sums, inner, pull, kept, out, of_near, of_field, reached, n_blocks,
    HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr, DROP: tl.constexpr,
    THERE: tl.constexpr, PRECISION: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of some queries and of the bias of their keys; by slot, gradient and weight of CLS keys."""
    scan, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    here = _here(kv, bias, table, starts, seed, dropped, scan, head, window, fringe, reach, field, n_bias, THERE)
    rows = _rows(here, table, earliest, times, scan, block, n_cls, reach, field, cls_blocks, KIND, SIZE)
    query = _values(q, rows.row, rows.count > 0, head, HEADS, D, WIDE) * scale
    of_output = _values(given, rows.row, rows.count > 0, head, HEADS, D, WIDE)
    last = _low(here, rows, tl.maximum(rows.count - 1, 0), KIND)
    begin, end = _range(here, rows, _low(here, rows, 0, KIND), last, SIZE)
    gradient, lanes = tl.zeros_like(query), tl.arange(0, SIZE)
    for start in range(begin, end, SIZE):
        keys, key, value = _key_value(here, start, HEADS, D, WIDE, SIZE)
        _, slopes = _slopes(here, rows, query, key, value, keys, start, of_output, sums, inner, slots, HEADS, KIND,
                            DROP, PRECISION, SIZE)  # fmt: skip
        gradient += tl.dot(slopes, key, input_precision=PRECISION)
        if block < cls_blocks:
            column = keys[None] - rows.place[:, None]
            of_column = of_field + (rows.row[:, None] * HEADS + head) * field + column
            there = (rows.count > 0)[:, None] & (keys < here.n_keys)[None]
            tl.store(of_column, slopes, mask=there & (column >= 0) & (column < field))
        else:  # lane i of query n is key n + i, or n + i - SIZE
            ahead = lanes[:, None] + lanes[None]
            turned = tl.gather(slopes, ahead % SIZE, axis=1)
            number = start // SIZE - (block - cls_blocks) + reached
            at = ((scan * HEADS + head) * n_blocks + block) * (2 * reached + 1) + number
            of_block = of_near + at * (2 * SIZE) + lanes
            tl.store(of_block, tl.sum(tl.where(ahead < SIZE, 0.0, turned), axis=0))
            tl.store(of_block + SIZE, tl.sum(tl.where(ahead < SIZE, turned, 0.0), axis=0))
    if KIND > 0:
        for j in range(0, tl.max(rows.count, axis=0)):
            score, key, value = _cls(here, rows, query, _low(here, rows, j, KIND), j, HEADS, D, WIDE, KIND)
            at, there = (rows.row * slots + j) * HEADS + head, j < rows.count
            weight = tl.exp(score - tl.load(sums + at, mask=there, other=float("inf")))
            slope, mixing = tl.sum(of_output * value, axis=1), weight
            if DROP:
                keep = _kept_cls(here, rows, j)
                slope, mixing = tl.where(keep, slope, 0.0), tl.where(keep, weight, 0.0)
            slope = weight * (slope - tl.load(inner + at, mask=there, other=0))
            tl.store(pull + at, slope, mask=there)
            tl.store(kept + at, mixing, mask=there)
            gradient += slope[:, None] * key
    _store(out, rows.row, rows.count > 0, head, gradient * scale, HEADS, D, WIDE)


@triton.jit(do_not_specialize=INTEGERS)
def _of_keys(
    q, kv, bias, table, starts, earliest, times, seed, dropped, larger, scale, n_cls, window, fringe, reach, field,
    n_bias, slots, cls_blocks, given, sums, inner, pull, kept, out, n_blocks,
    HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr, DROP: tl.constexpr,
    THERE: tl.constexpr, PRECISION: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of some BOLD keys and values."""
    scan, head, start = tl.program_id(0), tl.program_id(1), tl.program_id(2) * SIZE
    here = _here(kv, bias, table, starts, seed, dropped, scan, head, window, fringe, reach, field, n_bias, THERE)
    keys, key, value = _key_value(here, start, HEADS, D, WIDE, SIZE)
    of_key, of_value = tl.zeros_like(key), tl.zeros_like(key)
    nearest = tl.maximum(start - reach, 0) // SIZE  # blocks of BOLD queries that reach the keys
    furthest = tl.minimum((start + SIZE + reach) // SIZE + 1, n_blocks - cls_blocks)
    for number in range(0, cls_blocks + tl.maximum(furthest - nearest, 0)):
        block = tl.where(number < cls_blocks, number, number + nearest)
        rows = _rows(here, table, earliest, times, scan, block, n_cls, reach, field, cls_blocks, KIND, SIZE)
        query = _values(q, rows.row, rows.count > 0, head, HEADS, D, WIDE) * scale
        of_output = _values(given, rows.row, rows.count > 0, head, HEADS, D, WIDE)
        mixing, slopes = _slopes(here, rows, query, key, value, keys, start, of_output, sums, inner, slots, HEADS, KIND,
                                 DROP, PRECISION, SIZE)  # fmt: skip
        of_key += tl.dot(tl.trans(slopes), query, input_precision=PRECISION)
        of_value += tl.dot(tl.trans(mixing), of_output, input_precision=PRECISION)
    row, there = 2 * (here.first_key + keys), keys < here.n_keys
    _store(out, row, there, head, of_key, HEADS, D, WIDE)
    _store(out, row + 1, there, head, of_value, HEADS, D, WIDE)


@triton.jit(do_not_specialize=INTEGERS)
def _of_cls_keys(
    q, kv, bias, table, starts, earliest, times, seed, dropped, larger, scale, n_cls, window, fringe, reach, field,
    n_bias, slots, cls_blocks, given, sums, inner, pull, kept, scans, out, of_width,
    HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, KIND: tl.constexpr, DROP: tl.constexpr,
    THERE: tl.constexpr, PRECISION: tl.constexpr, SIZE: tl.constexpr, BOLD: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a CLS key and its value, and of the bias at each place of its windows."""
    token, head = tl.program_id(0), tl.program_id(1)
    line = table + tl.load(scans + token) * 7
    first_token, n_tokens = tl.load(line).to(tl.int32), tl.load(line + 1).to(tl.int32)
    row = token + 0 * tl.arange(0, SIZE)  # its own query, once
    there = tl.arange(0, SIZE) == 0
    at = row * slots * HEADS + head
    slope, weight = tl.load(pull + at, mask=there, other=0), tl.load(kept + at, mask=there, other=0)
    of_key = slope[:, None] * _values(q, row, there, head, HEADS, D, WIDE)
    of_value = weight[:, None] * _values(given, row, there, head, HEADS, D, WIDE)
    first = token if KIND == 1 else tl.load(line + 5).to(tl.int32)
    n_windows = 1 if KIND == 1 else tl.load(line + 6).to(tl.int32)
    for number in range(first, first + (n_windows if BOLD else 0)):
        start = tl.load(starts + number).to(tl.int32)
        for begin in range(0, window, SIZE):
            place = begin + tl.arange(0, SIZE)
            bold, there = first_token + start + place, (place < window) & (start + place < n_tokens)
            slot = number - tl.load(earliest + bold, mask=there, other=0).to(tl.int32)
            there = there & (slot < tl.load(times + bold, mask=there, other=0))  # none if the window does not exist
            row = n_cls + bold
            at = (row * slots + slot) * HEADS + head
            slope, weight = tl.load(pull + at, mask=there, other=0), tl.load(kept + at, mask=there, other=0)
            of_key += slope[:, None] * _values(q, row, there, head, HEADS, D, WIDE)
            of_value += weight[:, None] * _values(given, row, there, head, HEADS, D, WIDE)
            tl.store(of_width + (number * HEADS + head) * window + place, slope, mask=there)
    channels = tl.arange(0, WIDE)
    at = out + 2 * token * (HEADS * D) + head * D + channels
    tl.store(at, tl.sum(of_key, axis=0) * scale, mask=channels < D)
    tl.store(at + HEADS * D, tl.sum(of_value, axis=0), mask=channels < D)
