"""The learning rate follows the paper's schedule, including its limits."""

import pytest

from bolt.config import Training
from bolt.training.schedule import learning_rate


def test_learning_rate_of_the_paper():
    training = Training()
    points = {0: 1e-4, 5: 1.5e-4, 10: 2e-4, 15: 1.05e-4, 20: 1e-5}
    assert {epoch: learning_rate(training, epoch) for epoch in points} == pytest.approx(points)


@pytest.mark.parametrize(("warmup", "first", "last"), [(0, 2e-4, 1e-5), (20, 1e-4, 2e-4), (50, 1e-4, 2e-4)])
def test_learning_rate_at_the_limits(warmup, first, last):
    training = Training(warmup_epochs=warmup)
    assert learning_rate(training, 0) == pytest.approx(first)
    assert learning_rate(training, 20) == pytest.approx(last)
