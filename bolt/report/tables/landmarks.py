"""Landmark regressions as read from files, and the paper's own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bolt.experiments.entries import paper_table
from bolt.io.files import read_table


def read_landmarks(file: Path) -> pd.DataFrame:
    """Read ``landmarks.tsv`` or ``subsets.tsv``."""
    return read_table(file, text=("fold", "importance", "tokens", "level"))


def paper_of(dataset: str | None, atlas: str) -> pd.DataFrame:
    """Return the paper's own values as shares: tokens, metric, mean, sd; empty for what the paper does not have.

    Parameters
    ----------
    dataset : str or None
        Which of the paper's datasets, the key `paper` of a dataset's file.
    atlas : str
    """
    table = read_table(paper_table("landmarks"))
    values = table[(table["dataset"] == dataset) & (table["atlas"] == atlas)]
    values = values.assign(mean=values["mean_percent"] / 100, sd=values["sd_percent"] / 100)
    return values[["tokens", "metric", "mean", "sd"]]
