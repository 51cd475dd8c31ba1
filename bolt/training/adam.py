"""Adam and AdamW for steps that a GPU replays: the rates of a step are read on the device."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bolt.config import Training
from bolt.training.schedule import BETAS

EPSILON = 1e-8


class Adam(torch.optim.Optimizer):
    """Adam (arXiv:1412.6980), or with decoupled weight decay AdamW (arXiv:1711.05101), as in torch.

    Torch's own can read the learning rate on the device, but not the decay of the first moment, which follows it in the
    schedule ``one_cycle``.

    Parameters
    ----------
    weights : iterable of Parameter
    training : Training
        Optimiser and weight decay.
    """

    def __init__(self, weights: Iterable[nn.Parameter], training: Training) -> None:
        super().__init__(weights, {"lr": training.learning_rate, "betas": BETAS})
        self.decay, self.decoupled = training.weight_decay, training.optimizer == "adamw"
        self.weights = list(self.param_groups[0]["params"])
        for weight in self.weights:
            self.state[weight] = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}

    def rates(self, number: int) -> list[float]:
        """Return the rates of a step, which is the `number`-th: those of the moments, of the update, and of decay."""
        rate, (first, second) = self.param_groups[0]["lr"], self.param_groups[0]["betas"]
        return [1 - first, 1 / math.sqrt(1 - second**number), rate / (1 - first**number), 1 - rate * self.decay]

    @torch.no_grad()
    def step(self, rates: Tensor) -> None:  # type: ignore[override]
        """Update the weights with rates (4,) on the device."""
        of_first, correction, of_update, of_decay = rates.unbind()
        gradients = [weight.grad for weight in self.weights]
        first, second = ([self.state[w][name] for w in self.weights] for name in ("exp_avg", "exp_avg_sq"))
        if self.decay and self.decoupled:
            torch._foreach_mul_(self.weights, of_decay)
        elif self.decay:
            gradients = list(torch._foreach_add(gradients, self.weights, alpha=self.decay))
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
        torch._foreach_sub_(self.weights, update)
