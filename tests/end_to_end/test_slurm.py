"""A night on a real SLURM of one node, through the shipped profile: jobs and the scheduler's own process are killed.

Six subjects' ready series, from the index to the report, with a model whose fold never fits into its memory; and beside
them a raw subject up to its series. Nothing here has a deadline: a busy machine only takes longer.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from bolt.config import ROOT, load_config, load_dataset
from bolt.config.layout import Layout
from bolt.datasets.phantom import simulate
from bolt.io.files import read_table
from tests.phantoms import TINY
from tests.slurm.one_node import job, one_node, why_not
from tests.snake import half_written, series_dataset, write_yaml

pytestmark = [pytest.mark.slow, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

LSTM = {"model": "lstm", "training": {"epochs": 2, "batch_size": 4}}
HERE = [  # what this machine needs, and how little a test's trainings do
    *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "5"),
    *("--set-resources", "train_fold:mem_mb=1200 * attempt", "train_fold:slurm_partition=gpu"),
    "train_folds:mem_mb=1200 * attempt",
]
PATIENCE = 600


class Night:
    """A workflow that runs in a folder of its own on the cluster."""

    def __init__(self, folder: Path, config: Path, *targets: str) -> None:
        self.folder, self.config, self.targets = folder, config, targets
        self.output, self.seen = folder / "output.txt", {}

    def start(self) -> None:
        profile = ["--workflow-profile", str(ROOT / "workflow/profiles/slurm")]
        command = [sys.executable, str(ROOT / "tests/slurm/quick_snakemake.py"), "--snakefile", str(ROOT / "Snakefile")]
        command += ["--configfile", str(self.config), *profile, *HERE, "--", *self.targets]
        with self.output.open("ab") as output:
            about = {"cwd": self.folder, "env": environment(), "preexec_fn": listen, "stdout": output, "stderr": output}
            self.process = subprocess.Popen(command, **about)

    def jobs(self, *states: str) -> list[dict[str, str]]:
        """What SLURM knows of this workflow's jobs, the oldest first; all of them, or those in some states."""
        listed = subprocess.run(["squeue", "-h", "-t", "all", "-o", "%i"], capture_output=True, text=True, check=True)
        for number in sorted(listed.stdout.split(), key=int):
            facts = job(number)
            if facts["WorkDir"] == str(self.folder):
                self.seen[number] = facts
        found = [self.seen[number] for number in sorted(self.seen, key=int)]
        return [one for one in found if not states or one["JobState"] in states]

    def of(self, what: str, *states: str) -> list[dict[str, str]]:
        return [one for one in self.jobs(*states) if what in one["Comment"]]

    def running(self, what: str) -> dict[str, str]:
        """A job of that kind, as soon as its command works (its log begins)."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, self.output.read_text()
            command = ["squeue", "-h", "-t", "running", "-o", "%i %Z %k"]
            listed = subprocess.run(command, capture_output=True, text=True, check=True)
            for number, folder, comment in (line.split(" ", 2) for line in listed.stdout.splitlines()):
                # one command a look: a job of a few seconds must not end unseen
                if folder == str(self.folder) and what in comment and "python -m bolt" in processes_of(number):
                    return job(number)
            time.sleep(0.1)
        raise AssertionError(self.output.read_text())

    def full_log(self) -> str:
        """Return Snakemake's messages of all starts, which it keeps in its folder of logs."""
        logs = sorted((self.folder / ".snakemake" / "log").glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
        return "\n".join(path.read_text() for path in logs)

    def wait(self) -> int:
        return self.process.wait(timeout=PATIENCE)

    def results(self, *names: str) -> dict[str, tuple[bytes, int]]:
        """Contents and times of what is finished, by path."""
        found = [path for name in names for path in sorted((self.folder / "results").rglob(name))]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def processes_of(number: str) -> str:
    """Command lines of the processes of a job."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"SLURM_JOB_ID={number}\0" in (folder / "environ").read_text(errors="replace"):
                lines.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended just now
            continue
    return "\n".join(lines)


def listen() -> None:
    """What is started in the background is deaf to Ctrl-C, and so are its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def environment() -> dict[str, str]:
    """Of a person at the login node: what tests set for themselves does not reach the jobs."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "BOLT_A", "BOLT_L"))}


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="slurm"))
    try:
        with one_node(folder, cpus=16):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def raw(cluster, tmp_path_factory):
    """One raw subject, up to its series: started here, it goes on beside the night."""
    folder = tmp_path_factory.mktemp("raw")
    simulate(folder / "bids", TINY.model_copy(update={"n_subjects": 8}), n_jobs=2)  # fewer cannot be split into folds
    shipped = load_dataset("phantom").model_dump(mode="json", include={"label", "classes"})
    dataset = write_yaml(folder / "small.yaml", shipped | {"source": "bids", "path": "bids"})
    preprocess = {"space": "MNI152NLin2009aSym", "resolution": 6.0, "registration": "testing"}
    keys = {"dataset": str(dataset), "atlases": ["dosenbach160"], "preprocess": preprocess, "folds": {"outer": 2}}
    night = Night(folder, write_yaml(folder / "config.yaml", keys), "index")
    night.start()
    assert night.wait() == 0, night.output.read_text()
    night.targets = (str(Layout(load_config(night.config)).series_status("sub-01_task-rest")),)
    night.start()
    return night


@pytest.fixture(scope="module")
def night(raw, tmp_path_factory):
    """The whole story: a job is killed, the run is stopped by hand, then killed without a word, and started again."""
    folder = tmp_path_factory.mktemp("night")
    small, big = folder / "small.yaml", folder / "big.yaml"
    write_yaml(small, LSTM | {"hyper": {"hidden": 8}})
    write_yaml(
        big, LSTM | {"hyper": {"hidden": 10_000}}
    )  # its weights alone are 1.6 GB, and training takes four of them
    models, folds = [str(small), str(big), "svm"], {"outer": 2, "run": {"big": [0]}}
    night = Night(folder, series_dataset(folder, n_subjects=6, models=models, folds=folds))

    night.start()
    night.killed = night.running("rule_cache")
    subprocess.run(["scancel", night.killed["JobId"]], check=True)

    night.cancelled = night.running("rule_train_folds")
    night.before = night.results("scans.tsv", "manifest.json", "folds.tsv")
    night.process.send_signal(signal.SIGINT)
    night.stopped = night.wait()
    night.left = night.jobs("RUNNING", "PENDING")

    night.start()
    night.running("rule_train_folds")
    night.process.kill()
    night.wait()
    name = re.findall(r"SLURM run ID: (\S+)", night.full_log())[-1]
    subprocess.run(["scancel", "--name", name], check=True)
    night.between = night.results("scans.tsv", "manifest.json", "folds.tsv")

    night.start()
    night.status = night.wait()
    night.jobs()
    return night


def test_the_night_ends_well(night):
    assert night.status == 0, night.output.read_text()
    assert (night.folder / "results/mine/report/index.html").is_file()
    assert not half_written(night.folder)


def test_jobs_went_through_the_scheduler_with_what_they_asked_for(night):
    asked = {}
    for one in night.jobs("COMPLETED"):
        rule = re.sub(r"_(wildcards|dosenbach160).*", "", one["Comment"])
        asked[rule] = (one["Partition"], one["MinMemoryNode"], one["TimeLimit"], one["NumCPUs"])
    assert set(asked) == {f"rule_{name}" for name in (
        "index", "cache", "exclusions", "folds", "train_folds", "trainings", "evaluate", "connections", "explanation",
        "report",
    )}  # fmt: skip
    assert asked["rule_index"] == ("cpu", "2000M", "01:00:00", "1")
    assert asked["rule_train_folds"] == ("cpu", "1200M", "01:00:00", "1")  # two folds of half an hour
    assert len(night.of("rule_evaluate", "COMPLETED")) == 3


def test_trainings_ask_for_a_gpu_and_get_one(night):
    trainings = night.of("rule_trainings")
    assert trainings and all("gres:gpu:1" in one["TresPerNode"] for one in trainings)
    assert not any("gpu" in one.get("TresPerNode", "") for one in night.jobs() if one not in trainings)
    logs = [path.read_text() for path in (night.folder / "work/mine/logs/train_fold").rglob("*.log")]
    devices = [line for log in logs for line in log.splitlines() if line.startswith("device: ")]
    assert devices and all(re.search(r"device: CPU.*CUDA_VISIBLE_DEVICES is [01]\)", line) for line in devices)


def test_a_killed_job_is_tried_again_with_more(night):
    first, second = night.of("rule_cache")
    assert first["JobId"] == night.killed["JobId"] and first["JobState"] == "CANCELLED"
    assert second["JobState"] == "COMPLETED"
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("4000M", "8000M")
    assert (first["TimeLimit"], second["TimeLimit"]) == ("01:00:00", "02:00:00")


def test_a_run_that_is_stopped_takes_its_jobs_with_it(night):
    assert night.stopped != 0 and night.left == []
    assert [one["JobState"] for one in night.of("rule_train_folds")] == ["CANCELLED", "CANCELLED", "COMPLETED"]


def test_a_resumed_run_loses_nothing(night):
    assert len(night.before) == 3
    assert night.between == night.before
    assert night.results("scans.tsv", "manifest.json", "folds.tsv") == night.before
    assert len(night.of("rule_index")) == 1 and len(night.of("rule_folds")) == 1


def test_a_fold_that_always_fails_is_reported_and_the_rest_finishes(night):
    runs = night.folder / "results/mine/runs/dosenbach160/ready"
    (status,) = runs.glob("big-*/seed-0/fold-0/status.json")
    told = json.loads(status.read_text())
    assert told["state"] == "failed" and "needs more memory than the 3600 MB" in told["reason"]
    states = {
        table.parts[-3].split("-")[0]: read_table(table).state.dropna().tolist() for table in runs.rglob("metrics.tsv")
    }
    assert states["big"][0] == "failed" and states["small"][:2] == states["svm"][:2] == ["ok", "ok"]
    assert "Without fold 0: not finished" in (night.folder / "results/mine/report/performance.html").read_text()
    asked = [int(one["MinMemoryNode"][:-1]) for one in night.of("rule_trainings") if one["JobState"] == "FAILED"]
    assert asked and "exceeded memory limit" in night.output.read_text()


def test_one_job_preprocesses_one_subject(raw):
    assert raw.wait() == 0, raw.output.read_text()
    (subject,) = raw.of("subject")
    assert subject["JobState"] == "COMPLETED" and subject["NumCPUs"] == "1"
    assert (subject["MinMemoryNode"], subject["TimeLimit"]) == ("4000M", "03:40:00")  # 90 + 120 + 10 minutes
    assert {one["Comment"] for one in raw.jobs()} == {"rule_index", subject["Comment"]}
    assert len(list((raw.folder / "results/small/series").rglob("*_timeseries.npy"))) == 1
