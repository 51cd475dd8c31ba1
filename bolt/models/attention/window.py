"""Attention within windows and fusion of what it returns, in torch: runs anywhere, gathers the keys of each window.

`native` computes the same several times faster where it can; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bolt.models import layers
from bolt.models.attention.windows import Gather, Windows


@dataclass(frozen=True)
class Shape:
    """What attention needs to know beside its numbers.

    Attributes
    ----------
    windows : Windows
    n_heads : int
        h.
    fringe : int
        L.
    reach : int
        Distances between BOLD tokens lie in (-reach, reach).
    beyond : int
        Keys that follow the last volume of each scan.
    bold_rows : bool
        Whether BOLD tokens ask too, or the CLS tokens alone.
    """

    windows: Windows
    n_heads: int
    fringe: int
    reach: int
    beyond: int
    bold_rows: bool

    @property
    def bias_sizes(self) -> tuple[int, int, int, int]:
        """Columns of the bias: between BOLD tokens, by key minus query from 1 - reach; CLS to BOLD, by position in the
        receptive field (a global token: in the scan); BOLD to CLS, by position in the window; CLS to CLS."""
        windows = self.windows
        field = {
            "local": windows.window + 2 * self.fringe,
            "global": max(windows.lengths) + self.beyond,
            "none": 0,
        }[windows.cls_token]
        return 2 * self.reach - 1, field, windows.window if field else 0, 1


class Maps(NamedTuple):
    """Gradient-weighted attention, summed over the windows that hold a pair of tokens, over how many these are
    (equations 5 to 10), mean over heads; laid out as the bias is."""

    near: Tensor  # (BOLD tokens, 2 reach - 1)
    cls_to_bold: Tensor  # (CLS tokens, positions)
    bold_to_cls: Tensor  # (windows, W)
    cls_to_cls: Tensor  # (CLS tokens,)


class _Group(NamedTuple):
    """Queries that share keys."""

    weights: Tensor  # (groups, h, queries, 1 + keys), after the softmax; the CLS key first, if there are CLS tokens
    values: Tensor  # (groups, h, 1 + keys, d)
    n_cls: int  # how many of the queries are CLS tokens; they come first


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Attention of every query within its windows, averaged over them (equations 1 to 3).

    Parameters
    ----------
    q : Tensor
        (CLS tokens + BOLD tokens, h·d); CLS tokens alone where `shape.bold_rows` is false.
    kv : Tensor
        Keys and values, (CLS tokens + BOLD keys, 2·h·d).
    bias : Tensor
        (h, sum of `shape.bias_sizes`).
    shape : Shape
    dropout : float
        Share of attention weights that are set to zero.

    Returns
    -------
    Tensor
        Of the shape of `q`.
    """
    gather = shape.windows.gather(shape.fringe, shape.beyond, q.device)
    parts = []
    fused = q.new_zeros(shape.windows.n_tokens, q.shape[1])
    for group in _groups(q, kv, bias, shape):
        mixed = (layers.dropout(group.weights, dropout) @ group.values).transpose(1, 2).flatten(2)
        if group.n_cls:
            parts.append(mixed[:, 0])
        if group.n_cls < mixed.shape[1]:
            bold = mixed[:, group.n_cls :] * gather.within[..., None]
            fused = fused.index_add(0, gather.base.flatten(), bold.flatten(0, 1).to(fused.dtype))
    if shape.bold_rows:
        parts.append(fused / gather.times[:, None].to(fused.dtype))
    return torch.cat(parts)


