"""The learning rate follows the paper's schedule, including its limits."""

import pytest
import torch

from bolt.config import Training, load_model
from bolt.training.schedule import betas, learning_rate


def test_learning_rate_of_the_paper():
    training = Training()
    points = {0: 1e-4, 5: 1.5e-4, 10: 2e-4, 15: 1.05e-4, 20: 1e-5}
    assert {epoch: learning_rate(training, epoch) for epoch in points} == pytest.approx(points)


@pytest.mark.parametrize(("warmup", "first", "last"), [(0, 2e-4, 1e-5), (20, 1e-4, 2e-4), (50, 1e-4, 2e-4)])
def test_learning_rate_at_the_limits(warmup, first, last):
    training = Training(warmup_epochs=warmup)
    assert learning_rate(training, 0) == pytest.approx(first)
    assert learning_rate(training, 20) == pytest.approx(last)


@pytest.mark.parametrize(
    ("name", "epochs", "warmup", "n_train", "batch", "final", "part"),
    [
        ("bolt_published", 20, 6, 784, 32, 10, 0.3),
        ("bolt_published", 10, 3, 40, 7, 10, 0.3),
        ("stagin", 40, 8, 33, 8, 1000, 0.2),
        ("stagin", 10, 2, 3, 8, 1000, 0.2),
    ],
)
def test_published_recipes_follow_torchs_one_cycle_in_every_step(name, epochs, warmup, n_train, batch, final, part):
    """As the published code uses it: stepped after each batch, with Adam, the rates of its hyperparams.py (BolT)."""
    start, peak = 2e-4, 4e-4
    per_epoch = -(-n_train // batch)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=start, weight_decay=0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, peak, epochs * per_epoch, div_factor=peak / start, final_div_factor=final, pct_start=part
    )
    training = load_model(name).training.model_copy(update={"epochs": epochs, "warmup_epochs": warmup})
    for epoch in range(1, epochs + 1):
        for step in range(1, per_epoch + 1):
            now = training, epoch - 1 + step / per_epoch, 1 / per_epoch
            group = optimizer.param_groups[0]
            assert learning_rate(*now) == pytest.approx(group["lr"], rel=1e-9), (epoch, step)
            assert betas(*now) == pytest.approx(group["betas"], rel=1e-9), (epoch, step)
            optimizer.step()
            if (epoch, step) != (epochs, per_epoch):
                scheduler.step()


@pytest.mark.parametrize("schedule", ["linear", "cosine", "step", "constant"])
def test_other_schedules_leave_adams_momentum_alone(schedule):
    assert betas(Training(schedule=schedule), 3.5, 0.1) == (0.9, 0.999)


@pytest.mark.parametrize(("warmup", "first", "last"), [(0, 4e-4, 2e-5), (1, 2e-4, 2e-5), (50, 2e-4, 4e-4)])
def test_one_cycle_at_the_limits(warmup, first, last):
    """Without a warm-up, with one of a single step, and with one that never ends."""
    training = load_model("bolt_published").training.model_copy(update={"warmup_epochs": warmup})
    rates = [learning_rate(training, epoch, 1) for epoch in range(1, 21)]
    assert rates[-1] == pytest.approx(last) and max(rates) <= 4e-4 * (1 + 1e-12)
    assert rates[0] == pytest.approx(first if warmup > 1 else 4e-4, rel=0.02)
