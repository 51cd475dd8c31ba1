"""Tests of the intervals of mean losses."""

import numpy as np
import pytest

from bolt.evaluate.losses import loss_interval
from bolt.evaluate.units import Units


def units(group: list[int], fold: list[int] | None = None, seed: list[int] | None = None) -> Units:
    n = len(group)
    none = np.zeros(n, int)
    return Units(np.arange(n), np.array(group), *(none if of is None else np.array(of) for of in (fold, seed)))


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_an_interval_scales_with_the_loss(scale: float) -> None:
    loss = np.random.default_rng(0).exponential(size=30)
    own, scaled = (loss_interval(loss * by, units(list(range(30))), False, 100.0) for by in (1.0, scale))
    assert scaled == pytest.approx(np.array(own) * scale)


def test_skewed_losses_have_skewed_intervals_that_contain_their_mean_as_often_as_promised() -> None:
    """Twenty losses of which one in five is large."""
    random, missed, longer_above = np.random.default_rng(1), 0, 0
    for _ in range(400):
        loss = np.where(random.random(20) < 0.2, random.uniform(2, 4, 20), random.uniform(0, 0.2, 20))
        low, high = loss_interval(loss, units(list(range(20))), False, 4.0, draws=300)
        missed += not low <= 0.2 * 3 + 0.8 * 0.1 <= high
        longer_above += high - loss.mean() > loss.mean() - low
    assert missed <= 32 and longer_above > 350  # 8 %: three standard errors above 5 %


def test_copies_of_a_persons_scan_add_no_certainty() -> None:
    loss = np.random.default_rng(2).exponential(size=12)
    alone = loss_interval(loss, units(list(range(12))), False, 100.0)
    copied = loss_interval(np.repeat(loss, 4), units(np.repeat(np.arange(12), 4).tolist()), False, 100.0)
    assert copied == pytest.approx(alone)


def test_folds_count_alike_whatever_their_size() -> None:
    group, fold = list(range(12)), [0] * 9 + [1] * 3
    loss = np.array([0.1, 0.2, 0.3] * 3 + [0.9, 1.0, 1.1])
    low, high = loss_interval(loss, units(group, fold), True, 2.0)
    assert low < 0.6 < high  # the mean of 0.2 and 1.0
    pooled_low, pooled_high = loss_interval(loss, units(group, fold), False, 2.0)
    assert pooled_low < 0.4 < pooled_high and pooled_high - pooled_low > high - low


def test_seeds_that_differ_widen_the_interval() -> None:
    group, seed = list(range(10)) * 2, [0] * 10 + [1] * 10
    loss = np.random.default_rng(3).exponential(size=10)
    alike, apart = (
        loss_interval(np.concatenate([loss, loss + by]), units(group, seed=seed), False, 100.0) for by in (0, 1)
    )
    assert apart[1] - apart[0] > 2 * (alike[1] - alike[0])


def test_ends_are_possible_losses_and_equal_losses_have_no_width() -> None:
    loss = np.array([0.0] * 7 + [1.0])
    low, high = loss_interval(loss, units(list(range(8))), False, 1.0)
    assert 0 <= low < 0.125 < high <= 1
    assert loss_interval(np.full(8, 0.25), units(list(range(8))), False, 1.0) == (0.25, 0.25)
    assert np.isnan(loss_interval(np.ones(3), units([0, 0, 0]), False, 1.0)).all()
