"""Window attention in torch, on any device: each window gathers its keys.

`native` computes the same on CPUs in C++, `triton_window` on GPUs, several times faster, with the same weights dropped:
whether a weight is kept follows from its address (`masks`). The BOLD keys of a scan are a line of elements for each row
of q, head and slot, which is the number of a window among those of the query. The CLS keys of these windows are one
more line, an element for each slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from bolt.models import layers
from bolt.models.attention.windows import Windows
from bolt.models.base import full_precision
from bolt.models.parts import masks

AT_ONCE = {"cpu": 2**21, "cuda": 2**27}
"""Scores, or gathered numbers, in memory at a time, by device: few fit in a CPU's cache, many keep a GPU busy."""
CLS_SLOT = masks.LOW
"""Slot of the line of CLS keys."""


@dataclass(frozen=True)
class Shape:
    """Geometry of the attention of one block.

    Attributes
    ----------
    windows : Windows
    n_heads : int
        h.
    fringe : int
        L.
    reach : int
        Distances between BOLD tokens are in (-reach, reach).
    beyond : int
        Number of keys after the last volume of each scan.
    bold_rows : bool
        Whether BOLD tokens are queries too, or the CLS tokens only.
    """

    windows: Windows
    n_heads: int
    fringe: int
    reach: int
    beyond: int
    bold_rows: bool

    @property
    def bias_sizes(self) -> tuple[int, int, int, int]:
        """Return the numbers of columns of the four parts of the bias.

        Between BOLD tokens, by key minus query from 1 - reach; CLS to BOLD, by position in the receptive field (for a
        global token: in the scan); BOLD to CLS, by position in the window; CLS to CLS.
        """
        windows = self.windows
        field = {
            "local": windows.window + 2 * self.fringe,
            "global": max(windows.lengths) + self.beyond,
            "none": 0,
        }[windows.cls_token]
        return 2 * self.reach - 1, field, windows.window if field else 0, 1

    def zeros(self, like: Tensor, *copies: int) -> Maps:
        """Return maps of zeros, of the type and on the device of a tensor; or several of each, (*copies, …)."""
        windows, (near, field, width, _) = self.windows, self.bias_sizes
        sizes = (windows.n_tokens, near), (windows.n_cls, field), (windows.n_windows, width), (windows.n_cls,)
        return Maps(*(like.new_zeros(*copies, *size) for size in sizes))


class Maps(NamedTuple):
    """Gradient-weighted attention, averaged over the windows that contain a pair of tokens, and over heads.

    Equations 5 to 10; laid out like the bias.
    """

    near: Tensor  # (BOLD tokens, 2 reach - 1)
    cls_to_bold: Tensor  # (CLS tokens, positions)
    bold_to_cls: Tensor  # (windows, W)
    cls_to_cls: Tensor  # (CLS tokens,)


class Drop(NamedTuple):
    """Dropout of the attention weights of one call."""

    dropped: int  # of 2**16 weights
    seed: masks.Seed


def draw_drop(p: float) -> Drop | None:
    """Draw the mask of a call; None if nothing is dropped."""
    return Drop(dropped, masks.draw_seed()) if (dropped := masks.dropped_of(p)) else None


class _Sets(NamedTuple):
    """Sets of queries with common keys: windows, or scans with a global CLS token."""

    queries: Tensor  # (sets, queries) rows of q
    keys: Tensor  # (sets, keys) rows of kv; the CLS key comes first, if there are CLS tokens
    outside: Tensor  # (sets, keys) bool: the key does not exist
    slot: Tensor  # (sets, queries)
    first: Tensor  # (sets,) volume of the first BOLD key

    def split(self, n: int) -> Iterator[_Sets]:
        """Yield `n` sets at a time."""
        for parts in zip(*(tensor.split(n) for tensor in self), strict=True):
            yield _Sets(*parts)


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Compute the attention of every query within its windows, averaged over windows (equations 1 to 3).

    Half precision is computed in single.

    Parameters
    ----------
    q : Tensor
        (CLS tokens + BOLD tokens, h·d); CLS tokens only if `shape.bold_rows` is false.
    kv : Tensor
        Keys and values, (CLS tokens + BOLD keys, 2·h·d).
    bias : Tensor
        (h, sum of `shape.bias_sizes`).
    shape : Shape
    dropout : float
        Share of attention weights set to zero.

    Returns
    -------
    Tensor
        Same shape as `q`.
    """
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    exact, drop = (q.to(dtype), kv.to(dtype)), draw_drop(dropout)
    parts: list[Tensor] = []
    with full_precision(q.device):
        for sets, tile, n_cls in _all_sets(bias.to(dtype), shape):
            mixed = _Attend.apply(*exact, tile, sets, drop, shape.windows.n_cls > 0)
            # CLS tokens come first, and those of scans come last
            parts = [mixed[:, :n_cls].flatten(0, 1), *parts]
            if mixed.shape[1] > n_cls:
                parts.append(_mean_of_windows(mixed[:, n_cls:], shape))
    return torch.cat(parts).to(q.dtype)


def attend_apart(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Compute the attention of every query within each of its windows, without averaging over windows.

    Parameters are those of `attend`, with a CLS token per window.

    Returns
    -------
    Tensor
        (windows, 1 + W, h·d); the CLS token comes first. `fuse` averages.
    """
    ((sets, tile, _),) = _all_sets(bias, shape)
    weights, values = _weigh(embedding(sets.queries, q), embedding(sets.keys, kv), tile, sets)
    return (layers.dropout(weights, dropout) @ values).transpose(1, 2).flatten(2)


