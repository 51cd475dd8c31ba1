"""Time all ten folds of the SVM on the ready ABIDE-I series, as the workflow trains and evaluates them.

    python -m benchmarks.svm_folds SERIES --out FOLDER [--baseline CHECKOUT] [--times 3]

SERIES contains the phenotypes and ``cc200_nofilt_noglobal_871.npz``. Index, cache and folds are made first and are not
timed. Prints wall and processor seconds of `snakemake`, planning included; with a baseline checkout also those of that
one, by turns, and whether both predict the same to the last bit.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bolt.config import ROOT
from bolt.io.files import read_yaml, write_yaml
from tests.abide import write_series


def configure(series: Path, out: Path) -> Path:
    """Write series, dataset and configuration; return the path of the last."""
    table = write_series(series, out / "series")
    dataset = {
        "source": "series",
        "path": str(table),
        "label": "diagnosis",
        "classes": ["control", "autism"],
        "tr": 2.0,
    }
    institutions = read_yaml(ROOT / "config/datasets/abide1.yaml")["institutions"]
    write_yaml(dataset | {"site": "site", "institutions": institutions}, out / "abide.yaml")
    keys = {"dataset": str(out / "abide.yaml"), "models": ["svm"], "atlases": ["cc200"], "denoise": "none"}
    write_yaml(keys | {"folds": {"outer": 10}, "seeds": [0]}, out / "config.yaml")
    return out / "config.yaml"


def snakemake(checkout: Path, config: Path, target: str) -> tuple[float, float]:
    """Make a target with the code of a checkout; return wall and processor seconds."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(checkout / "Snakefile"), "--cores", "2", target]
    command += ["--directory", str(config.parent), "--configfile", str(config), "--rerun-triggers", "mtime", "--nolock"]
    before, start = _processor_seconds(), time.perf_counter()
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout)
    return time.perf_counter() - start, _processor_seconds() - before


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Train by turns and print the seconds of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    out = options.out.resolve()
    config = out / "config.yaml" if (out / "config.yaml").is_file() else configure(options.series, out)
    snakemake(ROOT, config, "series")
    seen = {}
    for _ in range(options.times):
        for checkout in filter(None, [options.baseline, ROOT]):
            shutil.rmtree(out / "results/abide/runs", ignore_errors=True)
            wall, cpu = snakemake(checkout.resolve(), config, "tables")
            files = sorted((out / "results/abide/runs").rglob("predictions.tsv"))
            seen[checkout] = [path.read_bytes() for path in files]
            print(f"{checkout}: {len(files)} folds, {wall:.1f} s, {cpu:.1f} s CPU", flush=True)
    if len(seen) == 2:
        print("same predictions" if len({tuple(contents) for contents in seen.values()}) == 1 else "OTHER PREDICTIONS")


if __name__ == "__main__":
    main()
