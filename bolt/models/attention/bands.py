"""Window attention and fusion in torch, on any device, with each score computed once.

The score of a query and a BOLD key does not depend on the window, and fusion is a mean. So for a token t in P windows

    fused[t] = sum_u E[t,u] C[t,u] v[u] + CLS terms,   E = exp(score),   C[t,u] = 1/P sum_{i: u in window i} 1/Z[t,i]

where Z[t,i] sums E over the keys of window i and its CLS key. Queries are computed in blocks of consecutive volumes,
which share a band of keys; sums over the keys of a window are products with a matrix of zeros and ones. The backward
pass computes E again instead of keeping it. `native` computes the same in C++, and kernels for other devices are held
to this.

Symbols: B blocks, S scans, h heads, R queries of a block, K keys of its band, V windows of a block, d head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from bolt.models.attention import window
from bolt.models.attention.drop import Drop, draw_drop
from bolt.models.attention.geometry import Bands, bands_of
from bolt.models.attention.window import Shape
from bolt.models.parts.precision import full_precision

AT_ONCE = {"cpu": 2**20, "cuda": 2**27}
"""Scores in memory at a time, by device: they fit in a CPU's cache, and keep a GPU busy."""
LEAST = 1e-20
"""A smaller normaliser has lost digits in single precision: a score in another window is larger by 46 or more."""


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Compute the attention of every query within its windows, averaged over windows (equations 1 to 3).

    Half precision is computed in single. A scan with a token whose scores differ by more than 46 between its windows is
    computed in double precision. Training with dropout on a GPU does not wait for that decision: there, differences
    above 87 give NaN, which the training loop refuses.

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
    exact = q.to(dtype), kv.to(dtype), bias.to(dtype)
    parts = []
    drop = draw_drop(dropout)
    with full_precision(q.device):
        if shape.windows.cls_token == "global":
            parts.append(window.attend_globally(*exact, shape, drop))
        if shape.windows.cls_token == "local" or shape.bold_rows:
            heads = [_Attend.apply(*some) for some in _heads(*exact, shape, drop)]
            parts.append(torch.cat(heads, dim=1))
    return torch.cat(parts).to(q.dtype)


