"""Geometry of the windows: which volumes they contain, shared by attention, its gradient and its explanation.

The tokens of a batch are packed: CLS tokens first, then the BOLD tokens of one scan after another. `Windows` have no
padding, so that scans of different lengths share a batch; with `PaddedWindows` all batches of a size have the same
shapes, whatever the lengths, so that a GPU can replay a step.

Symbols: T volumes, W window, s stride, L fringe, F windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

ClsToken = Literal["local", "global", "none"]
Tail = Literal["cover", "drop"]


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
    times: Tensor  # (BOLD tokens,) number of windows that contain the token, or 1
    scan_keys: Tensor  # (scans, [1 +] longest): CLS token and all BOLD keys of the scan
    scan_outside: Tensor  # (scans, [1 +] longest) bool


class Places(NamedTuple):
    """Where scans, windows and tokens are."""

    table: Tensor  # (scans, 7): `Windows.table`
    starts: Tensor  # (windows,) first volume
    earliest: Tensor  # (BOLD tokens,) first window that contains the token
    times: Tensor  # (BOLD tokens,) number of windows that contain it
    share: Tensor  # (CLS tokens + BOLD tokens,) of a window in its output, float64
    scan_of_cls: Tensor  # (CLS tokens,) number of the scan


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
    most : int
        Limit of the number of windows that contain a volume.
    flat_starts, scan : Tensor
        (windows,) first volume of each window within its scan, and number of the scan.
    padded : bool
        Whether shorter scans are padded (`PaddedWindows`).
    """

    padded = False

    def __init__(
        self, starts: Sequence[Sequence[int]], lengths: Sequence[int], window: int, most: int, cls_token: ClsToken
    ) -> None:
        self.starts, self.lengths = tuple(map(tuple, starts)), tuple(lengths)
        self.window, self.most, self.cls_token = window, most, cls_token
        self._kept: dict[tuple[int | torch.device, ...], Gather] = {}
        self._places: dict[tuple[int | torch.device, ...], Places] = {}
        windows = tuple(map(len, self.starts))
        self.counts = windows if cls_token == "local" else (int(cls_token == "global"),) * len(windows)
        self.n_cls, self.n_tokens, self.n_windows = sum(self.counts), sum(self.lengths), sum(windows)
        with torch.inference_mode(False):
            self.flat_starts = torch.tensor([start for starts in self.starts for start in starts])
            self.scan = torch.arange(len(windows)).repeat_interleave(torch.tensor(windows))

    def n_read(self, device: torch.device) -> Tensor:
        """Return how many tokens of each scan the classifier reads: CLS tokens or, if there are none, BOLD tokens."""
        return torch.tensor(self.counts if self.n_cls else self.lengths).to(device, non_blocking=True)

    def with_following(self, tokens: Tensor, following: Tensor, beyond: int) -> Tensor:
        """Insert `beyond` copies of a token (N,) after the last volume of each scan."""
        scans, copies = tokens[self.n_cls :].split(self.lengths), following.expand(beyond, -1)
        return torch.cat([tokens[: self.n_cls], *(part for scan in scans for part in (scan, copies))])

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
        key = (fringe, beyond, device)
        if key not in self._kept:
            with torch.inference_mode(False):  # they outlive the call, and autograd may need them later
                self._kept[key] = Gather(*(part.to(device) for part in self._gather(fringe, beyond)))
        return self._kept[key]

    def places(self, beyond: int, device: torch.device) -> Places:
        """Return where scans, windows and tokens are, on `device`, cached."""
        key = (beyond, device)
        if key not in self._places:
            with torch.inference_mode(False):
                scans = self.scan if self.cls_token == "local" else torch.arange(self.n_cls, device=self.scan.device)
                earliest, times = self._of_tokens()
                share = 1 / pad(times.clamp(min=1), (self.n_cls, 0), value=1).double()
                parts = Places(self.table(beyond), self.flat_starts, earliest, times, share, scans)
                self._places[key] = Places(*(part.to(device) for part in parts))
        return self._places[key]

    def _of_tokens(self) -> tuple[Tensor, Tensor]:
        """Return for each BOLD token the first window that contains it, and the number of windows that do."""
        device, most = self.scan.device, max(self.lengths) + self.window
        if len(set(self.lengths)) == 1:
            volume = torch.arange(self.n_tokens, device=device) % self.lengths[0]
            scan = torch.arange(self.n_tokens, device=device) // self.lengths[0]
        else:
            scan = torch.arange(len(self.lengths)).repeat_interleave(torch.tensor(self.lengths))
            volume = torch.cat([torch.arange(length) for length in self.lengths])
        # the first window that contains a volume follows those that end before it
        before, after = (
            torch.searchsorted(self.scan * most + self._or_last(edges, most), scan * most + volume, right=True)
            for edges in (self.flat_starts + self.window, self.flat_starts)
        )
        return before, after - before

    def _gather(self, fringe: int, beyond: int) -> Gather:
        """Build the index tensors where the lengths are."""
        table, device = self.table(beyond), self.flat_starts.device
        first_token, n_tokens, first_key, n_keys = table[self.scan][:, :4, None].unbind(1)
        volume = self.flat_starts[:, None] + torch.arange(self.window, device=device)
        within = self._present(volume < n_tokens)
        base = first_token + torch.where(within, volume, 0)
        near = self.flat_starts[:, None] + torch.arange(-fringe, self.window + fringe, device=device)
        outside = (near < 0) | (near >= n_keys)
        number = torch.arange(self.n_windows, device=device)
        cls = number if self.cls_token == "local" else self.scan
        position = torch.arange(max(self.lengths) + beyond, device=device)
        keys = first_key + near.clamp(min=0).minimum(n_keys - 1)
        n_scan_keys = table[:, 3, None]
        scan_keys, scan_outside = table[:, 2, None] + position.minimum(n_scan_keys - 1), position >= n_scan_keys
        if self.n_cls:
            keys, outside = torch.cat([cls[:, None], keys], dim=1), pad(outside, (1, 0))
            scan_keys, scan_outside = torch.cat([table[:, 4, None], scan_keys], dim=1), pad(scan_outside, (1, 0))
        earliest, times = self._of_tokens()
        slot, first = number[:, None] - earliest[base], self.flat_starts - fringe
        return Gather(base, within, cls, slot, keys, outside, first, times.clamp(min=1), scan_keys, scan_outside)

    def _present(self, within: Tensor) -> Tensor:
        """Leave out the volumes (windows, W) of windows that do not exist."""
        return within

    def _or_last(self, volumes: Tensor, last: int) -> Tensor:
        """Let windows that do not exist begin, or end, after all others of their scan; volumes (windows,)."""
        return volumes


