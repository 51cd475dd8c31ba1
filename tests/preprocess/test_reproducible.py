"""A scan preprocessed twice is identical to the last bit on one thread, and close on two."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import ants
import numpy as np
import pytest

from bolt.config import ROOT, load_registration
from bolt.preprocess.registration import register, rigid, seed

LEAST, TYPICAL = 0.99, 0.999
"""Correlation of series computed on one and on two threads: minimum and median over ROIs, as in
`docs/preprocessing.md`; measured on eight volumes of this head: 0.995 and 0.99998."""


def started(folder: Path, out: Path, threads: int) -> subprocess.Popen:
    environment = os.environ | {"ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tests.preprocess.reproduce", str(folder), str(out)]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


@pytest.mark.slow
def test_equal_on_one_thread_and_close_on_two(head, tmp_path):
    runs = [started(head.folder, tmp_path / f"{name}.npy", 1) for name in ("first", "second")]
    assert [run.wait(300) for run in runs] == [0, 0]
    assert started(head.folder, tmp_path / "two_threads.npy", 2).wait(300) == 0
    first, second, threaded = (np.load(tmp_path / f"{name}.npy") for name in ("first", "second", "two_threads"))
    assert first.shape[1] > 100 and first.std(axis=0).min() > 0
    np.testing.assert_array_equal(first, second)
    correlations = [np.corrcoef(a, b)[0, 1] for a, b in zip(first.T, threaded.T, strict=True)]
    assert min(correlations) > LEAST and np.median(correlations) > TYPICAL
    np.testing.assert_allclose(threaded, first, rtol=0.02)


@pytest.mark.parametrize("number", [3, 7])
def test_the_seed_of_the_settings_reaches_ants(number, monkeypatch):
    commands: list[list[str]] = []

    def record(name: str):
        return lambda command: commands.append([str(word) for word in command]) or 1

    monkeypatch.setattr(importlib.import_module("ants.registration.registration"), "get_lib_fn", record)
    seed(load_registration("testing").model_copy(update={"seed": number}))
    image = ants.from_numpy(np.random.default_rng(0).random((12, 12, 12), np.float32))
    for work in (lambda: register(image, image), lambda: rigid(image, image, image > 0, None)):
        with pytest.raises(Exception):  # noqa: B017 - only the command is recorded; nothing is registered
            work()
    assert len(commands) == 2
    assert [command[command.index("--random-seed") + 1] for command in commands] == [str(number)] * 2


SCRIPT = """
import os, sys
from bolt.cli import main as cli
def threads():
    return len(os.listdir("/proc/self/task"))
def run(options):
    import numpy as np, scipy.linalg  # with threads of their own
    before = threads()
    import ants
    ants.smooth_image(ants.from_numpy(np.random.default_rng(0).random((40, 40, 40), np.float32)), 2.0)
    print(threads() - before)
cli.run = run
cli.main(["index", "--threads", sys.argv[1]])
"""


@pytest.mark.slow
def test_ants_has_the_threads_of_the_command():
    def threads(number: int) -> int:
        command = [sys.executable, "-c", SCRIPT, str(number)]
        return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    assert threads(4) == threads(1) + 3
