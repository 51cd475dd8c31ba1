"""How a run of the workflow starts: its configuration is checked, and its jobs are told where they belong."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from bolt.config import ROOT
from bolt.experiments.checks import check_experiment, lacks_reference
from bolt.io.errors import BoltError, ConfigError
from bolt.jobs.limits import LIMITED
from bolt.jobs.outcome import ATTEMPTS
from bolt.training.tuning.space import check_search
from bolt.workflow.checks import check_download_space, check_names
from bolt.workflow.lock import JOB
from bolt.workflow.run import Run
from bolt.workflow.snakemake import is_dry_run


def start(raw: dict[str, Any], *, checked: bool = False) -> Run:
    """Check the configuration before anything else; a problem ends Snakemake with one line.

    Parameters
    ----------
    raw : dict
        The merged configuration that Snakemake read.
    checked : bool
        Whether it is known to be right, as in a job on a cluster. To check, all models are imported: seconds.
    """
    try:
        run = Run(raw)
        if not checked:
            _check(run)
        return run
    except BoltError as error:
        sys.tracebacklimit = 0
        raise SystemExit(f"bolt: {error}") from None


def _check(run: Run) -> None:
    check_names(run.config, run.dataset)
    check_search(run.config)
    for name, experiment in run.experiments.items():
        check_experiment(experiment, run.experiment_rows[name])
        if lacks_reference(experiment, run.experiment_rows[name]) and is_dry_run(sys.argv):
            print(f"Note: experiment '{name}' has no row '{experiment.reference}', so no tests.", file=sys.stderr)
    _check_download_space(run)


def _check_download_space(run: Run) -> None:
    """Refuse downloads that the disk cannot hold; of a dry run, warn."""
    try:
        check_download_space(run.config, run.dataset)
    except ConfigError as error:
        if not is_dry_run(sys.argv):
            raise
        print(f"Warning: {error}", file=sys.stderr)


def shell_prefix() -> str:
    """Let every job find this package, also where Snakemake clears PYTHONPATH for a conda environment."""
    exported = f"PYTHONPATH={shlex.quote(str(ROOT))} TEMPLATEFLOW_AUTOUPDATE=false {JOB}=1"
    return f"set -euo pipefail; export {exported}; "


def tell_jobs(retries: int, *, limited: bool) -> None:
    """Let every job know how often a crash is tried again, so that the last attempt can record it; and whether a
    scheduler kills what takes more than it was given."""
    os.environ[ATTEMPTS] = str(1 + retries)
    if limited:
        os.environ[LIMITED] = "1"


def use_own_interpreter() -> None:
    """Run jobs with the interpreter that runs Snakemake; a conda environment takes precedence over it."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
