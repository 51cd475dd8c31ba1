"""ANTs uses the number of threads that a command is given."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bolt.config import ROOT

SCRIPT = """
import os, sys
from bolt.cli.main import _set_threads
_set_threads(int(sys.argv[1]))
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # count ANTs' threads alone
import ants, numpy as np
image = ants.from_numpy(np.random.default_rng(0).uniform(size=(40, 40, 40)).astype("float32"))
ants.smooth_image(image, 2.0)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.slow
def test_ants_has_the_threads_of_the_command():
    def threads(number: int) -> int:
        command = [sys.executable, "-c", SCRIPT, str(number)]
        return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    assert threads(4) == threads(1) + 3
