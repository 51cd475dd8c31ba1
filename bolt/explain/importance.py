"""Importance weights of all scans of a fold, computed once and stored as arrays with an index.

Also those under models of the same architecture that have learned nothing: initial weights, several draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bolt.config import Model
from bolt.evaluate.metrics import read_predictions
from bolt.explain.explainable import has_importance
from bolt.explain.relevance import Gradient, importance
from bolt.explain.weights import UNTRAINED, read_importance, write_controls, write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_json
from bolt.models.bolt import BolT
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint
from bolt.training.device import device_of
from bolt.training.ensembles import member_folder

BATCH = 8
DRAWS = 3
"""Draws of initial weights. Each explains the test scans once; noise averages out over draws and scans."""
Array = NDArray[np.floating]
Explained = tuple[pd.DataFrame, list[Array], list[Array]]
"""Scans (scan_id, role, predicted, wrong), their weights (T,) for the predicted class, and (2, T) for the classes of
`bolt.explain.weights.OTHER_CLASSES`."""


def explain_fold(cache: Any, run_fold: Path, device: str = "auto", gradient: Gradient = "logit") -> None:
    """Write the importance weights of every scan of one fold (training, validation and test), and of control classes.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run_fold : Path
        Folder of a finished fold; `bolt.explain.weights.write_importance` writes into it.
    device : {"auto", "cpu", "cuda"}
    gradient : {"logit", "loss", "minus_loss"}
        See `bolt.explain.relevance.relevance`.

    Raises
    ------
    DataError
        The model is not BolT, or predicts a number.
    """
    _write([_explained(cache, run_fold, device, gradient)], run_fold)


def explain_inner(
    cache: Any, folder: Path, inner: Sequence[int], device: str = "auto", gradient: Gradient = "logit"
) -> None:
    """Write the importance weights of an outer fold's training side, each part explained by the model that held it out.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    folder : Path
        Holds ``fold-<j>``, the finished inner folds; `bolt.explain.weights.write_importance` writes into it.
    inner : sequence of int
        The inner folds.
    device, gradient
        As in `explain_fold`.
    """
    _write((_explained(cache, folder / f"fold-{fold}", device, gradient, role="test") for fold in inner), folder)


def _write(parts: Iterable[Explained], folder: Path) -> None:
    """Write the arrays and their index."""
    tables, weights, controls = zip(*parts, strict=True)
    write_controls([w for part in controls for w in part], folder)
    write_importance(pd.concat(tables), [w for part in weights for w in part], folder)


def _explained(cache: Any, run_fold: Path, device: str, gradient: Gradient, role: str = "") -> Explained:
    """Explain the scans of a fold, or those of one role; no class of a scan is explained twice."""
    model, info = load_bolt(run_fold)
    classes = info["classes"]
    if classes is None:
        what = "this model predicts a number, but what is explained is a class"
        raise DataError(what, where=run_fold / "checkpoint.json", hint="Explain a model of classes")
    table = read_predictions(run_fold / "predictions.tsv")
    table = table[table["role"] == role] if role else table
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    series = [cache.series(position[scan]) for scan in table["scan_id"]]
    predicted = [classes.index(name) for name in table["predicted"]]
    probability = table[[f"p_{name}" for name in classes]].to_numpy(float, copy=True)
    probability[np.arange(len(table)), predicted] = -1
    wrong, fixed = probability.argmax(axis=1).tolist(), len(classes) - 1
    weights = importance_of(model, series, device, predicted, gradient)
    others = importance_of(model, series, device, wrong, gradient)
    known = [{p: w, q: o} for p, w, q, o in zip(predicted, weights, wrong, others, strict=True)]
    left = [i for i, by_class in enumerate(known) if fixed not in by_class]
    last = importance_of(model, [series[i] for i in left], device, [fixed] * len(left), gradient)
    for i, own in zip(left, last, strict=True):
        known[i][fixed] = own
    controls = [np.stack([o, by_class[fixed]]) for o, by_class in zip(others, known, strict=True)]
    table = table.assign(wrong=[classes[i] for i in wrong])[["scan_id", "role", "predicted", "wrong"]]
    return table, weights, controls


def load_bolt(run_fold: Path) -> tuple[BolT, dict[str, Any]]:
    """Load a BolT checkpoint, or that of the BolT that explains an ensemble; refuse any other model.

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
    folder, file = run_fold, run_fold / "checkpoint.json"
    members = read_json(file)["model"].get("members", []) if file.is_file() else []
    for number, member in enumerate(members):
        if has_importance(Model.model_validate(member)):
            folder = member_folder(run_fold, number, member["name"])
            break
    model, info = load_checkpoint(folder)
    if not isinstance(model, BolT):
        what = f"importance weights are defined for BolT, not for '{info['model']['model']}'"
        raise DataError(what, where=file, hint="Explain a BolT run")
    return model, info


def importance_of(
    model: BolT,
    series: Sequence[Array],
    device: str | torch.device = "auto",
    targets: Sequence[int] | None = None,
    gradient: Gradient = "logit",
) -> list[Array]:
    """Compute the importance weights of scans of any length, in batches of equal length.

    Parameters
    ----------
    model : BolT
        Moved to `device`.
    series : sequence of (T, R) arrays
    device : {"auto", "cpu", "cuda"} or torch.device
    targets : sequence of int, optional
        Position of the class to explain, one per scan; by default the one that `model` predicts.
    gradient : {"logit", "loss", "minus_loss"}
        See `bolt.explain.relevance.relevance`.

    Returns
    -------
    list of (T,) float32 arrays
        In the order of `series`.
    """
    place = device if isinstance(device, torch.device) else device_of(device, None)
    model.to(place)
    weights: list[Array] = [np.empty(0)] * len(series)
    for length in sorted({len(s) for s in series}):
        same = [i for i, s in enumerate(series) if len(s) == length]
        for start in range(0, len(same), BATCH):
            chosen = same[start : start + BATCH]
            x = torch.from_numpy(np.stack([series[i] for i in chosen])).float().to(place)
            target = None if targets is None else torch.tensor([targets[i] for i in chosen])
            for i, row in zip(chosen, importance(model, x, target, gradient).detach().cpu().numpy(), strict=True):
                weights[i] = row
    return weights


def fresh_model(info: dict[str, Any], draw: int) -> BolT:
    """Build the model of a ``checkpoint.json`` with initial weights, different for each `draw`; on the CPU."""
    seed = np.random.SeedSequence([info["seed"], info["fold"], 0, 0, 1 + draw]).generate_state(1)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        return create_model(info["model"]["model"], info["n_rois"], len(info["classes"]), **info["model"]["hyper"])


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
    targets = [info["classes"].index(name) for name in table["predicted"]]
    draws = [importance_of(fresh_model(info, draw), series, device, targets, gradient) for draw in range(DRAWS)]
    tiny = float(np.finfo(np.float32).tiny)  # zeros stay zeros
    curves = [
        np.mean([own / max(float(own.mean()), tiny) for own in scan], axis=0) for scan in zip(*draws, strict=True)
    ]
    write_importance(table[["scan_id", "role", "predicted"]], curves, run_fold, UNTRAINED)
