"""Importance curves once position is taken away: rank correlations, intervals, and the division by untrained models."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from bolt.explain.trust.similarity import (
    LEAST,
    contrast_and_interval,
    correlations,
    mean_and_interval,
    ranked,
    relative_to_untrained,
    without_position,
)

RANDOM = np.random.default_rng(7)


def shape(length):
    """Less importance at both ends, as windows overlap less there, whatever the length."""
    return 1 - 0.8 * np.exp(-np.minimum(np.arange(length), np.arange(length)[::-1]) / 6)


def compare(one, other):
    rest = correlations(ranked(without_position(one)), ranked(without_position(other)))
    return float(np.nanmean(rest)), float(np.nanmean(correlations(ranked(one), ranked(other))))


@pytest.mark.parametrize("lengths", [[80] * 30, [60, 75, 90, 120] * 8, [*range(60, 90)]])
def test_what_position_alone_makes_alike_is_taken_away_and_what_belongs_to_the_scan_stays(lengths):
    one, other = ([shape(n) * (0.5 + RANDOM.random()) + 0.1 * RANDOM.random(n) for n in lengths] for _ in range(2))
    rest, raw = compare(one, other)
    assert raw > 0.5 and abs(rest) < 0.08
    own = [shape(n) + 0.3 * RANDOM.random(n) for n in lengths]
    one, other = ([x + 0.03 * RANDOM.random(len(x)) for x in own] for _ in range(2))
    assert compare(one, other)[0] > 0.9
    assert compare(one, one)[0] == pytest.approx(1)


@pytest.mark.parametrize("lengths", [[80] * 8, [50, 61, 72, 83, 94, 105]])
def test_a_curve_that_says_position_alone_leaves_nothing(lengths):
    """Of equal scans exactly; scans of several lengths can be told apart by the curve's end alone."""
    curves = [(3 * np.ones(n) if len(set(lengths)) > 1 else shape(n) * (1 + i)) for i, n in enumerate(lengths)]
    rest = without_position([curve.astype(np.float32) for curve in curves])
    assert all(np.isnan(one).all() for one in rest)
    assert np.isnan(correlations(ranked(rest), ranked(rest))).all()


def test_one_scan_alone_cannot_tell_position():
    assert np.isnan(without_position([RANDOM.random(40)])[0]).all()
    assert np.isnan(without_position([RANDOM.random(40), np.zeros(40)])[0]).all()
    assert without_position([]) == []


def test_ranks_are_spearmans():
    a, b = RANDOM.random(30).round(1), RANDOM.random(30)  # with ties
    assert correlations(ranked([a]), ranked([b]))[0] == pytest.approx(spearmanr(a, b).statistic)


def test_the_middle_of_the_longest_scan_goes_on_flat():
    curves = [shape(n) + 0.01 * RANDOM.random(n) for n in (40, 44, 48, 52, 200)]
    longest = without_position(curves)[-1]
    assert np.isfinite(longest).all() and np.abs(longest[60:140]).max() < 0.2


def test_intervals_draw_subjects_and_not_scans():
    values = np.repeat(RANDOM.standard_normal(20), 10)
    alike = [f"sub-{i // 10}" for i in range(200)]
    mean, low, high = mean_and_interval(values, alike)
    apart = mean_and_interval(values, [str(i) for i in range(200)])
    assert mean == apart[0] == pytest.approx(values.mean())
    assert high - low > 2 * (apart[2] - apart[1])
    assert mean_and_interval(values, alike) == (mean, low, high)


def test_a_mean_of_mostly_nothing_is_nothing():
    names = list("abcdefghijkl")
    values = np.array([1.0] * 5 + [np.nan] * 7)
    assert np.isnan(mean_and_interval(values, names)).all()
    values[5] = 1
    assert mean_and_interval(values, names) == (1, 1, 1)
    assert np.isnan(mean_and_interval(np.array([]), [])).all()
    mean, *ends = mean_and_interval(np.arange(12.0), list("abcdee") * 2)  # fewer than six families: no interval
    assert mean == 5.5 and np.isnan(ends).all()
    assert np.isfinite(mean_and_interval(np.arange(12.0), list("abcdef") * 2)).all()


def test_the_interval_leaves_two_and_a_half_per_cent_at_each_end():
    """Of a mean of n values with standard deviation s: ± 1.96 s / √n."""
    values = np.random.default_rng(0).standard_normal(225)
    mean, low, high = mean_and_interval(values, [str(i) for i in range(225)])
    half = 1.96 * values.std() / 15
    assert mean == pytest.approx(values.mean()) and [low - mean, high - mean] == pytest.approx([-half, half], rel=0.06)


def test_the_interval_of_few_scans_is_wide_enough():
    """Plain percentiles of eight values cover the truth in nine samples of ten."""
    random, names = np.random.default_rng(0), [str(i) for i in range(8)]
    ends = np.array([mean_and_interval(random.standard_normal(8), names)[1:] for _ in range(400)])
    assert 0.925 < np.mean((ends[:, 0] < 0) & (ends[:, 1] > 0)) < 0.985


def test_the_contrast_is_with_the_size_of_the_other_mean_and_paired():
    scan, names = np.random.default_rng(0).standard_normal(40), [str(i) for i in range(40)]
    control, check = 0.5 + scan, -0.3 + scan  # as different between scans as they like, but alike
    value, low, high = contrast_and_interval(control, check, names)
    assert value == pytest.approx(control.mean() - abs(check.mean())) and low < value < high
    assert contrast_and_interval(control + 2, scan + 2, names) == pytest.approx((0.5, 0.5, 0.5))
    half = np.where(np.arange(40) < 19, control, np.nan)
    assert np.isnan(contrast_and_interval(half, check, names)).all()


def at_the_ends(n):
    """Importance under any model, which falls at both ends."""
    return 1 - 0.6 * np.exp(-np.arange(n) / 6) - 0.6 * np.exp(-np.arange(n)[::-1] / 6)


def test_the_shape_that_all_models_give_is_divided_out_at_every_length():
    lengths = [60, 60, 60, 60, 60, 64, 80]
    effect = [1 + 0.5 * (np.arange(n) == 30) for n in lengths]
    weights = [5 * at_the_ends(n) * own for n, own in zip(lengths, effect, strict=True)]
    relative, expected = relative_to_untrained(weights, [2 * at_the_ends(n) for n in lengths])
    for curve, own, usual in zip(relative, effect, expected, strict=True):
        np.testing.assert_allclose(curve, own / own.mean(), rtol=0.02)
        assert usual.mean() == pytest.approx(1, abs=0.05)


def test_volumes_that_hardly_a_window_has_are_ignored_and_a_single_scan_has_its_own_shape():
    untrained = at_the_ends(50)
    untrained[-3:] = [0, 0.01, LEAST * untrained.mean() / 2]
    (relative,), _ = relative_to_untrained([np.ones(50)], [untrained])
    assert np.isnan(relative[-3:]).all() and np.isfinite(relative[:-3]).all()
    assert np.nanmean(relative) == pytest.approx(1)
    np.testing.assert_allclose(relative[:-3] * untrained[:-3], relative[20] * untrained[20])
