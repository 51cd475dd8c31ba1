"""What a run will take: scans, jobs, disk and hours, said at the end of a dry run."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bolt.config import ROOT, load_space
from bolt.config.layout import folder_of
from bolt.datasets import source_of
from bolt.io.errors import DataError
from bolt.io.files import read_table, read_yaml
from bolt.jobs.benchmark_files import read_benchmark
from bolt.models.registry import fitted_at_once
from bolt.training.tuning.space import spans_of
from bolt.workflow.disk_check import is_dry_run

if TYPE_CHECKING:
    from bolt.workflow.run import Run


@dataclass(frozen=True)
class Estimate:
    """Scans, jobs of a complete run, gigabytes on disk at the end, core-hours, and trials of a search."""

    scans: int
    jobs: int
    gigabytes: float
    core_hours: float
    trials: int = 0

    def __str__(self) -> str:
        time = (
            f"{self.core_hours:.1f} core-hours" if self.core_hours >= 1 else f"{self.core_hours * 60:.0f} core-minutes"
        )
        ends = "divide by the cores you give; a GPU shortens training"
        size = f"about {self.gigabytes:.1f} GB of disk and"
        if self.trials:
            what = f"The search: {self.scans} scans, {self.jobs} jobs, {self.trials} trials, {size} up to {time}"
            return f"{what} ({ends}; trials that promise little end early)."
        return f"A complete run: {self.scans} scans, {self.jobs} jobs, {size} {time} ({ends})."


def estimate(run: Run, experiments: Sequence[str] = (), *, search: bool = False) -> Estimate:
    """Estimate a complete run from `config/costs.yaml` and, where this run has some, its own benchmark files.

    Parameters
    ----------
    run : Run
    experiments : sequence of str
        What is made of them, in place of the configured models' runs and the report.
    search : bool
        What the target `search` makes, in place of both.
    """
    scans = _scans(run)
    raw, images = sum(kind == "raw" for kind, _ in scans), sum(kind != "series" for kind, _ in scans)
    jobs = {
        "simulate": int(run.dataset.source == "phantom"),
        "download": len(scans) if run.dataset.downloaded else 0,
        "anatomical": len({folder for kind, folder in scans if kind == "raw"}),
        "functional": raw,
        "parcellate": images,
        "cache": len(run.config.atlases),
        **(_searching(run) if search else _experimenting(run, experiments) if experiments else _modelling(run)),
    }
    whole = not (experiments or search)
    single = 3 if raw else 2  # index and folds; the template for raw images
    single += whole  # the report
    single += jobs.get("train_inner", 0) > 0  # the split of inner folds
    single += run.judged * (2 if whole else 1)  # quality and its pages
    single += run.dataset.downloaded  # the table of subjects
    single += 1 + len(run.config.atlases) if run.truth() and whole else 0  # truth, the oracle's caches
    seconds = sum(n * _seconds(run, stage, len(scans)) for stage, n in jobs.items() if n)
    trials = _trials(run) if search else {}
    seconds += sum(n * _trial_seconds(run, model, len(scans)) for model, n in trials.items())
    if run.config.folds.side_by_side:
        for stage in ("train_fold", "train_features"):
            jobs[stage] = jobs.get(stage, 0) // len(run.config.folds.of(""))
    costs = read_yaml(ROOT / "config/costs.yaml")["megabytes_per_scan"]
    per_scan = costs["raw"] * (4 if run.config.preprocess.keep_bold else 1)
    downloads = source_of(run.dataset).download_bytes(run.dataset, run.config) if run.dataset.downloaded else 0.0
    megabytes = downloads / 1e6 + raw * per_scan + len(scans) * costs["series"] * len(run.config.atlases)
    total = sum(jobs.values()) + single
    return Estimate(len(scans), total, megabytes / 1000, seconds / 3600, sum(trials.values()))


def _trained(run: Run, runs: Iterable[tuple[str, str, int]]) -> dict[str, int]:
    """Trainings of some runs (atlas, model, seed), a stage."""
    folds = [(run.fitted_at_once(model), len(run.folds_of(model))) for _, model, _ in runs]
    return {
        "train_fold": sum(n for at_once, n in folds if not at_once),
        "train_features": sum(n for at_once, n in folds if at_once),
    }


def _modelling(run: Run) -> dict[str, int]:
    """Jobs a stage of the configured models; those of the oracle too, which is trained and explained as well."""
    explained = [(atlas, model, seed) for atlas, model, seed in run.runs() if run.explained(model)]
    jobs = _trained(run, run.runs()) | {
        "evaluate": len(run.runs()),
        **_landmarking(run, explained),
        "regions": len(explained),
        "tasks": len(explained) if run.has_tasks else 0,
    }
    jobs = {stage: n * (2 if run.truth() else 1) for stage, n in jobs.items()}
    sanity = run.config.explain.sanity
    return jobs | {  # of the oracle nobody asks these
        "train_permuted": len(explained) * sanity.permuted,
        "sanity": len(explained) * sanity.asked,
        **_faithful(run, explained),
        "stability": len(explained),
        "explanation": int(bool(explained)),
    }


def _faithful(run: Run, explained: Sequence[tuple[str, str, int]]) -> dict[str, int]:
    """Jobs a stage of the curves of deletion and insertion."""
    asked = run.config.explain.faithfulness.scans > 0
    folds = sum(len(run.folds_of(model)) for _, model, _ in explained)
    return {"faithfulness_fold": folds * asked, "faithfulness": len(explained) * asked}


def _landmarking(run: Run, explained: Sequence[tuple[str, str, int]]) -> dict[str, int]:
    """Jobs a stage of the landmarks of some runs (atlas, model, seed)."""
    folds, inner = sum(len(run.folds_of(model)) for _, model, _ in explained), run.config.explain.inner_folds
    return {
        "explain_fold": folds,
        "train_inner": folds * inner,
        "explain_inner": folds * (inner > 0),
        "regress_landmarks": len(explained),
    }


def _experimenting(run: Run, experiments: Sequence[str]) -> dict[str, int]:
    """Jobs a stage of experiments; a run of two of them once."""
    kinds = [run.experiments[name].kind for name in experiments]
    explained = [one for name in experiments if run.experiments[name].landmarks for one in run.experiment_runs(name)]
    return _trained(run, dict.fromkeys(one for name in experiments for one in run.experiment_runs(name))) | {
        "measure_complexity": kinds.count("complexity") * len(run.config.atlases),
        "take_spectra": kinds.count("spectra") * len(run.config.atlases),
        **_landmarking(run, explained),
        "experiment": len(experiments),
    }


def _searching(run: Run) -> dict[str, int]:
    """Jobs a stage of the search."""
    folds = sum(_trials(run).values()) // run.config.search.n_trials
    return {"search_fold": folds, "choose": len(run.choices())}


def _trials(run: Run) -> dict[str, int]:
    """Trials of the search over all atlases and folds, a model; a fold of two schemes is searched once."""
    config = run.config
    folds = {
        name: {fold for scheme in config.search.schemes for fold in config.folds_searched(name, scheme)}
        for name in run.searched
    }
    return {name: len(own) * len(config.atlases) * config.search.n_trials for name, own in folds.items()}


def _trial_seconds(run: Run, name: str, n_scans: int) -> float:
    """Seconds of a whole trial: of a training, with as many epochs as the middle of their range."""
    model = run.searched[name]
    spans = spans_of(load_space(run.config.search.space), model)
    epochs, own = spans.get("training.epochs"), model.training.epochs
    tried = own if epochs is None else np.mean(epochs.choices or [epochs.low, epochs.high])
    stage = "train_features" if fitted_at_once(model.model) else "train_fold"
    return _seconds(run, stage, n_scans) * float(tried) / own


def announce_after_dry_run(run: Run, arguments: list[str]) -> None:
    """Print the estimate as the last line of a dry run: of the search or the experiments, where these are asked for."""
    if is_dry_run(arguments):
        asked = [name for name in run.experiments if name in arguments]
        asked = list(run.config.experiment_places) if "paper" in arguments else asked
        search = "search" in arguments
        atexit.register(lambda: print(estimate(run, asked, search=search), file=sys.stderr, flush=True))


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
    if own := list(islice(_own_seconds(run, stage), 200)):
        return float(np.median(own))
    recorded = "phantom_seconds" if run.dataset.source == "phantom" else "seconds"
    cost = read_yaml(ROOT / "config/costs.yaml")[recorded][stage]
    return cost["per_job"] + cost.get("per_scan", 0.0) * n_scans


def _own_seconds(run: Run, stage: str) -> Iterator[float]:
    """Seconds of this run's own jobs, as far as their benchmark files can be read."""
    for path in _benchmarks(run, stage):
        with suppress(DataError):
            yield read_benchmark(path).seconds


def _benchmarks(run: Run, stage: str) -> list[Path]:
    """This run's own benchmark files of a stage; those of the one rule that trains, by what the model takes."""
    rule = "train_fold" if stage == "train_features" else stage
    files = sorted((run.layout.results / "benchmarks" / rule).glob("**/*.tsv"))
    if rule != "train_fold":
        return files
    known = [*run.models, *run.experiment_models]
    quick = {model for model in known if run.fitted_at_once(model)}
    return [file for file in files if bool(quick & set(file.parts)) == (stage == "train_features")]
