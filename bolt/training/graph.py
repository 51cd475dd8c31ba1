"""Training steps that a GPU replays as one graph.

A step of BolT launches some 1,500 kernels one by one, which takes longer than computing them. Recorded once, all of
them start with a single call: loss and gradient are then those of the batch, the seeds and the weights that are in
memory at that time. What follows (clipping, optimiser, averaged weights) is a few kernels and remains outside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor

from bolt.models.base import SeriesModel
from bolt.models.parts.masks import given_seeds, new_seed
from bolt.training.batches import Batch
from bolt.training.device import copied_to

log = logging.getLogger(__name__)

MOST_GRAPHS = 4  # of one training: each keeps the memory of a step
MOST_SEEDS = 1024
Gradient = Callable[[Batch], tuple[Tensor, Tensor]]


class StepGraphs:
    """Loss and logits of batches, and the gradients of a model's weights, by one graph for each shape of batch.

    The first batch of a shape passes the model as usual, which compiles and allocates what a graph needs; the second is
    recorded. If it cannot be recorded, all pass as usual.

    Parameters
    ----------
    net : SeriesModel
        With `lengths_on_device`.
    gradient : callable
        Takes a batch, all of it on the device; sets the gradients and returns loss and logits.
    """

    def __init__(self, net: SeriesModel, gradient: Gradient) -> None:
        self.net, self.gradient = net, gradient
        self.graphs: dict[tuple[Any, ...], _Graph | None] = {}
        self.possible = True

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return loss and logits of a batch; the gradients of the weights must be None, and are then those of it."""
        shapes = tuple(value.shape if isinstance(value, Tensor) else value for value in batch)
        if not self.possible or (shapes not in self.graphs and len(self.graphs) == MOST_GRAPHS):
            return self._launch(batch)
        if shapes not in self.graphs:
            self.graphs[shapes] = None
            return self._launch(batch)
        graph = self.graphs[shapes]
        if graph is None:
            try:
                self.graphs[shapes] = graph = _Graph(self.net, self.gradient, batch)
            except RuntimeError as error:  # of many kinds: an operation that cannot be recorded, too little memory
                log.warning("the steps of this training are not replayed, which is slower: %s", error)
                self.close()
                self.net.zero_grad()
                return self._launch(batch)
        return graph.replay(batch)

    def _launch(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Launch a step as usual, but with seeds on the device: nothing may be compiled while it is recorded."""
        with given_seeds(copied_to(batch.x.device, torch.tensor(new_seed())) for _ in count()):
            return self.gradient(batch)

    def close(self) -> None:
        """Free the memory of all graphs, and make no more."""
        self.graphs, self.possible = {}, False


class _Graph:
    """One recorded step: where it reads its batch and seeds, and where it writes."""

    def __init__(self, net: SeriesModel, gradient: Gradient, batch: Batch) -> None:
        self.batch = Batch._make(value.clone() if isinstance(value, Tensor) else value for value in batch)
        self.seeds = torch.zeros(MOST_SEEDS, dtype=torch.int64, device=batch.x.device)
        self.parameters = list(net.parameters())
        seeds = iter(self.seeds.unbind())
        with given_seeds(seeds):
            self.start, self.results = record(lambda: gradient(self.batch))
        self.gradients = [parameter.grad for parameter in self.parameters]
        self.n_seeds = MOST_SEEDS - sum(1 for _ in seeds)

    def replay(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return loss and logits of a batch with newly drawn seeds, and set the gradients."""
        for place, value in zip(self.batch, batch, strict=True):
            if isinstance(place, Tensor) and isinstance(value, Tensor):
                place.copy_(value, non_blocking=True)
        seeds = torch.tensor([new_seed() for _ in range(self.n_seeds)], dtype=torch.int64)
        self.seeds[: self.n_seeds].copy_(copied_to(self.seeds.device, seeds))
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        self.start()
        loss, logits = self.results
        return loss.clone(), logits.clone()  # the next replay writes there


def record(work: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Callable[[], None], tuple[Tensor, Tensor]]:
    """Record the kernels of some work; return what launches them again, and where they write their results."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = work()
    return graph.replay, results
