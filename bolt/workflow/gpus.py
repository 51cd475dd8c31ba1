"""How many GPUs this machine offers, asked without torch, whose import takes seconds."""

from __future__ import annotations

import os
from pathlib import Path

SHARE_ONE = 2
"""Trainings of one GPU at a time: more would compete for its memory."""


def trainings_at_once(device: str, devices: Path = Path("/dev")) -> int | None:
    """Return how many trainings may run at once on this machine; None: as many as there are cores.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        The configured one.
    devices : Path
        Folder of device files.
    """
    gpus = len(list(devices.glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus and visible is not None:  # numbers or names; those of parts of a GPU, too
        gpus = sum(name.strip() not in ("", "-1") for name in visible.split(","))
    return SHARE_ONE * gpus if gpus and device != "cpu" else None
