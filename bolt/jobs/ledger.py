"""The ledger: what all jobs cost in time and memory, from Snakemake's benchmark files and provenance."""

from __future__ import annotations

import csv
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from bolt.io.errors import DataError
from bolt.io.files import columns, write_table

log = logging.getLogger("bolt")

HOUR, GIGABYTE, MEBIBYTE = 3600.0, 1e9, 2**20
SUMS = ["jobs", "retries", "wall_hours", "cpu_hours", "gpu_hours", "read_gb", "written_gb"]
COLUMNS = columns("jobs", "ledger")
MODEL = r"^[^/]+/(?:[^/]+/)?([^/]+)/(?:seed|fold)-"
"""The model in the name of a job that belongs to one: that of its run folder."""

Job = tuple[str, str, str]
"""Dataset, stage and name of a job, by the path of its benchmark file: ``<dataset>/benchmarks/<stage>/<name>.tsv``."""


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


def refresh(what: str, write: Callable[..., None], *arguments: object) -> None:
    """Write the ledger or the crate at the end of a run; an error is only logged."""
    try:
        write(*arguments)
    except Exception as error:
        log.warning("%s was not written: %s", what, error)


def ledger(results: Path, dataset: str = "*") -> tuple[pd.DataFrame, list[str]]:
    """Sum the cost of jobs.

    Benchmarks are sampled, half a minute apart after the first; the jobs' own notes of processor time and memory count
    if they are larger. Of folds trained side by side, each notes the processor time of the whole job.

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
    noted, rows, problems = job_notes(results, dataset), [], []
    for job, path in benchmark_files(results, dataset).items():
        notes = noted.pop(job, [])
        try:
            measured = read_benchmark(path)
        except DataError as error:
            problems.append(str(error))
            continue
        together = [note["cpu_seconds"] for note in notes if note.get("folds_side_by_side", 1) > 1]
        apart = [note["cpu_seconds"] for note in notes if note.get("folds_side_by_side", 1) == 1]
        cpu = max(np.nan_to_num(measured["cpu_time"]), max(together, default=0.0) + sum(apart))
        peaks = [measured["max_rss"] * MEBIBYTE / 1e6, *(note["peak_memory_mb"] for note in notes), 0.0]
        row = dict(zip(("dataset", "stage", "name"), job, strict=True)) | {
            "jobs": 1,
            "retries": max((max(note["job"].get("attempt", 1), 1) - 1 for note in notes), default=0),
            "wall_hours": measured["s"] / HOUR,
            "cpu_hours": (cpu or measured["s"]) / HOUR,
            "gpu_hours": measured["s"] / HOUR * any(str(note["device"]).startswith("cuda") for note in notes),
            "peak_memory_mb": float(np.nanmax(peaks)),
            "read_gb": np.nan_to_num(measured["io_in"]) * MEBIBYTE / GIGABYTE,
            "written_gb": np.nan_to_num(measured["io_out"]) * MEBIBYTE / GIGABYTE,
        }
        rows.append(row)
    problems += [f"{stage} {name} of {of} has no benchmark file" for of, stage, name in sorted(noted)]
    table = pd.DataFrame(rows, columns=["name", *COLUMNS])
    table["model"] = table["name"].astype(str).str.extract(MODEL, expand=False)
    by = table.groupby(["dataset", "stage", "model"], dropna=False, sort=True)
    summed = by[SUMS].sum().join(by["peak_memory_mb"].max()).reset_index()
    return summed[list(COLUMNS)].round({"peak_memory_mb": 1}).round(6), problems


def benchmark_files(results: Path, dataset: str = "*") -> dict[Job, Path]:
    """Return the benchmark file of every job that has one."""
    found = {}
    for folder in sorted(results.glob(f"{dataset}/benchmarks")):
        for path in sorted(folder.rglob("[!.]*.tsv")):
            stage, *name = path.relative_to(folder).with_suffix("").parts
            if name:
                found[folder.parent.name, stage, "/".join(name)] = path
    return found


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
        what = f"not a readable benchmark file ({type(error).__name__})"
        raise DataError(what, where=path, hint="Snakemake writes it with the job") from None


def job_notes(results: Path, dataset: str = "*") -> dict[Job, list[dict[str, Any]]]:
    """Read the provenance that jobs of the workflow noted; one note for each of a job's results."""
    notes: dict[Job, list[dict[str, Any]]] = {}
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
            if dataset in ("*", parts[at - 1]):
                name = str(PurePath(*parts[at + 2 :]).with_suffix(""))
                notes.setdefault((parts[at - 1], parts[at + 1], name), []).append(note)
    return notes


def provenance_files(folder: Path) -> Iterator[Path]:
    """Yield every provenance file below a folder, following links to folders on other disks."""
    for place, _, names in os.walk(folder, followlinks=True):
        yield from (Path(place) / name for name in names if name.endswith("provenance.json"))
