"""What a run will take: scans, jobs, disk and hours, printed at the end of a dry run."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from bolt.config import EXPLAINING, load_space
from bolt.config.costs import load_costs
from bolt.config.layout import ModelRun, folder_of
from bolt.datasets import source_of
from bolt.io.errors import DataError
from bolt.io.files import read_text
from bolt.jobs.benchmark_files import read_benchmark
from bolt.models.registry import fitted_at_once
from bolt.training.tuning.space import spans_of
from bolt.workflow.plan import Plan
from bolt.workflow.run import Run
from bolt.workflow.snakemake import is_dry_run
from bolt.workflow.stages import STAGES


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
        ends = "divide by the number of cores; a GPU shortens training"
        size = f"about {self.gigabytes:.1f} GB of disk and"
        if self.trials:
            what = f"The search: {self.scans} scans, {self.jobs} jobs, {self.trials} trials, {size} up to {time}"
            return f"{what} ({ends}; unpromising trials end early)."
        return f"A complete run: {self.scans} scans, {self.jobs} jobs, {size} {time} ({ends})."


def plan_of(run: Run, experiments: Sequence[str] = (), *, search: bool = False) -> Plan:
    """Return what a run makes: everything configured, or experiments alone, or a search alone.

    Parameters
    ----------
    run : Run
    experiments : sequence of str
        What is made of them, in place of the configured models' runs and the report.
    search : bool
        What the target `search` makes, in place of both.
    """
    scans, explain = _scans(run), run.config.explain
    experiments = () if search else experiments
    whole = not (experiments or search)
    trained: list[ModelRun] = []
    explained: dict[str, list[ModelRun]] = {kind: [] for kind in EXPLAINING}
    if whole:
        with_oracle = 2 if run.truth() else 1  # the oracle's runs are trained and explained as well
        trained = run.study.runs * with_oracle
        explained = dict.fromkeys(EXPLAINING, run.explained_runs() * with_oracle)
    for experiment in experiments:
        runs, kind = run.experiment_runs(experiment), run.experiments[experiment].kind
        trained = _joined(trained, runs)
        if kind in explained:
            explained[kind] = _joined(explained[kind], runs)
    checked = run.explained_runs() if whole else []
    mapped, timed = explained["brain_maps"], explained["task_timing"] if run.dataset.has_tasks else []
    regressed = explained["landmarks"] if whole else _joined(explained["landmarks"], mapped)  # maps are of regressions
    weighed = regressed if whole else _joined(regressed, timed)
    return Plan(
        whole=whole,
        phantom=run.dataset.source == "phantom",
        downloaded=run.dataset.downloaded,
        judged=run.judged,
        truth=whole and bool(run.truth()),
        n_scans=len(scans),
        n_downloads=len(scans) if run.dataset.downloaded else 0,
        n_raw=sum(kind == "raw" for kind, _ in scans),
        n_anatomies=len({folder for kind, folder in scans if kind == "raw"}),
        n_images=sum(kind != "series" for kind, _ in scans),
        n_atlases=len(run.config.atlases),
        n_trainings=_training_jobs(run, trained, fitted_at_once=False),
        n_fits=_training_jobs(run, trained, fitted_at_once=True),
        n_evaluated=len(trained) if whole else 0,
        n_explained=len(regressed),
        n_mapped=len(mapped),
        n_timed=len(timed),
        n_checked=len(checked),
        n_weighed_folds=_n_folds(run, weighed),
        n_explained_folds=_n_folds(run, regressed),
        n_checked_folds=_n_folds(run, checked),
        n_inner=explain.inner_folds if regressed else 0,
        n_retrained=len(checked) if explain.sanity.controlled and len(run.config.seeds) == 1 else 0,
        permuted=explain.sanity.permuted,
        sanity=explain.sanity.asked,
        faithfulness=explain.faithfulness.scans > 0,
        experiment_kinds=tuple(run.experiments[name].kind for name in experiments),
        n_searches=sum(_trials(run).values()) // run.config.search.n_trials if search else 0,
        n_choices=len(run.choices()) if search and not run.config.search.shared else 0,
        n_shared_choices=len(run.choices()) if search and run.config.search.shared else 0,
    )


def _joined(runs: Sequence[ModelRun], more: Sequence[ModelRun]) -> list[ModelRun]:
    """Return the runs of both, each once."""
    return list(dict.fromkeys([*runs, *more]))


def job_counts(plan: Plan) -> dict[str, int]:
    """Return the number of jobs of every kind, as the stages count them."""
    return {kind: count(plan) for stage in STAGES.values() for kind, count in stage.jobs.items()}


def _training_jobs(run: Run, trained: Sequence[ModelRun], *, fitted_at_once: bool) -> int:
    """Return the number of jobs that train models of one kind: per run or, if trained apart, per fold."""
    runs = [one for one in trained if run.fitted_at_once(one.model) == fitted_at_once]
    together = set(run.trained_together)
    return sum(1 if one.model in together else len(run.folds_of(one.model)) for one in runs)


def _n_folds(run: Run, runs: Sequence[ModelRun]) -> int:
    return sum(len(run.folds_of(one.model)) for one in runs)


def estimate(run: Run, experiments: Sequence[str] = (), *, search: bool = False) -> Estimate:
    """Estimate a run from the costs of its stages and, where it has some, its own benchmark files.

    Parameters
    ----------
    run, experiments, search
        As in `plan_of`.
    """
    plan = plan_of(run, experiments, search=search)
    trials = _trials(run) if search else {}
    counts = job_counts(plan)
    seconds = sum(n * _seconds(run, kind, plan.n_scans) for kind, n in counts.items() if n)
    seconds += sum(n * _trial_seconds(run, model, plan.n_scans) for model, n in trials.items())
    sizes = load_costs().megabytes_per_scan
    per_scan = sizes.raw * (4 if run.config.preprocess.keep_bold else 1)
    downloads = source_of(run.dataset).download_bytes(run.dataset, run.config) if plan.downloaded else 0.0
    megabytes = downloads / 1e6 + plan.n_raw * per_scan + plan.n_scans * sizes.series * plan.n_atlases
    return Estimate(plan.n_scans, sum(counts.values()), megabytes / 1000, seconds / 3600, sum(trials.values()))


def seconds_of_rules(run: Run) -> Callable[[str], float]:
    """Return a function of a rule's name: the expected seconds of one of its jobs, 0 if nothing is known."""
    kinds = {kind for stage in STAGES.values() for kind in stage.jobs}

    @cache
    def seconds(rule: str) -> float:
        kind = {"train_folds": "train_features"}.get(rule, rule)
        return _seconds(run, kind, len(_scans(run))) if kind in kinds else 0.0

    return seconds


