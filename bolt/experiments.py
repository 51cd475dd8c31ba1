"""Experiments: lists of runs whose results stand in one table of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bolt.config import Model


@dataclass(frozen=True)
class Entry:
    """A row of an experiment on one dataset and atlas.

    Attributes
    ----------
    dataset, atlas : str
    row : str
        What the row is called in the experiment's file and in the paper's tables.
    model : Model
    folders : list of Path
        Run folders ``seed-<s>``, one a seed, with one ``fold-<k>`` a fold.
    folds : list of int
        The folds that should be there.
    classes : list of str
        In the dataset's order; of two the last is the positive one.
    note : str
        Why the row cannot be run on this dataset (a window longer than the crop, say); empty where it can.
    """

    dataset: str
    atlas: str
    row: str
    model: Model
    folders: list[Path]
    folds: list[int]
    classes: list[str]
    note: str = ""
