"""Simulate a cohort with the real Snakefile, profile and scheduler, and recorded run times in place of the jobs.

    BOLT_ATLAS_DIR=… TEMPLATEFLOW_HOME=… python -m benchmarks.cohort --folder /tmp/cohort --out benchmarks/cohort.tsv

A fake BIDS dataset (one T1w and one BOLD image per subject, a few voxels each) is written and indexed by `bolt index`.
Each case is one run of Snakemake with the SLURM profile, from an empty folder to the report, on the virtual clock of
`virtual.py`; run times are those that stages declare (one core), with random variation. Finished cases are not rerun:
delete their files in the folder to repeat them. `--only` selects cases.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import virtual
from benchmarks.cohort_summary import COLUMNS as SUMMARY
from benchmarks.cohort_summary import draw, summary
from bolt.config import ROOT
from bolt.datasets import COLUMNS, TEXT_COLUMNS
from bolt.io.files import read_json, read_table, read_yaml, write_json, write_table, write_yaml
from bolt.workflow import estimate as room
from bolt.workflow.stage import COSTS as SECONDS
from tests.fake_bids import write_bids

ATLASES = ("schaefer400", "aal116")
MODELS = ("bolt", "lstm", "svm")
SMALL = {"template": 10.0, "index": 60.0, "folds": 5.0, "quality": 60.0, "quality_pages": 120.0, "report": 60.0}
"""Seconds of rules that run once and declare no cost."""


@dataclass(frozen=True)
class Case:
    """One simulated run; everything else is as in the profile."""

    name: str
    slots: int = 100
    subjects: int = 1000
    kind: str = "raw"
    spread: float = 0.3
    killed: float = 0.0
    submit_seconds: float = 5.05
    arguments: tuple[str, ...] = ()
    cluster: dict[str, float] = field(default_factory=dict)


GREEDY = ("--scheduler", "greedy")
UNTIMED = ("--max-jobs-per-timespan", "100000/1h")
QUICK = (*GREEDY, *UNTIMED, "--scheduler-subsample", "50")
"""Choose jobs only when one has ended, not also by the clock, which would take hours of CPU time."""
COSTS = {"start_seconds": 10.0, "member_start_seconds": 1.0, "queue_seconds": 1.0, "query_seconds": 0.1}
"""Overhead of a cluster job, as measured by `scheduler.py`."""
JOINED = ("subject=4", "parcellations=20", "trainings=2")
"""Four subjects per job; the rest repeats the profile's list, which this one replaces."""
SINGLE = ("--groups", "anatomical=one", "functional=two", "parcellate=three")
CASES = (
    *(Case(f"slots-{n}", slots=n, arguments=QUICK, cluster=COSTS) for n in (10, 100, 500)),
    Case(
        "subjects-joined",
        500,
        arguments=(*QUICK, "--group-components", *JOINED),
        cluster=COSTS,
    ),
    Case("clock-as-shipped", 10, 40, arguments=(*GREEDY, "--max-jobs-per-timespan", "100/1s"), cluster=COSTS),
    Case("clock-minute", 10, 40, arguments=(*GREEDY, "--max-jobs-per-timespan", "6000/1m"), cluster=COSTS),
    Case("groups-on", 100, 200, arguments=QUICK, cluster=COSTS),
    Case("groups-off", 100, 200, arguments=(*QUICK, *SINGLE), cluster=COSTS),
    Case("killed", 100, 200, killed=0.01, arguments=QUICK, cluster=COSTS),
    Case(
        "parcellations-1",
        100,
        200,
        kind="preprocessed",
        arguments=(*QUICK, "--group-components", "parcellations=1"),
        cluster=COSTS,
    ),
    Case("parcellations-20", 100, 200, kind="preprocessed", arguments=QUICK, cluster=COSTS),
)


