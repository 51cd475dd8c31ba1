"""From raw 4D fMRI to the time points and regions that drive the prediction.

`bolt <command>` or `python -m bolt <command>`. Commands for researchers are in ``commands.toml``. The others are stages
of the workflow (`bolt.workflow.stages`), whose rules call them with the run's configuration (``--config``) and the
scan, model or fold of the job.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import logging
import os
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from bolt import __version__
from bolt.io.errors import FINAL, BoltError, Masked, MemoryShortage, show_exception, without_credentials
from bolt.io.packages import name_extra
from bolt.io.places import ROOT, refuse_other_planner
from bolt.workflow.stage import OF_RUN, STAGES

COMMANDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
)
"""Every command but the stages, by name, in the order of `bolt --help`."""
OF_STUDIES = COMMANDS.pop("study")["groups"]
"""Options of the commands that describe a study, by heading."""
OF_STAGES = COMMANDS.pop("stage")
"""Options of all stages, of those that record their own failures, and of those of a run."""
GROUPS = tuple(dict.fromkeys(about["group"] for about in COMMANDS.values()))
"""Headings of `bolt --help`, in its order."""
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
    for word in (sys.argv[1:] if arguments is None else arguments)[:1]:
        if not word.startswith("-") and word not in {*COMMANDS, *(stage.command for stage in STAGES.values())}:
            near = "".join(f" (did you mean '{name}'?)" for name in get_close_matches(word, COMMANDS, 1))
            parser.error(f"no command '{word}'{near}. Commands: {', '.join(COMMANDS)}")
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
        module, _, name = COMMANDS[options.command]["function"].partition(":")
        return getattr(importlib.import_module(module), name)(options) or 0
    from bolt.io.resource_errors import explain_shortages
    from bolt.workflow.job import Job

    job = Job(options)
    with explain_shortages(job.layout.results, job.layout.work):
        STAGES[job.stage].work(job)
    return 0


def _named(text: str) -> tuple[str, Path]:
    """Return the name and the path of a file."""
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise argparse.ArgumentTypeError(f"NAME=FILE expected, found '{text}'")
    return name, Path(path)


TYPES = {"path": Path, "int": int, "float": float, "named": _named}
"""Types of options by their names in `commands.toml`."""


@cache
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
        add_arguments(subparser, OF_STAGES["all"])
        for key in stage.keys:
            subparser.add_argument(f"--{key}", required=True, type=int if key in NUMBERS else str)
        if stage.guarded:
            add_arguments(subparser, OF_STAGES["guarded"])
        if stage.keys[:3] == OF_RUN:
            add_arguments(subparser, OF_STAGES["of_run"])
        add_arguments(subparser, stage.options)
    for name, about in COMMANDS.items():
        add_options(command(name, about["help"], about.get("threads", False)), name)
    return parser


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add what `commands.toml` says of a command to its parser."""
    about = COMMANDS[command]
    parser.usage = about.get("usage")
    parser.description = about.get("description", about["help"])
    if "\n" in parser.description:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
    own, of_studies = about.get("groups", {}), OF_STUDIES if about.get("study") else {}
    groups = {None: about.get("options", {})}
    groups |= {heading: own.get(heading, {}) | of_studies.get(heading, {}) for heading in [*of_studies, *own]}
    for heading, options in groups.items():
        add_arguments(parser.add_argument_group(heading) if heading else parser, options)


def add_arguments(place: argparse._ActionsContainer, options: Mapping[str, Any]) -> None:
    """Add options to a parser or a group of its: by their names, what `add_argument` takes, or the help alone."""
    for names, option in options.items():
        arguments: dict[str, Any] = {"help": option} if isinstance(option, str) else dict(option)
        if "type" in arguments:
            arguments["type"] = TYPES[arguments["type"]]
        if arguments.get("action") == "version":
            arguments["version"] = __version__
        if isinstance(arguments.get("metavar"), list):
            arguments["metavar"] = tuple(arguments["metavar"])
        place.add_argument(*names.split(), **arguments)


def overview() -> str:
    """Return the lists of commands that `bolt --help` shows."""
    lines = []
    for group in GROUPS:
        listed = {name: about["help"] for name, about in COMMANDS.items() if about["group"] == group}
        lines += [f"{group}:", *_lines(listed), ""]
    lines += [
        "'bolt COMMAND --help' explains a command.",
        "'snakemake --snakefile $(bolt where)/Snakefile --cores 8 --configfile FILE' runs the workflow.",
    ]
    return "\n".join(lines)


def show_stages(options: argparse.Namespace) -> None:
    """Print every stage of the workflow in the order of the data, under the name of its module."""
    for module in dict.fromkeys(stage.module for stage in STAGES.values()):
        print(f"{module}:")
        print(*_lines({stage.command: stage.help for stage in STAGES.values() if stage.module == module}), sep="\n")


def show_root(options: argparse.Namespace) -> None:
    """Print the folder that holds the Snakefile."""
    print(ROOT)


def _lines(texts: dict[str, str]) -> Iterator[str]:
    """Yield names with their texts, which are wrapped and aligned."""
    for name, text in texts.items():
        yield textwrap.fill(text, 100, initial_indent=f"  {name:18} ", subsequent_indent=" " * 21)
