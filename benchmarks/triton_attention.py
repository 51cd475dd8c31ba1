"""Forward pass of BolT's attention as a Triton kernel: a first step, not yet used by the package (docs/gpu.md).

Without a GPU, Triton's interpreter runs it (TRITON_INTERPRET=1), which is how tests compare it with `window.attend`.
One program computes a block of queries of one head. Scores are computed once; each of a query's windows (its slots) has
its own maximum, normaliser and accumulator, so scores may differ by any amount between windows, and no program writes
where another one does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from bolt.models.attention.window import Shape

ROWS, KEYS = 16, 32
"""Queries of a block, and keys of a tile."""


class Table(NamedTuple):
    """What each query meets; rows of blocks are consecutive, and -1 fills the last block of a scan."""

    query: Tensor  # (blocks × ROWS,) row of q, or -1
    shift: Tensor  # (blocks × ROWS,) column of the bias of BOLD key u of the scan, minus u
    first_key: Tensor  # (blocks,) row of kv of the scan's BOLD key 0
    low: Tensor  # (blocks,) first and last + 1 key of the block
    high: Tensor
    start: Tensor  # (blocks × ROWS, slots) first and last + 1 key of a window; equal: no window
    end: Tensor
    cls: Tensor  # (blocks × ROWS, slots) row of kv of the window's CLS key
    column: Tensor  # (blocks × ROWS, slots) its column of the bias


def table_of(shape: Shape) -> Table:
    """List the queries of local CLS tokens and of BOLD tokens, in blocks."""
    windows, fringe = shape.windows, shape.fringe
    near, field, positions, _ = shape.bias_sizes
    blocks: list[tuple[int, list[tuple[int, int, list[tuple[int, int, int, int]]]]]] = []
    for row, starts in zip(windows.table(shape.beyond).tolist(), windows.starts, strict=True):
        first_token, n_tokens, first_key, n_keys, first_cls = row[:5]
        field_of = [(max(start - fringe, 0), min(start + windows.window + fringe, n_keys)) for start in starts]
        cls, bold = [], []
        for i, start in enumerate(starts):
            own = (*field_of[i], first_cls + i, near + field + positions)
            cls.append((first_cls + i, near - (start - fringe), [own]))
        for t in range(n_tokens if shape.bold_rows else 0):
            members = [i for i, start in enumerate(starts) if start <= t < start + windows.window]
            slots = [(*field_of[i], first_cls + i, near + field + t - starts[i]) for i in members]
            bold.append((windows.n_cls + first_token + t, shape.reach - 1 - t, slots))
        for queries in (cls, bold):
            blocks += [(first_key, queries[i : i + ROWS]) for i in range(0, len(queries), ROWS)]
    n_slots = max(len(slots) for _, queries in blocks for *_, slots in queries)
    flat = [
        (first_key, *(queries[i] if i < len(queries) else (-1, 0, [])))
        for first_key, queries in blocks
        for i in range(ROWS)
    ]
    parts = torch.tensor([[*slots, *[(0, 0, 0, 0)] * (n_slots - len(slots))] for *_, slots in flat])
    start, end, cls_row, column = parts.unbind(-1)
    there = end > start
    low = start.masked_fill(~there, 2**30).view(-1, ROWS * n_slots).amin(1)
    return Table(
        torch.tensor([query for _, query, *_ in flat]),
        torch.tensor([shift for _, _, shift, _ in flat]),
        torch.tensor([first_key for first_key, _ in blocks]),
        low,
        end.view(-1, ROWS * n_slots).amax(1),
        start,
        end,
        cls_row,
        column,
    )


@triton.jit
def _forward(
    q, kv, bias, out, query, shift, first_key, low, high, start, end, cls, column, scale, n_bias,
    HEADS: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Compute a block of queries (first axis of the grid) of one head (second axis)."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows, channels = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    slots = tl.arange(0, SLOTS)
    token, shifts = tl.load(query + rows), tl.load(shift + rows)
    of_token = (token[:, None] >= 0) & (channels[None] < D)
    queries = tl.load(q + token[:, None] * HEADS * D + head * D + channels[None], mask=of_token, other=0) * scale
    place = rows[:, None] * SLOTS + slots[None]
    begin, stop, cls_row = tl.load(start + place), tl.load(end + place), tl.load(cls + place)
    there = stop > begin

    # the CLS keys of the slots begin the sums
    of_cls = there[:, :, None] & (channels[None, None] < D)
    cls_at = kv + cls_row[:, :, None] * 2 * HEADS * D + head * D + channels[None, None]
    score = tl.sum(queries[:, None] * tl.load(cls_at, mask=of_cls, other=0), axis=2)
    score += tl.load(bias + head * n_bias + tl.load(column + place))
    top = tl.where(there, score, 0)
    total = tl.where(there, 1.0, 0.0).to(queries.dtype)
    mixed = tl.load(cls_at + HEADS * D, mask=of_cls, other=0)

    first = tl.load(first_key + block)
    for tile in range(tl.load(low + block), tl.load(high + block), KEYS):
        key = tile + tl.arange(0, KEYS)
        exists = (key < tl.load(high + block))[:, None] & (channels[None] < D)
        at = kv + (first + key[:, None]) * 2 * HEADS * D + head * D + channels[None]
        keys = tl.load(at, mask=exists, other=0)
        values = tl.load(at + HEADS * D, mask=exists, other=0)
        scores = tl.sum(queries[:, None] * keys[None], axis=2)
        within = (key[None, None] >= begin[:, :, None]) & (key[None, None] < stop[:, :, None])
        any_within = tl.max(within.to(tl.int32), axis=1) > 0
        scores += tl.load(bias + head * n_bias + shifts[:, None] + key[None], mask=any_within, other=0)
        by_slot = tl.where(within, scores[:, None], float("-inf"))
        new = tl.maximum(top, tl.max(by_slot, axis=2))
        weights = tl.exp(by_slot - new[:, :, None])
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(weights, axis=2)
        mixed = mixed * shrink[:, :, None] + tl.sum(weights[:, :, :, None] * values[None, None], axis=2)
        top = new
    n_slots = tl.sum(there.to(tl.int32), axis=1)
    mean = tl.sum(mixed / tl.where(there, total, 1)[:, :, None], axis=1) / tl.maximum(n_slots, 1)[:, None]
    tl.store(out + token[:, None] * HEADS * D + head * D + channels[None], mean, mask=of_token)


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape) -> Tensor:
    """Compute `window.attend` without dropout, for local CLS tokens."""
    if shape.windows.cls_token != "local":
        raise ValueError("only local CLS tokens")
    table = Table(*(part.to(q.device) for part in table_of(shape)))
    n_slots = table.start.shape[1]
    wide_slots = triton.next_power_of_2(n_slots)
    padded = {name: pad_slots(getattr(table, name), wide_slots) for name in ("start", "end", "cls", "column")}
    table = table._replace(**padded)
    d = q.shape[1] // shape.n_heads
    out = torch.empty_like(q)
    _forward[(len(table.low), shape.n_heads)](
        q.contiguous(), kv.contiguous(), bias.contiguous(), out, *table, d**-0.5, bias.shape[1],
        HEADS=shape.n_heads, D=d, WIDE=triton.next_power_of_2(d), SLOTS=wide_slots, ROWS=ROWS, KEYS=KEYS,
    )  # fmt: skip
    return out


def pad_slots(values: Tensor, n: int) -> Tensor:
    """Add empty slots."""
    return torch.nn.functional.pad(values, (0, n - values.shape[1])).contiguous()
