"""Importance under models of the same architecture that have learned nothing: initial weights, several draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bolt.explain.importance import importance_of, load_bolt
from bolt.explain.relevance import Gradient
from bolt.explain.weights import UNTRAINED, read_importance, write_importance
from bolt.models.bolt import BolT
from bolt.models.registry import create_model

DRAWS = 3
"""Draws of initial weights. Each explains the test scans once; noise averages out over draws and scans."""


def fresh_model(info: dict[str, Any], draw: int) -> BolT:
    """Build the model of a ``checkpoint.json`` with initial weights, different for each `draw`; on the CPU."""
    seed = np.random.SeedSequence([info["seed"], info["fold"], 0, 0, 1 + draw]).generate_state(1)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        n_outputs = len(info["classes"] or [""])  # one of a number
        return create_model(info["model"]["model"], info["n_rois"], n_outputs, **info["model"]["hyper"])


def explain_untrained(cache: Any, run_fold: Path, device: str = "auto", gradient: Gradient = "logit") -> None:
    """Write the importance of a fold's test scans with events under untrained models.

    It is that of the class which the trained model predicts, divided by the scan's mean, mean over `DRAWS` models.
    Files are those of `bolt.explain.weights.write_importance`, named ``importance_untrained``; without rows if no test
    scan has events.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run_fold : Path
        Folder of a fold that has importance weights.
    device : {"auto", "cpu", "cuda"}
    gradient : {"logit", "loss", "minus_loss"}
        With which the fold was explained.
    """
    _, info = load_bolt(run_fold)
    table, _ = read_importance(run_fold)
    index = cache.index
    tasks = set(index.loc[index["events"].notna(), "scan_id"]) if "events" in index else set()
    table = table[(table["role"] == "test") & table["scan_id"].isin(tasks)]
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    series = [cache.series(position[scan]) for scan in table["scan_id"]]
    targets = [info["classes"].index(name) for name in table["predicted"]] if info["classes"] else None
    draws = [importance_of(fresh_model(info, draw), series, device, targets, gradient) for draw in range(DRAWS)]
    curves = [np.mean([_relative(weights) for weights in scan], axis=0) for scan in zip(*draws, strict=True)]
    write_importance(table[["scan_id", "role", "predicted"]], curves, run_fold, UNTRAINED)


def _relative(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Divide weights by their mean; zeros stay zeros."""
    return weights / max(float(weights.mean()), float(np.finfo(np.float32).tiny))