def fuse(apart: Tensor, shape: Shape) -> Tensor:
    """Average each BOLD token over its windows (equation 3).

    Parameters
    ----------
    apart : Tensor
        (windows, 1 + W, n), as from `attend_apart`.
    shape : Shape

    Returns
    -------
    Tensor
        (CLS tokens + BOLD tokens, n).
    """
    return torch.cat([apart[:, 0], _mean_of_windows(apart[:, 1:], shape)])


@torch.no_grad()
def attention_maps(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, gradient: Tensor) -> Maps:
    """Compute the gradient-weighted attention of one block, for its explanation.

    Parameters
    ----------
    q, kv, bias, shape
        As for `attend`.
    gradient : Tensor
        Gradient of the explained logit with respect to the output of `attend`.
    """
    windows = shape.windows
    gather = windows.gather(shape.fringe, shape.beyond, q.device)
    maps = shape.zeros(q)
    for sets, tile, n_cls in _all_sets(bias, shape):
        weights, values = _weigh(embedding(sets.queries, q), embedding(sets.keys, kv), tile, sets)
        given = gradient[sets.queries]
        if sets.queries.shape[1] > n_cls:
            given[:, n_cls:] *= (gather.within / gather.times.to(given.dtype)[gather.base])[..., None]
        given = given.unflatten(-1, (shape.n_heads, -1)).transpose(1, 2)
        weighted = (weights * (given @ values.mT)).clamp(min=0).mean(1)
        if n_cls:
            maps.cls_to_bold.copy_(weighted[:, 0, 1:])
            maps.cls_to_cls.copy_(weighted[:, 0, 0])
        bold = weighted[:, n_cls:]
        if bold.shape[1]:
            if windows.n_cls:
                maps.bold_to_cls.copy_(bold[..., 0])
                bold = bold[..., 1:]
            # each pair averaged over the windows that contain it
            index = (gather.base[..., None] * maps.near.shape[1] + _distance(shape, q.device)).flatten()
            valid = (gather.within[..., None] & ~gather.outside[:, None, -bold.shape[2] :]).to(bold.dtype)
            count = q.new_zeros(maps.near.numel()).index_add(0, index, valid.flatten())
            maps.near.view(-1).index_add_(0, index, (bold * valid).flatten()).div_(count.clamp(min=1))
    return maps


def _all_sets(bias: Tensor, shape: Shape) -> Iterator[tuple[_Sets, Tensor, int]]:
    """Yield the windows, unless no token is computed in them, then the scans, if they have global CLS tokens.

    With the bias of a set's queries and keys, (h, queries, keys), and the number of CLS tokens among the queries, which
    come first.
    """
    windows, device = shape.windows, bias.device
    gather = windows.gather(shape.fringe, shape.beyond, device)
    near, to_bold, to_cls, to_self = bias.split(shape.bias_sizes, dim=1)
    from_cls = torch.cat([to_self, to_bold], dim=1)[:, None]
    queries, slots, tiles, local = [], [], [], windows.cls_token == "local"
    if local:
        queries.append(gather.cls[:, None])
        slots.append(torch.zeros_like(queries[0]))
        tiles.append(from_cls)
    if shape.bold_rows:
        queries.append(windows.n_cls + gather.base)
        slots.append(gather.slot)
        near = near[:, _distance(shape, device)]
        tiles.append(torch.cat([to_cls[..., None], near], dim=2) if windows.n_cls else near)
    if queries:
        slot = torch.cat(slots, dim=1)
        sets = _Sets(torch.cat(queries, dim=1), gather.keys, gather.outside, slot, gather.first)
        yield sets, torch.cat(tiles, dim=1), int(local)
    if windows.cls_token == "global":
        rows = torch.arange(windows.n_cls, device=device)[:, None]
        none = torch.zeros_like(rows)
        yield _Sets(rows, gather.scan_keys, gather.scan_outside, none, none[:, 0]), from_cls, 1


def _distance(shape: Shape, device: torch.device) -> Tensor:
    """Return key minus query, counted from 1 - reach, (W, W + 2L); out of range only outside the scan."""
    window = shape.windows.window
    key = torch.arange(-shape.fringe, window + shape.fringe, device=device)
    query = torch.arange(window, device=device)
    return key - query[:, None] + shape.reach - 1


