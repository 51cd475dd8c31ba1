"""Adam with rates on the device: as torch's, whatever the schedule."""

import pytest
import torch

from bolt.config import Training
from bolt.training.adam import Adam
from bolt.training.schedule import betas, learning_rate

STEPS = 20


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("schedule", ["linear", "one_cycle"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_is_torchs(optimizer, schedule, weight_decay):
    training = Training(optimizer=optimizer, schedule=schedule, weight_decay=weight_decay, epochs=4, warmup_epochs=1)
    start = [torch.randn(5, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)]
    ours, theirs = ([torch.nn.Parameter(value.clone()) for value in start] for _ in range(2))
    adam = Adam(ours, training)
    of_torch = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer](theirs, weight_decay=weight_decay)
    for number in range(1, STEPS + 1):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine) * 10.0 ** (number % 4)
            other.grad = mine.grad.clone()
        now = training, number / 5, 1 / 5
        for each in (adam, of_torch):
            each.param_groups[0] |= {"lr": learning_rate(*now), "betas": betas(*now)}
        adam.step(torch.tensor(adam.rates(number), dtype=torch.float64))
        of_torch.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_a_step_reads_no_value_on_the_host():
    training = Training(weight_decay=0.1)
    weight = torch.nn.Parameter(torch.zeros(3, device="meta"))
    weight.grad = torch.zeros_like(weight)
    Adam([weight], training).step(torch.zeros(4, device="meta"))
