"""Scans of a fold with their roles: train, validation or test."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bolt.io.files import read_table
from bolt.series.cache import SeriesCache

log = logging.getLogger(__name__)


class Training(NamedTuple):
    """One training on a dataset: its fold, its seed, and the folder for its results."""

    fold: int
    seed: int
    folder: Path


def fold_table(
    series: SeriesCache, folds: Path, fold: int, *, share: float = 1.0, seed: int = 0, numbers: bool = False
) -> pd.DataFrame:
    """Return the scans of a fold: rows of the cache's index, by position, sorted by scan, with their roles.

    Parameters
    ----------
    series : SeriesCache
    folds : Path
        ``folds.tsv``.
    fold : int
    share : float
        Share of the training groups to keep, drawn by `seed`; a smaller share is a subset of a larger one.
    seed : int
    numbers : bool
        Whether labels are numbers.
    """
    rows = read_table(folds, text=("scan_id", "subject", "group"))
    rows = rows.loc[rows["fold"] == fold].set_index("scan_id")
    index = series.index.reset_index(drop=True)
    table = index.assign(role=index["scan_id"].map(rows["role"])).dropna(subset="role").sort_values("scan_id")
    table["group"] = _with_copies(table, table["scan_id"].map(rows["group"]))
    missing = sorted(set(rows.index) - set(table["scan_id"]))
    if missing:
        log.warning("%d scans of fold %d are not in the cache: %s", len(missing), fold, ", ".join(missing))
    return table if share == 1 else _thinned(table, share, seed, numbers)


def _with_copies(table: pd.DataFrame, groups: pd.Series) -> pd.Series:
    """Return the groups of scans, with the folds' group where copies of a recording have joined several."""
    joined = groups.notna() & (groups != table["group"]) & (groups != table["subject"])
    return table["group"].where(~joined, groups)


def _thinned(table: pd.DataFrame, share: float, seed: int, numbers: bool) -> pd.DataFrame:
    """Keep a share of the training groups (families, else subjects), stratified by class."""
    train = table[table["role"] == "train"]
    groups = train["group"].fillna(train["subject"]).astype(str)
    labels = train.groupby(groups)["label"].first()  # sorted by group
    kept: set[str] = set()
    for _, stratum in labels.groupby(labels.astype(str) if not numbers else np.zeros(len(labels))):
        shuffled = np.random.default_rng(seed).permutation(stratum.index.to_numpy())
        kept |= set(shuffled[: max(1, round(share * len(shuffled)))])
    return table[(table["role"] != "train") | table.index.isin(groups.index[groups.isin(kept)])]
