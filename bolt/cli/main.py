"""From raw 4D fMRI to the time points and regions that drive the prediction.

`bolt <command>` or `python -m bolt <command>`. Commands for researchers are in `bolt.cli.command_table`. The others are
stages of the workflow (`bolt.workflow.stages`), whose rules call them with the run's configuration (``--config``) and
the scan, model or fold of the job.
"""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from bolt import __version__
from bolt.cli.command_table import COMMANDS, overview
from bolt.io.credentials import Masked, show_exception, without_credentials
from bolt.io.errors import FINAL, BoltError, MemoryShortage
from bolt.io.extras import name_extra
from bolt.io.places import refuse_other_planner
from bolt.workflow.stage import OF_RUN, Stage
from bolt.workflow.stages import STAGES

NUMBERS = ("seed", "fold", "inner")
"""Options of stages that are whole numbers."""
FETCHING = ("resources", "download", None)
"""Stages whose errors a second attempt may not meet."""
PATHS = {"ENOENT", "EISDIR", "ENOTDIR", "EEXIST", "EACCES", "EPERM", "EROFS", "ENAMETOOLONG", "ELOOP"}
"""What can be wrong with a path that was given on the command line."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status; a `BoltError` is one line, anything else a traceback."""
    gc.set_threshold(50_000, 20, 100)  # importing and drawing make many objects, little of them garbage
    parser = make_parser()
    _complete(parser)
    options = parser.parse_args(arguments)
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
        with name_extra():
            return commands.run(options)
    except BoltError as error:
        print(f"bolt {options.command}: {without_credentials(str(error))}", file=sys.stderr)
        if getattr(options, "stage", None) not in FETCHING and not isinstance(error, MemoryShortage):
            print(FINAL, file=sys.stderr)
        return 2
    except BrokenPipeError:
        if hasattr(options, "stage"):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as with `bolt models | head`
        return 0
    except OSError as error:
        if hasattr(options, "stage") or error.filename is None or errno.errorcode.get(error.errno or 0) not in PATHS:
            raise
        print(f"bolt {options.command}: {error.filename}: {error.strerror}. Give another path.", file=sys.stderr)
        return 2


def _set_threads(threads: int) -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(threads)
    os.environ.setdefault("NIPYPE_NO_ET", "1")  # nipype would ask a server for its newest version
    os.environ.setdefault("MPLBACKEND", "agg")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands and stages."""
    parser = argparse.ArgumentParser(
        prog="bolt",
        usage="bolt [-h] [--version] COMMAND ...",
        description=__doc__.splitlines()[0],
        epilog=overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        prog="bolt", dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS
    )

    def command(name: str, help: str, threads: bool = True) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, description=help)
        about_threads = "of the processor [1]" if threads else argparse.SUPPRESS
        subparser.add_argument("--threads", type=int, default=1, help=about_threads)
        return subparser

    for stage in STAGES.values():
        _add_stage(command(stage.command, stage.help), stage)
    for name, about in COMMANDS.items():
        subparser = command(name, about.help, about.threads)
        if about.options is not None:
            about.options(subparser)
    return parser


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that completes a command line, and exit; see docs/environments.md."""
    if "_ARGCOMPLETE" in os.environ:  # set by the shell, which argcomplete has told to call this program
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)


def _add_stage(parser: argparse.ArgumentParser, stage: Stage) -> None:
    """Add the options of a stage: those that all stages share, and its own."""
    parser.set_defaults(stage=stage.name)
    parser.add_argument("--config", type=Path, help="configuration of the run [config/config.yaml, or the shipped one]")
    for key in stage.keys:
        parser.add_argument(f"--{key}", required=True, type=int if key in NUMBERS else str)
    if stage.guarded:
        parser.add_argument("--attempt", type=int, default=0, help="which try this is; a crash in the last is recorded")
        parser.add_argument(
            "--limits", type=int, nargs=2, metavar=("MB", "MINUTES"), help="what the job asked a cluster for"
        )
    if stage.keys[:3] == OF_RUN:
        parser.add_argument("--variant", help="which cache the model was trained on [the configured one]")
    if stage.options is not None:
        stage.options(parser)
