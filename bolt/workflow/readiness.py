"""Whether a run could start: what it finds, what it takes, and what is missing, each with the remedy (`bolt check`)."""

from __future__ import annotations

import os
import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from bolt.atlases.description import FETCH, atlas_folder, describe_atlas, find_image, verify_image
from bolt.datasets.institutions import similar_sites_note
from bolt.evaluate.paired import FEWEST_FOLDS
from bolt.io.errors import BoltError, ConfigError, shorten_list
from bolt.io.files import read_yaml
from bolt.io.packages import refuse_other_versions
from bolt.io.places import folder_of_run, snakemake_command
from bolt.io.resource_errors import free_bytes, gigabytes, require_space
from bolt.preprocess.templates import PHANTOM_SPACE
from bolt.workflow.checks import carried_atlases
from bolt.workflow.estimate import estimate, known_scans, preprocessing_peak
from bolt.workflow.job import chosen_config
from bolt.workflow.run import Run
from bolt.workflow.stages.dataset import can_be_listed, list_scans
from bolt.workflow.start import checks, read_run

WIDTH = 110
SHOWN = 8
"""Classes and sites that are listed; of more, the number."""
MOST_REASONS = 30
"""Reasons why scans are not used that are shown."""
SOURCES = {
    "phantom": "simulated raw BIDS",
    "bids": "raw BIDS",
    "fmriprep": "fMRIPrep output",
    "series": "ready ROI series",
    "bids_series": "ready ROI series in BIDS derivatives",
    "abide": "ABIDE-I, downloaded by the run",
    "hcp": "HCP",
}
CONFOUNDS = ("age", "sex", "site")
"""Confounds that the dataset's file names; motion and families are known in other ways."""
DRIVERS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Devices of a GPU's driver: without any, torch need not be imported to learn that there is no GPU."""

Problems = list[BoltError]


def check(options: Namespace) -> int:
    """Run ``bolt check``: print what a run would find and take, and what is missing; return 0 if it could start."""
    file = chosen_config(options.config)
    status = show(file)
    if not status:
        print(f"A run can start: {snakemake_command(file)}   (-n lists its jobs)")
    return status


def show(file: Path, *, folder: Path | None = None, fetch: bool = False, learns: bool = True) -> int:
    """Print what the run of a configuration would find and take, and what is missing.

    Parameters
    ----------
    file : Path
    folder : Path, optional
        In which the run works; without one, that of the configuration (`bolt.io.places.folder_of_run`).
    fetch : bool
        What can be downloaded is not missing.
    learns : bool
        Whether models are trained; else the run ends with series.

    Returns
    -------
    int
        0 if the run could start, else 2.
    """
    folder = folder or folder_of_run(file)
    download, path = snakemake_command(file, "resources", folder=folder), file.absolute()
    with chdir(folder):
        run, notes = read_run(read_yaml(path), [path], () if learns else ("series",))
        ready = readiness(run)
    print(file)
    previous = ""
    for name, text in ready.facts:
        start = f"  {'' if name == previous else name:11} "
        previous = name
        wrapper = textwrap.TextWrapper(WIDTH, start, " " * len(start))
        wrapper.break_long_words = wrapper.break_on_hyphens = False  # names and paths can be copied
        print(wrapper.fill(text))
    print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    to_download = [problem for problem in ready.problems if FETCH.casefold() in problem.hint.casefold()]
    problems = [problem for problem in ready.problems if not (fetch and problem in to_download)]
    if not problems:
        return 0
    print("A run cannot start yet. To fix:", file=sys.stderr)
    for number, problem in enumerate(problems, 1):
        print(textwrap.indent(f"{number}. {problem}", "  "), file=sys.stderr)
    if to_download and not fetch:
        print(f"To download them: {download}", file=sys.stderr)
    return 2


class Readiness(NamedTuple):
    """What a run finds, each by name and a line of text; and what keeps it from starting, with remedies."""

    facts: list[tuple[str, str]]
    problems: Problems


def readiness(run: Run) -> Readiness:
    """Return what a run would find; nothing is written, downloaded or computed."""
    ready = Readiness([], [])
    for refuse in (refuse_other_versions, *checks(run)):
        try:
            refuse()
        except BoltError as error:
            ready.problems.append(error)
    for part in (_data, _models, _atlases, _templates, _resources):
        try:
            for fact in part(run, ready.problems):  # one by one, so that those before an error are kept
                ready.facts.append(fact)
        except BoltError as error:
            if not ready.problems:  # else it follows from one of them
                ready.problems.append(error)
    return ready


