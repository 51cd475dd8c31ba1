"""The importance weights of one fold's scans, computed once and kept as arrays with an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bolt.checkpoint import load_checkpoint
from bolt.errors import DataError
from bolt.evaluate.metrics import read_predictions
from bolt.explain.relevance import importance
from bolt.explain.weights import write_importance
from bolt.models.bolt import BolT

BATCH = 8


def explain_fold(cache: Any, run_fold: Path, device: str = "auto") -> None:
    """Write the importance weights of every scan of one fold, training and test alike.

    Parameters
    ----------
    cache : bolt.series.SeriesCache
    run_fold : Path
        Folder of a finished fold; `bolt.explain.weights.write_importance` writes into it.
    device : {"auto", "cpu", "cuda"}

    Raises
    ------
    DataError
        For a model without attention maps to explain it by.
    """
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
    write_importance(table, weights, run_fold)