class PaddedWindows(Windows):
    """The windows of scans that all have the room of the longest; lengths are read on their device only.

    Windows that a shorter scan does not have lie on its first volumes: their CLS tokens are not read (`n_read`), and
    fusion leaves them out. BOLD tokens after the end of a scan are zero after fusion, and no key.

    Parameters
    ----------
    volumes : Tensor
        (scans,) volumes of each scan.
    room : int
        Volumes of the longest.
    window, stride, tail, cls_token
        As for `windows_of`; None as `window`: one window per scan, as long as the room.
    """

    padded = True

    def __init__(
        self, volumes: Tensor, room: int, window: int | None, stride: int, tail: Tail, cls_token: ClsToken
    ) -> None:
        width, step = (room, room) if window is None else (window, stride)
        starts = window_starts(room, width, step, tail)
        self.room, device = starts[-1] + width, volumes.device
        most = -(-width // step) + (tail == "cover")  # the last window may begin between two others
        super().__init__([starts] * len(volumes), [self.room] * len(volumes), width, most, cls_token)
        first = step * torch.arange(len(starts), device=device)
        last = (volumes[:, None] - width).clamp(min=0)  # start of the last window
        self.there = first < last + step if tail == "cover" else first <= last
        self.flat_starts = torch.where(self.there, first.minimum(last), 0).flatten()
        self.scan = torch.arange(len(volumes), device=device)[:, None].expand_as(self.there).reshape(-1).contiguous()
        self.volumes = volumes if tail == "cover" or window is None else last[:, 0] // step * step + width

    def n_read(self, device: torch.device) -> Tensor:
        """Return how many tokens of each scan the classifier reads."""
        if self.cls_token == "local":
            return self.there.sum(1)
        return torch.ones_like(self.volumes) if self.n_cls else self.volumes

    def with_following(self, tokens: Tensor, following: Tensor, beyond: int) -> Tensor:
        """Put copies of a token (N,) after the last volume of each scan, and `beyond` more after its room."""
        scans = tokens[self.n_cls :].unflatten(0, (-1, self.room))
        after = torch.arange(self.room, device=tokens.device)[:, None] >= self.volumes[:, None, None]
        scans = torch.cat([torch.where(after, following, scans), following.expand(len(scans), beyond, -1)], dim=1)
        return torch.cat([tokens[: self.n_cls], scans.flatten(0, 1)])

    def table(self, beyond: int) -> Tensor:
        """Return one row per scan, on the device; rooms have places for windows that do not exist, too."""
        scan, (n_windows, *_) = torch.arange(len(self.lengths), device=self.volumes.device), map(len, self.starts)
        key, window = self.n_cls + scan * (self.room + beyond), scan * n_windows
        columns = (scan * self.room, self.volumes, key, self.volumes + beyond, scan * self.counts[0], window)
        return torch.stack([*columns, torch.full_like(scan, n_windows)], dim=1)

    def _present(self, within: Tensor) -> Tensor:
        return within & self.there.flatten()[:, None]

    def _or_last(self, volumes: Tensor, last: int) -> Tensor:
        return torch.where(self.there.flatten(), volumes, last)


@lru_cache(maxsize=64)
def windows_of(lengths: tuple[int, ...], window: int, stride: int, tail: Tail, cls_token: ClsToken) -> Windows:
    """Return the windows of scans of these lengths, each at least `window`."""
    starts = [window_starts(length, window, stride, tail) for length in lengths]
    covered, most = [scan_starts[-1] + window for scan_starts in starts], -(-window // stride) + (tail == "cover")
    return Windows(starts, covered, window, most, cls_token)


@lru_cache(maxsize=64)
def one_window(lengths: tuple[int, ...], cls_token: ClsToken) -> Windows:
    """Return one window per scan, as long as the scan."""
    return Windows([(0,)] * len(lengths), lengths, max(lengths), 1, cls_token)


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
