"""Adam: torch's bits, and with rates on the device its values, whatever the schedule."""

import subprocess
import sys

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
    theirs = [torch.nn.Parameter(value.clone()) for value in start]
    method = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
    of_torch = method(theirs, weight_decay=weight_decay, fused=True)
    parts = [[torch.nn.Parameter(value.clone()) for value in start] for _ in range(2)]
    fused, replayed = ours = [Adam(weights, training) for weights in parts]
    for number in range(1, STEPS + 1):
        for values in zip(theirs, *parts, strict=True):
            given = torch.randn_like(values[0]) * 10.0 ** (number % 4)
            for value in values:
                value.grad = given.clone()
        now = training, number / 5, 1 / 5
        of_torch.param_groups[0] |= {"lr": learning_rate(*now), "betas": betas(*now)}
        of_torch.step()
        for adam in ours:
            adam.rate, adam.betas = learning_rate(*now), betas(*now)
        fused.step()
        replayed.step(torch.tensor(replayed.rates(number), dtype=torch.float64))
        torch.testing.assert_close(parts[0], theirs, rtol=0, atol=0)
        torch.testing.assert_close(parts[1], theirs, rtol=1e-12, atol=1e-13)
        steps = {int(value) for name, value in replayed.state.items() if name.endswith("step")}
        assert steps == {number}, "a training may be resumed on another device"


def test_weights_without_gradient_stay():
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    weights[0].grad = torch.ones(2)
    Adam(weights, Training(weight_decay=0.1)).step()
    assert (weights[0] < 1).all() and (weights[1] == 1).all()


def test_a_step_reads_no_value_on_the_host():
    training = Training(weight_decay=0.1)
    weight = torch.nn.Parameter(torch.zeros(3, device="meta"))
    weight.grad = torch.zeros_like(weight)
    Adam([weight], training).step(torch.zeros(4, device="meta"))


def test_torchs_compiler_is_not_imported():
    """It takes a second or two, in every training."""
    lines = "import sys, torch", "from bolt.config import Training", "from bolt.training.adam import Adam"
    work = "w = torch.nn.Parameter(torch.ones(2)); w.grad = torch.ones(2); Adam([w], Training()).step()"
    script = "\n".join((*lines, work, "sys.exit('torch._dynamo' in sys.modules)"))
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
