"""Snakemake's benchmark files: time, memory and I/O of each job, as measured from outside."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from bolt.io.errors import DataError

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Benchmark:
    """What one job used, over all its processes.

    Attributes
    ----------
    seconds : float
        Wall time.
    cpu_seconds : float
        Processor time; NaN, as the following, for a job that ended before the first sample.
    memory, read, written : float
        Bytes: peak memory, and data read from and written to disk.
    """

    seconds: float
    cpu_seconds: float
    memory: float
    read: float
    written: float


def read_benchmark(path: Path) -> Benchmark:
    """Read a benchmark file.

    Raises
    ------
    DataError
        The file is missing, empty, cut off or not a benchmark file.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file, delimiter="\t"))
        values = {name: _number(row[name]) for name in ("s", "cpu_time", "max_rss", "io_in", "io_out")}
    except (OSError, StopIteration, KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataError(
            f"not a readable benchmark file ({type(error).__name__})",
            where=path,
            hint="Snakemake writes it with the job",
        ) from None
    return Benchmark(
        seconds=values["s"],
        cpu_seconds=values["cpu_time"],
        memory=values["max_rss"] * MEBIBYTE,
        read=values["io_in"] * MEBIBYTE,
        written=values["io_out"] * MEBIBYTE,
    )


def _number(text: str) -> float:
    return float("nan") if text in ("NA", "-") else float(text)
