"""Check the preprocessing benchmark on one small subject with known truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.preprocessing import COLUMNS, STILL, Evidence, Row
from benchmarks.registration import AFFINE

REGISTRATION = "fast"


def test_a_row_states_its_requirement_and_whether_it_is_met():
    row = Row("r", [0.9, 0.97, 0.96], low=0.95)
    assert row.value == 0.96 and row.passed
    assert set(row.cells()) == set(COLUMNS)
    assert row.cells()["required"] == "≥ 0.95" and row.cells()["subjects"] == "0.900 0.970 0.960"
    assert Row("error", [0.2], high=0.1).passed is False
    assert Row("error", [float("nan")], high=0.1).passed is False
    assert Row("r", [0.5]).passed is None


@pytest.fixture(scope="module")
def evidence(tmp_path_factory) -> Evidence:
    folder: Path = tmp_path_factory.mktemp("evidence")
    small = STILL.model_copy(update={"n_subjects": 2, "n_volumes": [40, 40], "motion_fd": 0.4})
    found = Evidence(folder, {"still": small})
    found.subjects = found.subjects[:1]
    return found


@pytest.mark.slow
def test_a_subject_is_recovered(evidence):
    affine, found = evidence.normalisation(AFFINE), evidence.normalisation(REGISTRATION)
    assert found.value <= affine.value / 2, (found, affine)
    for row in evidence.motion("still", REGISTRATION):
        assert row.passed is not False and row.value < row.null / 2, row
    (series,) = evidence.series("still", REGISTRATION, "template", "none")
    assert series.value >= 0.93 and series.value > series.ceiling - 0.02 and abs(series.null) < 0.2, series
