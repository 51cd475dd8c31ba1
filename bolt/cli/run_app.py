"""The command ``bolt run``: the whole workflow with the arguments of a BIDS App.

https://bids-apps.neuroimaging.io: ``bolt run BIDS_DIR OUTPUT_DIR participant`` makes the series of some or all
participants, ``… group`` does what is left, trains and reports. Both write a configuration into the output folder and
call Snakemake there, so whatever was made before is not made again.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from bolt.cli.new_study import Wishes, name_of, read_filter, write_study
from bolt.cohort.quality import is_judged
from bolt.config import ROOT, Config, Dataset
from bolt.config.layout import Layout
from bolt.config.study import Study
from bolt.datasets import TEXT_COLUMNS
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_table
from bolt.io.packages import name_extra
from bolt.io.places import use_writable_folders
from bolt.workflow.lock import SHARED

log = logging.getLogger("bolt")


def run_app(options: argparse.Namespace) -> int:
    """Run ``bolt run BIDS_DIR OUTPUT_DIR LEVEL`` and return Snakemake's exit status.

    Parameters
    ----------
    options : Namespace
        bids_dir, output_dir, level, and the options of a study in ``commands.toml``.

    Raises
    ------
    ConfigError, DataError
        As `bolt.cli.new_study.write_study`; participants without a usable scan.
    """
    if options.level == "group" and options.label is None:
        what = "the group level predicts a label"
        raise ConfigError(what, hint="Name its column: --label diagnosis (or run 'participant')")
    for name, number in (("--n-cpus", options.n_cpus), ("--mem-mb", options.mem_mb)):
        if number is not None and number < 1:
            raise ConfigError(f"{name} is {number}", hint="Give 1 or more")
    if options.output_dir.resolve() == options.bids_dir.resolve():
        raise ConfigError("the output folder is the input folder", hint="Give another output folder")
    wishes = Wishes.of(options)
    if options.bids_filter_file is not None:
        given = {key: values for key, values in wishes.filters.items() if values}
        wishes.filters = read_filter(options.bids_filter_file) | given
    if options.work_dir is not None:
        wishes.settings["paths"] = wishes.settings.get("paths", {}) | {"work": str(options.work_dir.resolve())}
    if options.level == "group":
        wishes.participants = options.participant_label or []
    name = options.name or name_of(options.bids_dir)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="bolt-") as scratch:
        place, config, dataset = write_study(
            options.output_dir, name, options.bids_dir, wishes, scratch=Path(scratch) if options.dry_run else None
        )
        return _run_level(options, place, config, dataset)


def _run_level(options: argparse.Namespace, place: Path, config: Config, dataset: Dataset) -> int:
    """Run the level that was asked for, of the configuration in a file."""
    layout, learns = Layout(config, dataset.ready_series), options.level == "group"
    if options.dry_run:
        from bolt.workflow.readiness import show  # which imports much that a run does not need

        if status := show(place, folder=options.output_dir, fetch=options.fetch, learns=learns):
            return status
    if options.fetch and (status := _snakemake(options, place, ["resources"])):
        return status
    if learns:
        status = _snakemake(options, place, [])
        if not status and not options.dry_run:
            log.info("the report: %s", options.output_dir / layout.report)
        return status
    if not options.participant_label:
        pages = ["quality_pages"] if is_judged(config, dataset) else []
        return _snakemake(options, place, ["series", *pages])
    return _participants(options, place, config, dataset, layout)


def _participants(options: argparse.Namespace, place: Path, config: Config, dataset: Dataset, layout: Layout) -> int:
    """Make the series and pages of some participants, beside other such runs."""
    scans_table = options.output_dir / layout.scans
    status = _snakemake(options, place, [str(layout.scans)], shared=True)
    if status or (options.dry_run and not scans_table.is_file()):
        return status
    scans = read_table(scans_table, text=TEXT_COLUMNS)
    names = {name.removeprefix("sub-") for name in options.participant_label}
    subjects = scans["subject"].str.removeprefix("sub-")  # tables of series write them with or without
    theirs = scans[subjects.isin(names)]
    unknown = sorted(names - set(subjects))
    if unknown:
        what = f"--participant-label {unknown[0]}: no such participant"
        raise ConfigError(what, where=scans_table, hint="See its column 'subject'")
    usable = theirs[theirs["exclude_reason"].isna()]
    for scan in theirs[theirs["exclude_reason"].notna()].itertuples():
        log.warning("excluded: %s: %s", scan.scan_id, scan.exclude_reason)
    if usable.empty:
        raise DataError("no usable scan of these participants", where=scans_table, hint="See the reasons above")
    if dataset.ready_series:
        return 0
    status = _snakemake(options, place, [str(layout.series_status(scan)) for scan in usable["scan_id"]], shared=True)
    if status or options.dry_run:
        return status
    from bolt.report.pages.subjects import write_some_subjects

    with chdir(options.output_dir):  # where the paths of the configuration lead from
        pages = write_some_subjects(Study(config, dataset), set(theirs["subject"]))
    for page in pages:
        log.info("the quality of its images: %s", options.output_dir / page)
    return 0


def _snakemake(options: argparse.Namespace, place: Path, targets: list[str], *, shared: bool = False) -> int:
    """Run the workflow in the output folder; with `shared`, other participants may be made at the same time."""
    more = ["--resources", f"mem_mb={options.mem_mb}"] if options.mem_mb else []
    if options.profile:  # one that comes with BolT, or a path
        places = [ROOT / "workflow/profiles" / options.profile, ROOT / "profiles" / options.profile, options.profile]
        folder = next((place for place in places if Path(place, "config.yaml").is_file()), None)
        if folder is None:
            hint = "Give default, slurm, or a folder with config.yaml"
            raise ConfigError(f"--profile {options.profile}: no such profile", hint=hint)
        more += ["--workflow-profile", str(folder)]
    more += ["--dry-run", "--quiet", "rules"] if options.dry_run else []
    return call_workflow(options.output_dir, place, [*targets, *more], options.n_cpus, shared=shared)


def call_workflow(
    folder: Path, configuration: Path, arguments: Sequence[str], cores: int | None, *, shared: bool = False
) -> int:
    """Call Snakemake in a folder, and return its exit status; all cores by default."""
    with name_extra():
        if find_spec("snakemake") is None:
            raise ModuleNotFoundError(name="snakemake")
    use_writable_folders(folder / "work")
    command = [sys.executable, "-m", "snakemake", *arguments, "--snakefile", str(ROOT / "Snakefile")]
    command += ["--directory", str(folder), "--configfile", str(configuration.resolve())]
    command += ["--cores", str(cores or os.cpu_count() or 1)]
    log.info("%s", shlex.join(command))
    environment = os.environ | ({SHARED: "1"} if shared else {})
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    except KeyboardInterrupt:  # Snakemake, which got it too, has said how to resume
        return 130
