"""Snakemake's benchmark files: what each job took, as it was measured from outside."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from bolt.io.errors import DataError

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Benchmark:
    """One job.

    Attributes
    ----------
    seconds : float
        From start to end.
    cpu_seconds, memory, read, written : float
        Processor time; bytes in memory at most, read and written, of all its processes together, as sampled: NaN of a
        job that was over before the first sample.
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
        It is empty, cut off, or something else.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file, delimiter="\t"))
        number = {name: _number(row[name]) for name in ("s", "cpu_time", "max_rss", "io_in", "io_out")}
    except (OSError, StopIteration, KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataError(
            f"no readable benchmark file ({type(error).__name__})", where=path, hint="Snakemake writes it with the job"
        ) from None
    return Benchmark(
        seconds=number["s"],
        cpu_seconds=number["cpu_time"],
        memory=number["max_rss"] * MEBIBYTE,
        read=number["io_in"] * MEBIBYTE,
        written=number["io_out"] * MEBIBYTE,
    )


def _number(text: str) -> float:
    return float("nan") if text in ("NA", "-") else float(text)
