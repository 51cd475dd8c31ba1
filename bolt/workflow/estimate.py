"""What a run takes: scans, jobs, disk and hours, shown by `bolt check` and dry runs; a disk too small is refused."""

from __future__ import annotations

import atexit
import sys
from collections import Counter
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
from bolt.io.volumes import check_image
from bolt.jobs.ledger import read_benchmark
from bolt.models.registry import fitted_at_once
from bolt.training.space import spans_of
from bolt.workflow.lock import LOOKING
from bolt.workflow.run import Run
from bolt.workflow.scan_files import batches
from bolt.workflow.snakemake import is_dry_run
from bolt.workflow.stage import COSTS

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


def job_counts(run: Run, experiments: Sequence[str] = (), *, search: bool = False) -> dict[str, int]:
    """Return the number of jobs of every kind that a run has: of everything configured, or of a part of it.

    Parameters
    ----------
    run : Run
    experiments : sequence of str
        What is made of them, in place of the configured models' runs and the report.
    search : bool
        What the target `search` makes, in place of both.
    """
    config, explain, scans, n_atlases = run.config, run.config.explain, known_scans(run), len(run.config.atlases)
    experiments = () if search else experiments
    whole = not (experiments or search)
    trained: list[ModelRun] = []
    explained: dict[str, list[ModelRun]] = {kind: [] for kind in EXPLAINING}
    if whole:
        with_oracle = 2 if run.truth() else 1  # the oracle's runs are trained and explained as well, but not checked
        trained = run.study.runs * with_oracle
        explained = dict.fromkeys(EXPLAINING, run.explained_runs() * with_oracle)
    for name in experiments:
        runs, experiment_kind = run.experiment_runs(name), run.experiments[name].kind
        trained = _joined(trained, runs)
        if experiment_kind in explained:
            explained[experiment_kind] = _joined(explained[experiment_kind], runs)
    checked, truth = (run.explained_runs(), run.truth()) if whole else ([], [])
    mapped, timed = explained["brain_maps"], explained["task_timing"] if run.dataset.has_tasks else []
    regressed = weighed = explained["landmarks"]
    if not whole:  # maps are of regressions, and both of importance weights
        regressed = _joined(regressed, mapped)
        weighed = _joined(regressed, timed)

    def n_folds(runs: Sequence[ModelRun]) -> int:
        return sum(len(run.folds_of(one.model)) for one in runs)

    def n_trainings(*, at_once: bool) -> int:
        """Return the number of jobs that train models of one kind: per run or, if trained apart, per fold."""
        runs = [one for one in trained if run.fitted_at_once(one.model) == at_once]
        return sum(1 if one.model in run.trained_together else len(run.folds_of(one.model)) for one in runs)

    kinds = Counter(run.experiments[name].kind for name in experiments)
    n_raw, n_inner = sum(kind == "raw" for kind, _ in scans), explain.inner_folds if regressed else 0
    choices = len(run.choices()) if search else 0
    return {
        "simulate": int(run.dataset.source == "phantom"),
        "download": len(scans) * (run.dataset.downloaded and not run.dataset.ready_series),
        "download_series": batches(len(scans)) * (run.dataset.downloaded and run.dataset.ready_series),
        "download_table": int(run.dataset.downloaded),
        "template": int(n_raw > 0),
        "index": 1,
        "anatomical": len({folder for kind, folder in scans if kind == "raw"}),
        "functional": n_raw,
        "parcellate": sum(kind != "series" for kind, _ in scans),
        "quality": int(run.judged),
        "quality_pages": int(run.judged and whole),
        "rois": n_atlases,
        "cache": n_atlases,
        "exclusions": 1,
        "folds": 1,
        "oracle_cache": n_atlases * len(truth),
        "train_fold": n_trainings(at_once=False),
        "train_features": n_trainings(at_once=True),
        "evaluate": len(trained) * whole,
        "inner_folds": int(n_inner > 0),
        "train_inner": n_folds(regressed) * n_inner,
        "search_fold": sum(trials_of(run).values()) // config.search.n_trials if search else 0,
        "choose": 0 if config.search.shared else choices,
        "choose_shared": choices if config.search.shared else 0,
        "explain_fold": n_folds(weighed),
        "explain_inner": n_folds(regressed) * (n_inner > 0),
        "regress_landmarks": len(regressed),
        "regions": len(mapped),
        "connections": len(run.connected_runs()) * whole,
        "tasks": len(timed),
        "train_permuted": len(checked) * explain.sanity.permuted,
        "train_again": len(checked) * (explain.sanity.controlled and len(config.seeds) == 1),
        "sanity": len(checked) * explain.sanity.asked,
        "faithfulness_fold": n_folds(checked) * (explain.faithfulness.scans > 0),
        "faithfulness": len(checked) * (explain.faithfulness.scans > 0),
        "stability": len(checked),
        "experiment": len(experiments),
        "measure_complexity": kinds["complexity"] * n_atlases,
        "take_spectra": kinds["spectra"] * n_atlases,
        "truth": len(truth),
        "explanation": int(whole and bool(run.connected_runs())),
        "report": int(whole),
    }


