"""In its last attempt, a job stops shortly before a scheduler would kill it, and records why."""

import json
import time

import numpy as np
import pytest

from bolt.jobs import limits
from bolt.jobs.limits import LIMITED, Limits
from bolt.jobs.outcome import Outcome


def of(tmp_path, given, work):
    outcome = Outcome("train", tmp_path / "status.json", Outcome.ATTEMPTS)
    outcome.limits = given
    outcome.empty = [tmp_path / "predictions.tsv"]
    outcome.run(work)
    return json.loads((tmp_path / "status.json").read_text())


def much():
    np.ones(200_000_000, np.float64).sum()
    time.sleep(20)


@pytest.mark.parametrize(
    "given, work, said",
    [
        (Limits(1500, 60), much, "needs more memory than the 1500 MB"),
        (Limits(100_000, 0), lambda: time.sleep(20), "takes longer than the 0 minutes"),
    ],
)
def test_the_last_attempt_gives_up_before_it_is_killed(tmp_path, given, work, said):
    begun = time.monotonic()
    status = of(tmp_path, given, work)
    assert time.monotonic() - begun < 15
    assert status["state"] == "failed" and said in status["reason"] and "--set-resources" in status["hint"]
    assert (tmp_path / "predictions.tsv").read_bytes() == b""


def test_a_job_within_its_limits_succeeds(tmp_path):
    assert of(tmp_path, Limits(100_000, 60), lambda: time.sleep(0.5))["state"] == "ok"


def test_limits_hold_where_a_scheduler_enforces_them(monkeypatch):
    monkeypatch.delenv(LIMITED, raising=False)
    assert limits.limits([100, 10]) is None
    monkeypatch.setenv(LIMITED, "1")
    assert limits.limits([100, 10]) == Limits(100, 10) and limits.limits(None) is None
