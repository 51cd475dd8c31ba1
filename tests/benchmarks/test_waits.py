"""Waits are measured once per checkout, and what is wrong is said."""

from __future__ import annotations

import re

import pytest

from benchmarks import waits
from bolt.io.files import read_yaml


def test_every_wait_is_described():
    described = read_yaml(waits.WAITS)
    assert len(described) > 10
    for name, wait in described.items():
        assert set(wait) <= {"aim", "unit", "prepare", "command", "value"} and wait["aim"] > 0, name
        assert re.compile(wait.get("value", "()")).groups == 1, name


def test_a_value_is_read_from_the_output_and_not_measured_again(tmp_path):
    code = tmp_path / "before" / "code"
    code.mkdir(parents=True)
    wait = {"prepare": "echo 3 > given", "command": "cat given; echo $WHAT", "value": r"^(\d+)$"}
    assert waits.measure("a `wait`", wait, code, {"WHAT": "12"}) == 12
    assert waits.measure("a `wait`", wait | {"command": "false"}, code, {}) == 12
    assert (tmp_path / "before/measured/a_wait.json").is_file()


def test_seconds_are_measured_where_nothing_is_read(tmp_path):
    code = tmp_path / "now" / "code"
    code.mkdir(parents=True)
    assert waits.measure("sleep", {"command": "sleep 0.2"}, code, {}) > 0.2


@pytest.mark.parametrize(
    ("wait", "message"), [({"command": "false"}, "failed"), ({"command": "echo", "value": "(x)"}, "x")]
)
def test_a_failure_ends_the_measurement(tmp_path, wait, message):
    code = tmp_path / "now" / "code"
    code.mkdir(parents=True)
    with pytest.raises(SystemExit, match=message):
        waits.measure("wrong", wait, code, {})
