"""The ledger: what all jobs cost in time and memory, from Snakemake's benchmark files and provenance."""

from __future__ import annotations

import csv
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bolt.io.errors import DataError
from bolt.io.files import write_table

log = logging.getLogger("bolt")

HOUR, GIGABYTE, MEBIBYTE = 3600.0, 1e9, 2**20
SUMS = ["jobs", "retries", "wall_hours", "cpu_hours", "gpu_hours", "read_gb", "written_gb"]
COLUMNS: dict[str, str | dict[str, str]] = {
    "dataset": "Dataset of the run",
    "stage": "Rule of the workflow",
    "model": "Model and hash of its configuration; n/a for stages before models",
    "jobs": "Jobs with a result or a recorded failure; repeated jobs count once",
    "retries": "Crashed attempts at these jobs; their time is unknown",
    "wall_hours": {"Description": "Wall time of each job, summed", "Units": "h"},
    "cpu_hours": {"Description": "Processor time", "Units": "h"},
    "gpu_hours": {"Description": "Wall time of jobs that computed on a GPU", "Units": "h"},
    "peak_memory_mb": {"Description": "Memory of the job that needed most", "Units": "MB"},
    "read_gb": {"Description": "Read from disk", "Units": "GB"},
    "written_gb": {"Description": "Written to disk", "Units": "GB"},
}


class JobCost(NamedTuple):
    """A job in the ledger, identified by the path of its benchmark file: ``benchmarks/<stage>/<name>.tsv``."""

    dataset: str
    stage: str
    name: str

    @property
    def model(self) -> str | None:
        """Return the model that the job belongs to, by the name of its run folder, or None."""
        path = re.match(r"[^/]+/(?:[^/]+/)?([^/]+)/(?:seed|fold)-", self.name)
        return path[1] if path else None


def write_ledger(place: Path) -> None:
    """Write the ``ledger.tsv`` of all datasets in its folder.

    Missing and unreadable benchmark files are logged and skipped.
    """
    table, problems = ledger(place.parent)
    for problem in problems[:5]:
        log.warning("not in the ledger: %s", problem)
    if len(problems) > 5:
        log.warning("not in the ledger: %d more", len(problems) - 5)
    write_table(table, place, COLUMNS)


def refresh_ledger(place: Path) -> None:
    """Write the ledger at the end of a run; an error is only logged."""
    try:
        write_ledger(place)
    except Exception as error:
        log.warning("the ledger was not written: %s", error)


def ledger(results: Path, dataset: str = "*") -> tuple[pd.DataFrame, list[str]]:
    """Sum the cost of jobs.

    Parameters
    ----------
    results : Path
    dataset : str
        Name of one dataset; default: all.

    Returns
    -------
    table : DataFrame
        `COLUMNS`; one row per dataset, stage and model.
    problems : list of str
        Missing and unreadable files.
    """
    notes, rows, problems = _noted(results, dataset), [], []
    for job, path in _jobs(results, dataset):
        job_notes = notes.pop(job, [])
        try:
            rows.append(_row(job, read_benchmark(path), job_notes))
        except DataError as error:
            problems.append(str(error))
    problems += [f"{job.stage} {job.name} of {job.dataset} has no benchmark file" for job in sorted(notes)]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    by = table.groupby(["dataset", "stage", "model"], dropna=False, sort=True)
    summed = by[SUMS].sum().join(by["peak_memory_mb"].max()).reset_index()
    return summed[list(COLUMNS)].round({"peak_memory_mb": 1}).round(6), problems


def _jobs(results: Path, dataset: str) -> Iterator[tuple[JobCost, Path]]:
    """Yield every job that has a benchmark file, with its path."""
    for folder in sorted(results.glob(f"{dataset}/benchmarks")):
        for path in sorted(folder.rglob("[!.]*.tsv")):
            stage, *name = path.relative_to(folder).with_suffix("").parts
            if name:
                yield JobCost(folder.parent.name, stage, "/".join(name)), path


def read_benchmark(path: Path) -> dict[str, float]:
    """Read what one job used over all its processes, from Snakemake's benchmark file.

    Returns
    -------
    dict
        s and cpu_time (seconds), max_rss, io_in and io_out (mebibytes). All but s are NaN for a job that ended before
        the first sample.

    Raises
    ------
    DataError
        The file is missing, empty, cut off or not a benchmark file.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file, delimiter="\t"))
        texts = {name: row[name] for name in ("s", "cpu_time", "max_rss", "io_in", "io_out")}
        return {name: float("nan" if text in ("NA", "-") else text) for name, text in texts.items()}
    except (OSError, StopIteration, KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataError(
            f"not a readable benchmark file ({type(error).__name__})",
            where=path,
            hint="Snakemake writes it with the job",
        ) from None


def _row(job: JobCost, measured: dict[str, float], notes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the cost of one job.

    Benchmarks are sampled, half a minute apart after the first; the job's own notes of processor time and memory count
    if they are larger. Of folds trained side by side, each notes the processor time of the whole job.
    """
    shared = [note["cpu_seconds"] for note in notes if note.get("folds_side_by_side", 1) > 1]
    noted = max(shared, default=0.0) + sum(n["cpu_seconds"] for n in notes if n.get("folds_side_by_side", 1) == 1)
    wall = measured["s"] / HOUR
    peaks = [measured["max_rss"] * MEBIBYTE, *(note["peak_memory_mb"] * 1e6 for note in notes), 0.0]
    return {
        "dataset": job.dataset,
        "stage": job.stage,
        "model": job.model,
        "jobs": 1,
        "retries": max((max(note["job"].get("attempt", 1), 1) - 1 for note in notes), default=0),
        "wall_hours": wall,
        "cpu_hours": (max(np.nan_to_num(measured["cpu_time"]), noted) or measured["s"]) / HOUR,
        "gpu_hours": wall * any(str(note["device"]).startswith("cuda") for note in notes),
        "peak_memory_mb": float(np.nanmax(peaks)) / 1e6,
        "read_gb": np.nan_to_num(measured["io_in"]) * MEBIBYTE / GIGABYTE,
        "written_gb": np.nan_to_num(measured["io_out"]) * MEBIBYTE / GIGABYTE,
    }


def _noted(results: Path, dataset: str) -> dict[JobCost, list[dict[str, Any]]]:
    """Read the provenance that jobs of the workflow noted; one note for each of a job's results."""
    notes: dict[JobCost, list[dict[str, Any]]] = {}
    folders = [results] if dataset == "*" else [results / dataset, results / "paper"]
    for path in sorted(path for folder in folders for path in provenance_files(folder)):
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
            parts = PurePath(note["log"]).parts  # work/<dataset>/logs/<stage>/<name>.log
            _ = note["job"], note["device"], note["cpu_seconds"], note["peak_memory_mb"]
        except (OSError, ValueError, KeyError, TypeError):  # from the command line: no log and no benchmark
            continue
        if "logs" in parts[1:-2]:
            at = parts.index("logs", 1)
            job = JobCost(parts[at - 1], parts[at + 1], str(PurePath(*parts[at + 2 :]).with_suffix("")))
            if dataset in ("*", job.dataset):
                notes.setdefault(job, []).append(note)
    return notes


def provenance_files(folder: Path) -> Iterator[Path]:
    """Yield every provenance file below a folder, following links to folders on other disks."""
    for place, _, names in os.walk(folder, followlinks=True):
        yield from (Path(place) / name for name in names if name.endswith("provenance.json"))
