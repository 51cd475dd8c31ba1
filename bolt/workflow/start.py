"""How a run of the workflow starts: its configuration is checked, and its jobs are told where they belong."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bolt.config import with_own_files
from bolt.experiments.checks import check_choices
from bolt.io.errors import BoltError
from bolt.io.files import read_yaml
from bolt.io.packages import name_extra
from bolt.io.places import PACKAGE, PLANNED_BY, import_path, use_writable_folders
from bolt.jobs.outcome import ATTEMPTS, LIMITED
from bolt.workflow.checks import carried_atlases, checks
from bolt.workflow.job import PREPARES
from bolt.workflow.lock import JOB
from bolt.workflow.run import Run

PREPARING = {"series", "exclusions", "warnings", "scans", "resources", "simulate", "index", "quality", "quality_pages"}
PREPARING |= {"derivatives", "templates", "cache"}
"""Rules, and files or folders below the results, that need no label and no folds."""


def start(
    raw: dict[str, Any],
    configfiles: Sequence[str | Path] = (),
    *,
    checked: bool = False,
    targets: Collection[str] = (),
    jobs: int = 1,
) -> Run:
    """Check the configuration before anything else; a problem ends Snakemake with one line.

    Parameters
    ----------
    raw : dict
        The merged configuration that Snakemake read.
    configfiles : sequence of path
        The files it was merged from: names of files beside them are the user's own (`bolt.config.with_own_files`).
    checked : bool
        Whether it is known to be right, as in a job on a cluster.
    targets : collection of str
        What the command line asks for; without any, everything: of a dataset without a label, its series.
    jobs : int
        How many may run at once.
    """
    try:
        with name_extra():
            run, notes = read_run(raw, configfiles, targets)
            use_writable_folders(run.layout.work)
            if checked:
                return run
            for note in (*notes, *run.notes, *carried_atlases(run.study)):
                print(note, file=sys.stderr)
            for check in checks(run, jobs, sys.argv):
                check()
            rows = [row for name in run.experiments_asked(targets) for row in run.experiment_rows[name]]
            if found := check_choices(run.config, rows):
                print(found, file=sys.stderr)
            return run
    except BoltError as error:
        sys.tracebacklimit = 0
        raise SystemExit(f"bolt: {error}") from None


def read_run(
    raw: dict[str, Any], configfiles: Sequence[str | Path] = (), targets: Collection[str] = ()
) -> tuple[Run, list[str]]:
    """Return the run that a configuration describes, and notes about the user's own files; arguments as of `start`."""
    for file in filter(os.path.isfile, configfiles):
        read_yaml(file)  # Snakemake, which has read them, keeps the last of two values
    raw, notes = with_own_files(raw, configfiles)
    run = Run(raw)
    results = run.layout.results.absolute()
    asked = set()
    for target in targets:
        path = Path(target).absolute()
        asked.add(path.relative_to(results).parts[0].split(".")[0] if results in path.parents else target)
    run.learns = not PREPARING.issuperset(asked) if targets else run.dataset.label is not None
    return run, notes


def shell_prefix(work: Path) -> str:
    """Return a prefix that lets every job find this package and no other.

    It holds also where Snakemake clears PYTHONPATH for a conda environment.

    Parameters
    ----------
    work : Path
        Folder of the run's intermediate files.
    """
    variables = {"PYTHONPATH": import_path(work), PLANNED_BY: PACKAGE, "TEMPLATEFLOW_AUTOUPDATE": "false", JOB: "1"}
    exported = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    return f"set -euo pipefail; export {exported}; "


def tell_jobs(retries: int, *, limited: bool, learns: bool) -> None:
    """Tell every job how often a crash is tried again, so that the last attempt can record it.

    Under a scheduler that kills what takes more than it was given, jobs are `limited` and watch themselves. Where a
    run `learns` nothing, jobs need no label and no folds.
    """
    os.environ[ATTEMPTS] = str(1 + retries)
    if limited:
        os.environ[LIMITED] = "1"
    if not learns:
        os.environ[PREPARES] = "1"


def use_own_interpreter() -> None:
    """Run jobs with the interpreter that runs Snakemake; a conda environment takes precedence over it."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
