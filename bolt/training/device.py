"""The device for training and prediction: a GPU if there is one."""

from __future__ import annotations

import logging
import os
from functools import cache

import torch

from bolt.io.errors import ConfigError

log = logging.getLogger("bolt")


def device_of(device: str, threads: int | None) -> torch.device:
    """Return the device that a configuration asks for, and log it once.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        ``auto`` is a GPU if there is one.
    threads : int, optional
        CPU threads of torch.

    Raises
    ------
    ConfigError
        ``cuda`` without a GPU.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise ConfigError(f"no CUDA device found: {_absence()}", where="device", hint="Set 'device' to auto or cpu")
    if device != "cpu" and has_gpu:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        _announce(f"device: GPU, {torch.cuda.get_device_name()}")
        return torch.device("cuda")
    reason = "as configured" if device == "cpu" else f"no GPU: {_absence()}"
    _announce(f"device: CPU, {torch.get_num_threads()} threads ({reason})")
    return torch.device("cpu")


@cache
def _announce(text: str) -> None:
    """Log a text, but not again."""
    log.info(text)


def _absence() -> str:
    """Explain why torch has no GPU, for users whose job was allocated one."""
    reason = "torch finds none" if torch.version.cuda else "this torch is built without CUDA"
    allocated = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"{reason}, though CUDA_VISIBLE_DEVICES is {allocated}" if allocated else reason
