"""Outcomes of jobs: bad data are recorded, crashes raised; before a scheduler kills a job, it stops and says why."""

import multiprocessing
import os
import re
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from bolt.config import ROOT
from bolt.io.errors import BoltWarning, ConfigError, DataError
from bolt.io.files import read_json, read_yaml, write_json
from bolt.jobs.outcome import LIMITED, Outcome
from bolt.jobs.progress import at_step


@pytest.fixture
def outcome(tmp_path):
    outcome = Outcome("parcellate", tmp_path / "status.json", attempt=1)
    outcome.empty = [tmp_path / "series.npy", tmp_path / "mask.nii.gz"]
    return outcome


def bad():
    raise DataError("voxels are NaN", where="a.nii.gz", hint="Convert it again")


def crash():
    raise ZeroDivisionError("no room")


def state(tmp_path):
    return read_json(tmp_path / "status.json")


def test_bad_data_leaves_a_reason_and_empty_outputs(outcome, tmp_path):
    (tmp_path / "series.npy").write_bytes(b"half")
    outcome.run(bad)
    status = state(tmp_path)
    assert (status["state"], status["stage"]) == ("failed", "parcellate")
    assert "a.nii.gz: voxels are NaN" in status["reason"] and status["hint"] == "Convert it again"
    assert np.load(tmp_path / "series.npy").shape[0] == 0
    assert (tmp_path / "mask.nii.gz").read_bytes() == b""
    outcome.command = "snakemake --force x"  # named for temporary failures alone
    for outcome.transient, hint in ((False, "Convert it again"), (True, "To repeat this job: snakemake --force x")):
        outcome.run(bad)
        assert state(tmp_path)["hint"].endswith(hint)


def test_a_crash_is_raised_until_the_last_attempt_and_by_hand(outcome, tmp_path):
    for outcome.attempt in (0, 1):
        with pytest.raises(ZeroDivisionError):
            outcome.run(crash)
        assert not (tmp_path / "status.json").exists()
    outcome.attempt, outcome.command = Outcome.ATTEMPTS, "snakemake --force x"
    outcome.run(crash)
    status = state(tmp_path)
    assert status["state"] == "failed" and "crashed in 2 attempts" in status["reason"]
    assert status["hint"].endswith("To repeat this job: snakemake --force x")


@pytest.mark.parametrize("attempt", [0, 1, Outcome.ATTEMPTS])
def test_every_attempt_records_success_and_bad_data_and_raises_errors_of_the_configuration(outcome, tmp_path, attempt):
    def wrong():
        raise ConfigError("no such device")

    outcome.attempt = attempt
    with pytest.raises(ConfigError):
        outcome.run(wrong)
    assert not (tmp_path / "status.json").exists()
    outcome.run(bad)
    assert "voxels are NaN" in state(tmp_path)["reason"] and (tmp_path / "crash.txt").is_file()
    outcome.run(lambda: None)
    assert state(tmp_path)["state"] == "ok" and "report" not in state(tmp_path)
    assert not (tmp_path / "crash.txt").exists() and (tmp_path / "provenance.json").is_file()
    outcome.run(bad)
    assert not (tmp_path / "provenance.json").exists()  # it is that of an earlier result


def test_failures_upstream_are_passed_on_without_work(outcome, tmp_path):
    before = {"state": "failed", "stage": "functional", "reason": "no brain", "hint": ""}
    write_json(before, tmp_path / "before.json")
    outcome.run(bad)  # in an earlier run
    assert (tmp_path / "crash.txt").is_file()
    outcome.upstream = tmp_path / "before.json"
    outcome.run(lambda: pytest.fail("worked without input"))
    assert not (tmp_path / "crash.txt").exists()
    assert state(tmp_path) == before
    assert np.load(tmp_path / "series.npy").shape[0] == 0


def test_attempts_agree_with_the_default_profile():
    assert read_yaml(ROOT / "workflow/profiles/default/config.yaml")["retries"] + 1 == Outcome.ATTEMPTS


def reported(status, log, fail):
    """Be a job whose output goes to a log."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv = ["bolt", str(status)]

    def work():
        print("line of the log", file=sys.stderr)
        at_step("anatomical.brain")
        fail()

    Outcome("anatomical", status, attempt=2).run(work)


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (bad, "a.nii.gz: voxels are NaN"),
        (crash, "ZeroDivisionError: no room"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9"),
    ],
)
def test_a_failure_writes_a_report_with_step_command_and_log(tmp_path, fail, said):
    status, log = tmp_path / "sub-01_task-rest_status.json", tmp_path / "sub-01.log"
    process = multiprocessing.get_context("fork").Process(target=reported, args=(status, log, fail))
    process.start()
    process.join()
    assert process.exitcode == 0
    report = Path(read_json(status)["report"])
    assert report == tmp_path / "sub-01_task-rest_crash.txt"
    text = report.read_text()
    assert said in text and "line of the log" in text and str(log) in text
    assert re.search(r"^step +anatomical\.brain$", text, re.MULTILINE)
    assert re.search(rf"^command +python -m bolt {re.escape(str(status))}$", text, re.MULTILINE)


def test_warnings_are_listed_and_passed_on(tmp_path):
    def odd():
        for _ in range(2):
            warnings.warn("b.nii: TR differs", BoltWarning, stacklevel=1)
        warnings.warn("deprecated", FutureWarning, stacklevel=1)

    first = Outcome("functional", tmp_path / "first.json", attempt=1)
    with pytest.warns(FutureWarning, match="deprecated"):
        first.run(odd)
    assert read_json(first.status)["warnings"] == [{"stage": "functional", "warning": "b.nii: TR differs"}]
    second = Outcome("parcellate", tmp_path / "second.json", attempt=1)
    second.upstream = first.status
    second.run(lambda: warnings.warn("c.nii: no space", BoltWarning, stacklevel=1))
    assert [entry["stage"] for entry in read_json(second.status)["warnings"]] == ["functional", "parcellate"]
    second.upstream = tmp_path / "third.json"
    write_json({"state": "ok", "stage": "x", "reason": "", "hint": ""}, tmp_path / "third.json")
    second.run(lambda: None)
    assert "warnings" not in read_json(second.status)


def much():
    np.ones(100_000_000, np.float64).sum()
    time.sleep(60)


@pytest.mark.parametrize(
    ("given", "work", "said"),
    [
        ([1500, 60], much, "needs more memory than the 1500 MB"),
        ([100_000, 0], lambda: time.sleep(60), "takes longer than the 0 minutes"),
        ([100_000, 60], lambda: time.sleep(0.1), None),
        ([100, 0], lambda: None, None),
    ],
)
def test_the_last_attempt_gives_up_before_a_scheduler_kills_it(outcome, tmp_path, monkeypatch, given, work, said):
    monkeypatch.setenv(LIMITED, "1" if given != [100, 0] else "")  # nothing enforces the last
    outcome.attempt, outcome.limits = Outcome.ATTEMPTS, given
    begun = time.monotonic()
    outcome.run(work)
    assert time.monotonic() - begun < 60
    status = state(tmp_path)
    if said is None:
        assert status["state"] == "ok"
        return
    assert status["state"] == "failed" and said in status["reason"] and "--set-resources" in status["hint"]
    assert (tmp_path / "mask.nii.gz").read_bytes() == b""