# ---- data ------------------------------------------------------------------------------------------
def _data(run: Run, problems: Problems) -> Iterator[tuple[str, str]]:
    dataset = run.dataset
    yield "dataset", f"{dataset.name}: {SOURCES[dataset.source]}{'' if dataset.downloaded else f' in {dataset.where}'}"
    people = None
    if can_be_listed(run.study):
        if run.tables_of_index:
            yield "table", str(run.subjects_table)
        learns = run.learns and not problems  # one of which may be that too few can be used to learn from
        scans = list_scans(run.study, learns=learns, minimum_volumes=run.minimum_volumes())
        unused = scans[scans.exclude_reason.notna()]
        run.planned = scans[scans.exclude_reason.isna()]
        people = run.planned.drop_duplicates("subject").reset_index(drop=True)
        yield "scans", f"{len(run.planned)} of {len(scans)}, of {len(people)} of {scans.subject.nunique()} subjects"
        for place, (reason, group) in enumerate(unused.groupby("exclude_reason", sort=False)):
            if place == MOST_REASONS:
                yield "not used", f"… and {len(unused)} in all; a run lists them in scans.tsv"
                break
            yield "not used", f"{shorten_list(group.scan_id.tolist(), SHOWN)}: {reason}"
        if len(run.planned) and dataset.ready_series and (unknown := int(run.planned["tr"].isna().sum())):
            what = "frequencies and times in seconds are left out, and bolt predict compares no repetition times"
            yield "note", f"TR unknown of {unknown} scans (column 'tr' of the table, or 'tr' of the dataset): {what}"
    n_scans = len(known_scans(run))
    if people is None:
        how = {"phantom": "to be simulated", "hcp": "by file names"}.get(dataset.source, "")
        how = "to be downloaded" if dataset.downloaded else how
        if run.layout.scans.is_file():
            people, how = run.scans.drop_duplicates("subject").reset_index(drop=True), f"listed in {run.layout.scans}"
        yield "scans", f"{n_scans} ({how})" if n_scans else "none found"
    if n_scans == 0 and not problems:
        hint = "Check 'path' and the filters of the dataset's file"
        problems.append(ConfigError("no scans found", where=dataset.where, hint=hint))
    yield "classes" if dataset.classes else "label", _label(run, people)
    if dataset.site is not None or people is not None:
        sites = pd.Series() if people is None else people["site"].dropna().value_counts()
        listed = ", ".join(f"{name} {n}" for name, n in list(sites.items())[:SHOWN])
        found = (
            f"{len(sites)}: {listed}{', …' if len(sites) > SHOWN else ''}" if len(sites) else f"column {dataset.site}"
        )
        yield "sites", "one, or not given ('site' in the dataset's file)" if dataset.site is None else found
    if people is not None and run.config.folds.scheme == "leave-site-out":
        note = similar_sites_note(people["site"], dataset.institutions)
        yield from [("note", note)] if note else []
    known = [name for name in CONFOUNDS if getattr(dataset, name) is not None]
    missing = [name for name in CONFOUNDS if name not in known]
    measured = people is not None and "mean_fd" in people and people["mean_fd"].notna().any()
    has_motion = measured or not dataset.ready_series or dataset.source == "abide"
    (known if has_motion else missing).append("motion")
    (known if dataset.group is not None else missing).append("family")
    yield "confounds", (", ".join(known) or "none known") + (f"; not given: {', '.join(missing)}" if missing else "")


def _label(run: Run, people: pd.DataFrame | None) -> str:
    dataset = run.dataset
    if dataset.label is None:
        return "none: the run ends with ROI series"
    source = f"(column {dataset.label})"
    if people is None or people["label"].isna().all():
        return f"{', '.join(dataset.classes or ['a number'])} {source}"
    if dataset.classes is None:
        return f"a number, known of {people['label'].notna().sum()} subjects {source}"
    counts = people["label"].value_counts()
    positive = f"; positive: {dataset.classes[-1]}" if len(dataset.classes) == 2 else ""
    return f"{', '.join(f'{name} {counts.get(name, 0)}' for name in dataset.classes)} {source}{positive}"


