"""Steps of a model that depend on the precision of its training."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Switch automatic lower precision off within the block, on devices that have it."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def without_onednn(device: torch.device) -> AbstractContextManager[object]:
    """Compute bfloat16 on a CPU without oneDNN, whose LSTM raises where AVX-512 is missing."""
    if device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return torch.backends.mkldnn.flags(enabled=False, allow_tf32=None)
    return nullcontext()
