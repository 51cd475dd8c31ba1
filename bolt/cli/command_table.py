"""The table of commands: those for researchers, tables and audits, and the stages of the workflow.

Importing it is cheap; the module that does a command's work is imported when the command runs.
"""

from __future__ import annotations

import argparse
import importlib
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bolt.cli.check import add_options as add_check_options
from bolt.workflow.stages import STAGES

PURPOSES = "commands"
TOOLS = "tables and audits"
GROUPS = (PURPOSES, TOOLS)
"""Headings of `bolt --help`, in its order."""


@dataclass(frozen=True)
class Command:
    """One command that is called by name.

    Attributes
    ----------
    group : str
        The heading of `bolt --help` under which it is listed: one of `GROUPS`.
    help : str
        What it does, in one line.
    function : str
        ``module:name`` of the function that does the work. It takes the options, and may return the exit status.
    options : callable, optional
        Adds the command's options to its parser.
    instead : str
        For a command that is also a stage of the workflow: the option with which it is called without a configuration.
        Its options and their help are the stage's.
    """

    group: str
    help: str
    function: str
    options: Callable[[argparse.ArgumentParser], None] | None = None
    instead: str = ""

    def handles(self, options: argparse.Namespace) -> bool:
        """Return whether this command was called, and not the stage of the same name."""
        return not self.instead or vars(options).get(self.instead) is not None

    def run(self, options: argparse.Namespace) -> int:
        """Do the work; return the exit status."""
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(module), name)(options) or 0


def _check_folds_options(parser: argparse.ArgumentParser) -> None:
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


def _models_options(parser: argparse.ArgumentParser) -> None:
    parser.description = "One row per file in config/models: its name is what 'models' of a configuration takes."
    parser.add_argument("--into", type=Path, help="file that holds the table between markers: README.md")


def _describe_atlas_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="table of labels (*_dseg.tsv), or series whose columns have names")
    parser.add_argument("--out", type=Path, required=True, help="new folder, named as the atlas")


def _atlases_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help="configuration whose 'paths' are searched for images")


COMMANDS = {
    "check": Command(
        PURPOSES,
        "Show whether a run could start: data, atlases, disk, time, and what is missing.",
        "bolt.cli.check:check",
        add_check_options,
    ),
    "parcellate": Command(
        PURPOSES,
        "Average a preprocessed image over the ROIs of an atlas.",
        "bolt.cli.parcellate_image:parcellate_image",
        instead="image",
    ),
    "explain": Command(
        PURPOSES,
        "Show which volumes and regions of a scan drive a trained model's prediction.",
        "bolt.cli.explain_scan:explain_given_scan",
        instead="checkpoint",
    ),
    "check-folds": Command(
        TOOLS, "Audit any table of folds for leaks.", "bolt.folds.check:check_folds", _check_folds_options
    ),
    "models": Command(
        TOOLS, "Print the table of models, in Markdown.", "bolt.cli.model_table:show_models", _models_options
    ),
    "atlases": Command(
        TOOLS,
        "Print the table of atlases: ROIs, spaces, and where each image is or how to get it.",
        "bolt.cli.atlas_table:show_atlases",
        _atlases_options,
    ),
    "describe-atlas": Command(
        TOOLS,
        "Describe an atlas by the ROI names in a file, for ready series.",
        "bolt.cli.atlas_table:describe_atlas_of",
        _describe_atlas_options,
    ),
    "stages": Command(
        TOOLS,
        "List the stages of the workflow: one command each, called by its rules.",
        "bolt.cli.command_table:show_stages",
    ),
    "where": Command(
        TOOLS, "Print the folder that holds the Snakefile, config/ and atlases/.", "bolt.cli.command_table:show_root"
    ),
}
"""Every command but the stages, by name, in the order of `bolt --help`."""


def show_stages(options: argparse.Namespace) -> None:
    """Print every stage of the workflow in the order of the data, under the name of its module."""
    headings = {stage.command: stage.work.__module__.rpartition(".")[2] for stage in STAGES.values()}
    for heading in dict.fromkeys(headings.values()):
        print(f"{heading}:")
        print(*_lines({s.command: s.help for s in STAGES.values() if headings[s.command] == heading}), sep="\n")


def show_root(options: argparse.Namespace) -> None:
    """Print the folder that holds the Snakefile."""
    from bolt.io.places import ROOT

    print(ROOT)


def overview() -> str:
    """Return the lists of commands that `bolt --help` shows."""
    lines = []
    for group in GROUPS:
        listed = {name: command.help for name, command in COMMANDS.items() if command.group == group}
        lines += [f"{group}:", *_lines(listed), ""]
    lines += ["'bolt COMMAND --help' explains a command.", "'snakemake --cores 8 --configfile FILE' runs the workflow."]
    return "\n".join(lines)


def _lines(texts: dict[str, str]) -> Iterator[str]:
    """Yield names with their texts, which are wrapped and aligned."""
    for name, text in texts.items():
        yield textwrap.fill(text, 100, initial_indent=f"  {name:18} ", subsequent_indent=" " * 21)
