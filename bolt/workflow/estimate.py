"""What a run takes: scans, jobs, disk and hours, shown by `bolt check` and dry runs; a disk too small is refused."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.config import EXPLAINING, ROOT, load_space
from bolt.config.layout import ModelRun, folder_of
from bolt.datasets import source_of
from bolt.io.errors import DataError
from bolt.io.files import read_json, read_text, read_yaml
from bolt.io.resource_errors import free_bytes, gigabytes, require_space
from bolt.io.volumes import check_image
from bolt.jobs.ledger import read_benchmark
from bolt.models.registry import fitted_at_once
from bolt.training.space import spans_of
from bolt.workflow.lock import LOOKING
from bolt.workflow.run import Run
from bolt.workflow.snakemake import is_dry_run
from bolt.workflow.stages import STAGES

MEASURED = 200
"""Finished jobs of a kind whose time is looked at."""
FIELD = 182 * 218 * 182
"""Cubic millimetres of the templates' field."""
STORED = 0.35
"""Bytes on disk per byte of the 4D image: it is zero outside the brain, and compressed (0.28 for a real scan)."""
WORK = 300e6
"""Bytes of a job's other intermediate files: images and warps of the T1w at 1 mm."""
WAITING = 2
"""4D images per core: one being written, one being parcellated (these jobs go first)."""
WORKLESS = LOOKING | {"--touch", "-t", "--cleanup-metadata", "--cm", "--delete-all-output", "--delete-temp-output"}
WORKLESS |= {"resources"}
"""Arguments of `snakemake` without preprocessing."""


class Plan:
    """What a run makes, as numbers by which each stage counts its jobs: everything configured, or a part of it.

    Parameters
    ----------
    run : Run
    experiments : sequence of str
        What is made of them, in place of the configured models' runs and the report.
    search : bool
        What the target `search` makes, in place of both.

    Attributes
    ----------
    whole : bool
        Whether everything configured is made, and not experiments or a search alone.
    phantom, downloaded, judged, truth : bool
        Whether the dataset is simulated, is downloaded, has its scans judged by quality, has a known truth to compare
        with.
    n_scans, n_downloads, n_raw, n_anatomies, n_images, n_atlases : int
        Scans: all, to download, raw; T1w images to preprocess; scans whose ROI series are not there already; atlases.
    n_trainings, n_fits : int
        Jobs that train a model in epochs, and that fit one at once.
    n_evaluated, n_explained, n_mapped, n_timed, n_checked, n_connected : int
        Runs of models that are judged, explained by landmarks, drawn on the brain, drawn over tasks, whose explanation
        is checked, and whose predictions are correlated with connections. The oracle's are runs of their own, which are
        not checked.
    n_weighed_folds, n_explained_folds, n_checked_folds, n_inner : int
        Folds with importance weights, those of explained and of checked runs, and the inner folds of each.
    n_retrained : int
        Models trained again with another seed, as a control of these checks.
    permuted, sanity, faithfulness : bool
        Which checks of explanations are asked for.
    experiment_kinds : list of str
        Kinds of the experiments whose tables are made.
    trials : dict
        Trials of a search by model, over all atlases and folds.
    n_searches, n_choices, n_shared_choices : int
        Folds on which hyper-parameters are searched, searches whose choice is written, and models for which one choice
        is written for all datasets and atlases.
    """

    def __init__(self, run: Run, experiments: Sequence[str] = (), *, search: bool = False) -> None:
        config, scans = run.config, known_scans(run)
        experiments = () if search else experiments
        self.whole = not (experiments or search)
        self.phantom, self.downloaded, self.judged = run.dataset.source == "phantom", run.dataset.downloaded, run.judged
        self.n_scans, self.n_atlases = len(scans), len(config.atlases)
        self.n_downloads = len(scans) if self.downloaded else 0
        self.n_raw = sum(kind == "raw" for kind, _ in scans)
        self.n_anatomies = len({folder for kind, folder in scans if kind == "raw"})
        self.n_images = sum(kind != "series" for kind, _ in scans)

        trained: list[ModelRun] = []
        explained: dict[str, list[ModelRun]] = {kind: [] for kind in EXPLAINING}
        if self.whole:
            with_oracle = 2 if run.truth() else 1  # the oracle's runs are trained and explained as well
            trained = run.study.runs * with_oracle
            explained = dict.fromkeys(EXPLAINING, run.explained_runs() * with_oracle)
        for name in experiments:
            runs, experiment_kind = run.experiment_runs(name), run.experiments[name].kind
            trained = _joined(trained, runs)
            if experiment_kind in explained:
                explained[experiment_kind] = _joined(explained[experiment_kind], runs)
        checked = run.explained_runs() if self.whole else []
        mapped, timed = explained["brain_maps"], explained["task_timing"] if run.dataset.has_tasks else []
        regressed = explained["landmarks"]
        if not self.whole:  # maps are of regressions, and both of importance weights
            regressed = _joined(regressed, mapped)
        weighed = regressed if self.whole else _joined(regressed, timed)

        def n_folds(runs: Sequence[ModelRun]) -> int:
            return sum(len(run.folds_of(one.model)) for one in runs)

        def n_jobs(*, at_once: bool) -> int:
            """Return the number of jobs that train models of one kind: per run or, if trained apart, per fold."""
            runs = [one for one in trained if run.fitted_at_once(one.model) == at_once]
            return sum(1 if one.model in run.trained_together else len(run.folds_of(one.model)) for one in runs)

        self.n_trainings, self.n_fits = n_jobs(at_once=False), n_jobs(at_once=True)
        self.n_evaluated = len(trained) if self.whole else 0
        self.n_explained, self.n_mapped, self.n_timed, self.n_checked = map(len, (regressed, mapped, timed, checked))
        self.n_weighed_folds, self.n_explained_folds, self.n_checked_folds = map(n_folds, (weighed, regressed, checked))
        self.n_connected = len(run.connected_runs()) if self.whole else 0
        explain = config.explain
        self.n_inner = explain.inner_folds if regressed else 0
        self.n_retrained = len(checked) if explain.sanity.controlled and len(config.seeds) == 1 else 0
        self.permuted, self.sanity = explain.sanity.permuted, explain.sanity.asked
        self.faithfulness = explain.faithfulness.scans > 0
        self.truth = self.whole and bool(run.truth())
        self.experiment_kinds = [run.experiments[name].kind for name in experiments]

        self.trials: dict[str, int] = {}
        for name in run.searched if search else ():  # two schemes search a fold once
            folds = {fold for scheme in config.search.schemes for fold in config.folds_searched(name, scheme)}
            self.trials[name] = len(folds) * self.n_atlases * config.search.n_trials
        self.n_searches = sum(self.trials.values()) // config.search.n_trials
        self.n_choices = len(run.choices()) if search and not config.search.shared else 0
        self.n_shared_choices = len(run.choices()) if search and config.search.shared else 0


