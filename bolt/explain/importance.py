"""The importance weights of one fold's scans, computed once and kept as arrays with an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.errors import DataError
from bolt.evaluate.metrics import read_predictions
from bolt.files import atomic, read_table, write_table

BATCH = 8
IMPORTANCE_COLUMNS = {
    "scan_id": "scan",
    "role": "train, validation or test in this fold",
    "predicted": "class that the weights explain: the one that the model predicts",
    "offset": "position of the scan's first weight in importance.npy",
    "length": "number of weights: volumes of the scan",
}


def explain_fold(cache: Any, run_fold: Path, device: str = "auto") -> None:
    """Write the importance weights of every scan of one fold, training and test alike.

    Parameters
    ----------
    cache : bolt.series.SeriesCache
    run_fold : Path
        Folder of a finished fold. ``importance.npy`` (float32, the scans' weights one after the
        other) and ``importance.tsv`` are written into it.
    device : {"auto", "cpu", "cuda"}

    Raises
    ------
    DataError
        For a model without attention maps to explain it by.
    """
    import torch  # here, so that the regressions and figures work without it

    from bolt.checkpoint import load_checkpoint
    from bolt.explain.relevance import importance
    from bolt.models.bolt import BolT

    model, info = load_checkpoint(run_fold)
    if not isinstance(model, BolT):
        raise DataError(
            f"importance weights are defined for BolT, not for '{info['model']['model']}'",
            where=run_fold / "checkpoint.json",
            mend="Explain a BolT run",
        )
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    table = read_predictions(run_fold / "predictions.tsv")[["scan_id", "role", "predicted"]]
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    series = [cache.series(position[scan]) for scan in table["scan_id"]]
    weights: list[NDArray[np.floating]] = [np.empty(0)] * len(series)
    for length in sorted({len(s) for s in series}):
        same = [i for i, s in enumerate(series) if len(s) == length]
        for start in range(0, len(same), BATCH):
            chosen = same[start : start + BATCH]
            x = torch.from_numpy(np.stack([series[i] for i in chosen])).float().to(device)
            for i, row in zip(chosen, importance(model, x).detach().cpu().numpy(), strict=True):
                weights[i] = row
    table["length"] = [len(w) for w in weights]
    table["offset"] = table["length"].cumsum() - table["length"]
    with atomic(run_fold / "importance.npy") as temporary:
        np.save(temporary, np.concatenate(weights).astype(np.float32))
    write_table(table[list(IMPORTANCE_COLUMNS)], run_fold / "importance.tsv", IMPORTANCE_COLUMNS)


def read_importance(run_fold: Path) -> tuple[pd.DataFrame, list[NDArray[np.floating]]]:
    """The table and, in its order, each scan's weights (T,)."""
    table = read_table(run_fold / "importance.tsv", text=("scan_id", "role", "predicted"))
    weights = np.load(run_fold / "importance.npy", allow_pickle=False)
    return table, [weights[o : o + n] for o, n in zip(table["offset"], table["length"], strict=True)]