def _heads(
    q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, drop: Drop | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, Shape, Drop | None]]:
    """Yield the inputs of some heads at a time: as many as `AT_ONCE` allows for one scan."""
    at_once = max(1, _at_once(q.device) // _n_scores(bands_of(shape, q.device)))
    keys_and_values = kv.unflatten(1, (2, shape.n_heads, -1)).split(at_once, dim=2)
    queries = q.unflatten(1, (shape.n_heads, -1)).split(at_once, dim=1)
    first_heads = range(0, shape.n_heads, at_once)
    for first, query, key_value, part in zip(first_heads, queries, keys_and_values, bias.split(at_once), strict=True):
        own = drop._replace(first_head=first) if drop else None
        yield query.flatten(1), key_value.flatten(1), part, replace(shape, n_heads=len(part)), own


def _at_once(device: torch.device) -> int:
    return AT_ONCE.get(device.type, AT_ONCE["cuda"])


def _n_scores(bands: Bands) -> int:
    """Return the number of scores of one scan and head."""
    return bands.rows.shape[0] * bands.rows.shape[2] * bands.reach.shape[-1]


class _Attend(torch.autograd.Function):
    """Attention of BOLD tokens and of the CLS tokens of windows, with its gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, drop: Drop | None) -> Tensor:
        ctx.save_for_backward(q, kv, bias)
        ctx.rest = shape, drop
        outputs = []
        for part, weights, masks in _parts(q, kv, bias, shape, drop):
            mixed, cls_mixed = masks.mix(weights)
            outputs.append((mixed @ part.v + cls_mixed @ part.cls_v).to(q.dtype))
        return _packed(outputs, bands_of(shape, q.device))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, kv, bias = ctx.saved_tensors
        shape, drop = ctx.rest
        bands, dbias = bands_of(shape, q.device), torch.zeros_like(bias)
        dq, dkeys, dcls = [], [], kv.new_zeros(shape.windows.n_cls, kv.shape[1])
        rows = torch.cat([gradient.new_zeros(len(q) - len(gradient), q.shape[1]), gradient])
        for part, weights, masks in _parts(q, kv, bias, shape, drop):
            given = _by_head(rows[part.bands.rows], shape.n_heads).to(part.q.dtype)
            gv = given @ part.v.mT
            mixed, cls_mixed = masks.mix(weights)
            cls_gv = cls_mixed * (given @ part.cls_v.mT)
            share = (masks.by_window(weights, gv) + cls_gv) / weights.z
            ds = mixed * gv - weights.e * _from_windows(share, part.bands.reach)
            dslot = cls_gv - weights.cls_e * share
            dq.append(((ds @ part.k + dslot @ part.cls_k) * part.scale).to(q.dtype))
            dkeys.append(_joined(torch.cat([ds.mT @ part.q, mixed.mT @ given], dim=-1), part.bands).to(q.dtype))
            if len(dcls):
                of_cls = torch.cat([dslot.mT @ part.q, cls_mixed.mT @ given], dim=-1)
                dcls.index_add_(0, part.bands.cls.flatten(), _by_token(of_cls).flatten(0, 2).to(dcls.dtype))
            dbias += _bias_gradient(ds, dslot, shape, part.bands).to(dbias.dtype)
        of_keys = torch.cat(dkeys).flatten(0, 1)[bands.key_place]
        of_rows = _packed(dq, bands)
        missing = q.new_zeros(len(q) - len(of_rows), q.shape[1])
        return torch.cat([missing, of_rows]), torch.cat([dcls, of_keys]), dbias, None, None


class _Part(NamedTuple):
    """Queries, keys and values of some scans."""

    q: Tensor  # (B, S, h, R, d), scaled
    k: Tensor  # (B, S, h, K, d)
    v: Tensor
    cls_k: Tensor  # (B, S, h, V, d); zeros without CLS tokens
    cls_v: Tensor
    near: Tensor  # bias, (h, BOLD tokens of a block, K)
    field: Tensor  # (B, S, h, CLS tokens of a block, K)
    slot: Tensor  # (B, S, h, R, V); -inf where there is no CLS key
    scale: float
    bands: Bands

    def double(self) -> _Part:
        """Return the same in double precision."""
        tensors: dict[str, Any] = {
            name: value.double() for name, value in self._asdict().items() if isinstance(value, Tensor)
        }
        return self._replace(**tensors)


class _Weights(NamedTuple):
    """What becomes of scores."""

    e: Tensor  # (B, S, h, R, K) exponentials
    cls_e: Tensor  # (B, S, h, R, V) those of the CLS keys; 0 outside the window
    z: Tensor  # (B, S, h, R, V) normalisers; 1 outside the window
    share: Tensor  # (B, S, h, R, V) 1 / (P Z); 0 outside the window


def _parts(
    q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, drop: Drop | None
) -> Iterator[tuple[_Part, _Weights, _Masks]]:
    """Yield the inputs of some scans at a time, with their weights and masks of dropout."""
    bands, scale = bands_of(shape, q.device), (q.shape[1] // shape.n_heads) ** -0.5
    at_once = max(1, _at_once(q.device) // (shape.n_heads * _n_scores(bands)))
    for first in range(0, bands.rows.shape[1], at_once):
        some = bands.of(slice(first, first + at_once))
        band = kv[some.keys].unfold(1, some.step + 2 * some.margin, some.step)  # (S, B, 2 h d, K)
        k, v = band.unflatten(2, (2, shape.n_heads, -1)).permute(2, 1, 0, 3, 5, 4).contiguous()
        cls_kv = kv[some.cls] if shape.windows.n_cls else kv.new_zeros(*some.cls.shape, kv.shape[1])
        cls_k, cls_v = cls_kv.unflatten(3, (2, shape.n_heads, -1)).permute(3, 0, 1, 4, 2, 5)
        queries = _by_head(q[some.rows], shape.n_heads) * scale
        part = _Part(queries, k, v, cls_k, cls_v, *_bias_of(bias, shape, some), scale, some)
        weights = _weigh(part)
        if q.dtype == torch.float32 and (q.device.type == "cpu" or not drop) and _too_far_apart(weights):
            part = part.double()
            weights = _weigh(part)
        yield part, weights, _Masks(part, drop)


def _weigh(part: _Part) -> _Weights:
    """Compute exponentials, normalisers and shares."""
    bands, member = part.bands, part.bands.member
    e = part.q @ part.k.mT
    e[..., : bands.n_bold, :] += part.near
    e[..., bands.n_bold :, :] += part.field
    cls_e = (part.q @ part.cls_k.mT + part.slot).masked_fill(~member, -torch.inf)
    top = torch.maximum(e.amax(-1, keepdim=True), cls_e.amax(-1, keepdim=True))
    e, cls_e = e.sub_(top).exp_(), cls_e.sub_(top).exp_()
    z = (_to_windows(e, bands.reach) + cls_e).masked_fill(~member, 1)
    return _Weights(e, cls_e, z, member / (bands.times * z))


def _too_far_apart(weights: _Weights) -> bool:
    """Return whether scores differ so much between windows that a normaliser has lost digits; a GPU waits for this."""
    return bool(weights.z.min() < LEAST)


class _Masks:
    """Dropout of weights: of each query, key and window that has both; the same in the forward and backward pass."""

    def __init__(self, part: _Part, drop: Drop | None) -> None:
        self.bands, self.drop = part.bands, drop
        # rows of the R; their window (B, S, h, rows, 1); its kept keys (B, S, h, rows, K)
        self.of_slot: list[tuple[slice, Tensor, Tensor]] = []
        if drop is None:
            return
        rows, (n_heads, n_keys) = self.bands.rows, part.k.shape[2:4]
        place = -self.bands.margin, self.bands.step, n_keys
        reach = pad(self.bands.reach.bool(), (0, 0, 0, 1))  # of no window: no key
        numbers = self.bands.windows
        for slot, span in enumerate(self.bands.spans):
            number = numbers[..., span, slot, None]
            within = reach.gather(2, number[:, :, 0].expand(-1, -1, -1, n_keys))
            kept = drop.keys_kept(rows[:, :, span], n_heads, slot, *place).logical_and(within[:, :, None])
            self.of_slot.append((span, number.expand(*kept.shape[:-1], 1), kept))
        numbers = numbers.expand(*part.q.shape[:-1], -1)
        kept = drop.cls_kept(rows, n_heads, numbers.shape[-1])
        none = kept.new_zeros(*kept.shape[:-1], self.bands.reach.shape[2] + 1)
        self.cls_kept = none.scatter_(-1, numbers, kept)[..., :-1]

    def mix(self, weights: _Weights) -> tuple[Tensor, Tensor]:
        """Average weights over windows: of keys (B, S, h, R, K), and of CLS keys (B, S, h, R, V)."""
        if self.drop is None:
            return weights.e * _from_windows(weights.share, self.bands.reach), weights.cls_e * weights.share
        share = pad(weights.share * self.drop.scale, (0, 1))
        mixed = torch.zeros_like(weights.e)
        for span, number, kept in self.of_slot:
            mixed[..., span, :] += torch.where(kept, share[..., span, :].gather(-1, number), 0)
        return mixed.mul_(weights.e), weights.cls_e * share[..., :-1] * self.cls_kept

    def by_window(self, weights: _Weights, gradient: Tensor) -> Tensor:
        """Sum weight times gradient (B, S, h, R, K) over the keys of each window, (B, S, h, R, V)."""
        product = weights.e * gradient
        if self.drop is None:
            return _to_windows(product, self.bands.reach) * weights.share
        sums = pad(torch.zeros_like(weights.share), (0, 1))
        for span, number, kept in self.of_slot:
            sum_ = torch.where(kept, product[..., span, :], 0).sum(-1, keepdim=True)
            sums[..., span, :].scatter_(-1, number, sum_)
        return sums[..., :-1] * weights.share * self.drop.scale


def _to_windows(values: Tensor, reach: Tensor) -> Tensor:
    """Sum values of keys (B, S, h, R, K) over the keys of each window, (B, S, h, R, V)."""
    return _product(values, reach.mT)


def _from_windows(values: Tensor, reach: Tensor) -> Tensor:
    """Sum values of windows (B, S, h, R, V) over the windows that contain a key, (B, S, h, R, K)."""
    return _product(values, reach)


def _product(values: Tensor, matrix: Tensor) -> Tensor:
    """Multiply (B, S, h, R, n) by (B, S or 1, n, m)."""
    start = 1 if matrix.shape[1] == 1 else 2
    flat = values.flatten(start, 3) @ matrix.flatten(0, 1).unflatten(0, matrix.shape[:start]).to(values.dtype)
    return flat.unflatten(start, values.shape[start:4])


def _by_head(tokens: Tensor, n_heads: int) -> Tensor:
    """Turn (B, S, R, h d) into (B, S, h, R, d)."""
    return tokens.unflatten(3, (n_heads, -1)).transpose(2, 3)


def _by_token(blocks: Tensor) -> Tensor:
    """Turn (B, S, h, n, 2 d) into (B, S, n, 2 h d), keys first."""
    return blocks.unflatten(4, (2, -1)).permute(0, 1, 3, 4, 2, 5).flatten(3)


def _packed(parts: list[Tensor], bands: Bands) -> Tensor:
    """Turn the rows of some scans each, (B, S, h, R, d), into packed rows (queries, h d)."""
    return torch.cat(parts, dim=1).transpose(2, 3).flatten(3).flatten(0, 2)[bands.place]


def _joined(blocks: Tensor, bands: Bands) -> Tensor:
    """Add up the bands (B, S, h, K, 2 d) of scans, (S, keys with margins, 2 h d)."""
    blocks = _by_token(blocks)
    total = blocks.new_zeros(blocks.shape[1], bands.keys.shape[1], blocks.shape[3])
    for number, block in enumerate(blocks):
        total[:, number * bands.step :][:, : block.shape[1]] += block
    return total


def _bias_of(bias: Tensor, shape: Shape, bands: Bands) -> tuple[Tensor, Tensor, Tensor]:
    """Lay out the bias: `near`, `field` and `slot` of `_Part`."""
    near, to_bold, *to_cls = bias.split(shape.bias_sizes, dim=1)
    n_keys = bands.reach.shape[-1]
    field = slot = bias.new_zeros(1, 1, 1, 0, n_keys)
    if bands.field.shape[2]:
        field = to_bold[:, bands.field].movedim(0, 2)
    if shape.windows.n_cls:
        slot = torch.cat(to_cls, dim=1)[:, bands.slot].movedim(0, 2)
    else:
        slot = bias.new_full((*bands.slot.shape[:2], 1, *bands.slot.shape[2:]), -torch.inf)
    if not bands.n_bold:
        return near.new_zeros(len(near), 0, n_keys), field, slot
    return pad(near, _margins(shape, bands)).unfold(1, n_keys, 1).flip(1), field, slot


def _bias_gradient(ds: Tensor, dslot: Tensor, shape: Shape, bands: Bands) -> Tensor:
    """Return the gradient of the bias from those of scores: of keys (B, S, h, R, K), of CLS keys (B, S, h, R, V)."""
    parts = [ds.new_zeros(shape.n_heads, size) for size in shape.bias_sizes]
    if bands.n_bold:  # sums of diagonals: in rows that are longer by one, they are columns
        tilted = pad(ds[..., : bands.n_bold, :].sum((0, 1)).flip(1), (0, bands.n_bold)).flatten(1)
        sums = tilted[:, : -bands.n_bold].unflatten(1, (bands.n_bold, -1)).sum(1)
        parts[0] = pad(sums, tuple(-n for n in _margins(shape, bands)))
    if bands.field.shape[2]:
        of_cls = pad(ds[..., bands.n_bold :, :], (0, 1))
        key = bands.field_key[:, :, None].expand(-1, of_cls.shape[1], shape.n_heads, -1, -1)
        parts[1] = of_cls.gather(-1, key).sum((0, 1, 3))
    if shape.windows.n_cls:
        slots = torch.cat(parts[2:], dim=1)
        column = bands.slot.expand(-1, dslot.shape[1], -1, -1)
        slots.index_add_(1, column.flatten(), dslot.movedim(2, 0).flatten(1))
        parts[2:] = [slots]
    return torch.cat(parts, dim=1)


def _margins(shape: Shape, bands: Bands) -> tuple[int, int]:
    """Return how many columns the diagonals of a block have before and after those of the bias."""
    before = bands.n_bold + bands.margin - shape.reach
    return before, bands.n_bold + bands.reach.shape[-1] - 1 - before - shape.bias_sizes[0]
