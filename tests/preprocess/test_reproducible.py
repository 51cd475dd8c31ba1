"""A scan preprocessed twice is identical to the last bit on one thread, and close on two."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys

import ants
import numpy as np
import pytest

from bolt.config import ROOT, load_registration
from bolt.preprocess.registration import register, rigid, seed

LEAST, TYPICAL = 0.99, 0.999
"""Correlation of series computed on one and on two threads: minimum and median over ROIs, as in
`docs/preprocessing.md`; measured on eight volumes of this head: 0.995 and 0.99998."""


@pytest.mark.slow
def test_equal_on_one_thread_and_close_on_two(head, tmp_path):
    (tmp_path / "head").write_bytes(pickle.dumps(head))
    made = []
    for run, threads in enumerate("112"):
        limits = dict.fromkeys(("ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "OMP_NUM_THREADS"), threads)
        command = [sys.executable, "-m", "tests.preprocess.reproduce", tmp_path / "head", tmp_path / f"{run}.npy"]
        subprocess.run(command, cwd=ROOT, env=os.environ | limits, check=True, timeout=400)
        made.append(np.load(tmp_path / f"{run}.npy"))
    first, second, threaded = made
    assert first.shape[1] > 100 and first.std(axis=0).min() > 0
    np.testing.assert_array_equal(first, second)
    correlations = [np.corrcoef(a, b)[0, 1] for a, b in zip(first.T, threaded.T, strict=True)]
    assert min(correlations) > LEAST and np.median(correlations) > TYPICAL
    np.testing.assert_allclose(threaded, first, rtol=0.02)


@pytest.mark.parametrize("number", [3, 7])
def test_the_seed_of_the_settings_reaches_ants(number, monkeypatch):
    commands, module = [], importlib.import_module("ants.registration.registration")
    monkeypatch.setattr(module, "get_lib_fn", lambda _: lambda command: commands.append([*map(str, command)]) or 1)
    seed(load_registration("testing").model_copy(update={"seed": number}))
    image = ants.from_numpy(np.random.default_rng(0).random((12, 12, 12), np.float32))
    for work in (lambda: register(image, image), lambda: rigid(image, image, image > 0, None)):
        with pytest.raises(Exception):  # noqa: B017 - only the command is recorded; nothing is registered
            work()
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