def announce_after_dry_run(run: Run, arguments: list[str]) -> None:
    """Print the estimate as the last line of a dry run: of the search or the experiments, where these are asked for."""
    if is_dry_run(arguments):
        asked = [name for name in run.experiments if name in arguments]
        asked += [name for target in ("paper", "extras") if target in arguments for name in run.asked(target)]
        asked, search = list(dict.fromkeys(asked)), "search" in arguments
        atexit.register(lambda: print(estimate(run, asked, search=search), file=sys.stderr, flush=True))


def _trials(run: Run) -> dict[str, int]:
    """Return the trials of a search by model, over all atlases and folds; two schemes search a fold once."""
    config = run.config
    folds = {
        name: {fold for scheme in config.search.schemes for fold in config.folds_searched(name, scheme)}
        for name in run.searched
    }
    return {name: len(needed) * len(config.atlases) * config.search.n_trials for name, needed in folds.items()}


def _trial_seconds(run: Run, name: str, n_scans: int) -> float:
    """Return the seconds of a whole trial: a training, with as many epochs as the middle of their range."""
    model = run.searched[name]
    spans = spans_of(load_space(run.config.search.space), model)
    epochs, usual = spans.get("training.epochs"), model.training.epochs
    tried = usual if epochs is None else np.mean(epochs.choices or [epochs.low, epochs.high])
    kind = "train_features" if fitted_at_once(model.model) else "train_fold"
    return _seconds(run, kind, n_scans) * float(tried) / usual


def _scans(run: Run) -> list[tuple[str, str]]:
    """Return kind and anatomical folder of every scan; before the index exists, images are counted by their names."""
    if run.planned is not None:
        return [(scan.kind, folder_of(str(scan.t1w))) for scan in run.planned.itertuples()]
    if run.layout.scans.is_file():
        return [(scan.kind, folder_of(str(scan.t1w))) for scan in run.scans.itertuples()]
    dataset = run.dataset
    if dataset.source == "phantom" and dataset.simulate is not None:
        return [("raw", str(i)) for i in range(dataset.simulate.n_subjects)]
    if dataset.downloaded or dataset.source in ("hcp", "bids_series"):
        kind = "series" if dataset.ready_series else "preprocessed"
        return [(kind, "")] * source_of(dataset).scan_count(dataset, run.config)
    if dataset.source == "series":
        return [("series", "")] * (len(read_text(dataset.path)) if Path(dataset.path).is_file() else 0)
    raw = dataset.source == "bids"
    images = Path(dataset.path).glob(f"sub-*/**/func/{'*' if raw else '*_desc-preproc'}_bold.nii*")
    return [("raw" if raw else "preprocessed", folder_of(str(path))) for path in images]


def _seconds(run: Run, kind: str, n_scans: int) -> float:
    """Return the seconds of one job: the median of this run's finished jobs, else the declared cost."""
    if measured := list(islice(_measured_seconds(run, kind), 200)):
        return float(np.median(measured))
    cost = next(stage.costs[kind] for stage in STAGES.values() if kind in stage.jobs)
    if run.dataset.source == "phantom":
        return cost.phantom + cost.phantom_scan * n_scans
    return cost.job + cost.scan * n_scans


def _measured_seconds(run: Run, kind: str) -> Iterator[float]:
    """Yield the seconds of this run's finished jobs, as far as their benchmark files can be read."""
    for path in _benchmark_files(run, kind):
        with suppress(DataError):
            yield read_benchmark(path).seconds


def _benchmark_files(run: Run, kind: str) -> list[Path]:
    """Return this run's benchmark files of a kind of job; those of the rules that train by the kind of model."""
    rule = "train_folds" if kind == "train_features" else kind
    files = sorted((run.layout.results / "benchmarks" / rule).glob("**/*.tsv"))
    if kind not in ("train_fold", "train_features"):
        return files
    models = [*run.models, *run.experiment_models]
    quick = {model for model in models if run.fitted_at_once(model)}
    return [file for file in files if bool(quick & set(file.parts)) == (kind == "train_features")]
