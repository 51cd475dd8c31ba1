"""What runs cost: jobs, time, memory and energy of every stage, from benchmark files and provenance."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bolt.config import ROOT
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_yaml, write_table
from bolt.jobs.benchmark_files import Benchmark, read_benchmark

log = logging.getLogger("bolt")

HOUR, GIGABYTE = 3600.0, 1e9
SUMS = ["jobs", "retries", "wall_hours", "cpu_hours", "gpu_hours", "read_gb", "written_gb", "kwh"]


class Job(NamedTuple):
    """One job by the names of its files: ``benchmarks/<stage>/<name>.tsv``, and its log likewise."""

    dataset: str
    stage: str
    name: str

    @property
    def model(self) -> str | None:
        """The model whose job it was, as its run's folder is called."""
        found = re.match(r"[^/]+/(?:[^/]+/)?([^/]+)/(?:seed|fold)-", self.name)
        return found[1] if found else None


@dataclass(frozen=True)
class Energy:
    """`energy` of ``config/costs.yaml``: the assumptions behind the estimate."""

    watts_per_core: float
    watts_per_gpu: float
    watts_per_gigabyte: float
    overhead: float

    @classmethod
    def assumed(cls) -> Energy:
        place = ROOT / "config/costs.yaml"
        try:
            return cls(**{key: float(value) for key, value in read_yaml(place)["energy"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            hint = f"It has numbers: {', '.join(cls.__dataclass_fields__)}"
            raise ConfigError(f"'energy' is not usable ({error})", where=place, hint=hint) from None

    def kwh(self, cpu_hours: float, gpu_hours: float, gigabyte_hours: float) -> float:
        watt_hours = cpu_hours * self.watts_per_core + gpu_hours * self.watts_per_gpu
        return (watt_hours + gigabyte_hours * self.watts_per_gigabyte) * self.overhead / 1000

    def __str__(self) -> str:
        return (
            f"{self.watts_per_core:g} W a busy core, {self.watts_per_gpu:g} W a GPU, {self.watts_per_gigabyte:g} W a "
            f"gigabyte of memory, times {self.overhead:g} for cooling and losses"
        )


def columns(energy: Energy) -> dict[str, str | dict[str, str]]:
    """The columns of the ledger."""
    return {
        "dataset": "Dataset whose run it was",
        "stage": "Rule of the workflow",
        "model": "Model and the hash of its configuration; n/a for stages before models",
        "jobs": "Jobs whose results are there (or that recorded a failure); a job that was done again counts once",
        "retries": "Attempts of these jobs that crashed before the one that counts; their time is not known",
        "wall_hours": {"Description": "From start to end of each job, summed", "Units": "h"},
        "cpu_hours": {"Description": "Processor time", "Units": "h"},
        "gpu_hours": {"Description": "Wall time of jobs that computed on a GPU", "Units": "h"},
        "peak_memory_mb": {"Description": "Of the job that needed most", "Units": "MB"},
        "read_gb": {"Description": "Read from disk", "Units": "GB"},
        "written_gb": {"Description": "Written to disk", "Units": "GB"},
        "kwh": {
            "Description": f"Energy, an estimate: {energy} (config/costs.yaml). Times the carbon intensity of your "
            "grid it is the emission",
            "Units": "kWh",
        },
    }


def write_ledger(place: Path) -> None:
    """Write ``ledger.tsv`` of all datasets in its folder.

    Benchmark files that cannot be read, or are missing, are named and passed over.
    """
    energy = Energy.assumed()
    table, problems = ledger(place.parent, energy)
    for problem in problems[:5]:
        log.warning("not in the ledger: %s", problem)
    if len(problems) > 5:
        log.warning("not in the ledger: %d more", len(problems) - 5)
    write_table(table, place, columns(energy))


def refresh_ledger(place: Path) -> None:
    """`write_ledger` at the end of a run, which it shall never spoil."""
    try:
        write_ledger(place)
    except Exception as error:
        log.warning("the ledger was not written: %s", error)


def ledger(results: Path, energy: Energy, dataset: str = "*") -> tuple[pd.DataFrame, list[str]]:
    """Sum what jobs cost.

    Parameters
    ----------
    results : Path
    energy : Energy
    dataset : str
        Of one dataset alone; default: of all.

    Returns
    -------
    table : DataFrame
        `columns`, a row a dataset, stage and model.
    problems : list of str
        Files that are missing or cannot be read.
    """
    noted, rows, problems = _noted(results, dataset), [], []
    for job, path in _jobs(results, dataset):
        try:
            rows.append(_row(job, read_benchmark(path), noted.pop(job, []), energy))
        except DataError as error:
            noted.pop(job, None)
            problems.append(str(error))
    problems += [f"{job.stage} {job.name} of {job.dataset} has no benchmark file" for job in sorted(noted)]
    table = pd.DataFrame(rows, columns=list(columns(energy)))
    by = table.groupby(["dataset", "stage", "model"], dropna=False, sort=True)
    summed = by[SUMS].sum().join(by["peak_memory_mb"].max()).reset_index()
    return summed[list(columns(energy))].round({"peak_memory_mb": 1}).round(6), problems


def _jobs(results: Path, dataset: str) -> Iterator[tuple[Job, Path]]:
    """Every job that has a benchmark file."""
    for folder in sorted(results.glob(f"{dataset}/benchmarks")):
        for path in sorted(folder.rglob("[!.]*.tsv")):
            stage, *name = path.relative_to(folder).with_suffix("").parts
            if name:
                yield Job(folder.parent.name, stage, "/".join(name)), path


def _row(job: Job, found: Benchmark, notes: list[dict[str, Any]], energy: Energy) -> dict[str, Any]:
    """What one job cost. Benchmarks are samples, half a minute apart after the first; what the job noted itself of
    processor time and memory at its end counts where it is more."""
    sampled = 0.0 if np.isnan(found.cpu_seconds) else found.cpu_seconds
    cpu = max(sampled, _cpu_seconds(notes)) or found.seconds
    memory = float(np.nanmax([found.memory, *(note["peak_memory_mb"] * 1e6 for note in notes), 0.0]))
    on_gpu = any(str(note["device"]).startswith("cuda") for note in notes)
    wall, gpu = found.seconds / HOUR, found.seconds / HOUR * on_gpu
    return {
        "dataset": job.dataset,
        "stage": job.stage,
        "model": job.model,
        "jobs": 1,
        "retries": max((max(note["job"].get("attempt", 1), 1) - 1 for note in notes), default=0),
        "wall_hours": wall,
        "cpu_hours": cpu / HOUR,
        "gpu_hours": gpu,
        "peak_memory_mb": memory / 1e6,
        "read_gb": np.nan_to_num(found.read) / GIGABYTE,
        "written_gb": np.nan_to_num(found.written) / GIGABYTE,
        "kwh": energy.kwh(cpu / HOUR, gpu, wall * memory / GIGABYTE),
    }


def _cpu_seconds(notes: list[dict[str, Any]]) -> float:
    """Folds that were trained side by side each note the whole job; others what is theirs."""
    together = [note["cpu_seconds"] for note in notes if note.get("folds_side_by_side", 1) > 1]
    return max(together, default=0.0) + sum(n["cpu_seconds"] for n in notes if n.get("folds_side_by_side", 1) == 1)


def _noted(results: Path, dataset: str) -> dict[Job, list[dict[str, Any]]]:
    """What jobs of the workflow noted beside their results; of one that has several results, a note each."""
    found: dict[Job, list[dict[str, Any]]] = {}
    folders = [results] if dataset == "*" else [results / dataset, results / "paper"]
    for path in sorted(path for folder in folders for path in _notes(folder)):
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
            job = _job_of(PurePath(note["log"]))
            _ = note["job"], note["device"], note["cpu_seconds"], note["peak_memory_mb"]
        except (OSError, ValueError, KeyError, TypeError):  # made by hand: no log, nor a benchmark
            continue
        if job is not None and dataset in ("*", job.dataset):
            found.setdefault(job, []).append(note)
    return found


def _notes(folder: Path) -> Iterator[Path]:
    """Every provenance below a folder, also below those that were moved to another disk and linked."""
    for place, _, names in os.walk(folder, followlinks=True):
        yield from (Path(place) / name for name in names if name.endswith("provenance.json"))


def _job_of(log_file: PurePath) -> Job | None:
    """The job of a log: ``work/<dataset>/logs/<stage>/<name>.log``."""
    parts = log_file.parts
    if "logs" not in parts[1:-2]:
        return None
    at = parts.index("logs", 1)
    return Job(parts[at - 1], parts[at + 1], str(PurePath(*parts[at + 2 :]).with_suffix("")))
