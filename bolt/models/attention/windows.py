"""Geometry of the windows: which volumes they contain, shared by attention, its gradient and its explanation.

The tokens of a batch are packed: CLS tokens first, then the BOLD tokens of one scan after another, without padding, so
that scans of different lengths share a batch. Symbols: T volumes, W window, s stride, L fringe, F windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

ClsToken = Literal["local", "global", "none"]
Tail = Literal["cover", "drop"]
Kept = TypeVar("Kept")


def window_starts(length: int, window: int, stride: int, tail: Tail) -> list[int]:
    """Return the first volume of each window of a scan that is at least one window long."""
    starts = list(range(0, length - window + 1, stride))
    if tail == "cover" and starts[-1] + window < length:
        starts.append(length - window)
    return starts


class Gather(NamedTuple):
    """Indices into packed tokens, by window."""

    base: Tensor  # (F, W), among the BOLD tokens
    within: Tensor  # (F, W) bool: the volume is in the scan
    cls: Tensor  # (F,) CLS token of the window
    slot: Tensor  # (F, W) number of the window among those that contain the volume
    keys: Tensor  # (F, [1 +] W + 2L), among all keys; the CLS token, if there is one, comes first
    outside: Tensor  # (F, [1 +] W + 2L) bool: the key does not exist
    first: Tensor  # (F,) volume of the first key
    times: Tensor  # (BOLD tokens,) number of windows that contain the token
    scan_keys: Tensor  # (scans, [1 +] longest): CLS token and all BOLD keys of the scan
    scan_outside: Tensor  # (scans, [1 +] longest) bool


class Windows:
    """The windows of a batch of scans; create them with `windows_of`, which caches them.

    Attributes
    ----------
    lengths : tuple of int
        Number of volumes of each scan that its windows cover.
    starts : tuple of tuple of int
        First volume of each window, by scan.
    window : int
        W; a shorter scan (in `one_window`) has a window that ends with the scan.
    cls_token : {"local", "global", "none"}
        One CLS token per window, one per scan, or none.
    counts : tuple of int
        Number of CLS tokens of each scan.
    n_cls, n_tokens, n_windows : int
        Number of CLS tokens, BOLD tokens and windows of all scans.
    flat_starts : Tensor
        (windows,) first volume of each window within its scan.
    """

    def __init__(self, starts: Sequence[Sequence[int]], lengths: Sequence[int], window: int, cls_token: ClsToken):
        self.starts, self.lengths = tuple(map(tuple, starts)), tuple(lengths)
        self.window, self.cls_token = window, cls_token
        self._kept: dict[tuple[Any, ...], Any] = {}
        windows = tuple(map(len, self.starts))
        self.counts = windows if cls_token == "local" else (int(cls_token == "global"),) * len(windows)
        self.n_cls, self.n_tokens, self.n_windows = sum(self.counts), sum(self.lengths), sum(windows)
        with torch.inference_mode(False):
            self.flat_starts = torch.tensor([start for starts in self.starts for start in starts])

    def table(self, beyond: int) -> Tensor:
        """Return one row per scan, (scans, 7); each scan has `beyond` keys after its last volume.

        Columns: first BOLD token (CLS tokens not counted), BOLD tokens, first key, keys, first CLS token, first window,
        windows.
        """
        rows, token, key, cls, window = [], 0, self.n_cls, 0, 0
        for length, starts, n_cls in zip(self.lengths, self.starts, self.counts, strict=True):
            rows.append([token, length, key, length + beyond, cls, window, len(starts)])
            token, key, cls, window = token + length, key + length + beyond, cls + n_cls, window + len(starts)
        return torch.tensor(rows)

    def gather(self, fringe: int, beyond: int, device: torch.device) -> Gather:
        """Return the index tensors on `device`, cached."""
        key = ("gather", fringe, beyond)
        return self.on_device(key, lambda: Gather(*(part.to(device) for part in self._gather(fringe, beyond))), device)

    def on_device(self, key: tuple[Any, ...], build: Callable[[], Kept], device: torch.device) -> Kept:
        """Return what `build` returns, tensors on `device`; cached for each stream.

        A GPU's stream may run ahead of another one that still fills, or still reads, memory that both use.
        """
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        key = (*key, device, stream)
        if key not in self._kept:
            with torch.inference_mode(False):  # they outlive the call, and autograd may need them later
                self._kept[key] = build()
        kept: Kept = self._kept[key]
        return kept

    def _gather(self, fringe: int, beyond: int) -> Gather:
        """Build the index tensors on the CPU."""
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
        number = torch.arange(len(scan))[:, None].expand_as(base)
        earliest = number.new_full((self.n_tokens,), len(scan)).scatter_reduce(
            0, base.flatten(), number.flatten(), "amin"
        )
        position = torch.arange(int(table[:, 3].max()))
        keys = first_key + near.clamp(min=0).minimum(n_keys - 1)
        n_scan_keys = table[:, 3, None]
        scan_keys, scan_outside = table[:, 2, None] + position.minimum(n_scan_keys - 1), position >= n_scan_keys
        if self.n_cls:
            keys, outside = torch.cat([cls[:, None], keys], dim=1), pad(outside, (1, 0))
            scan_keys, scan_outside = torch.cat([table[:, 4, None], scan_keys], dim=1), pad(scan_outside, (1, 0))
        slot, first = number - earliest[base], self.flat_starts - fringe
        return Gather(base, within, cls, slot, keys, outside, first, times, scan_keys, scan_outside)


@lru_cache(maxsize=64)
def windows_of(lengths: tuple[int, ...], window: int, stride: int, tail: Tail, cls_token: ClsToken) -> Windows:
    """Return the windows of scans of these lengths, each at least `window`."""
    starts = [window_starts(length, window, stride, tail) for length in lengths]
    return Windows(starts, [scan_starts[-1] + window for scan_starts in starts], window, cls_token)


@lru_cache(maxsize=64)
def one_window(lengths: tuple[int, ...], cls_token: ClsToken) -> Windows:
    """Return one window per scan, as long as the scan."""
    return Windows([(0,)] * len(lengths), lengths, max(lengths), cls_token)


def pack(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Pack series (batch, time, rois) into (sum of lengths, rois)."""
    if len(set(lengths)) == 1:
        return x[:, : lengths[0]].flatten(0, 1)
    return torch.cat([scan[:n] for scan, n in zip(x, lengths, strict=True)])


def unpack(tokens: Tensor, counts: Sequence[int]) -> Tensor:
    """Unpack tokens (sum of counts, N) into (batch, largest count, N), padded with zeros."""
    if len(set(counts)) == 1:
        return tokens.unflatten(0, (len(counts), -1))
    return pad_sequence(tokens.split(counts), batch_first=True)