# ---- models, atlases, templates --------------------------------------------------------------------
def _models(run: Run, problems: Problems) -> Iterator[tuple[str, str]]:
    if not run.learns:
        return
    n_atlases, n_seeds = len(run.config.atlases), len(run.config.seeds)
    times = f"{n_atlases} atlas{'es' * (n_atlases > 1)}, {n_seeds} seed{'s' * (n_seeds > 1)}"
    for name, model in run.models.items():
        folds = len(run.folds_of(name))
        yield "model", f"{model.name}: {folds * n_atlases * n_seeds} trainings ({folds} folds, {times})"
    explained = [len(run.folds_of(name)) for name in run.models if run.explained(name)]
    if explained and min(explained) < FEWEST_FOLDS:
        what = "two checks of the explanation and the tests of models over folds"
        yield "note", f"{what} need {FEWEST_FOLDS} folds ('folds: outer', --folds {FEWEST_FOLDS})"


def _atlases(run: Run, problems: Problems) -> Iterator[tuple[str, str]]:
    """Describe every atlas; a missing image keeps a run from starting, unless the ROI series are ready."""
    paths, space = run.config.paths, run.study.space
    for name, place in run.config.atlas_places.items():
        about = describe_atlas(place)
        if about.kind == "spheres":
            yield "atlas", f"{name}: drawn from coordinates"
            continue
        try:
            image = find_image(about, atlas_folder(place), paths.atlas_dir, paths.templateflow_home, space)
            verify_image(about, image, space)
            yield "atlas", f"{name}: {image}"
        except BoltError as error:
            if run.dataset.ready_series:
                yield "atlas", f"{name}: no image, without which there are no maps on the brain (see `bolt atlases`)"
            else:
                yield "atlas", f"{name}: missing"
                problems.append(error)
    for note in (*run.notes, *carried_atlases(run.study)):
        yield "note", note.removeprefix("Note: ")


def _templates(run: Run, problems: Problems) -> Iterator[tuple[str, str]]:
    """Say whether the template has to be fetched, by names alone: TemplateFlow takes seconds to import."""
    if run.dataset.source not in ("bids", "phantom"):
        return
    space, home = run.config.preprocess.space, run.config.paths.templateflow_home
    home = home or Path(os.environ.get("TEMPLATEFLOW_HOME") or Path.home() / ".cache" / "templateflow")
    found = space == PHANTOM_SPACE or all(path.is_file() for path in run.layout.template_files.values())
    for resolution in ("02", "01"):
        names = (f"tpl-{space}_res-{resolution}_{name}.nii.gz" for name in ("T1w", "desc-brain_mask"))
        files = [home / f"tpl-{space}" / name for name in names]
        found = found or all(path.is_file() and path.stat().st_size for path in files)
    not_found = "not found; the run fetches it from TemplateFlow, as the target 'resources' does first"
    yield "template", f"{space}: {'found' if found else not_found}"


# ---- what it takes ---------------------------------------------------------------------------------
def _resources(run: Run, problems: Problems) -> Iterator[tuple[str, str]]:
    yield "GPU", _gpu(run.config.device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    folder, takes = run.layout.results, estimate(run)
    if not takes.scans:
        return
    peak = preprocessing_peak(run, cores)
    if peak:
        try:
            require_space(run.layout.derivatives, peak, f"preprocessing with {cores} jobs", "results")
        except ConfigError as error:
            problems.append(error)
    needed = f"up to {gigabytes(max(peak, takes.gigabytes * 1e9))} needed"
    yield "disk", f"{needed}, {gigabytes(free_bytes(folder))} free in {folder}"
    hours = takes.core_hours / cores
    here = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.0f} minutes"
    here += f" on the {cores} core{'s' * (cores > 1)} here"
    yield "time", f"{takes.jobs} jobs, about {here} ({takes.core_hours:.1f} core-hours; a GPU shortens training)"


def _gpu(device: str) -> str:
    if device == "cpu":
        return "not used: the configuration has 'device: cpu'"
    if not any(map(os.path.exists, DRIVERS)):
        return "none found; models train on the CPU"
    import torch  # seconds

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    build = f"torch for CUDA {torch.version.cuda}" if torch.version.cuda else "torch without CUDA"
    return f"present, but {build} cannot use it (docs/environments.md); models train on the CPU"