def _joined(runs: Sequence[ModelRun], more: Sequence[ModelRun]) -> list[ModelRun]:
    """Return the runs of both, each once."""
    return list(dict.fromkeys([*runs, *more]))


def listed_scans(run: Run) -> pd.DataFrame | None:
    """Return the usable scans as they were listed before the run, or else by its index; None before both."""
    return run.scans if run.planned is None and run.layout.scans.is_file() else run.planned


def known_scans(run: Run) -> list[tuple[str, str]]:
    """Return kind and anatomical folder of every scan; before the index exists, images are counted by their names."""
    if (scans := listed_scans(run)) is not None:
        return [(scan.kind, folder_of(str(scan.t1w))) for scan in scans.itertuples()]
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


def job_counts(plan: Plan) -> dict[str, int]:
    """Return the number of jobs of every kind, as the stages count them."""
    return {kind: count(plan) for stage in STAGES.values() for kind, count in stage.jobs.items()}


# ---- hours and gigabytes -----------------------------------------------------------------------
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


def estimate(run: Run, experiments: Sequence[str] = (), *, search: bool = False) -> Estimate:
    """Estimate a run from the costs of its stages and, where it has some, its own benchmark files.

    Parameters
    ----------
    run, experiments, search
        As in `Plan`.
    """
    plan = Plan(run, experiments, search=search)
    counts = job_counts(plan)
    seconds = sum(n * _seconds(run, kind, plan.n_scans) for kind, n in counts.items() if n)
    for name, n in plan.trials.items():  # whole trainings, with as many epochs as the middle of their range
        model = run.searched[name]
        epochs = spans_of(load_space(run.config.search.space), model).get("training.epochs")
        usual = model.training.epochs
        tried = usual if epochs is None else np.mean(epochs.choices or [epochs.low, epochs.high])
        kind = "train_features" if fitted_at_once(model.model) else "train_fold"
        seconds += n * _seconds(run, kind, plan.n_scans) * float(tried) / usual
    sizes = read_yaml(ROOT / "config/costs.yaml")["megabytes_per_scan"]
    per_scan = sizes["raw"] * (4 if run.config.preprocess.keep_bold else 1)
    downloads = source_of(run.dataset).download_bytes(run.dataset, run.config) if plan.downloaded else 0.0
    megabytes = downloads / 1e6 + plan.n_raw * per_scan + plan.n_scans * sizes["series"] * plan.n_atlases
    n_trials = sum(plan.trials.values())
    return Estimate(plan.n_scans, sum(counts.values()), megabytes / 1000, seconds / 3600, n_trials)