class _Attend(torch.autograd.Function):
    """Attention of some sets at a time, (sets, queries, h·d); the backward pass computes it again to save memory.

    `tile` is the bias of queries and keys of a set, (h, queries, keys); `cls` says whether the first key is that of a
    CLS token.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, tile: Tensor, sets: _Sets, drop: Drop | None, cls: bool) -> Tensor:
        ctx.save_for_backward(q, kv, tile)
        ctx.rest = sets, drop, cls
        parts = sets.split(_at_once(kv, tile))
        return torch.cat(
            [_mix(embedding(part.queries, q), embedding(part.keys, kv), tile, part, drop, cls) for part in parts]
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, kv, tile = ctx.saved_tensors
        sets, drop, cls = ctx.rest
        dq, dkv, dtile = map(torch.zeros_like, (q, kv, tile))
        at_once = _at_once(kv, tile)
        for part, given in zip(sets.split(at_once), gradient.split(at_once), strict=True):
            query, key_value, bias = embedding(part.queries, q), embedding(part.keys, kv), tile.detach()
            inputs = [tensor.requires_grad_() for tensor in (query, key_value, bias)]
            with torch.enable_grad():
                mixed = _mix(query, key_value, bias, part, drop, cls)
            of_queries, of_keys, of_tile = torch.autograd.grad(mixed, inputs, given)
            dq.index_add_(0, part.queries.flatten(), of_queries.flatten(0, 1))
            dkv.index_add_(0, part.keys.flatten(), of_keys.flatten(0, 1))
            dtile += of_tile
        return dq, dkv, dtile, None, None, None


def _at_once(kv: Tensor, tile: Tensor) -> int:
    """Return how many sets are computed at a time."""
    numbers = max(tile.numel(), tile.shape[2] * kv.shape[1])
    return max(1, AT_ONCE.get(kv.device.type, AT_ONCE["cuda"]) // numbers)


def _mix(query: Tensor, key_value: Tensor, tile: Tensor, sets: _Sets, drop: Drop | None, cls: bool) -> Tensor:
    """Return the attention-weighted values, (sets, queries, h·d); the first parameters are those of `_weigh`."""
    weights, values = _weigh(query, key_value, tile, sets)
    if drop is not None:
        weights = layers.keep(weights, _kept(sets, len(tile), drop, cls), masks.scale_of(drop.dropped))
    return (weights @ values).transpose(1, 2).flatten(2)


def _weigh(query: Tensor, key_value: Tensor, tile: Tensor, sets: _Sets) -> tuple[Tensor, Tensor]:
    """Return attention weights (sets, h, queries, keys) and values (sets, h, keys, d).

    From queries (sets, queries, h·d), keys and values (sets, keys, 2·h·d), and the bias (h, queries, keys).
    """
    query = query.unflatten(2, (len(tile), -1)).transpose(1, 2)
    key, value = key_value.unflatten(2, (2, len(tile), -1)).permute(2, 0, 3, 1, 4)
    scores = query * key.shape[-1] ** -0.5 @ key.mT + tile  # not in place: a bias in float32 stays so beside bfloat16
    return scores.masked_fill_(sets.outside[:, None, None], -torch.inf).softmax(-1), value


def _kept(sets: _Sets, n_heads: int, drop: Drop, cls: bool) -> Tensor:
    """Return which weights are kept, (sets, h, queries, keys) bool; with a CLS key, that comes first."""
    device = sets.queries.device
    heads = torch.arange(n_heads, device=device)[:, None]

    def elements(first: Tensor, slot: Tensor, place: Tensor, n_groups: int) -> Tensor:
        address = torch.broadcast_tensors(first, sets.queries[:, None], heads, slot)
        lines = torch.stack(address, dim=-1)
        kept = masks.kept_of_lines(lines.flatten(0, 2), n_groups, *drop).unflatten(0, lines.shape[:3])
        return kept.gather(-1, place.expand(*kept.shape[:3], -1))

    n_bold, first = sets.keys.shape[1] - cls, sets.first[:, None, None]
    place = (first % masks.NUMBERS)[..., None] + torch.arange(n_bold, device=device)
    slot = sets.slot[:, None]
    bold = elements(first // masks.NUMBERS, slot, place, 1 + -(-n_bold // masks.NUMBERS))
    if not cls:
        return bold
    of_cls = elements(slot // masks.NUMBERS, torch.full_like(slot, CLS_SLOT), (slot % masks.NUMBERS)[..., None], 1)
    return torch.cat([of_cls, bold], dim=-1)


def _mean_of_windows(bold: Tensor, shape: Shape) -> Tensor:
    """Average the BOLD tokens of windows (windows, W, n) over the windows of each, (BOLD tokens, n)."""
    gather = shape.windows.gather(shape.fringe, shape.beyond, bold.device)
    present = bold * gather.within[..., None]
    total = bold.new_zeros(shape.windows.n_tokens, bold.shape[2])
    total = total.index_add(0, gather.base.flatten(), present.flatten(0, 1))
    return total / gather.times[:, None].to(total.dtype)
