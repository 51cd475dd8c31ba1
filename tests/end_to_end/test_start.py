"""The page for people with ROI series (docs/start_series.md), followed to the letter."""

import os
import shlex
import subprocess
import sys

import pytest

from bolt.config import ROOT
from tests.forks import jobs_as_forks
from tests.test_docs import blocks

PAGE = "start_series.md"
QUICK = "--set explain.sanity.draws=0 explain.sanity.permuted=false explain.faithfulness.scans=0"
"""The only departure from the page: no checks of the explanation, which take most of the time."""


@pytest.mark.slow
def test_the_practice_series_lead_to_a_report(tmp_path):
    (program,), commands = blocks(PAGE, "python"), blocks(PAGE, "bash")
    (tmp_path / "make_practice.py").write_text(program)
    dry = shlex.split(next(block for block in commands if block.startswith("bolt")).replace("\\\n", " "))
    assert dry[-1] == "-n"
    environment = os.environ | jobs_as_forks() | {"PYTHONPATH": str(ROOT)}
    for words in (["make_practice.py"], ["-m", *dry], ["-m", *dry[:-1], *QUICK.split()]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "my_results/results/scans/report/index.html").read_text()
    assert "in 48 test scans" in page and "better than chance" in page
