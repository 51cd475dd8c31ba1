"""From raw 4D fMRI to the time points and regions that drive the prediction.

`bolt <command>` or `python -m bolt <command>`. Most commands are stages of the workflow (`bolt.workflow.stages`), whose
rules call them with the run's configuration (``--config``) and the scan, model or fold of the job.
"""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import os
import sys
from pathlib import Path

from bolt import __version__
from bolt.io.credentials import Masked, show_exception, without_credentials
from bolt.io.errors import BoltError
from bolt.io.places import refuse_other_planner
from bolt.workflow.stage import OF_RUN, Stage
from bolt.workflow.stages import STAGES

NUMBERS = ("seed", "fold", "inner")
"""Options of stages that are whole numbers."""
PATHS = {"ENOENT", "EISDIR", "ENOTDIR", "EEXIST", "EACCES", "EPERM", "EROFS", "ENAMETOOLONG", "ELOOP"}
"""What can be wrong with a path that was given on the command line."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status; a `BoltError` is one line, anything else a traceback."""
    gc.set_threshold(50_000, 20, 100)  # importing and drawing make many objects, little of them garbage
    options = _parser().parse_args(arguments)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Masked("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    sys.excepthook = show_exception
    _set_threads(options.threads)
    from bolt.cli import commands  # after the thread variables are set: numeric libraries read them on import
    from bolt.workflow.lock import wait_for_job

    wait_for_job()
    try:
        refuse_other_planner()
        commands.run(options)
    except BoltError as error:
        print(f"bolt {options.command}: {without_credentials(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        by_hand = options.command not in STAGES or vars(options).get("image") or vars(options).get("checkpoint")
        if not by_hand or error.filename is None or errno.errorcode.get(error.errno or 0) not in PATHS:
            raise
        print(f"bolt {options.command}: {error.filename}: {error.strerror}. Give another path.", file=sys.stderr)
        return 2
    return 0


def _set_threads(threads: int) -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(threads)
    os.environ.setdefault("NIPYPE_NO_ET", "1")  # nipype would ask a server for its newest version
    os.environ.setdefault("MPLBACKEND", "agg")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bolt", description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, help: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=help, description=help)
        subparser.add_argument("--threads", type=int, default=1)
        return subparser

    for stage in STAGES.values():
        _add_stage(command(stage.command, stage.help), stage)
    _add_check_folds(command("check-folds", "Audit any table of folds for leaks."))
    models = command("models", "Print the table of models, in Markdown.")
    models.description = "One row per file in config/models: its name is what 'models' of a configuration takes."
    models.add_argument("--into", type=Path, help="file that holds the table between markers: README.md")
    atlases = command("atlases", "Print the table of atlases: ROIs, spaces, and where each image is or how to get it.")
    atlases.add_argument("--config", type=Path, help="configuration whose 'paths' are searched for images")
    described = command("describe-atlas", "Describe an atlas by the ROI names in a file, for ready series.")
    described.add_argument("file", type=Path, help="table of labels (*_dseg.tsv), or series whose columns have names")
    described.add_argument("--out", type=Path, required=True, help="new folder, named as the atlas")
    command("where", "Print the folder that holds the Snakefile, config/ and atlases/.")
    return parser


def _add_stage(parser: argparse.ArgumentParser, stage: Stage) -> None:
    """Add the options of a stage: those that all stages share, and its own."""
    parser.add_argument("--config", type=Path, help="configuration of the run [config/config.yaml, or the shipped one]")
    for key in stage.keys:
        parser.add_argument(f"--{key}", required=True, type=int if key in NUMBERS else str)
    if stage.guarded:
        parser.add_argument("--attempt", type=int, default=0, help="which try this is; a crash in the last is recorded")
        parser.add_argument(
            "--limits", type=int, nargs=2, metavar=("MB", "MINUTES"), help="what the job asked a cluster for"
        )
    if stage.keys[:3] == OF_RUN or stage.name == "explain":
        parser.add_argument("--variant", help="which cache the model was trained on [<space>-<denoise>]")
    if stage.options is not None:
        stage.options(parser)


def _add_check_folds(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Exits with status 2 and one line where a subject, a family or a recording is on two sides of a split."
    )
    parser.add_argument(
        "table", type=Path, help="columns scan_id, fold, role (.tsv or .csv); and subject, group unless --scans"
    )
    parser.add_argument("--scans", type=Path, help="table of scans: scan_id, subject, group, bold")
    parser.add_argument("--cache", type=Path, nargs="+", default=[], help="caches whose series are compared by content")
    parser.add_argument("--files", action="store_true", help="compare the scans' files (column bold) by content")
    parser.add_argument("--sites", action="store_true", help="no site (column site) may be on two sides of a split")