def attention_maps(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, gradient: Tensor) -> Maps:
    """What the explanation needs of one block.

    Parameters
    ----------
    q, kv, bias, shape
        As for `attend`.
    gradient : Tensor
        Of what is explained, with respect to what `attend` returned.
    """
    windows = shape.windows
    gather = windows.gather(shape.fringe, shape.beyond, q.device)
    near, field, slots, _ = shape.bias_sizes
    maps = Maps(
        q.new_zeros(windows.n_tokens, near),
        q.new_zeros(windows.n_cls, field),
        q.new_zeros(windows.n_windows, slots),
        q.new_zeros(windows.n_cls),
    )
    for group in _groups(q, kv, bias, shape):
        parts = []
        if group.n_cls:
            parts.append(gradient[: windows.n_cls, None])
        if group.n_cls < group.weights.shape[2]:
            bold = gradient[windows.n_cls :] / gather.times[:, None].to(gradient.dtype)
            parts.append(bold[gather.base] * gather.within[..., None])
        given = torch.cat(parts, dim=1).unflatten(-1, (shape.n_heads, -1)).transpose(1, 2)
        weighted = (group.weights * (given @ group.values.transpose(-1, -2))).clamp(min=0).mean(1)
        if group.n_cls:
            maps.cls_to_bold.copy_(weighted[:, 0, 1:])
            maps.cls_to_cls.copy_(weighted[:, 0, 0])
        if group.n_cls < weighted.shape[1]:
            bold = weighted[:, group.n_cls :]
            if windows.cls_token != "none":
                maps.bold_to_cls.copy_(bold[..., 0])
                bold = bold[..., 1:]
            _add_near(maps.near, bold, shape, gather)
    return maps


def _add_near(near: Tensor, bold: Tensor, shape: Shape, gather: Gather) -> None:
    """Gather (windows, W, keys) by distance, each entry over the number of windows that hold the pair."""
    index = gather.base[..., None] * near.shape[1] + _distance(shape, near.device)
    outside = gather.outside[:, -bold.shape[2] :]
    seen = (gather.within[..., None] & ~outside[:, None]).to(near.dtype)
    count = torch.zeros_like(near).view(-1).index_add(0, index.flatten(), seen.flatten())
    total = torch.zeros_like(near).view(-1).index_add(0, index.flatten(), (bold * seen).flatten())
    near += (total / count.clamp(min=1)).view_as(near)


def _distance(shape: Shape, device: torch.device) -> Tensor:
    """Key minus query from 1 - reach, (W, W + 2L); out of reach only where keys or queries are outside the scan."""
    window = shape.windows.window
    key = torch.arange(-shape.fringe, window + shape.fringe, device=device)
    query = torch.arange(window, device=device)
    return key - query[:, None] + shape.reach - 1


def _groups(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape) -> Iterator[_Group]:
    windows, n_cls = shape.windows, shape.windows.n_cls
    gather = windows.gather(shape.fringe, shape.beyond, q.device)
    near, to_bold, to_cls, to_self = bias.split(shape.bias_sizes, dim=1)

    def group(queries: Tensor, keys: Tensor, outside: Tensor, bias: Tensor, own: int) -> _Group:
        query, key_value = (
            tokens.unflatten(-1, (-1, shape.n_heads, q.shape[1] // shape.n_heads)) for tokens in (q, kv)
        )
        query = query[queries, 0].transpose(1, 2)
        key, value = key_value[keys].permute(2, 0, 3, 1, 4)
        scores = query * key.shape[-1] ** -0.5 @ key.transpose(-1, -2) + bias
        return _Group(scores.masked_fill(outside[:, None, None], -torch.inf).softmax(-1), value, own)

    from_cls = torch.cat([to_self, to_bold], dim=1)[:, None]
    queries, biases = [], []
    local = windows.cls_token == "local"
    if local:
        queries.append(gather.cls[:, None])
        biases.append(from_cls)
    if shape.bold_rows:
        queries.append(n_cls + gather.base)
        of_distance = near[:, _distance(shape, q.device)]
        biases.append(torch.cat([to_cls[..., None], of_distance], dim=2) if n_cls else of_distance)
    if queries:
        yield group(torch.cat(queries, dim=1), gather.keys, gather.outside, torch.cat(biases, dim=1), int(local))
    if windows.cls_token == "global":
        each = torch.arange(n_cls, device=q.device)[:, None]
        yield group(each, gather.scan_keys, gather.scan_outside, from_cls, 1)
