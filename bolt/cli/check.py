"""The command ``bolt check``: one screen about a run before it starts."""

from __future__ import annotations

import sys
import textwrap
from argparse import ArgumentParser, Namespace
from contextlib import chdir
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


def show(file: Path, *, folder: Path | None = None, fetch: bool = False, learns: bool = True) -> int:
    """Print what the run of a configuration would find and take, and what is missing.

    Parameters
    ----------
    file : Path
    folder : Path, optional
        In which the run works; without one, that of the configuration (`bolt.io.places.folder_of_run`).
    fetch : bool
        What can be downloaded is not missing.
    learns : bool
        Whether models are trained; else the run ends with series.

    Returns
    -------
    int
        0 if the run could start, else 2.
    """
    from bolt.atlases.description import FETCH
    from bolt.io.files import read_yaml
    from bolt.io.places import folder_of_run, snakemake_command
    from bolt.workflow.readiness import readiness
    from bolt.workflow.start import read_run

    folder = folder or folder_of_run(file)
    download, path = snakemake_command(file, "resources", folder=folder), file.absolute()
    with chdir(folder):
        run, notes = read_run(read_yaml(path), [path], () if learns else ("series",))
        ready = readiness(run)
    print(file)
    previous = ""
    for name, text in ready.facts:
        _print_wrapped("" if name == previous else name, text)
        previous = name
    print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    to_download = [problem for problem in ready.problems if FETCH.casefold() in problem.hint.casefold()]
    problems = [problem for problem in ready.problems if not (fetch and problem in to_download)]
    if not problems:
        return 0
    print("A run cannot start yet. To fix:", file=sys.stderr)
    for number, problem in enumerate(problems, 1):
        print(textwrap.indent(f"{number}. {problem}", "  "), file=sys.stderr)
    if to_download and not fetch:
        print(f"To download them: {download}", file=sys.stderr)
    return 2


def _print_wrapped(name: str, text: str) -> None:
    """Print one fact; long texts continue below their start."""
    start = f"  {name:11} "
    wrapper = textwrap.TextWrapper(WIDTH, start, " " * len(start))
    wrapper.break_long_words = wrapper.break_on_hyphens = False  # names and paths can be copied
    print(wrapper.fill(text))
