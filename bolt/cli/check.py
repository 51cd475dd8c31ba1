"""The command ``bolt check``: one screen about a run before it starts."""

from __future__ import annotations

import sys
import textwrap
from argparse import ArgumentParser, Namespace
from pathlib import Path

WIDTH = 110


def add_options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Shows what a run of the workflow would find and take, and what is missing, with the remedies. Nothing is "
        "downloaded or computed. Exits with status 0 if a run could start, else 2."
    )
    parser.add_argument("--config", type=Path, help="configuration of the run [config/config.yaml, or the shipped one]")


def check(options: Namespace) -> int:
    """Print what a run would find and take, and what is missing; return 0 if it could start, else 2."""
    from bolt.io.files import read_yaml
    from bolt.io.places import snakemake_command
    from bolt.workflow.job import chosen_config
    from bolt.workflow.readiness import readiness
    from bolt.workflow.start import read_run

    file = chosen_config(options.config)
    run, notes = read_run(read_yaml(file), [file])
    ready = readiness(run)
    print(file)
    previous = ""
    for name, text in ready.facts:
        _print_wrapped("" if name == previous else name, text)
        previous = name
    print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    if not ready.problems:
        print(f"A run can start: {snakemake_command(file)}   (-n lists its jobs)")
        return 0
    print("A run cannot start yet. To fix:", file=sys.stderr)
    for number, problem in enumerate(ready.problems, 1):
        print(textwrap.indent(f"{number}. {problem}", "  "), file=sys.stderr)
    if any("`snakemake resources`" in problem.hint for problem in ready.problems):
        print(f"To download them: {snakemake_command(file, 'resources')}", file=sys.stderr)
    return 2


def _print_wrapped(name: str, text: str) -> None:
    """Print one fact; long texts continue below their start."""
    start = f"  {name:11} "
    print(textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False))
