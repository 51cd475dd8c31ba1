"""The benchmark of growing cohorts: how slopes are computed, and that stages accept its simulated results."""

import pandas as pd
import pytest

from benchmarks.scale import SIZES, STAGES, draw, run_cohort, with_slopes


def table(seconds):
    rows = [
        {"stage": stage, "scans": n, "seconds": 1.0, "cpu_seconds": of(n), "peak_mb": 100.0}
        for n in SIZES
        for stage, of in seconds.items()
    ]
    return with_slopes(rows).set_index(["stage", "scans"])["slope"]


def test_slopes_are_those_above_the_start_up():
    slopes = table({"index": lambda n: 5 + 0.01 * (n - 40), "cache": lambda n: 5 + 1e-4 * (n - 40) ** 2})
    assert slopes["index"][10_000] == pytest.approx(1.0, abs=0.02)
    assert slopes["cache"][10_000] == pytest.approx(2.0, abs=0.03)
    assert slopes.groupby("stage").apply(lambda of_stage: of_stage.isna().sum()).eq(2).all()


def test_the_figure_shows_every_stage(tmp_path):
    rows = [
        {"stage": stage, "scans": n, "seconds": 1.0, "cpu_seconds": 1 + n / 100, "peak_mb": 200.0}
        for stage in STAGES
        for n in SIZES
    ]
    draw(with_slopes(rows), tmp_path / "scale.png")
    text = (tmp_path / "scale.svg").read_text()
    assert all(f"{stage} (" in text for stage in STAGES)


@pytest.mark.slow
def test_every_stage_accepts_the_simulated_results_and_is_measured_once(tmp_path):
    first = pd.DataFrame(run_cohort(20, tmp_path, keep=False))
    assert first["stage"].tolist() == list(STAGES) and (first["peak_mb"] > 50).all()
    assert not (tmp_path / "scans-20").exists()
    pd.testing.assert_frame_equal(pd.DataFrame(run_cohort(20, tmp_path, keep=False)), first)
