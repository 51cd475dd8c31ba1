"""Geometry of the blocks in which `bands` computes attention: which queries meet which keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bolt.models.attention.window import Shape

STEPS = (16, 32, 48, 64, 96)
"""Volumes of a block: the number that needs the fewest scores is used, or a single block."""
OVERHEAD = 200  # scores that cost as much as one more block


class Bands(NamedTuple):
    """Blocks of consecutive volumes, each with a band of keys.

    Symbols: B blocks, S scans (1 if all are alike), R queries of a block (BOLD tokens, then the CLS tokens of windows
    that begin in it), K keys of a band, V windows of a block, P windows of a query.
    """

    n_bold: int  # BOLD tokens among the R
    step: int  # volumes of a block
    margin: int  # keys before the first volume of a block, and after its last
    rows: Tensor  # (B, scans, R) rows of q
    place: Tensor  # (queries,) where they are among (B, scans, R)
    keys: Tensor  # (scans, n) BOLD keys of a scan, as rows of kv, with the margin before and after
    key_place: Tensor  # (BOLD keys,) where they are among (scans, n)
    cls: Tensor  # (B, scans, V) CLS tokens
    member: Tensor  # (B, S, 1, R, V) bool: the query is in the window
    times: Tensor  # (B, S, 1, R, 1) number of its windows, at least 1
    reach: Tensor  # (B, S, V, K) 0 or 1: the key is in the receptive field of the window
    slot: Tensor  # (B, S, R, V) column of the bias of BOLD to CLS; of CLS to CLS, the column after them
    field: Tensor  # (B, S, R - n_bold, K) column of the bias of CLS to BOLD
    field_key: Tensor  # (B, S, R - n_bold, positions) the key of that column; K: none
    windows: Tensor  # (B, S, 1, R, P) the query's windows among V; V: none
    spans: tuple[slice, ...]  # for each of the P, from the first to the last of the R that has such a window

    def of(self, scans: slice) -> Bands:
        """Return the geometry of some scans; `place` and `key_place` are those of all."""
        alike = self.member.shape[1] == 1
        every = ("rows", "cls")
        apart = ("member", "times", "reach", "slot", "field", "field_key", "windows")
        change = {name: getattr(self, name)[:, scans] for name in (every if alike else every + apart)}
        return self._replace(**change, keys=self.keys[scans])


def bands_of(shape: Shape, device: torch.device) -> Bands:
    """Return the geometry on a device, cached."""
    key = ("bands", shape.fringe, shape.beyond, shape.bold_rows)

    def build() -> Bands:
        bands = _bands(shape)
        tensors = {name: value for name, value in bands._asdict().items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {name: value.to(device) for name, value in tensors.items()}
        return bands._replace(**moved)

    return shape.windows.on_device(key, build, device)


def _bands(shape: Shape) -> Bands:
    windows = shape.windows
    longest, width = max(windows.lengths), windows.window
    margin = width + shape.fringe - 1
    scores = {step: -(-longest // step) * (step * (step + 2 * margin) + OVERHEAD) for step in STEPS}
    step = min(scores, key=lambda step: scores[step])
    if scores[step] >= longest * (longest + shape.beyond):
        step, margin = longest + shape.beyond, 0
    firsts = torch.arange(0, longest, step)
    scans = list(zip(windows.lengths, windows.starts, strict=True))
    alike = len(set(scans)) == 1
    blocks = [_Blocks(shape, *scan, firsts, step, margin) for scan in (scans[:1] if alike else scans)]
    n_windows = max(part.most(part.overlaps) for part in blocks)
    n_cls = max(part.most(part.begins) for part in blocks) if windows.cls_token == "local" else 0
    tables = [part.tables(n_windows, n_cls) for part in blocks]
    member, reach, slot, field, field_key, chosen, begun = (
        torch.stack(same, dim=1) for same in zip(*tables, strict=True)
    )
    times = member.sum(-1, keepdim=True).clamp(min=1)
    order = member.to(torch.int8).sort(dim=-1, descending=True, stable=True)
    of_query = order.indices.masked_fill(order.values == 0, n_windows)[..., : int(times.max())]

    table = windows.table(shape.beyond)
    first_token, n_tokens, first_key, n_keys, first_cls = table[:, :5].T[:, :, None]
    volume = firsts[:, None, None] + torch.arange(step if shape.bold_rows else 0)
    bold = torch.where(volume < n_tokens, windows.n_cls + first_token + volume, -1)
    own = torch.where(begun < 0, -1, first_cls + begun)
    rows = torch.cat([bold, own.expand(-1, len(scans), -1)], dim=-1)
    volume = torch.arange(-margin, len(firsts) * step + margin)
    keys = torch.where((volume >= 0) & (volume < n_keys), first_key + volume, -1)
    n_queries = windows.n_cls * (n_cls > 0) + windows.n_tokens * shape.bold_rows
    first_query = 0 if n_cls or not windows.n_cls else windows.n_cls
    cls = first_cls + (chosen.clamp(min=0) if windows.cls_token == "local" else torch.zeros_like(chosen))
    return Bands(
        n_bold=step if shape.bold_rows else 0,
        step=step,
        margin=margin,
        rows=rows.clamp(min=0),
        place=_places(rows, first_query, n_queries),
        keys=keys.clamp(min=0),
        key_place=_places(keys, windows.n_cls, int(n_keys.sum())),
        cls=cls.expand(-1, len(scans), -1),
        member=member[:, :, None],
        times=times[:, :, None].float(),
        reach=reach.float(),
        slot=slot,
        field=field,
        field_key=field_key,
        windows=of_query[:, :, None],
        spans=tuple(map(_span, (of_query < n_windows).flatten(0, 1).any(0).unbind(-1))),
    )


class _Blocks:
    """Blocks of one scan.

    Parameters
    ----------
    shape : Shape
    length : int
    starts : tuple of int
        First volume of each window.
    firsts : Tensor
        First volume of each block.
    step, margin : int
        As in `Bands`.
    """

    def __init__(self, shape: Shape, length: int, starts: tuple[int, ...], firsts: Tensor, step: int, margin: int):
        self.shape, self.length, self.step, self.margin = shape, length, step, margin
        self.firsts, self.starts = firsts[:, None], torch.tensor(starts)
        self.begins = (self.starts >= self.firsts) & (self.starts < self.firsts + step)  # (B, F)
        self.overlaps = (self.starts < self.firsts + step) & (self.starts + shape.windows.window > self.firsts)

    @staticmethod
    def most(chosen: Tensor) -> int:
        """Return the largest number of windows of a block."""
        return int(chosen.sum(1).max())

    @staticmethod
    def _first(chosen: Tensor, n: int) -> Tensor:
        """Return the chosen windows of each block, (B, n), then -1."""
        order = chosen.to(torch.int8).sort(dim=1, descending=True, stable=True)
        found = order.indices.masked_fill(order.values == 0, -1)[:, :n]
        return torch.cat([found, found.new_full((len(found), n - found.shape[1]), -1)], dim=1)

    def tables(self, n_windows: int, n_cls: int) -> tuple[Tensor, ...]:
        """Return member, reach, slot, field and field_key of `Bands`, the windows of blocks, and those that begin."""
        shape, width, fringe = self.shape, self.shape.windows.window, self.shape.fringe
        _, positions, _, _ = shape.bias_sizes
        chosen, begun = self._first(self.overlaps, n_windows), self._first(self.begins, n_cls)
        start, there = self.starts[chosen.clamp(min=0)], chosen >= 0
        volume = self.firsts + torch.arange(self.step if shape.bold_rows else 0)
        since = volume[:, :, None] - start[:, None]
        bold = there[:, None] & (since >= 0) & (since < width) & (volume < self.length)[:, :, None]
        own = there[:, None] & (chosen[:, None] == begun[:, :, None])
        member = torch.cat([bold, own], dim=1)
        slot = torch.cat([since.clamp(0, width - 1), torch.full_like(own, width, dtype=torch.int64)], dim=1)

        n_keys = self.length + shape.beyond
        n_band = self.step + 2 * self.margin
        key = self.firsts - self.margin + torch.arange(n_band)
        exists = (key >= 0) & (key < n_keys)
        from_start = key[:, None] - start[:, :, None]
        reach = (there[:, :, None] & (from_start >= -fringe) & (from_start < width + fringe)) & exists[:, None]
        first = self.starts[begun.clamp(min=0)] - fringe
        field = (key[:, None] - first[:, :, None]).clamp(0, max(positions - 1, 0))
        volume = first[:, :, None] + torch.arange(positions if n_cls else 0)
        of_band = volume - self.firsts[:, :, None] + self.margin
        outside = (volume < 0) | (volume >= n_keys) | (of_band < 0) | (of_band >= n_band)
        return member, reach, slot, field, of_band.masked_fill(outside, n_band), chosen, begun


def _span(chosen: Tensor) -> slice:
    """Return the slice from the first to the last of those chosen."""
    (places,) = chosen.nonzero(as_tuple=True)
    return slice(int(places[0]), int(places[-1]) + 1)


def _places(numbers: Tensor, first: int, n: int) -> Tensor:
    """Return where the numbers from `first` to `first` + n - 1 are in a tensor, flattened; -1 there means none."""
    flat = numbers.flatten()
    (where,) = (flat >= 0).nonzero(as_tuple=True)
    places = torch.empty(n, dtype=torch.int64)
    places[flat[where] - first] = where
    return places