def prepare(folder: Path, subjects: int) -> Path:
    """Write a dataset, index it with `bolt index`, record the time and memory, and return its folder."""
    study = folder / f"subjects-{subjects}"
    index_costs = study / "index.json"
    if index_costs.is_file():
        return study
    write_bids(study / "bids", subjects)
    dataset = read_yaml(ROOT / "config/datasets/own_bids.yaml")
    write_yaml(dataset | {"path": str(study / "bids"), "site": "site", "crop": 20}, study / "cohort.yaml")
    write_yaml(
        {
            "dataset": str(study / "cohort.yaml"),
            "atlases": list(ATLASES),
            "models": list(MODELS),
            "folds": {"outer": 10},
        },
        study / "config.yaml",
    )
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
    command += ["--configfile", "config.yaml", "--quiet", "rules", "--", "results/cohort/scans.tsv"]
    subprocess.run(command, cwd=study, check=True)
    row = pd.read_csv(study / "results/cohort/benchmarks/index/all.tsv", sep="\t").iloc[0]
    costs = {"seconds": float(row["s"]), "cpu_seconds": float(row["cpu_time"]), "mb": float(row["max_rss"])}
    write_json(costs, index_costs)
    return study


def table_of(study: Path, kind: str) -> Path:
    """Return the path of the scan table, with scans declared as preprocessed unless `kind` is raw."""
    table = study / "results/cohort/scans.tsv"
    if kind == "raw":
        return table
    scans = read_table(table, text=TEXT_COLUMNS).assign(kind=kind, space="MNI152NLin6Asym", t1w=None)
    write_table(scans, study / f"{kind}.tsv", COLUMNS)
    return study / f"{kind}.tsv"


def seconds_of(subjects: int) -> Any:
    """Return a function that gives the recorded seconds of a job on one core."""

    def seconds(job: Any) -> float:
        rule = job.rule.name
        if rule == "train_folds":  # of models without epochs
            rule = "train_features"
        if rule in SMALL:
            return SMALL[rule]
        return SECONDS[rule].job + SECONDS[rule].scan * subjects

    return seconds


class Stopwatch:
    """CPU seconds and number of calls of selected methods."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.longest: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the CPU seconds of the context to `name`."""
        begin = virtual.Clock.spent()
        yield
        spent = virtual.Clock.spent() - begin
        self.seconds[name] = self.seconds.get(name, 0.0) + spent
        self.calls[name] = self.calls.get(name, 0) + 1
        self.longest[name] = max(self.longest.get(name, 0.0), spent)

    def around(self, owner: type, method: str, name: str) -> None:
        """Time every call of a method."""
        original = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self(name):
                return original(*args, **kwargs)

        setattr(owner, method, timed)


def critical_path(dag: Any, cluster: virtual.Cluster) -> float:
    """Return the seconds of the longest chain of jobs, each running alone."""
    ends: dict[Any, float] = {}
    for level in dag.toposorted():
        for job in level:
            before = [ends.get(dependency, 0.0) for dependency in dag.dependencies[job]]
            seconds = 0.0 if job.rule.norun else cluster.drawn(job)
            ends[job] = max(before, default=0.0) + seconds
    return max(ends.values())


