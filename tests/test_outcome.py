"""A bad scan is data, a crash is a crash."""

import json
import os
import signal

import numpy as np
import pytest

from bolt.errors import ConfigError, DataError
from bolt.files import read_json, write_json
from bolt.outcome import Outcome


@pytest.fixture
def outcome(tmp_path):
    one = Outcome("parcellate", tmp_path / "status.json", attempt=1)
    one.empty = [tmp_path / "series.npy", tmp_path / "mask.nii.gz"]
    return one


def bad():
    raise DataError("voxels are NaN", where="a.nii.gz", mend="Convert it again")


def crash():
    raise MemoryError("no room")


def test_bad_data_leaves_a_reason_and_empty_outputs(outcome, tmp_path):
    (tmp_path / "series.npy").write_bytes(b"half")
    outcome.of(bad)
    status = read_json(tmp_path / "status.json")
    assert status["state"] == "failed" and status["stage"] == "parcellate"
    assert "a.nii.gz: voxels are NaN" in status["reason"] and status["mend"] == "Convert it again"
    assert np.load(tmp_path / "series.npy").shape[0] == 0
    assert (tmp_path / "mask.nii.gz").read_bytes() == b""


def test_success_is_recorded_last(outcome, tmp_path):
    outcome.of(lambda: (tmp_path / "series.npy").write_bytes(b"x") and None)
    assert read_json(tmp_path / "status.json")["state"] == "ok"


def test_a_crash_is_raised_until_the_last_attempt(outcome, tmp_path):
    with pytest.raises(MemoryError):
        outcome.of(crash)
    assert not (tmp_path / "status.json").exists()
    outcome.attempt = Outcome.ATTEMPTS
    outcome.of(crash)
    status = read_json(tmp_path / "status.json")
    assert status["state"] == "failed" and "crashed in 2 attempts" in status["reason"]
    assert "--forcerun" in status["mend"]


def test_a_kill_in_the_last_attempt_is_recorded(outcome, tmp_path):
    outcome.attempt = Outcome.ATTEMPTS
    outcome.of(lambda: os.kill(os.getpid(), signal.SIGKILL))
    status = read_json(tmp_path / "status.json")
    assert status["state"] == "failed" and "killed by signal 9" in status["reason"]
    assert np.load(tmp_path / "series.npy").shape[0] == 0


@pytest.mark.parametrize("attempt", [0, 1, Outcome.ATTEMPTS])
def test_success_and_bad_data_are_the_same_in_every_attempt(outcome, tmp_path, attempt):
    outcome.attempt = attempt
    outcome.of(lambda: None)
    assert read_json(tmp_path / "status.json")["state"] == "ok"
    outcome.of(bad)
    assert "voxels are NaN" in read_json(tmp_path / "status.json")["reason"]


@pytest.mark.parametrize("attempt", [0, 1, Outcome.ATTEMPTS])
def test_a_wrong_configuration_is_no_scans_fault(outcome, tmp_path, attempt):
    outcome.attempt = attempt

    def wrong():
        raise ConfigError("no such device")

    with pytest.raises(ConfigError):
        outcome.of(wrong)
    assert not (tmp_path / "status.json").exists()


def test_by_hand_a_crash_is_always_shown(outcome):
    outcome.attempt = 0
    with pytest.raises(MemoryError):
        outcome.of(crash)


def test_what_failed_before_is_passed_on_without_work(outcome, tmp_path):
    before = {"state": "failed", "stage": "functional", "reason": "no brain", "mend": ""}
    write_json(before, tmp_path / "before.json")
    outcome.after(tmp_path / "before.json")
    outcome.of(lambda: pytest.fail("worked on nothing"))
    assert json.loads((tmp_path / "status.json").read_text()) == before
    assert np.load(tmp_path / "series.npy").shape[0] == 0


def test_attempts_agree_with_the_profiles():
    import yaml

    from bolt.config import ROOT

    for path in sorted((ROOT / "workflow/profiles").glob("*/config.yaml")):
        assert yaml.safe_load(path.read_text())["retries"] + 1 == Outcome.ATTEMPTS, path
