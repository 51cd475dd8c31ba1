"""Tests of the intervals of mean losses."""

import numpy as np
import pytest

from bolt.evaluate.losses import loss_interval
from bolt.evaluate.units import Units


def interval(loss, group=None, fold=None, seed=None, over_folds=False, largest=100.0, **draws):
    """The interval of a group a loss, in one fold and of one seed, unless said otherwise."""
    n = len(loss)
    of = (np.zeros(n, int) if given is None else np.array(given) for given in (fold, seed))
    units = Units(np.arange(n), np.arange(n) if group is None else np.array(group), *of)
    return loss_interval(np.array(loss), units, over_folds, largest, **draws)


def test_an_interval_scales_with_the_loss():
    loss = np.random.default_rng(0).exponential(size=30)
    for scale in (0.5, 2.0):
        assert interval(loss * scale) == pytest.approx(np.array(interval(loss)) * scale)


def test_skewed_losses_have_skewed_intervals_that_contain_their_mean_as_often_as_promised():
    """Twenty losses of which one in five is large."""
    random, missed, longer_above = np.random.default_rng(1), 0, 0
    for _ in range(400):
        loss = np.where(random.random(20) < 0.2, random.uniform(2, 4, 20), random.uniform(0, 0.2, 20))
        low, high = interval(loss, largest=4.0, draws=300)
        missed += not low <= 0.2 * 3 + 0.8 * 0.1 <= high
        longer_above += high - loss.mean() > loss.mean() - low
    assert missed <= 32 and longer_above > 350  # 8 %: three standard errors above 5 %


def test_copies_of_a_persons_scan_add_no_certainty():
    loss = np.random.default_rng(2).exponential(size=12)
    assert interval(np.repeat(loss, 4), np.repeat(np.arange(12), 4)) == pytest.approx(interval(loss))


def test_folds_count_alike_whatever_their_size():
    loss, fold = [0.1, 0.2, 0.3] * 3 + [0.9, 1.0, 1.1], [0] * 9 + [1] * 3
    low, high = interval(loss, fold=fold, over_folds=True, largest=2.0)
    assert low < 0.6 < high  # the mean of 0.2 and 1.0
    pooled_low, pooled_high = interval(loss, fold=fold, largest=2.0)
    assert pooled_low < 0.4 < pooled_high and pooled_high - pooled_low > high - low


def test_seeds_that_differ_widen_the_interval():
    loss, group, seed = np.random.default_rng(3).exponential(size=10), [*range(10)] * 2, np.repeat([0, 1], 10)
    alike, apart = (interval([*loss, *(loss + by)], group, seed=seed) for by in (0, 1))
    assert apart[1] - apart[0] > 2 * (alike[1] - alike[0])


def test_ends_are_possible_losses_and_equal_losses_have_no_width():
    low, high = interval([0.0] * 7 + [1.0], largest=1.0)
    assert 0 <= low < 0.125 < high <= 1
    assert interval([0.25] * 8, largest=1.0) == (0.25, 0.25)
    assert np.isnan(interval([1.0] * 3, [0] * 3, largest=1.0)).all()
