"""Window attention in torch by gathering the keys of each window: what needs each window's own weights.

These are its explanation, and dropout before fusion. `bands` and `native` compute the rest several times faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bolt.models import layers
from bolt.models.attention.drop import Drop
from bolt.models.attention.windows import Gather, Windows


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


class Maps(NamedTuple):
    """Gradient-weighted attention, averaged over the windows that contain a pair of tokens, and over heads.

    Equations 5 to 10; laid out like the bias.
    """

    near: Tensor  # (BOLD tokens, 2 reach - 1)
    cls_to_bold: Tensor  # (CLS tokens, positions)
    bold_to_cls: Tensor  # (windows, W)
    cls_to_cls: Tensor  # (CLS tokens,)


class _Group(NamedTuple):
    """Sets of queries with common keys, such as those of a window."""

    weights: Tensor  # (groups, h, queries, 1 + keys), after the softmax; the CLS key first, if there are CLS tokens
    values: Tensor  # (groups, h, 1 + keys, d)
    n_cls: int  # number of queries that are CLS tokens; they come first


def attend_globally(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, drop: Drop | None = None) -> Tensor:
    """Compute the attention of the CLS tokens of scans, (CLS tokens, h·d); parameters are those of `bands.attend`."""
    (group,) = _of_scans(q, kv, bias, shape)
    if drop is not None:
        rows = torch.arange(shape.windows.n_cls, device=q.device)[None, :, None]
        kept = drop.keys_kept(rows, shape.n_heads, 0, 0, 0, group.weights.shape[-1] - 1)
        kept = torch.cat([drop.cls_kept(rows, shape.n_heads, 1), kept], dim=-1)[0]
        group = group._replace(weights=layers.keep(group.weights, kept, drop.scale))
    return _mixed(group)[:, 0]


def attend_apart(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Compute the attention of every query within each of its windows, without averaging over windows.

    Parameters are those of `bands.attend`, with a CLS token per window.

    Returns
    -------
    Tensor
        (windows, 1 + W, h·d); the CLS token comes first. `fuse` averages.
    """
    (group,) = _of_windows(q, kv, bias, shape)
    return _mixed(group._replace(weights=layers.dropout(group.weights, dropout)))


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
    gather = shape.windows.gather(shape.fringe, shape.beyond, apart.device)
    fused = _add_windows(apart.new_zeros(shape.windows.n_tokens, apart.shape[2]), apart[:, 1:], gather)
    return torch.cat([apart[:, 0], fused / gather.times[:, None].to(fused.dtype)])


def _mixed(group: _Group) -> Tensor:
    """Return the attention-weighted values of one group of windows, (groups, queries, h·d)."""
    return (group.weights @ group.values).transpose(1, 2).flatten(2)


def _add_windows(total: Tensor, bold: Tensor, gather: Gather) -> Tensor:
    """Add the BOLD tokens of windows (windows, W, n) to `total` (BOLD tokens, n)."""
    bold = bold * gather.within[..., None]
    return total.index_add(0, gather.base.flatten(), bold.flatten(0, 1).to(total.dtype))


