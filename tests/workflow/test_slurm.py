"""What a stopped run leaves in SLURM's queue is cancelled when its process ends."""

import os
import subprocess
import sys

import pytest

NAME = "0b5f4c1e-aaaa-bbbb-cccc-1234567890ab"
STOPPED = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from bolt.workflow.slurm import cancel_at_exit
cancel_at_exit(sys.argv[2:])
ThreadPoolExecutor(1).submit(lambda: (time.sleep(0.5), open(sys.argv[1], "a").write("submitted\\n")))
"""


@pytest.fixture
def stop(tmp_path):
    """End a process that still submits, with a `scancel` that does as it is told here; what happened, and was said."""

    def stop(log, scancel):
        (tmp_path / "snakemake.log").write_text(log)
        (tmp_path / "scancel").write_text(f"#!/bin/sh\n{scancel}\n")
        (tmp_path / "scancel").chmod(0o755)
        story = tmp_path / "story.txt"
        logs = [str(tmp_path / name) for name in ("gone.log", "snakemake.log")]
        command = [sys.executable, "-c", STOPPED, str(story), *logs]
        env = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "STORY": str(story)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return story.read_text().splitlines(), done.stderr

    return stop


def test_jobs_are_cancelled_by_name_after_the_last_submission(stop):
    log = f"Building DAG of jobs...\nSLURM run ID: {NAME}\nUsing shell: /usr/bin/bash\nSLURM run ID: another\n"
    assert stop(log, 'echo "$@" >> "$STORY"') == (["submitted", f"--name {NAME}"], "")


def test_a_run_without_slurm_cancels_nothing(stop):
    assert stop("Building DAG of jobs...\n", 'echo "$@" >> "$STORY"') == (["submitted"], "")


def test_where_that_fails_it_is_said_what_to_type(stop):
    _, said = stop(f"SLURM run ID: {NAME}\n", "echo no controller >&2; exit 1")
    assert "jobs may be left in the queue (no controller)" in said and f"scancel --name {NAME}" in said