def simulate(case: Case, study: Path, workdir: Path) -> dict[str, Any]:
    """Run one case in this process, which must end afterwards because Snakemake keeps global state."""
    from snakemake.cli import main
    from snakemake.scheduling.job_scheduler import JobScheduler
    from snakemake.workflow import Workflow

    profile = read_yaml(ROOT / "workflow/profiles/slurm/config.yaml")
    cluster = virtual.Cluster(
        seconds=seconds_of(case.subjects),
        submit_seconds=case.submit_seconds,
        poll=float(profile.get("slurm-init-seconds-before-status-checks", 40)),
        spread=case.spread,
        killed=case.killed,
        copies={"results/cohort/scans.tsv": table_of(study, case.kind)},
        **case.cluster,
    )
    clock, watch = virtual.install(cluster), Stopwatch()
    watch.around(Workflow, "_build_dag", "dag")
    watch.around(JobScheduler, "job_selector", "choosing")
    watch.around(JobScheduler, "_finish_jobs", "finishing")
    milestones: dict[str, float] = {}
    schedule = JobScheduler.schedule

    def scheduled(self: JobScheduler) -> bool:
        milestones["parsed"] = virtual.Clock.spent()
        done = schedule(self)
        with clock.not_counted():
            milestones["critical"] = critical_path(self.workflow.dag, cluster)
        milestones["jobs"], milestones["done"] = len(self.workflow.dag), float(done)
        return done

    JobScheduler.schedule = scheduled  # type: ignore[method-assign]
    room.require_space = lambda *_: None  # the images are not made
    os.chdir(workdir)
    arguments = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", str(study / "config.yaml")]
    arguments += ["--workflow-profile", str(ROOT / "workflow/profiles/slurm"), "--executor", "virtual"]
    arguments += ["--jobs", str(case.slots), *case.arguments]
    try:
        main(arguments)
    except SystemExit as end:
        if "done" not in milestones:
            raise RuntimeError(f"Snakemake did not start: {end}") from end
    spent = virtual.Clock.spent()
    log = virtual.Executor.log
    return {
        "case": asdict(case),
        "complete": bool(milestones["done"]),
        "jobs": int(milestones["jobs"]),
        "critical": milestones["critical"],
        "cpu": {"start": milestones["parsed"], "run": spent - milestones["parsed"], **watch.seconds},
        "after_index": watch.longest["finishing"],
        "rounds": watch.calls["choosing"],
        "queries": virtual.Executor.queries,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "log": [asdict(entry) for entry in log],
    }


def run_case(case: Case, folder: Path) -> dict[str, Any]:
    """Return the result of a case, simulated in a separate process unless it is finished."""
    path = folder / f"{case.name}.json"
    if not path.is_file():
        prepare(folder, case.subjects)
        workdir = folder / "runs" / case.name
        shutil.rmtree(workdir, ignore_errors=True)
        workdir.mkdir(parents=True)
        begin = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "benchmarks.cohort",
            "--folder",
            str(folder),
            "--case",
            json.dumps(asdict(case)),
        ]
        with open(folder / f"{case.name}.log", "w") as log:
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True, cwd=ROOT)
        print(f"{case.name}: {time.perf_counter() - begin:.0f} s", flush=True)
        shutil.rmtree(workdir)
    result: dict[str, Any] = read_json(path)
    return result


def about(arguments: list[str]) -> dict[str, Any]:
    """Return machine, versions and command, for the file beside the table."""
    packages = ("snakemake", "snakemake-executor-plugin-slurm")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        "date": date.today().isoformat(),
        "command": " ".join(["python -m benchmarks.cohort", *arguments]),
        "commit": commit.stdout.strip(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def main() -> None:
    """Run the cases and write the table and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="many small files: best on a memory disk")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", help="names of cases")
    parser.add_argument("--out", type=Path, help="table (TSV); a figure is written beside it")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.case:
        settings = json.loads(options.case)
        case = Case(**settings | {"arguments": tuple(settings["arguments"])})
        study, workdir = prepare(folder, case.subjects), folder / "runs" / case.name
        write_json(simulate(case, study, workdir), folder / f"{case.name}.json")
        return
    runs = [run_case(case, folder) for case in CASES if not options.only or case.name in options.only]
    table = pd.DataFrame(map(summary, runs))
    print(table.T.to_string())
    if options.out:
        write_table(table, options.out, SUMMARY)
        write_json(about(sys.argv[1:]), options.out.with_name(f"{options.out.stem}_run.json"))
        by_slots = sorted(
            (run for run in runs if run["case"]["name"].startswith("slots-")), key=lambda run: run["case"]["slots"]
        )
        draw(by_slots, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
