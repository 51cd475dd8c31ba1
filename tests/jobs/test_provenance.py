"""Provenance beside a result is complete and true."""

import hashlib
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bolt.config import ROOT
from bolt.io.files import read_json
from bolt.jobs import provenance as module
from bolt.jobs.outcome import Outcome
from bolt.jobs.provenance import LISTED, commit, hashes, provenance, provenance_path
from bolt.workflow.stage import STAGES
from tests.provenances import KEYS

MEGABYTES = 200


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Make a git checkout of one file, in place of the package's."""

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        return subprocess.check_output(["git", *who, *arguments], cwd=tmp_path, text=True)

    git("init", "-q")
    (tmp_path / "bolt").mkdir()
    (tmp_path / "bolt/a.py").write_text("A = 1\n")
    git("add", "bolt")
    git("commit", "-q", "-m", "first")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    commit.cache_clear()
    yield tmp_path, git("rev-parse", "HEAD").strip()
    commit.cache_clear()


def test_versions_inputs_and_facts_are_recorded(tmp_path):
    (tmp_path / "in.txt").write_text("x")
    facts = provenance([tmp_path / "in.txt"], seed=3)
    assert set(facts) == KEYS - {"stage", "outputs"} | {"seed"}
    assert facts["seed"] == 3 and "torch" in facts["packages"] and facts["job"]["host"]
    assert facts["inputs"] == {str(tmp_path / "in.txt"): hashlib.sha256(b"x").hexdigest()}
    assert facts["wall_seconds"] > 0 and facts["cpu_seconds"] > 0


def test_a_large_group_has_the_hash_of_what_sha256sum_prints(tmp_path):
    files = [tmp_path / f"{i:03d}.npy" for i in range(LISTED + 1)]
    for i, file in enumerate(files):
        file.write_text(str(i))
    digests = hashes([files[0], list(reversed(files)), tmp_path / "gone.nii"])
    printed = subprocess.run(["sha256sum", *map(str, files)], capture_output=True, check=True).stdout
    assert digests == {
        str(files[0]): hashlib.sha256(b"0").hexdigest(),
        f"{tmp_path} ({LISTED + 1} files)": hashlib.sha256(printed).hexdigest(),
        str(tmp_path / "gone.nii"): None,
    }
    assert len(hashes([files[:LISTED]])) == LISTED


WRITTEN = [("bolt/a.py", "A = 1\n", False), ("bolt/a.py", "A = 2\n", True), ("bolt/new.py", "", True)]


@pytest.mark.parametrize(("file", "text", "changed"), [*WRITTEN, ("mine.yaml", "dataset: mine\n", False)])
def test_changed_code_is_marked_in_a_checkout(checkout, file, text, changed):
    folder, head = checkout
    (folder / file).write_text(text)
    assert commit() == {"commit": head, "changed": changed}
    shutil.rmtree(folder / ".git")
    commit.cache_clear()
    assert commit() == {"commit": None, "changed": None} and provenance()["bolt"]


def test_the_cluster_job_is_recorded_and_credentials_are_masked(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    words = "bolt index --input a=x b=y --config https://me:secret@host/config.yaml --output=c=z d=w --threads 1"
    monkeypatch.setattr(sys, "argv", words.split())
    facts = provenance(attempt=2)
    assert facts["job"] | {"host": ""} == {"host": "", "slurm_job": "4711", "attempt": 2}
    assert facts["command"] == "bolt index --config https://***@host/config.yaml --threads 1"  # without files


def test_paths_of_provenance():
    for before, result in ("scans_", "scans.tsv"), ("", "status.json"), ("sub-01_x_", "sub-01_x_status.json"):
        assert provenance_path(Path("a") / result) == Path(f"a/{before}provenance.json")


@pytest.mark.parametrize(("used", "expected"), [(True, "cuda: NVIDIA H200"), (False, "cpu")])
def test_the_gpu_is_recorded_if_it_was_used(monkeypatch, used, expected):
    cuda = SimpleNamespace(is_initialized=lambda: used, get_device_name=lambda: "NVIDIA H200")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert provenance()["device"] == expected


def test_every_command_of_a_rule_records_its_provenance():
    rules = "".join(file.read_text() for file in sorted((ROOT / "workflow/rules").glob("*.smk")))
    commands = set(re.findall(r"python -m bolt ([a-z-]+)", rules)) - {"resources"}  # which makes no result
    works = {stage.command: inspect.getsource(stage.work) for stage in STAGES.values() if stage.command in commands}
    assert len(works) == len(commands) > 25
    assert [name for name, code in works.items() if "job.note(" not in code and "job.outcome(" not in code] == []


# ---- memory and time, in separate processes ----------------------------------------------------------------------
FILL = f"import numpy; numpy.ones({MEGABYTES} * 1_000_000, 'u1')"
JOB = f"""
import subprocess, sys, time
from pathlib import Path
from bolt.jobs.outcome import Outcome
while time.process_time() < 0.5:
    pass
code = {FILL!r}
work = {{"itself": lambda: exec(code), "child": lambda: subprocess.run([sys.executable, "-c", code], check=True)}}
Outcome("parcellate", Path(sys.argv[1]) / "status.json", int(sys.argv[2])).run(work[sys.argv[3]])
"""


@pytest.mark.parametrize(("attempt", "who"), [(1, "child"), (Outcome.ATTEMPTS, "itself")])
def test_memory_and_time_of_children_and_of_the_last_attempt(tmp_path, attempt, who):
    subprocess.run([sys.executable, "-c", JOB, str(tmp_path), str(attempt), who], cwd=ROOT, check=True)
    facts = read_json(tmp_path / "provenance.json")
    assert MEGABYTES <= facts["peak_memory_mb"] < 4 * MEGABYTES
    assert facts["wall_seconds"] > 0.1 and facts["cpu_seconds"] > 0.5  # includes the parent before it began
    assert facts["job"]["attempt"] == attempt and facts["device"] == "cpu"
