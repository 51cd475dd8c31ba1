"""Whether a run could start: what it finds, what it takes, and what is missing, each with the remedy (`bolt check`)."""

from __future__ import annotations

import os
import sys
import textwrap
from argparse import Namespace
from contextlib import chdir
from pathlib import Path
from typing import Any

from jinja2 import Template

from bolt.atlases.description import FETCH, atlas_folder, describe_atlas, find_image, verify_image
from bolt.datasets.participants import similar_sites_note
from bolt.evaluate.paired import FEWEST_FOLDS
from bolt.io.errors import BoltError, ConfigError, shorten_list
from bolt.io.files import read_yaml
from bolt.io.packages import refuse_other_versions
from bolt.io.places import folder_of_run, snakemake_command
from bolt.io.resource_errors import free_bytes, gigabytes
from bolt.models.suitability import minimum_volumes
from bolt.preprocess.templates import PHANTOM_SPACE
from bolt.workflow.checks import carried_atlases, checks
from bolt.workflow.estimate import estimate, known_scans, preprocessing_peak
from bolt.workflow.job import chosen_config
from bolt.workflow.run import Run
from bolt.workflow.stages.dataset import can_be_listed, list_scans
from bolt.workflow.start import read_run

TEMPLATE = Path(__file__).with_name("templates") / "check.txt"
WIDTH = 110
SHOWN = 8
"""Classes and sites that are listed; of more, the number."""
DRIVERS = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Devices of a GPU's driver: without any, torch need not be imported to learn that there is no GPU."""
PROCESSOR = Path("/proc/cpuinfo")
"""Linux's description of the processor; elsewhere there is none."""

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
        facts, found = readiness(run)
    print(file)
    previous = ""
    for name, text in facts:
        start = f"  {'' if name == previous else name:11} "
        previous = name
        wrapper = textwrap.TextWrapper(WIDTH, start, " " * len(start))
        wrapper.break_long_words = wrapper.break_on_hyphens = False  # names and paths can be copied
        print(wrapper.fill(text))
    print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    to_download = [problem for problem in found if FETCH.casefold() in problem.hint.casefold()]
    problems = [problem for problem in found if not (fetch and problem in to_download)]
    if not problems:
        return 0
    print("A run cannot start yet. To fix:", file=sys.stderr)
    for number, problem in enumerate(problems, 1):
        print(textwrap.indent(f"{number}. {problem}", "  "), file=sys.stderr)
    if to_download and not fetch:
        print(f"To download them: {download}", file=sys.stderr)
    return 2


def readiness(run: Run) -> tuple[list[tuple[str, str]], Problems]:
    """Return what a run would find, each by name and a line of text; and what keeps it from starting, with remedies.

    Nothing is written, downloaded or computed.
    """
    problems: Problems = []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for refuse in (refuse_other_versions, *checks(run, cores, [])):
        try:
            refuse()
        except BoltError as error:
            problems.append(error)
    found: dict[str, Any] = {"atlases": {}, "notes": [], "cores": cores}
    if run.dataset.source in ("bids", "phantom"):
        found["template_found"] = template_is_there(run)
    for look in (_look_at_data, _look_at_atlases, _look_at_machine):
        try:
            look(run, found, problems)
        except BoltError as error:
            if not problems:  # else it follows from one of them
                problems.append(error)
    explained = [len(run.folds_of(name)) for name in run.models if run.explained(name)]
    found |= {"run": run, "config": run.config, "dataset": run.dataset, "shown": SHOWN, "fewest_folds": FEWEST_FOLDS}
    found["few_folds"] = explained and min(explained) < FEWEST_FOLDS
    screen = Template(TEMPLATE.read_text(encoding="utf-8")).render(found)
    lines = (line.partition(" | ") for line in screen.splitlines() if line.strip())
    return [(name, text) for name, _, text in lines], list({str(one): one for one in problems}.values())


