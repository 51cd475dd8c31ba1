"""Training steps that a GPU replays as one graph.

A step of BolT launches hundreds of kernels one by one, which takes longer than computing them. Recorded once, all start
with a single call, from the forward pass to the averaged weights: what a step learns from, its seeds and its learning
rate are then what is in memory at that time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from bolt.training.device import copied_to

log = logging.getLogger(__name__)

MOST_GRAPHS = 4  # of one training: recording takes as long as some steps


class StepGraphs:
    """Steps of a training, by one graph for each shape of batch.

    The first step of a shape is launched as usual, which compiles and allocates what a graph needs; the second is
    recorded. If it cannot be recorded, all are launched as usual.

    Parameters
    ----------
    step : callable
        Takes tensors on the device, and returns one.
    device : torch.device
    """

    def __init__(self, step: Callable[..., Tensor], device: torch.device) -> None:
        self.step, self.device = step, device
        self.graphs: dict[tuple[Any, ...], _Graph | None] = {}
        self.possible = True

    def __call__(self, given: Sequence[Tensor]) -> Tensor:
        """Take a step from tensors on the host, those with the largest elements first; return its result."""
        shapes = tuple((part.shape, part.dtype) for part in given)
        graph = self.graphs.get(shapes)
        if graph is None and self.possible and shapes in self.graphs:
            try:
                self.graphs[shapes] = graph = _Graph(self.step, given, self.device)
            except RuntimeError as error:  # of many kinds: an operation that cannot be recorded, too little memory
                log.warning("the steps of this training are not replayed, which is slower: %s", error)
                self.close()
        if graph is not None:
            return graph.replay(given)
        if self.possible and len(self.graphs) < MOST_GRAPHS:
            self.graphs[shapes] = None
        return self.step(*_parts(copied_to(self.device, _bytes(given)), given))

    def close(self) -> None:
        """Free the memory of all graphs, and make no more."""
        self.graphs, self.possible = {}, False


class _Graph:
    """One recorded step: where it reads what is given, and where it writes its result."""

    def __init__(self, step: Callable[..., Tensor], given: Sequence[Tensor], device: torch.device) -> None:
        self.place = _bytes(given).to(device)
        self.start, self.result = record(lambda: step(*_parts(self.place, given)))

    def replay(self, given: Sequence[Tensor]) -> Tensor:
        """Take the step with other values of the same shapes."""
        drawn = _bytes(given)
        self.place.copy_(drawn.pin_memory() if self.place.is_cuda else drawn, non_blocking=True)
        self.start()
        return self.result.clone()  # the next replay writes there


def _bytes(parts: Sequence[Tensor]) -> Tensor:
    """Join tensors, so that one copy takes them to the device."""
    return torch.cat([part.reshape(-1).view(torch.uint8) for part in parts])


def _parts(joined: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that were joined, as views."""
    pieces = joined.split([part.nbytes for part in like])
    return [piece.view(part.dtype).view(part.shape) for piece, part in zip(pieces, like, strict=True)]


def record(work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Record the kernels of some work; return what launches them again, and where they write the result.

    All graphs share their memory, because nothing in it is needed from one replay to the next.
    """
    graph = torch.cuda.CUDAGraph()
    with (
        torch.cuda.stream(torch.cuda.current_stream()),  # to which it returns if recording fails
        torch.cuda.graph(graph, pool=_memory(), capture_error_mode="thread_local"),
    ):
        result = work()
    return graph.replay, result


@cache
def _memory() -> Any:
    """Return the memory of all graphs of the process."""
    return torch.cuda.graph_pool_handle()
