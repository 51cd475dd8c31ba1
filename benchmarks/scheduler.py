"""What a real scheduler costs: the workflow through SLURM against the same run locally, and SLURM alone.

    python -m benchmarks.scheduler --folder /tmp/scheduler --out benchmarks/scheduler.tsv

As root, with Debian's SLURM packages: a SLURM of one node is started (`tests/slurm/one_node.py`). First `sbatch` and
`squeue` are timed with more and more jobs in the queue, held there. Then ready series (12 scans, two models of three
folds) go through the workflow to the report, on this machine's cores alone and through SLURM with the shipped profile,
in folders of their own. Of each cluster job the controller tells when it was submitted, began and ended; of each rule
in it, its benchmark file tells the seconds. What lies between is overhead.
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
    "measure": "What was measured",
    "value": "In the unit of the next column",
    "unit": "s: seconds by the clock",
    "baseline": "The same without a scheduler, or with an empty queue",
    "ratio": "value / baseline",
}
QUEUES = (0, 100, 500)


def median_seconds(command: list[str], times: int) -> float:
    """By the clock."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - begin)
    return float(pd.Series(taken).median())


def controller(folder: Path) -> list[dict[str, Any]]:
    """`sbatch` and `squeue`, with more and more held jobs in the queue."""
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
    """Ready series of 12 scans, a small network and a model that learns in one go."""
    folder.mkdir(parents=True)
    config = series_dataset(folder, explain=QUICK_EXPLANATION, device="cpu")
    models = [str(write_yaml(folder / "tiny.yaml", TINY_MODEL)), "svm"]
    keys = read_yaml(config)
    return write_yaml(config, keys | {"models": models, "seeds": [0]})


def run(folder: Path, *arguments: str) -> tuple[float, str]:
    """Seconds of one run of Snakemake, and what it said."""
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
    """A measure of every rule's job, by its benchmark file."""
    files = sorted((folder / "results").glob("*/benchmarks/**/*.tsv"))
    return pd.Series([pd.read_csv(path, sep="\t")[column].iloc[0] for path in files])


def workflow(folder: Path, slurm: Path, arguments: list[str]) -> list[dict[str, Any]]:
    """One workflow locally, and through SLURM."""
    locally, _ = run(folder / "local", "--cores", "2", "--workflow-profile", str(ROOT / "workflow/profiles/default"))
    profile = ["--workflow-profile", str(ROOT / "workflow/profiles/slurm"), *arguments]
    through, said = run(folder / "slurm", *profile)
    return compared(folder, slurm, locally, through, said)


def compared(folder: Path, slurm: Path, locally: float, through: float, said: str) -> list[dict[str, Any]]:
    """What the two runs cost, and where a cluster job's life goes."""
    name = re.findall(r"SLURM run ID: (\S+)", said)[0]
    jobs = [job for job in completed(slurm) if job["Name"] == name]
    alone, inside = benchmarked(folder / "local"), benchmarked(folder / "slurm")
    taken = sum(_moment(job["EndTime"]) - _moment(job["StartTime"]) for job in jobs)
    queued = sum(_moment(job["StartTime"]) - _moment(job["SubmitTime"]) for job in jobs)
    busy = merged([(job["StartTime"], job["EndTime"]) for job in jobs])
    queries = len(re.findall("Checking the status of", said))

    def row(measure: str, value: float, unit: str, baseline: float | None = None) -> dict[str, Any]:
        ratio = value / baseline if baseline else None
        return {"measure": measure, "value": value, "unit": unit, "baseline": baseline, "ratio": ratio}

    processor = [benchmarked(folder / place, "cpu_time").sum() for place in ("slurm", "local")]
    return [
        row("whole run", through, "s", locally),
        row("processor time of all rules", processor[0], "s", processor[1]),
        row("seconds of all rules", inside.sum(), "s", alone.sum()),
        row("cluster jobs", len(jobs), "jobs", len(inside)),
        row("seconds of all cluster jobs on the node", taken, "s", inside.sum()),
        row("on the node beside its rules, a cluster job", (taken - inside.sum()) / len(jobs), "s"),
        row("in SLURM's queue, a cluster job", queued / len(jobs), "s"),
        row("while no job runs", through - busy, "s", through),
        row("status queries", queries, "queries", len(jobs)),
    ]


def merged(spans: list[tuple[str, str]]) -> float:
    """Seconds in which at least one job ran."""
    total, last = 0.0, 0.0
    for start, stop in sorted(
        (datetime.fromisoformat(a).timestamp(), datetime.fromisoformat(b).timestamp()) for a, b in spans
    ):
        total += max(0.0, stop - max(start, last))
        last = max(last, stop)
    return total


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options, more = parser.parse_known_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with one_node(folder / "slurm.d", cpus=8) as slurm:
        rows = controller(slurm)
        rows += workflow(folder, slurm, ["--slurm-status-command", "squeue", "--verbose", *more])
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
