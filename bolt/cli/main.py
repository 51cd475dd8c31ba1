"""From raw 4D fMRI to the time points and regions that drive the prediction.

`bolt <command>` or `python -m bolt <command>`. Commands for researchers are in `bolt.cli.command_table`. The others are
stages of the workflow (`bolt.workflow.stages`), whose rules call them with the run's configuration (``--config``) and
the scan, model or fold of the job.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from bolt import __version__
from bolt.cli.command_table import COMMANDS, CONFIG_HELP, overview
from bolt.io.errors import FINAL, BoltError, Masked, MemoryShortage, show_exception, without_credentials
from bolt.io.packages import name_extra
from bolt.io.places import refuse_other_planner
from bolt.workflow.stage import OF_RUN
from bolt.workflow.stages import STAGES

NUMBERS = ("seed", "fold", "inner")
"""Options of stages that are whole numbers."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS")
"""Variables that limit the threads of libraries."""
FETCHING = ("resources", "download", None)
"""Stages whose errors a second attempt may not meet."""
PATHS = {"ENOENT", "EISDIR", "ENOTDIR", "EEXIST", "EACCES", "EPERM", "EROFS", "ENAMETOOLONG", "ELOOP"}
"""What can be wrong with a path that was given on the command line."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status; a `BoltError` is one line, anything else a traceback."""
    gc.set_threshold(50_000, 20, 100)  # importing and drawing make many objects, little of them garbage
    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:  # set by a shell that completes a command line (docs/environments.md)
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)  # answers it, and exits
    options = parser.parse_args(arguments)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Masked("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    sys.excepthook = show_exception
    for variable in THREADS:
        os.environ[variable] = str(options.threads)
    os.environ.setdefault("NIPYPE_NO_ET", "1")  # nipype would ask a server for its newest version
    os.environ.setdefault("MPLBACKEND", "agg")
    from bolt.workflow.lock import wait_for_job  # now: numeric libraries read the variables when they are imported

    wait_for_job()
    try:
        refuse_other_planner()
        with name_extra():
            return run(options)
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


def run(options: argparse.Namespace) -> int:
    """Do the work of a command or a stage, and return its exit status."""
    if not hasattr(options, "stage"):
        module, _, name = COMMANDS[options.command].function.partition(":")
        return getattr(importlib.import_module(module), name)(options) or 0
    from bolt.io.resource_errors import explain_shortages
    from bolt.workflow.job import Job

    job = Job(options)
    with explain_shortages(job.layout.results, job.layout.work):
        STAGES[job.stage].work(job)
    return 0


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
        subparser = command(stage.command, stage.help)
        subparser.set_defaults(stage=stage.name)
        subparser.add_argument("--config", type=Path, help=CONFIG_HELP)
        for key in stage.keys:
            subparser.add_argument(f"--{key}", required=True, type=int if key in NUMBERS else str)
        if stage.guarded:
            tries = "which try this is; a crash in the last is recorded"
            subparser.add_argument("--attempt", type=int, default=0, help=tries)
            limits = "what the job asked a cluster for"
            subparser.add_argument("--limits", type=int, nargs=2, metavar=("MB", "MINUTES"), help=limits)
        if stage.keys[:3] == OF_RUN:
            subparser.add_argument("--variant", help="which cache the model was trained on [the configured one]")
        if stage.options is not None:
            stage.options(subparser)
    for name, about in COMMANDS.items():
        subparser = command(name, about.help, about.threads)
        if about.options is not None:
            about.options(subparser)
    return parser
