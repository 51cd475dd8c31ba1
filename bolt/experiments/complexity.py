"""Cost of models against scan length: parameters, and operations, seconds and memory of a training step."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from bolt.config import Model
from bolt.io.errors import BoltError
from bolt.io.files import columns
from bolt.models.base import SeriesModel
from bolt.models.compiled.library import library
from bolt.models.registry import create_model, with_facts

log = logging.getLogger(__name__)

CLASSES = 2
COLUMNS = columns("experiments", "complexity")


def measure(
    rows: Sequence[tuple[str, Model]],
    atlas: str,
    n_rois: int,
    lengths: Sequence[int],
    *,
    tr: float,
    repeats: int,
    device: str,
) -> pd.DataFrame:
    """Measure models on random scans.

    Parameters
    ----------
    rows : sequence of (str, Model)
        Name of the row and its model.
    atlas : str
    n_rois : int
    lengths : sequence of int
        Volumes.
    tr : float
        Seconds, for models whose window is in seconds.
    repeats : int
        Number of timed passes.
    device : {"cpu", "cuda"}
        For time and memory; operations are counted on the CPU.

    Returns
    -------
    DataFrame
        `COLUMNS`, one row per model and length.
    """
    measured = []
    for name, model in rows:
        for length in lengths:
            known = {"row": name, "model": model.name, "atlas": atlas, "n_rois": n_rois, "length": length}
            try:
                facts = _measure_one(model, n_rois, length, tr, repeats, device)
            except (BoltError, torch.OutOfMemoryError) as error:
                facts = {"note": error.what if isinstance(error, BoltError) else "out of memory"}
            log.info("%s, %d volumes: %s", name, length, facts)
            measured.append(known | facts)
    return pd.DataFrame(measured).reindex(columns=list(COLUMNS)).astype({"note": object}).fillna({"note": ""})


def exponents(table: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Fit how operations, time and memory grow with length: the slope of a line through their logarithms.

    Parameters
    ----------
    table : DataFrame
        From `measure`.
    measures : sequence of str
        Its columns.

    Returns
    -------
    DataFrame
        atlas, row, parameters (at the shortest length), and one exponent per measure, fitted over the longer half of
        the lengths (`upper_half`): 1 is linear, 2 quadratic. NaN if fewer than two lengths are known.
    """
    fitted = []
    for (atlas, row), part in table.groupby(["atlas", "row"], sort=False):
        upper = part[part["length"].isin(upper_half(part["length"]))]
        slopes = {measure: _slope(upper["length"], upper[measure]) for measure in measures}
        fitted.append({"atlas": atlas, "row": row, "parameters": part["parameters"].iloc[0], **slopes})
    return pd.DataFrame(fitted)


def upper_half(lengths: Iterable[int]) -> list[int]:
    """Return the longer half of the lengths, at least two, over which exponents are fitted."""
    unique = sorted(set(lengths))
    return unique[-max(2, (len(unique) + 1) // 2) :]


def _slope(lengths: pd.Series, values: pd.Series) -> float:
    """Fit a line through the logarithms of known values; NaN if there are fewer than two."""
    known = values.notna() & (values > 0)
    if known.sum() < 2:
        return float("nan")
    return float(np.polyfit(np.log(lengths[known]), np.log(values[known].astype(float)), 1)[0])


def _measure_one(model: Model, n_rois: int, length: int, tr: float, repeats: int, device: str) -> dict[str, Any]:
    """Measure one model at one length, or say why that is impossible."""
    torch.manual_seed(0)
    settings = with_facts(model.model, model.hyper, {"crop": length, "tr": tr})
    net: SeriesModel = create_model(model.model, n_rois, CLASSES, **settings)
    if length < net.min_length:
        return {"note": f"the model's window is {net.min_length} volumes"}
    net.train()
    scan = torch.randn(1, length, n_rois)
    with _plain_torch(), FlopCounterMode(display=False) as counter:
        _step(net, scan)
    operations = counter.get_total_flops()
    net.to(device)
    scan = scan.to(device)
    seconds = min(_timed(lambda: _step(net, scan), device) for _ in range(repeats + 1))  # the first is a warm-up
    return {
        "parameters": sum(p.numel() for p in net.parameters() if p.requires_grad),
        "operations": operations,
        "seconds": seconds,
        "peak_bytes": _peak(lambda: _step(net, scan), device),
        "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} threads",
    }


def _step(net: SeriesModel, scan: Tensor) -> None:
    """Run one forward and backward pass."""
    output = net(scan)
    labels = torch.zeros(len(scan), dtype=torch.long, device=scan.device)
    (cross_entropy(output.logits, labels) + sum(output.losses.values())).backward()


@contextmanager
def _plain_torch() -> Iterator[None]:
    """Use only operators that can be counted: no custom kernel, no fused attention, no fused LSTM."""
    before = os.environ.get("BOLT_NATIVE")
    os.environ["BOLT_NATIVE"] = "0"
    library.cache_clear()
    try:
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            yield
    finally:
        os.environ.pop("BOLT_NATIVE") if before is None else os.environ.update(BOLT_NATIVE=before)
        library.cache_clear()


def _timed(work: Callable[[], None], device: str) -> float:
    """Return the duration of a call, seconds."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def _peak(work: Callable[[], None], device: str) -> int:
    """Return the peak memory of a call, bytes."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    with _LiveTensors() as live:
        work()
    return live.peak


class _LiveTensors(TorchDispatchMode):
    """Records the peak memory of tensors that operators have made and that are still in use."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: WeakSet[torch.UntypedStorage] = WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in given:
                self._live.add(tensor.untyped_storage())
        self.peak = max(self.peak, sum(storage.nbytes() for storage in self._live))
        return made
