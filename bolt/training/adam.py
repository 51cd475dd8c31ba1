"""Adam and AdamW, as torch computes them, also in steps that a GPU replays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from bolt.config import Training
from bolt.training.schedule import BETAS

EPSILON = 1e-8


class Adam:
    """Adam (arXiv:1412.6980), or with decoupled weight decay AdamW (arXiv:1711.05101).

    Torch's classes read the decay rate of the first moment on the host, where a graph does not find the next one
    (``one_cycle`` changes it at every step), and import torch's compiler, which takes a second.

    Parameters
    ----------
    weights : iterable of Parameter
    training : Training
        Optimiser and weight decay.

    Attributes
    ----------
    rate : float
        Learning rate of the next step.
    betas : (float, float)
        Decay rates of the moments in the next step.
    """

    def __init__(self, weights: Iterable[nn.Parameter], training: Training) -> None:
        self.weights = list(weights)
        self.weight_decay, self.decoupled = training.weight_decay, training.optimizer == "adamw"
        self.rate, self.betas = training.learning_rate, BETAS
        self._first, self._second = ([torch.zeros_like(weight) for weight in self.weights] for _ in range(2))
        self._steps = [torch.zeros((), device=weight.device) for weight in self.weights]

    @property
    def state(self) -> dict[str, Tensor]:
        """Return the moments and numbers of steps by which it goes on, by name."""
        parts = {"exp_avg": self._first, "exp_avg_sq": self._second, "step": self._steps}
        return {f"{number}.{name}": value for name, values in parts.items() for number, value in enumerate(values)}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        for name, value in self.state.items():
            value.copy_(state[name])

    @torch.no_grad()
    def step(self, rates: Tensor | None = None) -> None:
        """Update the weights that have a gradient; with `rates` on the device, nothing is read on the host."""
        learned = [number for number, weight in enumerate(self.weights) if weight.grad is not None]
        every: tuple[Sequence[Tensor], ...] = self.weights, self._first, self._second, self._steps
        weights, first, second, steps = ([values[number] for number in learned] for values in every)
        gradients = [cast(Tensor, weight.grad) for weight in weights]
        if rates is not None:
            torch._foreach_add_(steps, 1)  # for a training that is resumed elsewhere
            self._replayed(weights, gradients, first, second, rates)
            return
        settings: dict[str, Any] = {"fused": True, "amsgrad": False, "maximize": False, "eps": EPSILON}
        settings |= {"weight_decay": self.weight_decay, "decoupled_weight_decay": self.decoupled}
        settings |= {"lr": self.rate, "beta1": self.betas[0], "beta2": self.betas[1]}
        adam(weights, gradients, first, second, [], steps, **settings)

    def rates(self, number: int) -> list[float]:
        """Return the rates of a step, which is the `number`-th: those of the moments, of the update, and of decay."""
        first, second = self.betas
        update = self.rate / (1 - first**number)
        return [1 - first, 1 / math.sqrt(1 - second**number), update, 1 - self.rate * self.weight_decay]

    def _replayed(
        self, weights: list[Tensor], gradients: list[Tensor], first: list[Tensor], second: list[Tensor], rates: Tensor
    ) -> None:
        """Update weights with rates (4,) on the device."""
        of_first, correction, of_update, of_decay = rates.unbind()
        if self.weight_decay and self.decoupled:
            torch._foreach_mul_(weights, of_decay)
        elif self.weight_decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=self.weight_decay))
        change = torch._foreach_sub(gradients, first)
        torch._foreach_mul_(change, of_first)
        torch._foreach_add_(first, change)
        torch._foreach_mul_(second, BETAS[1])
        torch._foreach_addcmul_(second, gradients, gradients, 1 - BETAS[1])
        deviation = torch._foreach_sqrt(second)
        torch._foreach_mul_(deviation, correction)
        torch._foreach_add_(deviation, EPSILON)
        update = torch._foreach_div(first, deviation)
        torch._foreach_mul_(update, of_update)
        torch._foreach_sub_(weights, update)