def trials_of(run: Run) -> dict[str, int]:
    """Return the trials of a search by model, over all atlases and folds; two schemes search a fold once."""
    config, trials = run.config, {}
    for name in run.searched:
        folds = {fold for scheme in config.search.schemes for fold in config.folds_searched(name, scheme)}
        trials[name] = len(folds) * len(config.atlases) * config.search.n_trials
    return trials


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
        hours = self.core_hours
        time = f"{hours:.1f} core-hours" if hours >= 1 else f"{max(1, hours * 60):.0f} core-min"
        ends = "divide by the number of cores; a GPU shortens training"
        size = f"{f'about {self.gigabytes:.1f}' if self.gigabytes >= 0.1 else 'less than 0.1'} GB of disk and"
        if self.trials:
            what = f"The search: {self.scans} scans, {self.jobs} jobs, {self.trials} trials, {size} up to {time}"
            return f"{what} ({ends}; unpromising trials end early)."
        return f"A complete run: {self.scans} scans, {self.jobs} jobs, {size} {time} ({ends})."


def estimate(run: Run, experiments: Sequence[str] = (), *, search: bool = False) -> Estimate:
    """Estimate a run from the costs of its stages and, where it has some, its own benchmark files.

    Parameters
    ----------
    run, experiments, search
        As in `job_counts`.
    """
    counts, scans = job_counts(run, experiments, search=search), known_scans(run)
    trials = trials_of(run) if search else {}
    seconds = sum(n * _seconds(run, kind, len(scans)) for kind, n in counts.items() if n)
    for name, n in trials.items():  # whole trainings, with as many epochs as the middle of their range
        model = run.searched[name]
        epochs = spans_of(load_space(run.config.search.space), model).get("training.epochs")
        usual = model.training.epochs
        tried = usual if epochs is None else np.mean(epochs.choices or [epochs.low, epochs.high])
        kind = "train_features" if fitted_at_once(model.model) else "train_fold"
        seconds += n * _seconds(run, kind, len(scans)) * float(tried) / usual
    sizes = read_yaml(ROOT / "config/costs.yaml")["megabytes_per_scan"]
    per_scan = sizes["raw"] * (4 if run.config.preprocess.keep_bold else 1)
    downloads = source_of(run.dataset).download_bytes(run.dataset, run.config) if run.dataset.downloaded else 0.0
    megabytes = downloads / 1e6 + counts["functional"] * per_scan + len(scans) * sizes["series"] * counts["cache"]
    return Estimate(len(scans), sum(counts.values()), megabytes / 1000, seconds / 3600, sum(trials.values()))


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
    cost = COSTS[kind]
    if run.dataset.source == "phantom":
        return cost.phantom + cost.phantom_scan * n_scans
    return cost.job + cost.scan * n_scans


def seconds_of_rules(run: Run) -> Callable[[str], float]:
    """Return a function of a rule's name: the expected seconds of one of its jobs, 0 if nothing is known."""

    @cache
    def seconds(rule: str) -> float:
        kind = "train_features" if rule == "train_folds" else rule
        return _seconds(run, kind, len(known_scans(run))) if kind in COSTS else 0.0

    return seconds


def announce_after_dry_run(run: Run, arguments: list[str]) -> None:
    """Print the estimate as the last line of a dry run: of the search or the experiments, where these are asked for."""
    if is_dry_run(arguments):
        asked, search = run.experiments_asked(arguments), "search" in arguments
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

    A scan is done where there is the kept image, of which series are made, or the series of the run's variant, for
    which no image is made again. Its own status shows neither: both output spaces share it, and it stays without image.
    """
    dataset, volumes = run.dataset, []
    if (scans := listed_scans(run)) is not None:
        for scan in scans[scans["kind"] == "raw"].itertuples():
            bold, status = run.layout.bold(str(scan.scan_id)), run.layout.series_status(str(scan.scan_id))
            there = run.config.preprocess.keep_bold and not run.layout.native and bold.is_file()
            kept = there and bold.stat().st_size > 0  # a scan that failed leaves it empty
            done = kept or (status.is_file() and read_json(status)["state"] == "ok")
            volumes += [] if done else [int(scan.n_volumes)]
        return volumes
    if dataset.source == "phantom" and dataset.simulate is not None:
        return [max(dataset.simulate.n_volumes)] * dataset.simulate.n_subjects
    for path in sorted(dataset.path.glob("sub-*/**/func/*_bold.nii*")) if dataset.source == "bids" else ():
        with suppress(DataError):  # the index will report it
            shape = check_image(path).shape
            volumes += [shape[3]] if len(shape) == 4 else []
    return volumes
