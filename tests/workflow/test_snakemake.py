"""What is asked of Snakemake and its clusters: groups of jobs, GPUs of a machine, what follows an interruption."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from snakemake.cli import get_argument_parser

from bolt.config import ROOT
from bolt.workflow.scan_files import ScanFiles
from bolt.workflow.snakemake import FLAGS, is_dry_run, joined, trainings_at_once
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


def test_a_dry_run_is_what_snakemake_takes_for_one():
    parser = get_argument_parser()
    words = ["-n", "-pn", "-nc2", "-np", "--dry-run", "--dryrun", "-sSnakefile", "-drun", "-c2", "--nolock"]
    for word in words:
        assert is_dry_run(["snakemake", word]) == parser.parse_known_args([word])[0].dryrun, word
    flags = {word[1] for action in parser._actions if action.nargs == 0 for word in action.option_strings}
    assert set(FLAGS) == flags - {"-", "n"}


def test_snakemake_finds_the_default_profile():
    assert (ROOT / "profiles/default/config.yaml").samefile(ROOT / "workflow/profiles/default/config.yaml")
    assert "resources" not in profile("default")  # they would replace those of `--profile …/slurm`


GPUS = [(0, None, None), (0, "0", None), (1, None, 2), (2, None, 4), (2, "1", 2), (1, "MIG-a,MIG-b, MIG-c", 6)]
GPUS += [(1, "", None), (1, "-1", None)]
"""Of a machine; those that are visible, which may be left over from another machine; and trainings at once."""


@pytest.mark.parametrize(("n_gpus", "visible", "expected"), GPUS)
def test_two_trainings_share_a_gpu_of_a_machine_without_a_scheduler(tmp_path, monkeypatch, n_gpus, visible, expected):
    for name in [*(f"nvidia{i}" for i in range(n_gpus)), "nvidiactl", "nvidia-uvm"]:
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = {device: trainings_at_once(device, tmp_path) for device in ("auto", "cuda", "cpu")}
    assert found == {"auto": expected, "cuda": expected, "cpu": None}


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


@pytest.mark.parametrize(
    ("text", "status", "called"), [(LOG, 0, True), (LOG, 1, True), ("Building DAG of jobs...\n", 0, False)]
)
def test_jobs_are_cancelled_by_name_after_the_last_submission(tmp_path, text, status, called):
    """Nothing is where there is no SLURM; where it fails, it is said what to type."""
    story, scancel, log = (tmp_path / name for name in ("story.txt", "scancel", "snakemake.log"))
    log.write_text(text)
    scancel.write_text(f'#!/bin/sh\necho "$@" >> {story}\n[ {status} = 0 ] || echo no controller >&2\nexit {status}\n')
    scancel.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-c", STOPPED, story, tmp_path / "gone.log", log]
    done = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, check=True)
    assert story.read_text().splitlines() == ["submitted", *[f"--name {NAME}"] * called]
    failure = f"jobs may be left in the queue (no controller). Cancel them: scancel --name {NAME}"
    assert (failure in done.stderr) == bool(done.stderr) == bool(status)


@pytest.mark.slow
def test_the_last_line_after_ctrl_c_says_that_the_same_command_resumes(tmp_path):
    config = series_dataset(tmp_path)
    words = ["-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--configfile", config, "--cores", "1", "series"]
    command = [sys.executable, *map(str, words)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # which tests in the background ignore
    run = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, preexec_fn=heard, **streams)
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
