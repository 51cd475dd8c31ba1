"""What a run will take: scans, jobs, disk and hours, said at the end of a dry run."""

from __future__ import annotations

import atexit
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bolt.config import ROOT
from bolt.files import read_table, read_yaml

if TYPE_CHECKING:
    from bolt.workflow import Run


@dataclass(frozen=True)
class Estimate:
    """Scans, jobs of a complete run, gigabytes on disk at the end, and core-hours."""

    scans: int
    jobs: int
    gigabytes: float
    core_hours: float

    def __str__(self) -> str:
        time = (
            f"{self.core_hours:.1f} core-hours" if self.core_hours >= 1 else f"{self.core_hours * 60:.0f} core-minutes"
        )
        return (
            f"A complete run: {self.scans} scans, {self.jobs} jobs, about {self.gigabytes:.1f} GB of disk "
            f"and {time} (divide by the cores you give; a GPU shortens training)."
        )


def estimate(run: Run) -> Estimate:
    """Estimate a complete run from `config/costs.yaml` and, where this run has some, its own benchmark files."""
    kinds = _kinds(run)
    raw, images = sum(k == "raw" for k in kinds), sum(k != "series" for k in kinds)
    models, folds = len(run.runs()), len(run.folds)
    phantom = run.dataset.source == "phantom"
    jobs = {
        "anatomical": raw,
        "functional": raw,
        "parcellate": images,
        "cache": len(run.config.atlases),
        "train_fold": models * folds * (2 if phantom else 1),
        "explain_fold": models * folds,
        "evaluate": models * (2 if phantom else 1),
        "regions": models,
    }
    single = 4 if raw else 3  # index, folds and report; the template for raw images
    seconds = sum(n * _seconds(run, stage, len(kinds)) for stage, n in jobs.items())
    costs = read_yaml(ROOT / "config/costs.yaml")["megabytes_per_scan"]
    per_scan = costs["raw"] * (5 if run.config.preprocess.keep_bold else 1)
    megabytes = raw * per_scan + len(kinds) * costs["series"] * len(run.config.atlases)
    return Estimate(len(kinds), sum(jobs.values()) + single + 3 * phantom, megabytes / 1000, seconds / 3600)


def announce_after_dry_run(run: Run, arguments: list[str]) -> None:
    """Print the estimate as the last line of a dry run."""
    if {"-n", "--dry-run", "--dryrun"} & set(arguments):
        atexit.register(lambda: print(estimate(run), file=sys.stderr, flush=True))


def _kinds(run: Run) -> list[str]:
    """One entry a scan: its kind. Before the index exists, images are counted by their names."""
    if run.layout.scans.is_file():
        return list(run.scans.kind)
    dataset = run.dataset
    if dataset.source == "phantom" and dataset.simulate is not None:
        return ["raw"] * dataset.simulate.n_subjects
    if dataset.source == "series":
        return ["series"] * (len(read_table(dataset.path)) if Path(dataset.path).is_file() else 0)
    pattern, kind = {"bids": ("*_bold.nii*", "raw"), "fmriprep": ("*_desc-preproc_bold.nii*", "preprocessed")}[
        dataset.source
    ]
    return [kind] * sum(1 for _ in Path(dataset.path).glob(f"sub-*/**/func/{pattern}"))


def _seconds(run: Run, stage: str, n_scans: int) -> float:
    """Seconds of one job: the median of this run's own jobs, else the recorded cost."""
    own = sorted((run.layout.results / "benchmarks" / stage).glob("**/*.tsv"))
    if own:
        return float(np.median([pd.read_csv(path, sep="\t")["s"].iloc[0] for path in own[:200]]))
    cost = read_yaml(ROOT / "config/costs.yaml")["seconds"][stage]
    return cost["per_job"] + cost.get("per_scan", 0.0) * n_scans
