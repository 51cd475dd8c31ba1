"""What a run will take: scans, jobs, disk and hours, said at the end of a dry run."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bolt.config import ROOT
from bolt.datasets import source_of
from bolt.files import read_table, read_yaml
from bolt.layout import folder_of
from bolt.room import is_dry_run

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


def estimate(run: Run, experiments: Sequence[str] = ()) -> Estimate:
    """Estimate a complete run from `config/costs.yaml` and, where this run has some, its own benchmark files.

    Parameters
    ----------
    run : Run
    experiments : sequence of str
        What is made of them, in place of the configured models' runs and the report.
    """
    scans = _scans(run)
    raw, images = sum(kind == "raw" for kind, _ in scans), sum(kind != "series" for kind, _ in scans)
    runs = list(dict.fromkeys(one for name in experiments for one in run.experiment_runs(name)))
    runs = runs if experiments else run.runs()
    folds = {model: len(run.folds_of(model)) for _, model, _ in runs}
    trained = [(model, folds[model]) for _, model, _ in runs]
    phantom = run.dataset.source == "phantom"
    explained = 0 if experiments else sum(run.explained(model) for model, _ in trained)
    judged = bool(run.truth()) and not experiments
    kinds = [run.experiments[name].kind for name in experiments]
    times = 2 if judged else 1  # the oracle is trained and explained as well
    jobs = {
        "download": len(scans) if run.dataset.downloaded else 0,
        "anatomical": len({folder for kind, folder in scans if kind == "raw"}),
        "functional": raw,
        "parcellate": images,
        "cache": len(run.config.atlases),
        "train_fold": sum(n for model, n in trained if not run.fitted_at_once(model)) * times,
        "train_features": sum(n for model, n in trained if run.fitted_at_once(model)) * times,
        "explain_fold": 0 if experiments else sum(n for model, n in trained if run.explained(model)) * times,
        "evaluate": 0 if experiments else len(runs) * times,
        "regions": explained * times,
        "tasks": explained if run.has_tasks else 0,
        "measure_complexity": kinds.count("complexity") * len(run.config.atlases),
        "take_spectra": kinds.count("spectra") * len(run.config.atlases),
        "experiment": len(experiments),
    }
    if phantom:
        jobs["simulate"] = 1
    single = 3 if raw else 2  # index and folds; the template for raw images
    single += not experiments  # the report
    single += run.judged * (1 if experiments else 2)  # quality and its pages
    single += run.dataset.downloaded  # the table of subjects
    single += 1 + len(run.config.atlases) if judged else 0  # truth, the oracle's caches
    seconds = sum(n * _seconds(run, stage, len(scans)) for stage, n in jobs.items() if n)
    if run.config.folds.side_by_side:
        for stage in ("train_fold", "train_features"):
            jobs[stage] //= len(run.config.folds.of(""))
    costs = read_yaml(ROOT / "config/costs.yaml")["megabytes_per_scan"]
    per_scan = costs["raw"] * (4 if run.config.preprocess.keep_bold else 1)
    downloads = source_of(run.dataset).download_bytes(run.dataset, run.config) if run.dataset.downloaded else 0.0
    megabytes = downloads / 1e6 + raw * per_scan + len(scans) * costs["series"] * len(run.config.atlases)
    return Estimate(len(scans), sum(jobs.values()) + single, megabytes / 1000, seconds / 3600)


def announce_after_dry_run(run: Run, arguments: list[str]) -> None:
    """Print the estimate as the last line of a dry run: of the experiments, where these are what is asked for."""
    if is_dry_run(arguments) and "search" not in arguments:  # trials end early: nobody knows what they take
        asked = [name for name in run.experiments if name in arguments]
        asked = list(run.config.experiment_places) if "paper" in arguments else asked
        atexit.register(lambda: print(estimate(run, asked), file=sys.stderr, flush=True))


def _scans(run: Run) -> list[tuple[str, str]]:
    """Kind and anatomical folder of every scan. Before the index exists, images are counted by their names."""
    if run.layout.scans.is_file():
        return [(scan.kind, folder_of(str(scan.t1w))) for scan in run.scans.itertuples()]
    dataset = run.dataset
    if dataset.source == "phantom" and dataset.simulate is not None:
        return [("raw", str(i)) for i in range(dataset.simulate.n_subjects)]
    if dataset.downloaded:
        kind = "series" if dataset.ready_series else "preprocessed"
        return [(kind, "")] * source_of(dataset).scan_count(dataset, run.config)
    if dataset.source == "hcp":
        return [("preprocessed", "")] * source_of(dataset).scan_count(dataset, run.config)
    if dataset.source == "series":
        return [("series", "")] * (len(read_table(dataset.path)) if Path(dataset.path).is_file() else 0)
    raw = dataset.source == "bids"
    images = Path(dataset.path).glob(f"sub-*/**/func/{'*' if raw else '*_desc-preproc'}_bold.nii*")
    return [("raw" if raw else "preprocessed", folder_of(str(path))) for path in images]


def _seconds(run: Run, stage: str, n_scans: int) -> float:
    """Seconds of one job: the median of this run's own jobs, else the recorded cost."""
    own = _benchmarks(run, stage)
    if own:
        return float(np.median([pd.read_csv(path, sep="\t")["s"].iloc[0] for path in own[:200]]))
    recorded = "phantom_seconds" if run.dataset.source == "phantom" else "seconds"
    cost = read_yaml(ROOT / "config/costs.yaml")[recorded][stage]
    return cost["per_job"] + cost.get("per_scan", 0.0) * n_scans


def _benchmarks(run: Run, stage: str) -> list[Path]:
    """This run's own benchmark files of a stage; those of the one rule that trains, by what the model takes."""
    rule = "train_fold" if stage == "train_features" else stage
    files = sorted((run.layout.results / "benchmarks" / rule).glob("**/*.tsv"))
    if rule != "train_fold":
        return files
    known = [*run.models, *run.experiment_models]
    quick = {model for model in known if run.fitted_at_once(model)}
    return [file for file in files if bool(quick & set(file.parts)) == (stage == "train_features")]
