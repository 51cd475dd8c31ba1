"""Importance weights as files: one array of all scans of a fold, and its index. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.io.files import atomic, holds_something, read_json, read_table, write_table

IMPORTANCE_COLUMNS = {
    "scan_id": "scan",
    "role": "train, validation or test in this fold",
    "predicted": "class that the weights explain: the one that the model predicts",
    "offset": "position of the scan's first weight in importance.npy",
    "length": "number of weights: volumes of the scan",
}


def write_importance(table: pd.DataFrame, weights: list[NDArray[np.floating]], run_fold: Path) -> None:
    """Write ``importance.npy`` (float32, the scans' weights one after the other) and ``importance.tsv``.

    Parameters
    ----------
    table : DataFrame
        scan_id, role, predicted; one row a scan.
    weights : list of (T,) arrays
        In the order of the table.
    run_fold : Path
        Folder of the fold.
    """
    lengths = np.array([len(w) for w in weights])
    table = table.assign(length=lengths, offset=lengths.cumsum() - lengths)
    with atomic(run_fold / "importance.npy") as temporary:
        np.save(temporary, np.concatenate(weights).astype(np.float32))
    write_table(table[list(IMPORTANCE_COLUMNS)], run_fold / "importance.tsv", IMPORTANCE_COLUMNS)


def read_importance(run_fold: Path) -> tuple[pd.DataFrame, list[NDArray[np.floating]]]:
    """The table and, in its order, each scan's weights (T,)."""
    table = read_table(run_fold / "importance.tsv", text=("scan_id", "role", "predicted"))
    weights = np.load(run_fold / "importance.npy", allow_pickle=False)
    return table, [weights[o : o + n] for o, n in zip(table["offset"], table["length"], strict=True)]


def is_explained(folder: Path) -> bool:
    """Whether a fold's folder holds importance weights."""
    index = folder / "importance.tsv"
    return holds_something(index)


def explained_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Folds of `run` that are finished and have importance weights."""
    folders = {fold: run / f"fold-{fold}" for fold in folds}
    return [
        fold
        for fold, folder in folders.items()
        if is_explained(folder) and read_json(folder / "status.json")["state"] == "ok"
    ]
