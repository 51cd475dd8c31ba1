"""The device for training and prediction: a GPU if there is one."""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from bolt.io.errors import ConfigError

log = logging.getLogger("bolt")
_BACKENDS: Any = torch.backends
# `fp32_precision` of the first is that of all since torch 2.13; none is in its type
_FLOAT32 = (_BACKENDS, _BACKENDS.cuda.matmul, _BACKENDS.cudnn.conv, _BACKENDS.cudnn.rnn)
_DETERMINISTIC: Any = torch.utils.deterministic
_PLACES: list[IO[str]] = []


def device_of(device: str, threads: int | None) -> torch.device:
    """Return the device that a configuration asks for, and log it once.

    Parameters
    ----------
    device : {"auto", "cpu", "cuda"}
        ``auto`` is a GPU if there is one. Of several GPUs, processes of a machine use one each, then share them.
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
        compute_exactly()
        gpu = torch.device("cuda", _least_used_gpu())
        torch.cuda.set_device(gpu)
        _announce(f"device: GPU, {torch.cuda.get_device_name()}")
        return gpu
    _keep_freed_memory()
    reason = "as configured" if device == "cpu" else f"no GPU: {_absence()}"
    _announce(f"device: CPU, {torch.get_num_threads()} threads ({reason})")
    return torch.device("cpu")


def copied_to(device: torch.device, values: Tensor) -> Tensor:
    """Copy from host memory; to a GPU without making it wait. What is on the device already stays as it is."""
    return values if values.device.type == device.type else values.pin_memory().to(device, non_blocking=True)


def compute_exactly() -> None:
    """Let GPUs compute in float32 and with deterministic algorithms only; an operation that has none is an error.

    By default torch computes convolutions and recurrent layers in TensorFloat-32. Attention is deterministic in this
    mode only: with `warn_only`, torch would choose faster algorithms that are not.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    _DETERMINISTIC.fill_uninitialized_memory = False  # it finds reads of such memory, and takes time
    for place in _FLOAT32:
        place.fp32_precision = "ieee"


def has_tensor_float(device: torch.device) -> bool:
    """Return whether a device computes in TensorFloat-32 if it may: GPUs since 2020 (compute capability 8)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


@contextmanager
def tensor_float(enabled: bool) -> Iterator[None]:
    """Let a GPU compute products of float32 matrices, convolutions and recurrent layers in TensorFloat-32."""
    before = [place.fp32_precision for place in _FLOAT32]
    try:
        for place in _FLOAT32 if enabled else ():
            place.fp32_precision = "tf32"
        yield
    finally:
        for place, precision in zip(_FLOAT32, before, strict=True):
            place.fp32_precision = precision


@cache
def _least_used_gpu() -> int:
    """Return the number of the GPU on which the fewest processes of this user compute; this one does until it ends.

    Each process holds the lock of one place on one GPU: the first place is taken on all GPUs before the second on any.
    """
    n_gpus = torch.cuda.device_count()
    if n_gpus <= 1:
        return 0
    names = [str(torch.cuda.get_device_properties(number).uuid) for number in range(n_gpus)]
    for place in count():
        for number, name in enumerate(names):
            lock = open(Path(tempfile.gettempdir(), f"bolt-{os.getuid()}-gpu-{name}-{place}.lock"), "w")  # noqa: SIM115
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            except OSError as error:  # a file system without locks
                log.warning("GPUs are not shared evenly: %s", error)
                lock.close()
                return 0
            _PLACES.append(lock)  # an open file keeps its lock
            return number
    raise AssertionError("there is always a next place")


@cache
def _keep_freed_memory() -> None:
    """Let glibc keep up to 256 MB that a step has freed: getting it anew takes a third of the time of BrainNetCNN."""
    with suppress(AttributeError):  # of another C library
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, megabytes in ((-3, 128), (-1, 256)):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            mallopt(parameter, megabytes << 20)


@cache
def _announce(text: str) -> None:
    """Log a text, but not again."""
    log.info(text)


def _absence() -> str:
    """Explain why torch has no GPU, for users whose job was allocated one."""
    reason = "torch finds none" if torch.version.cuda else "this torch is built without CUDA"
    allocated = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"{reason}, though CUDA_VISIBLE_DEVICES is {allocated}" if allocated else reason
