"""Measure how BolT's speed grows with the number of threads: speed-up and efficiency of training and inference.

    python -m benchmarks.threads --repeats 5 --out threads.tsv

Counts are 1, 2, 4, … and the number of cores (or `--threads`). They alternate, so a slow phase of the machine affects
each. Speed-up is the time of one thread divided by that of n threads, medians; efficiency is speed-up divided by n.
Cases are those of `bolt_speed.py`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from benchmarks.bolt_speed import Case, Measured, Side, alternate, build, data, parse_case, print_table, run

CASES = ("train:32:100", "train:2:1200", "infer:32:100")
COLUMNS = "case threads seconds min speed-up efficiency"


def counts(most: int) -> list[int]:
    """Return 1, 2, 4, … below `most`, then `most`."""
    return [*(2**i for i in range(most.bit_length()) if 2**i < most), most]


def run_with(threads: int, side: Side, kind: str, x: Tensor, y: Tensor) -> None:
    """Run a case once with a number of threads."""
    torch.set_num_threads(threads)
    run(side, kind, x, y, "float32")


def measure(cases: list[Case], threads: list[int], repeats: int) -> Measured:
    """Return the seconds of every repeat, by case and number of threads."""
    side, actions = build("ours", "cpu"), {}
    for case in cases:
        kind, batch, length = case
        x, y = data(batch, length, "cpu")
        actions |= {(case, str(n)): partial(run_with, n, side, kind, x, y) for n in threads}
    return dict(zip(actions, alternate(list(actions.values()), repeats, "cpu"), strict=True))


def table(measured: Measured) -> list[list[str]]:
    """Return the column names and one row per case and number of threads."""
    rows = [COLUMNS.split()]
    for (case, threads), seconds in measured.items():
        speed_up = median(measured[case, "1"]) / median(seconds)
        values = [median(seconds), min(seconds), speed_up, speed_up / int(threads)]
        rows.append([":".join(map(str, case)), threads, *(f"{value:.3g}" for value in values)])
    return rows


def main() -> None:
    """Measure and print the table."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=cores, help="the largest number of threads")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", type=parse_case, nargs="+", default=list(map(parse_case, CASES)))
    parser.add_argument("--out", type=Path, help="also write the table as TSV, below the same heading")
    options = parser.parse_args()
    rows = table(measure(options.cases, counts(options.threads), options.repeats))
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    versions = f"Python {sys.version.split()[0]}, torch {torch.__version__}, float32"
    heading = [
        f"{date.today()}: {cpu.split(':')[1].strip()}, {cores} cores, {versions}",
        f"python {shlex.join(sys.argv)}",
    ]
    if options.threads > cores:
        heading.append(f"with more than {cores} threads they share cores: efficiency is at most {cores} / threads")
    print_table(heading, rows, options.out)


if __name__ == "__main__":
    main()
