"""Importance weights of all scans of a fold, computed once and stored as arrays with an index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bolt.evaluate.metrics import read_predictions
from bolt.explain.relevance import importance
from bolt.explain.weights import write_importance
from bolt.io.errors import DataError
from bolt.models.bolt import BolT
from bolt.training.checkpoint import load_checkpoint
from bolt.training.device import device_of

BATCH = 8


def explain_fold(cache: Any, run_fold: Path, device: str = "auto") -> None:
    """Write the importance weights of every scan of one fold: training, validation and test.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run_fold : Path
        Folder of a finished fold; `bolt.explain.weights.write_importance` writes into it.
    device : {"auto", "cpu", "cuda"}

    Raises
    ------
    DataError
        The model is not BolT.
    """
    write_importance(*_explained(cache, run_fold, device), run_fold)


def explain_inner(cache: Any, folder: Path, inner: Sequence[int], device: str = "auto") -> None:
    """Write the importance weights of an outer fold's training side, each part explained by the model that held it out.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    folder : Path
        Holds ``fold-<j>``, the finished inner folds; `bolt.explain.weights.write_importance` writes into it.
    inner : sequence of int
        The inner folds.
    device : {"auto", "cpu", "cuda"}
    """
    parts = [_explained(cache, folder / f"fold-{fold}", device, role="test") for fold in inner]
    write_importance(pd.concat([table for table, _ in parts]), [w for _, weights in parts for w in weights], folder)


def _explained(
    cache: Any, run_fold: Path, device: str, role: str = ""
) -> tuple[pd.DataFrame, list[NDArray[np.floating]]]:
    """Return the scans of a fold, or those of one role, and the weights of each."""
    model, _ = load_bolt(run_fold)
    table = read_predictions(run_fold / "predictions.tsv")[["scan_id", "role", "predicted"]]
    table = table[table["role"] == role] if role else table
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    return table, importance_of(model, [cache.series(position[scan]) for scan in table["scan_id"]], device)


def load_bolt(run_fold: Path) -> tuple[BolT, dict[str, Any]]:
    """Load a BolT checkpoint; refuse any other model.

    Returns
    -------
    model : BolT
        In evaluation mode, on the CPU.
    info : dict
        ``checkpoint.json``.

    Raises
    ------
    DataError
        Also as `bolt.training.checkpoint.load_checkpoint`.
    """
    model, info = load_checkpoint(run_fold)
    if not isinstance(model, BolT):
        raise DataError(
            f"importance weights are defined for BolT, not for '{info['model']['model']}'",
            where=run_fold / "checkpoint.json",
            hint="Explain a BolT run",
        )
    return model, info


def importance_of(
    model: BolT,
    series: Sequence[NDArray[np.floating]],
    device: str | torch.device = "auto",
    targets: Sequence[int] | None = None,
) -> list[NDArray[np.floating]]:
    """Compute the importance weights of scans of any length, in batches of equal length.

    Parameters
    ----------
    model : BolT
        Moved to `device`.
    series : sequence of (T, R) arrays
    device : {"auto", "cpu", "cuda"} or torch.device
    targets : sequence of int, optional
        Position of the class to explain, one per scan; by default the one that `model` predicts.

    Returns
    -------
    list of (T,) float32 arrays
        In the order of `series`.
    """
    place = device if isinstance(device, torch.device) else device_of(device, None)
    model.to(place)
    weights: list[NDArray[np.floating]] = [np.empty(0)] * len(series)
    for length in sorted({len(s) for s in series}):
        same = [i for i, s in enumerate(series) if len(s) == length]
        for start in range(0, len(same), BATCH):
            chosen = same[start : start + BATCH]
            x = torch.from_numpy(np.stack([series[i] for i in chosen])).float().to(place)
            target = None if targets is None else torch.tensor([targets[i] for i in chosen])
            for i, row in zip(chosen, importance(model, x, target).detach().cpu().numpy(), strict=True):
                weights[i] = row
    return weights
