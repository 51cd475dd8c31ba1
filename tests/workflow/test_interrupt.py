"""Ctrl-C in the terminal of a run."""

import os
import signal
import subprocess
import sys
import time

import pytest

from bolt.config import ROOT
from tests.snake import series_dataset


@pytest.mark.slow
def test_the_last_line_after_ctrl_c_says_that_the_same_command_resumes(tmp_path):
    config = series_dataset(tmp_path)
    words = ["-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--configfile", config, "--cores", "1", "series"]
    run = subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which tests in the background ignore
    )
    lines = []
    for line in run.stdout:
        lines.append(line)
        if " index  " in line:  # it is done, and what follows takes a second
            time.sleep(0.2)  # Snakemake ignores the signal while it writes a line
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does: the jobs are interrupted too
    assert run.wait() != 0
    assert lines[-1] == "Interrupted. The same command resumes where this run stopped.\n", lines[-5:]
    again = subprocess.run(
        [sys.executable, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "results/mine/exclusions.tsv").is_file()
