"""Dropout of attention weights: where the weights of a query, a head and a window are in the mask.

`native`, `bands` and `window` share these addresses, so they drop the same weights. The BOLD keys of a scan are a line
of elements for each row of q, head and slot, which is the number of a window among those of the query. The CLS keys of
these windows are one more line, an element for each slot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from bolt.models.parts.masks import LOW, NUMBERS, draw_seed, dropped_of, kept_of_lines, scale_of

CLS_SLOT = LOW
"""Slot of the line of CLS keys."""


class Drop(NamedTuple):
    """Dropout of the attention weights of one call."""

    dropped: int  # of 2**16 weights
    seed: int
    first_head: int = 0  # number of the first head of those that are computed

    @property
    def scale(self) -> float:
        """Return the factor of weights that are kept."""
        return scale_of(self.dropped)

    def keys_kept(self, rows: Tensor, n_heads: int, slot: int, first: int, step: int, n_keys: int) -> Tensor:
        """Return which BOLD keys are kept.

        Parameters
        ----------
        rows : Tensor
            (B, S, R) rows of q, in blocks.
        n_heads, slot : int
        first : int
            Number in its scan of the first key of the first block.
        step : int
            How much later the keys of the next block begin; a multiple of eight if there are several.
        n_keys : int
            K.

        Returns
        -------
        Tensor
            (B, S, h, R, K) bool.
        """
        skipped = first % NUMBERS
        groups = (first - skipped + step * torch.arange(len(rows), device=rows.device)) // NUMBERS
        kept = self._kept(groups, rows, n_heads, slot, -(-(skipped + n_keys) // NUMBERS))
        return kept[..., skipped : skipped + n_keys]

    def cls_kept(self, rows: Tensor, n_heads: int, n_slots: int) -> Tensor:
        """Return which CLS keys are kept, (B, S, h, R, slots) bool; parameters as in `keys_kept`."""
        groups = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        return self._kept(groups, rows, n_heads, CLS_SLOT, -(-n_slots // NUMBERS))[..., :n_slots]

    def _kept(self, groups: Tensor, rows: Tensor, n_heads: int, slot: int, n_groups: int) -> Tensor:
        heads = torch.arange(self.first_head, self.first_head + n_heads, device=rows.device)
        slots = torch.full((), slot, dtype=torch.int64, device=rows.device)
        address = groups[:, None, None, None], rows[:, :, None], heads[:, None], slots
        lines = torch.stack(torch.broadcast_tensors(*address), dim=-1)
        return kept_of_lines(lines.flatten(0, 3), n_groups, self.dropped, self.seed).unflatten(0, lines.shape[:4])


def draw_drop(p: float) -> Drop | None:
    """Draw the mask of a call; None if nothing is dropped."""
    return Drop(dropped, draw_seed()) if (dropped := dropped_of(p)) else None
