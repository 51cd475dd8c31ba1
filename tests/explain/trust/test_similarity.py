"""Rank correlation of importance curves once position is taken away."""

from __future__ import annotations

import numpy as np
import pytest

from bolt.explain.trust.similarity import correlations, mean_and_interval, ranked, without_position

RANDOM = np.random.default_rng(7)


def shape(length: int) -> np.ndarray:
    """Less importance at both ends, as windows overlap less there, whatever the length."""
    away = np.minimum(np.arange(length), np.arange(length)[::-1])
    return 1 - 0.8 * np.exp(-away / 6)


def compare(one: list, other: list) -> tuple[float, float]:
    rest = correlations(ranked(without_position(one)), ranked(without_position(other)))
    return float(np.nanmean(rest)), float(np.nanmean(correlations(ranked(one), ranked(other))))


@pytest.mark.parametrize("lengths", [[80] * 30, [60, 75, 90, 120] * 8, [*range(60, 90)]])
def test_what_position_alone_makes_alike_is_taken_away(lengths: list[int]) -> None:
    one, other = ([shape(n) * (0.5 + RANDOM.random()) + 0.1 * RANDOM.random(n) for n in lengths] for _ in range(2))
    rest, raw = compare(one, other)
    assert raw > 0.5
    assert abs(rest) < 0.08


@pytest.mark.parametrize("lengths", [[80] * 30, [*range(60, 90)]])
def test_what_belongs_to_the_scan_stays(lengths: list[int]) -> None:
    own = [0.3 * RANDOM.random(n) for n in lengths]
    one, other = ([shape(n) + x + 0.03 * RANDOM.random(n) for n, x in zip(lengths, own, strict=True)] for _ in range(2))
    assert compare(one, other)[0] > 0.9
    assert compare(one, one)[0] == pytest.approx(1)


@pytest.mark.parametrize("lengths", [[80] * 8, [50, 61, 72, 83, 94, 105]])
def test_a_curve_that_says_position_alone_leaves_nothing(lengths: list[int]) -> None:
    """Of equal scans exactly; scans of several lengths can be told apart by the curve's end alone."""
    curves = [(3 * np.ones(n) if len(set(lengths)) > 1 else shape(n) * (1 + i)) for i, n in enumerate(lengths)]
    rest = without_position([curve.astype(np.float32) for curve in curves])
    assert all(np.isnan(one).all() for one in rest)
    assert np.isnan(correlations(ranked(rest), ranked(rest))).all()


def test_one_scan_alone_cannot_tell_position() -> None:
    assert np.isnan(without_position([RANDOM.random(40)])[0]).all()
    assert np.isnan(without_position([RANDOM.random(40), np.zeros(40)])[0]).all()
    assert without_position([]) == []


def test_ranks_are_spearmans() -> None:
    from scipy.stats import spearmanr

    a, b = RANDOM.random(30).round(1), RANDOM.random(30)  # with ties
    assert correlations(ranked([a]), ranked([b]))[0] == pytest.approx(spearmanr(a, b).statistic)


def test_the_middle_of_the_longest_scan_goes_on_flat() -> None:
    curves = [shape(n) + 0.01 * RANDOM.random(n) for n in (40, 44, 48, 52, 200)]
    assert np.isfinite(without_position(curves)[-1]).all()
    assert np.abs(without_position(curves)[-1][60:140]).max() < 0.2


def test_intervals_draw_subjects_and_not_scans() -> None:
    values = np.repeat(RANDOM.standard_normal(20), 10)
    alike = [f"sub-{i // 10}" for i in range(200)]
    mean, low, high = mean_and_interval(values, alike)
    apart = mean_and_interval(values, [str(i) for i in range(200)])
    assert mean == apart[0] == pytest.approx(values.mean())
    assert high - low > 2 * (apart[2] - apart[1])
    assert mean_and_interval(values, alike) == (mean, low, high)


def test_a_mean_of_mostly_nothing_is_nothing() -> None:
    names = ["a", "b", "c", "d"]
    assert np.isnan(mean_and_interval(np.array([1, np.nan, np.nan, np.nan]), names)).all()
    assert mean_and_interval(np.array([1, 1, np.nan, np.nan]), names) == (1, 1, 1)
    assert np.isnan(mean_and_interval(np.array([]), [])).all()


def test_the_interval_leaves_two_and_a_half_per_cent_at_each_end() -> None:
    """Of a mean of n values with standard deviation s: ± 1.96 s / √n."""
    values = np.random.default_rng(0).standard_normal(225)
    mean, low, high = mean_and_interval(values, [str(i) for i in range(225)], draws=4000)
    half = 1.96 * values.std() / 15
    assert mean == pytest.approx(values.mean())
    assert [low - mean, high - mean] == pytest.approx([-half, half], rel=0.06)
    assert mean_and_interval(values, ["one"] * 225) == pytest.approx((mean, mean, mean))
