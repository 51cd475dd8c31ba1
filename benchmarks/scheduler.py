"""Measure the overhead of a real scheduler: the workflow through SLURM against a local run, and SLURM alone.

    python -m benchmarks.scheduler --folder /tmp/scheduler --out benchmarks/scheduler.tsv

Run as root with Debian's SLURM packages; a one-node SLURM is started (`tests/slurm/one_node.py`). `sbatch` and `squeue`
are first timed with growing numbers of held jobs in the queue. Then ready series (12 scans, two models, three folds)
go through the workflow to the report, once on local cores and once through SLURM with the shipped profile, in separate
folders. The controller reports when each cluster job was submitted, started and ended; benchmark files report the
seconds of each rule in it. The difference is overhead.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from datetime import date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.config import ROOT
from bolt.io.files import read_yaml, write_json, write_table
from tests.slurm.one_node import completed, one_node
from tests.snake import QUICK_EXPLANATION, TINY_MODEL, series_dataset, write_yaml

COLUMNS = {
    "measure": "Measure",
    "value": "Value, in the unit of the next column",
    "unit": "Unit; s: wall time in seconds",
    "baseline": "Value without a scheduler, or with an empty queue",
    "ratio": "value / baseline",
}
QUEUES = (0, 100, 500)


def median_seconds(command: list[str], times: int) -> float:
    """Return the median wall time of a command."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - begin)
    return float(pd.Series(taken).median())


def controller(folder: Path) -> list[dict[str, Any]]:
    """Time `sbatch` and `squeue` with growing numbers of held jobs in the queue."""
    submit = ["sbatch", "--parsable", "--hold", "--output=/dev/null", "--job-name=sleeps", "--wrap=sleep 60"]
    ask = ["squeue", "--format=%i|%T", "--states=all", "--noheader", "--name", "sleeps"]
    rows: list[dict[str, Any]] = []
    waiting, first = 0, {}
    for length in QUEUES:
        for _ in range(length - waiting):
            subprocess.run(submit, check=True, capture_output=True)
        for name, command, times in (("sbatch", submit, 11), ("squeue", ask, 11)):
            seconds = median_seconds(command, times)
            base = first.setdefault(name, seconds)
            row = {"measure": f"{name}, {length} jobs in the queue", "value": seconds, "unit": "s"}
            rows.append(row | {"baseline": base, "ratio": seconds / base})
        waiting = length + 11
    subprocess.run(["scancel", "--name=sleeps"], check=True)
    return rows


def configured(folder: Path) -> Path:
    """Write ready series of 12 scans and a configuration with a small network and an SVM; return its path."""
    folder.mkdir(parents=True)
    config = series_dataset(folder, explain=QUICK_EXPLANATION, device="cpu")
    models = [str(write_yaml(folder / "tiny.yaml", TINY_MODEL)), "svm"]
    keys = read_yaml(config)
    return write_yaml(config, keys | {"models": models, "seeds": [0]})


def run(folder: Path, *arguments: str) -> tuple[float, str]:
    """Run Snakemake once; return its seconds and output."""
    config = configured(folder)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", str(config)]
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, *arguments], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    seconds = time.perf_counter() - begin
    (folder / "snakemake.log").write_text(done.stdout)
    if done.returncode:
        raise RuntimeError(f"the run failed, see {folder / 'snakemake.log'}")
    return seconds, done.stdout


def benchmarked(folder: Path, column: str = "s") -> pd.Series:
    """Return one measure of all rule jobs, from their benchmark files."""
    files = sorted((folder / "results").glob("*/benchmarks/**/*.tsv"))
    return pd.Series([pd.read_csv(path, sep="\t")[column].iloc[0] for path in files])


def workflow(folder: Path, slurm: Path, arguments: list[str]) -> list[dict[str, Any]]:
    """Run the workflow locally and through SLURM, and compare."""
    local_seconds, _ = run(
        folder / "local", "--cores", "2", "--workflow-profile", str(ROOT / "workflow/profiles/default")
    )
    profile = ["--workflow-profile", str(ROOT / "workflow/profiles/slurm"), *arguments]
    slurm_seconds, output = run(folder / "slurm", *profile)
    return compared(folder, slurm, local_seconds, slurm_seconds, output)


def compared(
    folder: Path, slurm: Path, local_seconds: float, slurm_seconds: float, output: str
) -> list[dict[str, Any]]:
    """Return the costs of the two runs and how cluster jobs spend their time."""
    name = re.findall(r"SLURM run ID: (\S+)", output)[0]
    jobs = [job for job in completed(slurm) if job["Name"] == name]
    local_rules, slurm_rules = benchmarked(folder / "local"), benchmarked(folder / "slurm")
    on_node = sum(_moment(job["EndTime"]) - _moment(job["StartTime"]) for job in jobs)
    queued = sum(_moment(job["StartTime"]) - _moment(job["SubmitTime"]) for job in jobs)
    busy = merged([(job["StartTime"], job["EndTime"]) for job in jobs])
    queries = len(re.findall("Checking the status of", output))

    def row(measure: str, value: float, unit: str, baseline: float | None = None) -> dict[str, Any]:
        """Return one row of the table."""
        ratio = value / baseline if baseline else None
        return {"measure": measure, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio}

    cpu = [benchmarked(folder / place, "cpu_time").sum() for place in ("slurm", "local")]
    return [
        row("whole run", slurm_seconds, "s", local_seconds),
        row("processor time of all rules", cpu[0], "s", cpu[1]),
        row("seconds of all rules", slurm_rules.sum(), "s", local_rules.sum()),
        row("cluster jobs", len(jobs), "jobs", len(slurm_rules)),
        row("seconds of all cluster jobs on the node", on_node, "s", slurm_rules.sum()),
        row("on the node beside its rules, a cluster job", (on_node - slurm_rules.sum()) / len(jobs), "s"),
        row("in SLURM's queue, a cluster job", queued / len(jobs), "s"),
        row("while no job runs", slurm_seconds - busy, "s", slurm_seconds),
        row("status queries", queries, "queries", len(jobs)),
    ]


def merged(spans: list[tuple[str, str]]) -> float:
    """Return the seconds in which at least one job ran."""
    total, last = 0.0, 0.0
    for start, stop in sorted(
        (datetime.fromisoformat(a).timestamp(), datetime.fromisoformat(b).timestamp()) for a, b in spans
    ):
        total += max(0.0, stop - max(start, last))
        last = max(last, stop)
    return total


def _moment(text: str) -> float:
    """Return a date and time as a timestamp."""
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    """Run the measurements and write the table and a description of the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options, snakemake_arguments = parser.parse_known_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with one_node(folder / "slurm.d", cpus=8) as slurm:
        rows = controller(slurm)
        rows += workflow(folder, slurm, ["--slurm-status-command", "squeue", "--verbose", *snakemake_arguments])
        release = subprocess.run(["sinfo", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    table = pd.DataFrame(rows)
    print(table.to_string())
    if options.out:
        write_table(table, options.out, COLUMNS)
        packages = ("snakemake", "snakemake-executor-plugin-slurm", "snakemake-executor-plugin-slurm-jobstep")
        about = {"date": date.today().isoformat(), "slurm": release, "python": platform.python_version()}
        about |= {name: version(name) for name in packages}
        about |= {"cores": os.cpu_count(), "command": "python -m benchmarks.scheduler " + " ".join(sys.argv[1:])}
        write_json(about, options.out.with_name("scheduler_run.json"))


if __name__ == "__main__":
    main()
