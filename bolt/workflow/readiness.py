"""Whether a run could start: what it finds, what it takes, and what is missing, each with the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from bolt.atlases.description import atlas_folder, describe_atlas, find_image, verify_image
from bolt.datasets.institutions import similar_sites_note
from bolt.evaluate.paired import FEWEST_FOLDS
from bolt.io.disk_space import free_bytes, gigabytes, require_space
from bolt.io.errors import BoltError, ConfigError
from bolt.io.extras import refuse_other_versions
from bolt.io.text import shorten_list
from bolt.preprocess.templates import PHANTOM_SPACE
from bolt.workflow.checks import carried_atlases
from bolt.workflow.disk_check import preprocessing_peak
from bolt.workflow.estimate import Estimate, estimate, plan_of
from bolt.workflow.run import Run
from bolt.workflow.scan_list import can_be_listed, list_scans
from bolt.workflow.start import checks

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


@dataclass
class Readiness:
    """What a run finds, and what keeps it from starting.

    Attributes
    ----------
    facts : list of (str, str)
        What is found: its name and a line of text.
    problems : list of BoltError
        What is wrong, with remedies; without any, a run can start.
    """

    facts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[BoltError] = field(default_factory=list)

    def make(self, check: Callable[[], object]) -> None:
        """Make a check, and note what it refuses."""
        try:
            check()
        except BoltError as error:
            self.problems.append(error)

    def note(self, facts: Iterable[tuple[str, str]]) -> None:
        """Note facts one by one, so that those before an error are kept."""
        for fact in facts:
            self.facts.append(fact)


def readiness(run: Run) -> Readiness:
    """Return what a run would find; nothing is written, downloaded or computed."""
    ready = Readiness()
    ready.make(refuse_other_versions)
    for check in checks(run):
        ready.make(check)
    for part in (_data, _models, _atlases, _templates, _resources):
        try:
            ready.note(part(run, ready))
        except BoltError as error:
            if not ready.problems:  # else it follows from one of them
                ready.problems.append(error)
    return ready


# ---- data ------------------------------------------------------------------------------------------
def _data(run: Run, ready: Readiness) -> Iterator[tuple[str, str]]:
    dataset = run.dataset
    place = "" if dataset.downloaded else f" in {dataset.where}"
    yield "dataset", f"{dataset.name}: {SOURCES[dataset.source]}{place}"
    people = None
    if can_be_listed(run.study):
        if run.tables_of_index:
            yield "table", str(run.subjects_table)
        learns = run.learns and not ready.problems  # one of which may be that too few can be used to learn from
        scans = list_scans(run.study, learns=learns, minimum_volumes=run.minimum_volumes())
        run.planned = scans[scans.exclude_reason.isna()]
        people = run.planned.drop_duplicates("subject").reset_index(drop=True)
        yield "scans", f"{len(run.planned)} of {len(scans)}, of {len(people)} of {scans.subject.nunique()} subjects"
        yield from (("not used", line) for line in _not_used(scans))
        if len(run.planned) and dataset.ready_series and (unknown := int(run.planned["tr"].isna().sum())):
            what = "frequencies and times in seconds are left out, and bolt predict compares no repetition times"
            yield "note", f"TR unknown of {unknown} scans (column 'tr' of the table, or 'tr' of the dataset): {what}"
    n_scans = plan_of(run).n_scans
    if people is None:
        how = {"phantom": "to be simulated", "hcp": "by file names"}.get(dataset.source, "")
        how = "to be downloaded" if dataset.downloaded else how
        if run.layout.scans.is_file():
            people, how = run.scans.drop_duplicates("subject").reset_index(drop=True), f"listed in {run.layout.scans}"
        yield "scans", f"{n_scans} ({how})" if n_scans else "none found"
    if n_scans == 0 and not ready.problems:
        hint = "Check 'path' and the filters of the dataset's file"
        ready.problems.append(ConfigError("no scans found", where=dataset.where, hint=hint))
    yield "classes" if dataset.classes else "label", _label(run, people)
    if dataset.site is not None or people is not None:
        yield "sites", _counts(people["site"] if people is not None else None, known_column=dataset.site)
    if people is not None and run.config.folds.scheme == "leave-site-out":
        note = similar_sites_note(people["site"], dataset.institutions)
        yield from [("note", note)] if note else []
    yield "confounds", _confounds(run, people)


def _not_used(scans: pd.DataFrame) -> Iterator[str]:
    """Yield the scans that are not used, with the reason, as `scans.tsv` has it; those of one reason together."""
    unused = scans[scans.exclude_reason.notna()]
    for place, (reason, group) in enumerate(unused.groupby("exclude_reason", sort=False)):
        if place == MOST_REASONS:
            yield f"… and {len(unused)} in all; a run lists them in scans.tsv"
            return
        yield f"{shorten_list(group.scan_id.tolist(), SHOWN)}: {reason}"


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


def _counts(values: pd.Series | None, known_column: str | None) -> str:
    """Return how many subjects there are of each value."""
    if known_column is None:
        return "one, or not given ('site' in the dataset's file)"
    counts = None if values is None else values.dropna().value_counts()
    if counts is None or counts.empty:
        return f"column {known_column}"
    listed = [f"{name} {n}" for name, n in counts.items()]
    return f"{len(counts)}: {', '.join(listed[:SHOWN])}" + (", …" if len(listed) > SHOWN else "")


def _confounds(run: Run, people: pd.DataFrame | None) -> str:
    dataset = run.dataset
    known = [name for name in CONFOUNDS if getattr(dataset, name) is not None]
    missing = [name for name in CONFOUNDS if name not in known]
    has_motion = not dataset.ready_series or dataset.source == "abide"
    if people is not None and "mean_fd" in people:
        has_motion |= bool(people["mean_fd"].notna().any())
    (known if has_motion else missing).append("motion")
    (known if dataset.group is not None else missing).append("family")
    parts = [", ".join(known) or "none known", f"not given: {', '.join(missing)}" if missing else ""]
    return "; ".join(filter(None, parts))


# ---- models, atlases, templates --------------------------------------------------------------------
def _models(run: Run, ready: Readiness) -> Iterator[tuple[str, str]]:
    if not run.learns:
        return
    config = run.config
    times = f"{len(config.atlases)} atlas{'es' * (len(config.atlases) > 1)}, {len(config.seeds)} seed"
    times += "s" * (len(config.seeds) > 1)
    for name, model in run.models.items():
        folds = len(run.folds_of(name))
        n = folds * len(config.atlases) * len(config.seeds)
        yield "model", f"{model.name}: {n} trainings ({folds} folds, {times})"
    explained = [len(run.folds_of(name)) for name in run.models if run.explained(name)]
    if explained and min(explained) < FEWEST_FOLDS:
        what = "two checks of the explanation and the tests of models over folds"
        yield "note", f"{what} need {FEWEST_FOLDS} folds ('folds: outer', --folds {FEWEST_FOLDS})"


def _atlases(run: Run, ready: Readiness) -> Iterator[tuple[str, str]]:
    """Describe every atlas; a missing image keeps a run from starting, unless the ROI series are ready."""
    for name, place in run.config.atlas_places.items():
        about = describe_atlas(place)
        if about.kind == "spheres":
            yield "atlas", f"{name}: drawn from coordinates"
            continue
        try:
            image = find_image(about, atlas_folder(place), *_homes(run), run.study.space)
            verify_image(about, image, run.study.space)
            yield "atlas", f"{name}: {image}"
        except BoltError as error:
            if run.dataset.ready_series:
                yield "atlas", f"{name}: no image, without which there are no maps on the brain (see `bolt atlases`)"
            else:
                yield "atlas", f"{name}: missing"
                ready.problems.append(error)
    for note in (*run.notes, *carried_atlases(run.study)):
        yield "note", note.removeprefix("Note: ")


def _homes(run: Run) -> tuple[Path | None, Path | None]:
    return run.config.paths.atlas_dir, run.config.paths.templateflow_home


def _templates(run: Run, ready: Readiness) -> Iterator[tuple[str, str]]:
    if run.dataset.source not in ("bids", "phantom"):
        return
    space, staged = run.config.preprocess.space, all(path.is_file() for path in run.layout.template_files.values())
    if staged or _has_template(space, run.config.paths.templateflow_home):
        yield "template", f"{space}: found"
    else:
        yield (
            "template",
            f"{space}: not found; the run fetches it from TemplateFlow, as the target 'resources' does first",
        )


def _has_template(space: str, home: Path | None) -> bool:
    """Return whether no file of a space has to be fetched, by names alone: TemplateFlow takes seconds to import."""
    home = home or Path(os.environ.get("TEMPLATEFLOW_HOME") or Path.home() / ".cache" / "templateflow")
    names = ("T1w", "desc-brain_mask")
    files = {r: [home / f"tpl-{space}/tpl-{space}_res-{r}_{name}.nii.gz" for name in names] for r in ("02", "01")}
    fetched = (all(path.is_file() and path.stat().st_size for path in paths) for paths in files.values())
    return space == PHANTOM_SPACE or any(fetched)


# ---- what it takes ---------------------------------------------------------------------------------
def _resources(run: Run, ready: Readiness) -> Iterator[tuple[str, str]]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield "GPU", _gpu(run.config.device)
    folder, takes = run.layout.results, estimate(run)
    if not takes.scans:
        return
    peak = preprocessing_peak(run, cores)
    if peak:
        ready.make(lambda: require_space(run.layout.derivatives, peak, f"preprocessing with {cores} jobs", "results"))
    needed = f"up to {gigabytes(max(peak, takes.gigabytes * 1e9))} needed"
    yield "disk", f"{needed}, {gigabytes(free_bytes(folder))} free in {folder}"
    yield "time", _time(takes, cores)


def _time(takes: Estimate, cores: int) -> str:
    hours = takes.core_hours / cores
    here = f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.0f} minutes"
    where = f"on the {cores} core{'s' * (cores > 1)} here"
    return f"{takes.jobs} jobs, about {here} {where} ({takes.core_hours:.1f} core-hours; a GPU shortens training)"


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