def _seconds(run: Run, kind: str, n_scans: int) -> float:
    """Return the seconds of one job: the median of this run's finished jobs, else the declared cost."""
    rule = "train_folds" if kind == "train_features" else kind
    files = sorted((run.layout.results / "benchmarks" / rule).glob("**/*.tsv"))
    if kind in ("train_fold", "train_features"):  # both rules train models of both kinds
        quick = {model for model in [*run.models, *run.experiment_models] if run.fitted_at_once(model)}
        files = [file for file in files if bool(quick & set(file.parts)) == (kind == "train_features")]
    measured: list[float] = []
    for file in files:
        with suppress(DataError):
            measured.append(read_benchmark(file)["s"])
        if len(measured) == MEASURED:
            break
    if measured:
        return float(np.median(measured))
    cost = next(stage.costs[kind] for stage in STAGES.values() if kind in stage.jobs)
    if run.dataset.source == "phantom":
        return cost.phantom + cost.phantom_scan * n_scans
    return cost.job + cost.scan * n_scans


def seconds_of_rules(run: Run) -> Callable[[str], float]:
    """Return a function of a rule's name: the expected seconds of one of its jobs, 0 if nothing is known."""
    kinds = {kind for stage in STAGES.values() for kind in stage.jobs}

    @cache
    def seconds(rule: str) -> float:
        kind = "train_features" if rule == "train_folds" else rule
        return _seconds(run, kind, len(known_scans(run))) if kind in kinds else 0.0

    return seconds


def announce_after_dry_run(run: Run, arguments: list[str]) -> None:
    """Print the estimate as the last line of a dry run: of the search or the experiments, where these are asked for."""
    if is_dry_run(arguments):
        asked = [name for name in run.experiments if name in arguments]
        asked += [name for target in ("paper", "extras") if target in arguments for name in run.asked(target)]
        asked, search = list(dict.fromkeys(asked)), "search" in arguments
        atexit.register(lambda: print(estimate(run, asked, search=search), file=sys.stderr, flush=True))


# ---- disk space for preprocessing --------------------------------------------------------------
def preprocessing_peak(run: Run, jobs: int) -> float:
    """Return the bytes that preprocessing will need at once, beyond what is on disk already.

    Parameters
    ----------
    run : Run
    jobs : int
        At once.

    Returns
    -------
    float
        Kept files of the scans still to be processed, and the largest 4D images and work files of `jobs` of them.
    """
    volumes = sorted(volumes_to_do(run), reverse=True)
    if not volumes:
        return 0.0
    settings = run.config.preprocess
    image = 0.0 if settings.output == "native" else 4 * FIELD / settings.resolution**3 * STORED
    kept = len(volumes) * read_yaml(ROOT / "config/costs.yaml")["megabytes_per_scan"]["raw"] * 1e6
    at_once = sum(volumes) if settings.keep_bold else sum(volumes[: WAITING * jobs])
    return kept + image * at_once + WORK * min(jobs, len(volumes))


def volumes_to_do(run: Run) -> list[int]:
    """Return the volumes of every raw scan not preprocessed yet; before scans are listed, those that headers state.

    A scan is done where there is what the run wants of it: the kept image, or else the series of the run's variant. Its
    own status shows neither: both output spaces share it, and it stays when the image is deleted.
    """
    dataset, volumes = run.dataset, []
    if (scans := listed_scans(run)) is not None:
        for scan in scans[scans["kind"] == "raw"].itertuples():
            bold, status = run.layout.bold(str(scan.scan_id)), run.layout.series_status(str(scan.scan_id))
            if run.config.preprocess.keep_bold and not run.layout.native:
                done = bold.is_file() and bold.stat().st_size > 0  # a scan that failed leaves it empty
            else:
                done = status.is_file() and read_json(status)["state"] == "ok"
            volumes += [] if done else [int(scan.n_volumes)]
        return volumes
    if dataset.source == "phantom" and dataset.simulate is not None:
        return [max(dataset.simulate.n_volumes)] * dataset.simulate.n_subjects
    for path in sorted(dataset.path.glob("sub-*/**/func/*_bold.nii*")) if dataset.source == "bids" else ():
        with suppress(DataError):  # the index will report it
            shape = check_image(path).shape
            volumes += [shape[3]] if len(shape) == 4 else []
    return volumes


def check_preprocessing_space(run: Run, arguments: list[str], jobs: int) -> None:
    """Refuse a run whose preprocessing the disk cannot hold; a dry run says what is needed.

    Parameters
    ----------
    run : Run
    arguments : list of str
        Of the `snakemake` command.
    jobs : int
        At once.

    Raises
    ------
    ConfigError
        States how much is needed, and where.
    """
    needed = preprocessing_peak(run, jobs) if WORKLESS.isdisjoint(arguments) else 0.0
    if not needed:
        return
    what = f"preprocessing with {jobs} job{'s' if jobs > 1 else ''} at once"
    require_space(run.layout.derivatives, needed, what, "results")
    if is_dry_run(arguments):
        free = gigabytes(free_bytes(run.layout.derivatives))
        print(f"Disk: {what} needs up to {gigabytes(needed)}; {free} are free.", file=sys.stderr)
