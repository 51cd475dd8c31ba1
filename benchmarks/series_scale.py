"""Measure the stages that see all scans of a study of ready series, from the table of scans to the report.

    BOLT_ATLAS_DIR=… python -m benchmarks.series_scale --folder /tmp/series --out benchmarks/series_scale.tsv

Each cohort is noise of 200 ROIs × 100 volumes, one scan a subject, at ten sites, judged by a logistic regression on
head motion in ten folds. Needs twice 80 kB a scan; what is measured is not measured again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.scale import COLUMNS, about, measure, with_slopes
from bolt.config import ROOT
from bolt.io.files import read_json, write_json, write_table, write_yaml

SIZES = (40, 1000, 5000, 10_000, 40_000)
"""Scans; the smallest cohort stands for the start-up of each stage."""
STEPS = {"dry run": "", "index": "index", "cache": "exclusions", "folds": "folds", "report": "all"}
"""What is asked of Snakemake, one after another: each counts what the ones before have left, and Snakemake's start."""


def write_cohort(folder: Path, n: int) -> None:
    """Write the series of `n` subjects, their table, and the configuration of a study."""
    (folder / "series").mkdir(parents=True)
    random = np.random.default_rng(n)
    for i in range(n):
        np.save(folder / f"series/{i:05}.npy", random.standard_normal((100, 200), dtype=np.float32))
    table = pd.DataFrame({"subject": [f"{i:05}" for i in range(n)], "tr": 2.0})
    table["file"] = "series/" + table["subject"] + ".npy"
    table["diagnosis"] = random.choice(["control", "patient"], n)
    table["site"], table["sex"] = random.choice([*"ABCDEFGHIJ"], n), random.choice(["F", "M"], n)
    table["age"], table["mean_fd"] = random.uniform(18, 80, n).round(1), random.gamma(4, 0.05, n).round(3)
    table.to_csv(folder / "scans.tsv", sep="\t", index=False)
    names = {name: name for name in ("site", "age", "sex")}
    dataset = {"source": "series", "path": str(folder / "scans.tsv"), "label": "diagnosis"}
    write_yaml(dataset | {"classes": ["control", "patient"], **names}, folder / "cohort.yaml")
    study = {"dataset": "cohort.yaml", "atlases": ["cc200"], "models": ["motion_only"], "folds": {"outer": 10}}
    write_yaml(study, folder / "config.yaml")


def run_cohort(n: int, folder: Path) -> list[dict[str, Any]]:
    """Return the measurements of all steps for `n` scans."""
    study, done = folder / f"scans-{n}", folder / f"{n}.json"
    if not done.is_file():
        shutil.rmtree(study, ignore_errors=True)
        write_cohort(study, n)
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "1"]
        command += ["--configfile", "config.yaml"]
        rows = []
        for step, target in STEPS.items():
            measured = measure([*command, *(["--", target] if target else ["--dry-run"])], study, folder / f"{n}.log")
            rows.append({"stage": step, "scans": n, **measured})
            print(rows[-1], flush=True)
        write_json(rows, done)
        shutil.rmtree(study)
    return read_json(done)


def main() -> None:
    """Measure all cohorts, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, required=True, help="table (TSV)")
    options = parser.parse_args()
    rows = [row for n in sorted(options.sizes) for row in run_cohort(n, options.folder.resolve())]
    write_table(with_slopes(rows), options.out, COLUMNS)
    write_json(about("series_scale", sys.argv[1:]), options.out.with_name(f"{options.out.stem}_run.json"))


if __name__ == "__main__":
    main()
