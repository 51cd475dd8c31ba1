"""What is asked of Snakemake and its clusters: groups of jobs, GPUs of a machine, what follows an interruption."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.workflow import snakemake as internals
from bolt.workflow.scan_files import ScanFiles
from bolt.workflow.snakemake import cancel_at_exit, joined, trainings_at_once
from tests.snake import series_dataset


def workflow(**components):
    return SimpleNamespace(group_settings=SimpleNamespace(group_components=components), parent_groupids={})


def test_neighbours_share_a_group():
    flow = workflow(trainings=2)
    groups = [joined(flow, "trainings", "svm_0", fold) for fold in range(5)]
    assert groups == ["trainings_svm_0_0"] * 2 + ["trainings_svm_0_1"] * 2 + ["trainings_svm_0_2"]
    assert set(flow.parent_groupids) == set(groups) and set(flow.parent_groupids.values()) == {"trainings"}
    for without_a_number in (workflow(), SimpleNamespace(group_settings=None, parent_groupids={})):
        assert joined(without_a_number, "parcellations", "", 7) == "parcellations_7"


def write_scans(place, subjects):
    names = [f"sub-{i}_task-{task}" for task in ("a", "b") for i in subjects]
    table = pd.DataFrame({"scan_id": names, "kind": "raw", "exclude_reason": None})
    table.to_csv(place, sep="\t", index=False)


def test_a_subject_is_one_job_and_several_are_where_they_are_joined(tmp_path):
    run, flow = ScanFiles(), workflow(subject=2)
    run.layout = SimpleNamespace(scans=tmp_path / "scans.tsv")
    write_scans(run.layout.scans, range(4))
    assert [run.subject_group(flow, f"sub-{i}") for i in range(4)] == ["subject_0"] * 2 + ["subject_1"] * 2
    assert run.parcellate_group(flow, "sub-3_task-b") == "subject_1"
    assert len(run.scans) == 8 and run.subject_group(workflow(), "sub-3") == "subject_3"
    write_scans(run.layout.scans, range(10))  # the index is written anew
    os.utime(run.layout.scans, ns=(1, 1))
    assert len(run.scans) == 20 and run.subject_group(workflow(), "sub-9") == "subject_9"


def profile(name):
    return yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text())


def test_both_profiles_of_clusters_say_the_same_but_for_the_gpu_of_any_job():
    """Snakemake refuses a command with a resource that a job lacks."""
    generic, slurm = profile("generic"), profile("slurm")
    generic["default-resources"].remove("gres=''")
    for key in ("jobs", "retries", "group-components", "resources", "set-resource-scopes", "default-resources"):
        assert generic[key] == slurm[key], key


def test_snakemake_finds_the_default_profile():
    assert (ROOT / "profiles/default/config.yaml").samefile(ROOT / "workflow/profiles/default/config.yaml")
    assert "resources" not in profile("default")  # they would replace those of `--profile …/slurm`


@pytest.mark.parametrize(
    ("files", "visible", "device", "expected"),
    [
        ([], None, "auto", None),
        ([], "0", "auto", None),  # a variable left over on a machine without GPUs
        (["nvidia0", "nvidiactl", "nvidia-uvm"], None, "auto", 2),
        (["nvidia0", "nvidia1"], None, "cuda", 4),
        (["nvidia0", "nvidia1"], "1", "auto", 2),
        (["nvidia0"], "MIG-a,MIG-b, MIG-c", "auto", 6),
        (["nvidia0"], "", "auto", None),
        (["nvidia0"], "-1", "auto", None),
        (["nvidia0"], None, "cpu", None),
    ],
)
def test_two_trainings_share_a_gpu_of_a_machine_without_a_scheduler(
    tmp_path, monkeypatch, files, visible, device, expected
):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert trainings_at_once(device, tmp_path) == expected


# ---- what a stopped run leaves in SLURM's queue ------------------------------------------------------------------
NAME = "0b5f4c1e-aaaa-bbbb-cccc-1234567890ab"
LOG = f"Building DAG of jobs...\nSLURM run ID: {NAME}\nUsing shell: /usr/bin/bash\nSLURM run ID: another\n"
STOPPED = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from bolt.workflow.snakemake import cancel_at_exit
cancel_at_exit(sys.argv[2:])
ThreadPoolExecutor(1).submit(lambda: (time.sleep(0.5), open(sys.argv[1], "a").write("submitted\\n")))
"""


@pytest.fixture
def scancel(tmp_path, monkeypatch):
    """Make a `scancel` that does as it is told."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def write(text):
        (tmp_path / "scancel").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "scancel").chmod(0o755)

    return write


def test_jobs_are_cancelled_by_name_after_the_last_submission(tmp_path, scancel):
    story, logs = tmp_path / "story.txt", [tmp_path / name for name in ("gone.log", "snakemake.log")]
    logs[1].write_text(LOG)
    scancel(f'echo "$@" >> {story}')
    done = subprocess.run([sys.executable, "-c", STOPPED, story, *logs], capture_output=True, text=True, check=True)
    assert story.read_text().splitlines() == ["submitted", f"--name {NAME}"] and done.stderr == ""


def test_without_slurm_nothing_is_cancelled_and_where_that_fails_it_is_said_what_to_type(
    tmp_path, scancel, monkeypatch, capsys
):
    registered, log = [], tmp_path / "snakemake.log"
    monkeypatch.setattr(internals.atexit, "register", lambda *call: registered.append(call))
    for text in ("Building DAG of jobs...\n", LOG):
        log.write_text(text)
        cancel_at_exit([str(log)])
    ((cancel, name),) = registered
    scancel("echo no controller >&2; exit 1")
    cancel(name)
    said = capsys.readouterr().err
    assert "jobs may be left in the queue (no controller)" in said and f"scancel --name {NAME}" in said


@pytest.mark.slow
def test_the_last_line_after_ctrl_c_says_that_the_same_command_resumes(tmp_path):
    config = series_dataset(tmp_path)
    words = ["-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--configfile", config, "--cores", "1", "series"]
    command = [sys.executable, *map(str, words)]
    run = subprocess.Popen(
        command,
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
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "results/mine/exclusions.tsv").is_file()
