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
    from bolt.io.places import snakemake_command
    from bolt.workflow.job import chosen_config

    file = chosen_config(options.config)
    status = show(file)
    if not status:
        print(f"A run can start: {snakemake_command(file)}   (-n lists its jobs)")
    return status


def show(file: Path, *, fetch: bool = False, learns: bool = True) -> int:
    """Print what the run of a configuration would find and take, and what is missing.

    Parameters
    ----------
    file : Path
    fetch : bool
        What can be downloaded is not missing.
    learns : bool
        Whether models are trained; else the run ends with series.

    Returns
    -------
    int
        0 if the run could start, else 2.
    """
    from bolt.io.files import read_yaml
    from bolt.io.places import snakemake_command
    from bolt.workflow.readiness import readiness
    from bolt.workflow.start import read_run

    run, notes = read_run(read_yaml(file), [file], () if learns else ("series",))
    ready = readiness(run)
    print(file)
    previous = ""
    for name, text in ready.facts:
        _print_wrapped("" if name == previous else name, text)
        previous = name
    print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    to_download = [problem for problem in ready.problems if "`snakemake resources`" in problem.hint]
    problems = [problem for problem in ready.problems if not (fetch and problem in to_download)]
    if not problems:
        return 0
    print("A run cannot start yet. To fix:", file=sys.stderr)
    for number, problem in enumerate(problems, 1):
        print(textwrap.indent(f"{number}. {problem}", "  "), file=sys.stderr)
    if to_download and not fetch:
        print(f"To download them: {snakemake_command(file, 'resources')}", file=sys.stderr)
    return 2


def _print_wrapped(name: str, text: str) -> None:
    """Print one fact; long texts continue below their start."""
    start = f"  {name:11} "
    print(textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False))