@torch.no_grad()
def attention_maps(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, gradient: Tensor) -> Maps:
    """Compute the gradient-weighted attention of one block, for its explanation.

    Parameters
    ----------
    q, kv, bias, shape
        As for `bands.attend`.
    gradient : Tensor
        Gradient of the explained logit with respect to the output of `bands.attend`.
    """
    windows = shape.windows
    gather = windows.gather(shape.fringe, shape.beyond, q.device)
    near, field, window, _ = shape.bias_sizes
    maps = Maps(
        q.new_zeros(windows.n_tokens, near),
        q.new_zeros(windows.n_cls, field),
        q.new_zeros(windows.n_windows, window),
        q.new_zeros(windows.n_cls),
    )
    for group in (*_of_windows(q, kv, bias, shape), *_of_scans(q, kv, bias, shape)):
        gradients = []
        if group.n_cls:
            gradients.append(gradient[: windows.n_cls, None])
        if group.n_cls < group.weights.shape[2]:
            bold = gradient[windows.n_cls :] / gather.times[:, None].to(gradient.dtype)
            gradients.append(bold[gather.base] * gather.within[..., None])
        by_head = torch.cat(gradients, dim=1).unflatten(-1, (shape.n_heads, -1)).transpose(1, 2)
        weighted = (group.weights * (by_head @ group.values.transpose(-1, -2))).clamp(min=0).mean(1)
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
    """Add maps of windows (windows, W, keys) to `near`, each pair averaged over the windows that contain it."""
    index = gather.base[..., None] * near.shape[1] + _distance(shape, near.device)
    outside = gather.outside[:, -bold.shape[2] :]
    valid = (gather.within[..., None] & ~outside[:, None]).to(near.dtype)
    count = torch.zeros_like(near).view(-1).index_add(0, index.flatten(), valid.flatten())
    total = torch.zeros_like(near).view(-1).index_add(0, index.flatten(), (bold * valid).flatten())
    near += (total / count.clamp(min=1)).view_as(near)


def _distance(shape: Shape, device: torch.device) -> Tensor:
    """Return key minus query, counted from 1 - reach, (W, W + 2L); out of range only outside the scan."""
    window = shape.windows.window
    key = torch.arange(-shape.fringe, window + shape.fringe, device=device)
    query = torch.arange(window, device=device)
    return key - query[:, None] + shape.reach - 1


def _of_windows(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape) -> Iterator[_Group]:
    """Yield attention weights and values of the windows, unless no token is computed in them."""
    windows, n_cls = shape.windows, shape.windows.n_cls
    gather = windows.gather(shape.fringe, shape.beyond, q.device)
    near, to_bold, to_cls, to_self = bias.split(shape.bias_sizes, dim=1)
    queries, biases = [], []
    local = windows.cls_token == "local"
    if local:
        queries.append(gather.cls[:, None])
        biases.append(torch.cat([to_self, to_bold], dim=1)[:, None])
    if shape.bold_rows:
        queries.append(n_cls + gather.base)
        of_distance = near[:, _distance(shape, q.device)]
        biases.append(torch.cat([to_cls[..., None], of_distance], dim=2) if n_cls else of_distance)
    if queries:
        chosen = torch.cat(queries, dim=1), gather.keys, gather.outside
        yield _group(q, kv, shape, *chosen, torch.cat(biases, dim=1), int(local))


def _of_scans(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape) -> Iterator[_Group]:
    """Yield attention weights and values of the CLS tokens of scans, if there are any."""
    if shape.windows.cls_token == "global":
        gather = shape.windows.gather(shape.fringe, shape.beyond, q.device)
        _, to_bold, _, to_self = bias.split(shape.bias_sizes, dim=1)
        cls_tokens = torch.arange(shape.windows.n_cls, device=q.device)[:, None]
        from_cls = torch.cat([to_self, to_bold], dim=1)[:, None]
        yield _group(q, kv, shape, cls_tokens, gather.scan_keys, gather.scan_outside, from_cls, 1)


def _group(
    q: Tensor, kv: Tensor, shape: Shape, queries: Tensor, keys: Tensor, outside: Tensor, bias: Tensor, n_cls: int
) -> _Group:
    query, key_value = (tokens.unflatten(-1, (-1, shape.n_heads, q.shape[1] // shape.n_heads)) for tokens in (q, kv))
    query = query[queries, 0].transpose(1, 2)
    key, value = key_value[keys].permute(2, 0, 3, 1, 4)
    scores = query * key.shape[-1] ** -0.5 @ key.transpose(-1, -2) + bias
    return _Group(scores.masked_fill(outside[:, None, None], -torch.inf).softmax(-1), value, n_cls)
