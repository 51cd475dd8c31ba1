"""The command ``bolt init``: the configuration for a folder of data, from options or from answers."""

from __future__ import annotations

import argparse
import sys

import pandas as pd

from bolt.cli.new_study import MOST_CLASSES, Wishes, name_of, participants_of, write_study
from bolt.io.files import read_text
from bolt.io.places import snakemake_command


def init(options: argparse.Namespace) -> None:
    """Run ``bolt init DATA``: look into a folder, ask what it cannot say, write two files, and show the next steps.

    Parameters
    ----------
    options : Namespace
        data, out, name, and the options of a study (`bolt.cli.new_study.Wishes.of`).

    Raises
    ------
    ConfigError, DataError
        As `bolt.cli.new_study.write_study`.
    """
    wishes = Wishes.of(options)
    if wishes.label is None and sys.stdin.isatty():
        wishes.label = ask_label(options)
    place, config, dataset = write_study(options.out, options.name or name_of(options.data), options.data, wishes)
    label = "nothing to predict" if dataset.label is None else f"label '{dataset.label}'"
    classes = f" ({', '.join(dataset.classes)})" if dataset.classes else ""
    print(f"{options.data}: {dataset.source}, {label}{classes}; atlases {', '.join(config.atlases)}")
    print(f"wrote {place} and {options.out / 'datasets' / place.name}; every other key has its default")
    print(f"next: bolt check --config {place}")
    print(f"      {snakemake_command(place)}")


def ask_label(options: argparse.Namespace) -> str | None:
    """Ask which column is predicted; an empty answer is none."""
    path = participants_of(options.data)
    if path is None:
        return None
    table = read_text(path)
    candidates = []
    for column in table:  # a few classes that repeat, or numbers
        known = table[column].dropna()
        n = known.nunique()
        numbers = n > MOST_CLASSES and pd.to_numeric(known, errors="coerce").notna().all()
        if numbers or (2 <= n <= MOST_CLASSES and n < len(known)):
            candidates.append(str(column))
    print(f"Columns of {path}: {', '.join(map(str, table))}")
    print(f"What shall be predicted? {' / '.join(candidates)} [nothing: ROI series alone]: ", end="", flush=True)
    return sys.stdin.readline().strip() or None