def _look_at_data(run: Run, found: dict[str, Any], problems: Problems) -> None:
    dataset, people = run.dataset, None
    found["listable"] = can_be_listed(run.study)
    if found["listable"]:
        learns = run.learns and not problems  # one of which may be that too few can be used to learn from
        scans = list_scans(run.study, learns=learns, minimum_volumes=minimum_volumes(run.config))
        unused = scans[scans.exclude_reason.notna()].groupby("exclude_reason", sort=False)
        run.planned = scans[scans.exclude_reason.isna()]
        people = run.planned.drop_duplicates("subject").reset_index(drop=True)
        found["unused"] = [
            (" ".join(str(reason).split()), shorten_list(group.scan_id.tolist(), SHOWN)) for reason, group in unused
        ]
        found["unknown_tr"] = dataset.ready_series and int(run.planned["tr"].isna().sum())
        found["scans"] = scans
    n_scans = len(known_scans(run))
    if people is None and run.layout.scans.is_file():
        people, found["listed"] = run.scans.drop_duplicates("subject"), run.layout.scans
    if n_scans == 0 and not problems:
        hint = "Check 'path' and the filters of the dataset's file"
        problems.append(ConfigError("no scans found", where=dataset.where, hint=hint))
    labels = None if people is None or people["label"].isna().all() else people["label"]
    sites = [] if people is None else [f"{name} {n}" for name, n in people["site"].value_counts().items()]
    measured = people is not None and "mean_fd" in people and people["mean_fd"].notna().any()
    given = {name: getattr(dataset, name) is not None for name in ("age", "sex", "site")}
    given["motion"] = measured or not dataset.ready_series or dataset.source == "abide"
    given["family"] = dataset.group is not None
    found |= {
        "n_scans": n_scans,
        "people": people,
        "labels": labels,
        "sites": sites if dataset.site is not None else [],
        "known": [name for name, is_known in given.items() if is_known],
        "missing": [name for name, is_known in given.items() if not is_known],
    }
    if people is not None and run.config.folds.scheme == "leave-site-out":
        found["alike"] = similar_sites_note(people["site"], dataset.institutions)


def _look_at_atlases(run: Run, found: dict[str, Any], problems: Problems) -> None:
    """Look for atlases; a missing image keeps a run from starting, unless the ROI series are ready."""
    paths, space = run.config.paths, run.study.space
    for name, place in run.config.atlas_places.items():
        about = describe_atlas(place)
        if about.kind == "spheres":
            found["atlases"][name] = "drawn from coordinates"
            continue
        try:
            image = find_image(about, atlas_folder(place), paths.atlas_dir, paths.templateflow_home, space)
            verify_image(about, image, space)
            found["atlases"][name] = image
        except BoltError as error:
            if run.dataset.ready_series:
                found["atlases"][name] = "no image, without which there are no maps on the brain (see `bolt atlases`)"
            else:
                found["atlases"][name] = "missing"
                problems.append(error)
    found["notes"] = [note.removeprefix("Note: ") for note in (*run.notes, *carried_atlases(run.study))]


def template_is_there(run: Run) -> bool:
    """Return whether the template needs not be fetched, by names alone: TemplateFlow takes seconds to import."""
    space, home = run.config.preprocess.space, run.config.paths.templateflow_home
    home = home or Path(os.environ.get("TEMPLATEFLOW_HOME") or Path.home() / ".cache" / "templateflow")
    if space == PHANTOM_SPACE or all(path.is_file() for path in run.layout.template_files.values()):
        return True
    for resolution in ("02", "01", "2", "1"):
        names = (f"tpl-{space}_res-{resolution}_{name}.nii.gz" for name in ("T1w", "desc-brain_mask"))
        files = [home / f"tpl-{space}".replace("_cohort-", "/cohort-") / name for name in names]
        if all(path.is_file() and path.stat().st_size for path in files):
            return True
    return False


def _look_at_machine(run: Run, found: dict[str, Any], problems: Problems) -> None:
    """Look at GPU, disk and time; torch, which takes seconds to import, is asked only where a GPU's driver is."""
    if run.config.device != "cpu" and any(map(os.path.exists, DRIVERS)):
        import torch

        found["torch"] = torch
        found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    processor = PROCESSOR.read_text(encoding="utf-8") if PROCESSOR.is_file() else ""
    amd = "AuthenticAMD" in processor and "avx512f" in processor and "mkl" not in os.environ.get("LD_PRELOAD", "")
    found["slow_mkl"] = run.learns and not found.get("gpu") and amd
    takes, cores = estimate(run), found["cores"]
    if takes.scans:
        found |= {"takes": takes, "hours": takes.core_hours / cores, "free": gigabytes(free_bytes(run.layout.results))}
        found["needed"] = gigabytes(max(preprocessing_peak(run, cores), takes.gigabytes * 1e9))
