"""Where models are trained and asked: a GPU where there is one."""

from __future__ import annotations

import logging
import os

import torch

from bolt.io.errors import ConfigError

log = logging.getLogger("bolt")


def device_of(device: str, threads: int | None) -> torch.device:
    """The device that a configuration asks for; ``auto`` is a GPU where there is one. The log says which it is.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
    threads : int, optional
        Of the processor.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        raise ConfigError(f"no CUDA device found: {_absence()}", where="device", hint="Set 'device' to auto or cpu")
    if device != "cpu" and found:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        log.info("device: GPU, %s", torch.cuda.get_device_name())
        return torch.device("cuda")
    why = "as the configuration says" if device == "cpu" else f"no GPU: {_absence()}"
    log.info("device: CPU, %d threads (%s)", torch.get_num_threads(), why)
    return torch.device("cpu")


def _absence() -> str:
    """Why torch has no GPU: for a person whom the cluster gave one."""
    why = "torch finds none" if torch.version.cuda else "this torch is built without CUDA"
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"{why}, though CUDA_VISIBLE_DEVICES is {given}" if given else why
