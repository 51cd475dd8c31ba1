"""The functions of `window` in C++ for the CPU (`native.cpp`), if a compiler is found.

The library is compiled on first use (a few seconds) and kept in the user's cache folder, one per type of processor.
Without a compiler, on other devices or with ``BOLT_NATIVE=0`` in the environment, torch computes the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bolt.models.attention.window import Maps, Shape

log = logging.getLogger(__name__)
SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-pthread")
TYPES = {torch.float32: "float", torch.float64: "double"}
CLS_KINDS = {"none": 0, "local": 1, "global": 2}


class _Call(ctypes.Structure):
    """The struct `Call` of the C++ source."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (
            "n_scans", "n_heads", "head_dim", "window", "fringe", "reach", "cls_positions", "window_positions",
            "cls_kind", "bold_rows", "n_cls", "threads",
        )),
        ("dropout", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in (
            "scans", "starts", "q", "kv", "bias", "gradient", "out", "dq", "dkv", "dbias",
            "near_map", "cls_bold_map", "bold_cls_map", "cls_cls_map",
        )),
    )  # fmt: skip


def usable(q: Tensor) -> bool:
    """Return whether the kernel can compute on the device of `q`."""
    return q.device.type == "cpu" and library() is not None


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Compute `window.attend`; the seed of dropout comes from torch's generator."""
    seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
    dtype = q.dtype if q.dtype in TYPES else torch.float32  # half precision is computed in single
    return _Attend.apply(*(tensor.to(dtype) for tensor in (q, kv, bias)), shape, dropout, seed).to(q.dtype)


def attention_maps(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, gradient: Tensor) -> Maps:
    """Compute `window.attention_maps`."""
    dtype = q.dtype if q.dtype in TYPES else torch.float32
    q, kv, bias, gradient = (tensor.detach().to(dtype).contiguous() for tensor in (q, kv, bias, gradient))
    near, field, window, _ = shape.bias_sizes
    windows, copies = shape.windows, min(torch.get_num_threads(), len(shape.windows.lengths) * shape.n_heads)
    maps = Maps(
        q.new_zeros(copies, windows.n_tokens, near),
        q.new_zeros(copies, windows.n_cls, field),
        q.new_zeros(copies, windows.n_windows, window),
        q.new_zeros(copies, windows.n_cls),
    )
    names = ("near_map", "cls_bold_map", "bold_cls_map", "cls_cls_map")
    _run("relevance", q, kv, bias, shape, {"gradient": gradient, **dict(zip(names, maps, strict=True))})
    return Maps(*(copies_of_map.sum(0) / shape.n_heads for copies_of_map in maps))


class _Attend(torch.autograd.Function):
    """Attention with its gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float, seed: int) -> Tensor:
        q, kv, bias = q.contiguous(), kv.contiguous(), bias.contiguous()
        ctx.save_for_backward(q, kv, bias)
        ctx.rest = (shape, dropout, seed)
        out = torch.empty_like(q)
        _run("forward", q, kv, bias, shape, {"out": out}, dropout, seed)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, kv, bias = ctx.saved_tensors
        shape, dropout, seed = ctx.rest
        dq, dkv = torch.empty_like(q), torch.empty_like(kv)
        dbias = bias.new_empty(len(shape.windows.lengths), *bias.shape)
        arrays = {"gradient": gradient.contiguous(), "dq": dq, "dkv": dkv, "dbias": dbias}
        _run("backward", q, kv, bias, shape, arrays, dropout, seed)
        return dq, dkv, dbias.sum(0), None, None, None


def _run(
    function: str,
    q: Tensor,
    kv: Tensor,
    bias: Tensor,
    shape: Shape,
    arrays: dict[str, Tensor],
    dropout: float = 0.0,
    seed: int = 0,
) -> None:
    """Call a function of the library: ``forward``, ``backward`` or ``relevance``."""
    windows = shape.windows
    _, field, window, _ = shape.bias_sizes
    rows = windows.n_cls + windows.n_tokens * shape.bold_rows
    keys = windows.n_cls + windows.n_tokens + len(windows.lengths) * shape.beyond
    if len(q) != rows or len(kv) != keys or bias.shape != (shape.n_heads, sum(shape.bias_sizes)):
        raise ValueError(f"q, kv, bias are {q.shape}, {kv.shape}, {bias.shape} for {rows} queries and {keys} keys")
    geometry = {"scans": windows.table(shape.beyond), "starts": windows.flat_starts}
    arrays = arrays | geometry | {"q": q, "kv": kv, "bias": bias}
    call = _Call(
        n_scans=len(windows.lengths),
        n_heads=shape.n_heads,
        head_dim=q.shape[1] // shape.n_heads,
        window=windows.window,
        fringe=shape.fringe,
        reach=shape.reach,
        cls_positions=field,
        window_positions=window,
        cls_kind=CLS_KINDS[windows.cls_token],
        bold_rows=shape.bold_rows,
        n_cls=windows.n_cls,
        threads=torch.get_num_threads(),
        dropout=dropout,
        seed=seed,
        **{name: tensor.data_ptr() for name, tensor in arrays.items()},
    )
    if getattr(library(), f"{function}_{TYPES[q.dtype]}")(ctypes.byref(call)):
        raise MemoryError("out of memory or threads in window attention")


@cache
def library() -> ctypes.CDLL | None:
    """Load the kernel, compiling it if needed; None if that is impossible or disabled."""
    if os.environ.get("BOLT_NATIVE") == "0":
        return None
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)
    if compiler is None:
        log.info("no C++ compiler found, torch computes attention several times slower")
        return None
    try:
        path = _compiled(compiler)
        log.info("attention is computed by %s", path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        log.warning("the attention kernel does not compile, torch computes several times slower: %s", reason)
        return None


def _compiled(compiler: str) -> Path:
    """Compile the kernel, unless this source was compiled before with the same tools on such a processor."""
    flags = [*FLAGS, "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = "\n".join([SOURCE.read_text(encoding="utf-8"), compiler, version, *flags, platform.platform(), _processor()])
    name = f"window_attention-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    folder = _cache_folder()
    if not (folder / name).exists():
        handle, temporary = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(handle)
        try:
            subprocess.run([compiler, *flags, str(SOURCE), "-o", temporary], capture_output=True, text=True, check=True)
            os.replace(temporary, folder / name)
        finally:
            Path(temporary).unlink(missing_ok=True)
    return folder / name


def _cache_folder() -> Path:
    """Return the user's cache folder, or a new private folder for this process if that is not writable."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "bolt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="bolt-"))


def _processor() -> str:
    """Describe the processor, because machines of several types may share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
