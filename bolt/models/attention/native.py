"""`window.attend` and `window.attention_maps` in C++ for the CPU (`compiled`).

It computes in float32 also where processors have bfloat16: that would round every score to three digits, and the
exponentials and masks around the matrix products, not the products, take most of its time.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bolt.models.attention.window import Drop, Maps, Shape, draw_drop
from bolt.models.compiled.library import library

DTYPES = (torch.float32, torch.float64)
PASSES = ("forward", "backward", "relevance")
CLS_KINDS = {"none": 0, "local": 1, "global": 2}


class _Call(ctypes.Structure):
    """The struct `Call` of call.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in (
            "n_scans", "n_heads", "head_dim", "window", "fringe", "reach", "cls_positions", "window_positions",
            "cls_kind", "bold_rows", "n_cls", "threads", "pass", "is_double",
        )),
        ("dropped", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in (
            "GOMP_parallel", "pthread_create", "pthread_join", "scans", "starts", "q", "kv", "bias", "gradient",
            "out", "dq", "dkv", "dbias", "near_map", "cls_bold_map", "bold_cls_map", "cls_cls_map",
        )),
    )  # fmt: skip


def usable(q: Tensor) -> bool:
    """Return whether the kernel can compute on the device of `q`."""
    return q.device.type == "cpu" and library() is not None


def attend(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, dropout: float = 0.0) -> Tensor:
    """Compute `window.attend`."""
    drop = draw_drop(dropout)
    dtype = q.dtype if q.dtype in DTYPES else torch.float32  # half precision is computed in single
    return _Attend.apply(*(tensor.to(dtype) for tensor in (q, kv, bias)), shape, drop).to(q.dtype)


def attention_maps(q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, gradient: Tensor) -> Maps:
    """Compute `window.attention_maps`."""
    dtype = q.dtype if q.dtype in DTYPES else torch.float32
    q, kv, bias, gradient = (tensor.detach().to(dtype).contiguous() for tensor in (q, kv, bias, gradient))
    maps = shape.zeros(q, min(torch.get_num_threads(), len(shape.windows.lengths) * shape.n_heads))
    names = ("near_map", "cls_bold_map", "bold_cls_map", "cls_cls_map")
    _run("relevance", q, kv, bias, shape, {"gradient": gradient, **dict(zip(names, maps, strict=True))})
    return Maps(*(copies_of_map.sum(0) / shape.n_heads for copies_of_map in maps))


class _Attend(torch.autograd.Function):
    """Attention with its gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, bias: Tensor, shape: Shape, drop: Drop | None) -> Tensor:
        q, kv, bias = q.contiguous(), kv.contiguous(), bias.contiguous()
        ctx.save_for_backward(q, kv, bias)
        ctx.rest = (shape, drop)
        out = torch.empty_like(q)
        _run("forward", q, kv, bias, shape, {"out": out}, drop)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, kv, bias = ctx.saved_tensors
        shape, drop = ctx.rest
        dq, dkv = torch.empty_like(q), torch.empty_like(kv)
        dbias = bias.new_empty(len(shape.windows.lengths), *bias.shape)
        arrays = {"gradient": gradient.contiguous(), "dq": dq, "dkv": dkv, "dbias": dbias}
        _run("backward", q, kv, bias, shape, arrays, drop)
        return dq, dkv, dbias.sum(0), None, None


def _run(
    function: str,
    q: Tensor,
    kv: Tensor,
    bias: Tensor,
    shape: Shape,
    arrays: dict[str, Tensor],
    drop: Drop | None = None,
) -> None:
    """Run a pass of the kernel: ``forward``, ``backward`` or ``relevance``."""
    kernel = library()
    assert kernel is not None
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
        is_double=q.dtype == torch.float64,
        dropped=drop.dropped if drop else 0,
        seed=int(drop.seed) if drop else 0,
        **{name: tensor.data_ptr() for name, tensor in arrays.items()},
        **_thread_functions(),
        **{"pass": PASSES.index(function)},
    )
    if kernel.library.compute(ctypes.byref(call), ctypes.c_int64(kernel.level)):
        raise MemoryError("out of memory or threads in window attention")


@cache
def _thread_functions() -> dict[str, int | None]:
    """Return the addresses of what starts threads: that of OpenMP, if torch uses it, and those of the C library."""
    process = ctypes.CDLL(None)
    names = ["pthread_create", "pthread_join"]
    if "ATen parallel backend: OpenMP" in torch.__config__.parallel_info() and hasattr(process, "GOMP_parallel"):
        names.append("GOMP_parallel")
    return {name: ctypes.cast(process[name], ctypes.c_void_p).value for name in names}
