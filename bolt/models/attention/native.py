"""`window` by a kernel of our own, `native.cpp`, compiled where a C++ compiler is found.

The compiled library is kept in the user's cache folder, one for each kind of processor, and made on first use (a few
seconds). Without a compiler, on other devices or with ``BOLT_NATIVE=0`` in the environment, torch computes the same.
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
    """`Call` of the C++ source."""

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
    """Whether the kernel can take tensors like this one."""
    return q.device.type == "cpu" and library() is not None


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """`window.attend`; dropout's seed comes from torch's generator."""
    seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
    kind = q.dtype if q.dtype in TYPES else torch.float32  # half precision is computed in single
    return _Attend.apply(*(tensor.to(kind) for tensor in (q, kv, bias)), shape, dropout, seed).to(q.dtype)


def attention_maps(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, gradient: Tensor) -> Maps:
    """`window.attention_maps`."""
    kind = q.dtype if q.dtype in TYPES else torch.float32
    q, kv, bias, gradient = (tensor.detach().to(kind).contiguous() for tensor in (q, kv, bias, gradient))
    near, field, slots, _ = shape.bias_sizes
    windows, copies = shape.windows, min(torch.get_num_threads(), len(shape.windows.lengths) * shape.n_heads)
    maps = Maps(
        q.new_zeros(copies, windows.n_tokens, near),
        q.new_zeros(copies, windows.n_cls, field),
        q.new_zeros(copies, windows.n_windows, slots),
        q.new_zeros(copies, windows.n_cls),
    )
    names = ("near_map", "cls_bold_map", "bold_cls_map", "cls_cls_map")
    _run("relevance", q, kv, bias, shape, {"gradient": gradient, **dict(zip(names, maps, strict=True))})
    return Maps(*(each.sum(0) / shape.n_heads for each in maps))


class _Attend(torch.autograd.Function):
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
    what: str,
    q: Tensor,
    kv: Tensor,
    bias: Tensor,
    shape: Shape,
    arrays: dict[str, Tensor],
    dropout: float = 0.0,
    seed: int = 0,
) -> None:
    windows = shape.windows
    _, field, slots, _ = shape.bias_sizes
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
        window_positions=slots,
        cls_kind=CLS_KINDS[windows.cls_token],
        bold_rows=shape.bold_rows,
        n_cls=windows.n_cls,
        threads=torch.get_num_threads(),
        dropout=dropout,
        seed=seed,
        **{name: tensor.data_ptr() for name, tensor in arrays.items()},
    )
    if getattr(library(), f"{what}_{TYPES[q.dtype]}")(ctypes.byref(call)):
        raise MemoryError("no memory, or no thread, for attention")


@cache
def library() -> ctypes.CDLL | None:
    """The kernel, compiled if need be; None where that is impossible or not wanted."""
    if os.environ.get("BOLT_NATIVE") == "0":
        return None
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)
    if compiler is None:
        log.info("no C++ compiler found: attention is computed by torch, several times slower")
        return None
    try:
        path = _compiled(compiler)
        log.info("attention is computed by %s", path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or error
        log.warning("attention is computed by torch, several times slower: the kernel does not compile: %s", reason)
        return None


def _compiled(compiler: str) -> Path:
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
    """The user's own; a new one for this process where it cannot be written, never a shared one."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "bolt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="bolt-"))


def _processor() -> str:
    """What the processor can do: a home folder is shared by machines of several kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
