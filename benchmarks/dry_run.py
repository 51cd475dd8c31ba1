"""Measure how long Snakemake takes to plan the paper's full scope, from a synthetic scan table.

    python -m benchmarks.dry_run
    python -m benchmarks.dry_run --target paper --seeds 1     the shipped experiments instead of the 15 models
    python -m benchmarks.dry_run --scans 871 --models 1 --seeds 1            ABIDE-I
    python -m benchmarks.dry_run --baseline ../before         the same with the code of another checkout, and the ratio
    python -m benchmarks.dry_run --raw --scans 1000 --models 1 --seeds 1     raw images on disk, one per subject

9,414 preprocessed scans still to be downloaded × 2 atlases, 15 models × 2 atlases × 10 folds × 4 seeds = 1,200
trainings, each explained. Nothing is computed. Prints jobs, seconds and peak memory, and the
seconds of Snakemake alone: a dry run of one rule.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bolt.config import ROOT
from bolt.datasets import COLUMNS
from bolt.io.files import read_yaml, write_table, write_yaml
from tests.abide import people, write_people
from tests.fake_bids import bold_path, write_bids

ATLASES = ("schaefer400", "aal116")
TASKS = ("EMOTION", "GAMBLING", "LANGUAGE", "MOTOR", "RELATIONAL", "SOCIAL", "WM")


def scan_table(n: int) -> pd.DataFrame:
    """Return a table of preprocessed scans, seven per subject."""
    names = [f"sub-{i // len(TASKS):05d}_task-{TASKS[i % len(TASKS)]}" for i in range(n)]
    subjects = [name.split("_")[0] for name in names]
    columns = {
        "scan_id": names,
        "subject": subjects,
        "group": subjects,
        "label": np.where(np.arange(n) // len(TASKS) % 2, "autism", "control"),
        "tr": 0.72,
        "n_volumes": 1200,
        "kind": "preprocessed",
        "space": "MNI152NLin6Asym",
        "bold": [f"work/large/downloads/{name}.nii.gz" for name in names],
    }
    return pd.DataFrame(columns).reindex(columns=list(COLUMNS)).sort_values("scan_id")


def raw_table(bids: Path, n: int) -> pd.DataFrame:
    """Return a table of raw scans, one per subject, with images in `bids`."""
    subjects = [f"sub-{i + 1:02d}" for i in range(n)]
    columns = {
        "scan_id": [f"{subject}_task-rest" for subject in subjects],
        "subject": subjects,
        "group": subjects,
        "label": np.where(np.arange(n) % 2, "patient", "control"),
        "tr": 2.0,
        "n_volumes": 30,
        "kind": "raw",
        "bold": [str(bold_path(bids, subject)) for subject in subjects],
        "t1w": [str(bids / subject / "anat" / f"{subject}_T1w.nii.gz") for subject in subjects],
    }
    return pd.DataFrame(columns).reindex(columns=list(COLUMNS)).sort_values("scan_id")


def configure(folder: Path, n_scans: int, n_models: int, n_seeds: int, raw: bool) -> Path:
    """Write configuration, models and scan table of a run that is already indexed; return the configuration."""
    if raw:
        dataset = read_yaml(ROOT / "config/datasets/own_bids.yaml") | {"path": str(folder / "bids"), "crop": 20}
        write_bids(folder / "bids", n_scans)
        table = raw_table(folder / "bids", n_scans)
    else:
        subjects = write_people(people(40), folder / "subjects.csv")  # read only to estimate disk space
        dataset = read_yaml(ROOT / "config/datasets/abide1_images.yaml") | {"subjects_table": str(subjects)}
        table = scan_table(n_scans)
    write_yaml(dataset, folder / "large.yaml")
    models = []
    for i in range(n_models):
        model = read_yaml(ROOT / "config/models/bolt.yaml")
        model["hyper"]["cwr_weight"] = 0.1 * (i + 1)
        models.append(folder / f"bolt_{i}.yaml")
        write_yaml(model, models[-1])
    write_table(table, folder / "results/large/scans.tsv", COLUMNS)
    write_yaml(
        {
            "dataset": str(folder / "large.yaml"),
            "atlases": list(ATLASES),
            "models": list(map(str, models)),
            "seeds": list(range(n_seeds)),
            "folds": {"outer": 10},
        },
        folder / "config.yaml",
    )
    return folder / "config.yaml"


def main() -> None:
    """Make a dry run and print jobs, seconds and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=9414)
    parser.add_argument("--models", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--raw", action="store_true", help="raw images, one per subject")
    parser.add_argument("--target", default="all", help="such as paper: every shipped experiment on the same scans")
    parser.add_argument("--baseline", type=Path, help="another checkout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = configure(folder, options.scans, options.models, options.seeds, options.raw)
        (folder / "one.smk").write_text("rule all:\n    output: 'all'\n    shell: 'touch all'\n")
        floor = dry_run(folder, ROOT, folder / "one.smk", ["all"])
        arguments = ["--configfile", str(config), options.target]
        before = options.baseline and dry_run(folder, options.baseline, options.baseline / "Snakefile", arguments)
        now = dry_run(folder, ROOT, ROOT / "Snakefile", arguments)
    print(f"{now.jobs}\n\n{now}\nSnakemake alone: {floor}")
    if before:
        print(f"{options.baseline}: {before}; ratio of CPU {before.cpu / now.cpu:.2f}")


class Used(NamedTuple):
    """What a dry run has used."""

    jobs: str
    seconds: float
    cpu: float
    megabytes: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu:.1f} s CPU, at most {self.megabytes:.0f} MB"


def dry_run(folder: Path, checkout: Path, snakefile: Path, arguments: list[str]) -> Used:
    """Make a dry run with the code of a checkout."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile.resolve()), "--directory", str(folder)]
    command += ["--cores", "8", "--dry-run", "--quiet", "rules", "--", *arguments[-1:]]
    command[3:3] = arguments[:-1]
    environment = os.environ | {"BOLT_ATLAS_DIR": os.environ.get("BOLT_ATLAS_DIR", str(folder))}
    environment["PYTHONPATH"] = str(checkout.resolve())
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(output)
    jobs = output[output.index("Job stats") :].split("\n\n")[0]
    return Used(jobs, time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
