"""Which volumes a window holds: the geometry that attention, its gradient and its explanation share.

The tokens of a batch are packed: CLS tokens first, then the BOLD tokens of one scan after another, without padding, so
that scans of different length share a batch. Symbols: T volumes, W window, s stride, L fringe, F windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

ClsToken = Literal["local", "global", "none"]
Tail = Literal["cover", "drop"]


def window_starts(length: int, window: int, stride: int, tail: Tail) -> list[int]:
    """First volume of each window of a scan that is at least one window long."""
    starts = list(range(0, length - window + 1, stride))
    if tail == "cover" and starts[-1] + window < length:
        starts.append(length - window)
    return starts


class Gather(NamedTuple):
    """Rows of packed tokens by window, for indexing."""

    base: Tensor  # (F, W), among the BOLD tokens
    within: Tensor  # (F, W) bool: the scan has this volume
    cls: Tensor  # (F,) the window's CLS token
    keys: Tensor  # (F, [1 +] W + 2L), among all keys; the CLS token, if there is one, comes first
    outside: Tensor  # (F, [1 +] W + 2L) bool: no such key
    times: Tensor  # (tokens,) windows that hold a BOLD token
    scan_keys: Tensor  # (scans, [1 +] longest): the CLS token and all BOLD keys
    scan_outside: Tensor  # (scans, [1 +] longest) bool


class Windows:
    """The windows of a batch of scans; made by `windows_of`, which keeps equal ones.

    Attributes
    ----------
    lengths : tuple of int
        Volumes of each scan that its windows cover.
    starts : tuple of tuple of int
        First volume of each window, by scan.
    window : int
        W; where a scan is shorter (one window for all of it), the window ends with the scan.
    cls_token : {"local", "global", "none"}
        One CLS token a window, one a scan, or none.
    """

    def __init__(self, starts: Sequence[Sequence[int]], lengths: Sequence[int], window: int, cls_token: ClsToken):
        self.starts, self.lengths = tuple(map(tuple, starts)), tuple(lengths)
        self.window, self.cls_token = window, cls_token
        self._gathers: dict[tuple[int, int, torch.device], Gather] = {}

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """CLS tokens of each scan."""
        if self.cls_token == "local":
            return tuple(map(len, self.starts))
        return (int(self.cls_token == "global"),) * len(self.starts)

    @cached_property
    def n_cls(self) -> int:
        return sum(self.counts)

    @cached_property
    def n_tokens(self) -> int:
        """BOLD tokens of all scans."""
        return sum(self.lengths)

    @cached_property
    def n_windows(self) -> int:
        return sum(map(len, self.starts))

    @cached_property
    def flat_starts(self) -> Tensor:
        """(windows,), within the scan."""
        with torch.inference_mode(False):
            return torch.tensor([start for own in self.starts for start in own])

    def table(self, beyond: int) -> Tensor:
        """One row a scan: first BOLD token (CLS tokens not counted), BOLD tokens, first key, keys, first CLS token,
        first window, windows. Each scan has `beyond` keys after its last volume."""
        rows, token, key, cls, window = [], 0, self.n_cls, 0, 0
        for length, own, count in zip(self.lengths, self.starts, self.counts, strict=True):
            rows.append([token, length, key, length + beyond, cls, window, len(own)])
            token, key, cls, window = token + length, key + length + beyond, cls + count, window + len(own)
        return torch.tensor(rows)

    def gather(self, fringe: int, beyond: int, device: torch.device) -> Gather:
        """Index tensors on `device`, made once."""
        key = (fringe, beyond, device)
        if key not in self._gathers:
            with torch.inference_mode(False):  # they outlive the call, and autograd may need them then
                self._gathers[key] = Gather(*(tensor.to(device) for tensor in self._gather(fringe, beyond)))
        return self._gathers[key]

    def _gather(self, fringe: int, beyond: int) -> Gather:
        table = self.table(beyond)
        scan = torch.repeat_interleave(torch.arange(len(table)), table[:, 6])  # of each window
        first_token, n_tokens, first_key, n_keys, first_cls, first_window, _ = table[scan][:, :, None].unbind(1)
        volume = self.flat_starts[:, None] + torch.arange(self.window)
        within = volume < n_tokens
        base = first_token + torch.where(within, volume, 0)
        near = self.flat_starts[:, None] + torch.arange(-fringe, self.window + fringe)
        outside = (near < 0) | (near >= n_keys)
        cls = first_cls[:, 0]
        if self.cls_token == "local":
            cls = cls + torch.arange(len(scan)) - first_window[:, 0]
        times = torch.zeros(self.n_tokens).index_add(0, base.flatten(), within.flatten().float())
        every = torch.arange(int(table[:, 3].max()))
        keys = first_key + near.clamp(min=0).minimum(n_keys - 1)
        scan_keys, scan_outside = table[:, 2, None] + every.minimum(table[:, 3, None] - 1), every >= table[:, 3, None]
        if self.n_cls:
            keys, outside = torch.cat([cls[:, None], keys], dim=1), pad(outside, (1, 0))
            scan_keys, scan_outside = torch.cat([table[:, 4, None], scan_keys], dim=1), pad(scan_outside, (1, 0))
        return Gather(base, within, cls, keys, outside, times, scan_keys, scan_outside)


@lru_cache(maxsize=64)
def windows_of(lengths: tuple[int, ...], window: int, stride: int, tail: Tail, cls_token: ClsToken) -> Windows:
    """Windows of scans of these lengths, each at least `window` long."""
    starts = [window_starts(length, window, stride, tail) for length in lengths]
    return Windows(starts, [own[-1] + window for own in starts], window, cls_token)


@lru_cache(maxsize=64)
def one_window(lengths: tuple[int, ...], cls_token: ClsToken) -> Windows:
    """One window a scan, as long as the scan."""
    return Windows([(0,)] * len(lengths), lengths, max(lengths), cls_token)


def pack(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """(batch, time, rois) to (sum of lengths, rois)."""
    if len(set(lengths)) == 1:
        return x[:, : lengths[0]].flatten(0, 1)
    return torch.cat([scan[:n] for scan, n in zip(x, lengths, strict=True)])


def unpack(tokens: Tensor, counts: Sequence[int]) -> Tensor:
    """(sum of counts, N) to (batch, most, N), zeros behind the shorter."""
    if len(set(counts)) == 1:
        return tokens.unflatten(0, (len(counts), -1))
    return pad_sequence(tokens.split(counts), batch_first=True)
