"""Importance weights of all scans of a fold, computed once and stored as arrays with an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bolt.config import Model
from bolt.evaluate.metrics import read_predictions
from bolt.explain.explainable import has_importance
from bolt.explain.relevance import Gradient, importance
from bolt.explain.weights import write_controls, write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_json
from bolt.models.bolt import BolT
from bolt.training.checkpoint import load_checkpoint
from bolt.training.device import device_of
from bolt.training.ensembles import member_folder

BATCH = 8


class Explained(NamedTuple):
    """Scans and the weights of each.

    Attributes
    ----------
    table : DataFrame
        scan_id, role, predicted, wrong.
    weights : list of (T,) arrays
        For the predicted class.
    controls : list of (2, T) arrays
        For the classes of `bolt.explain.weights.OTHER_CLASSES`.
    """

    table: pd.DataFrame
    weights: list[NDArray[np.floating]]
    controls: list[NDArray[np.floating]]

    def write(self, folder: Path) -> None:
        """Write the arrays and their index."""
        write_controls(self.controls, folder)
        write_importance(self.table, self.weights, folder)


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
    _explained(cache, run_fold, device, gradient).write(run_fold)


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
    parts = [_explained(cache, folder / f"fold-{fold}", device, gradient, role="test") for fold in inner]
    weights, controls = ([w for part in parts for w in getattr(part, name)] for name in ("weights", "controls"))
    Explained(pd.concat([part.table for part in parts]), weights, controls).write(folder)


def _explained(cache: Any, run_fold: Path, device: str, gradient: Gradient, role: str = "") -> Explained:
    """Explain the scans of a fold, or those of one role."""
    model, info = load_bolt(run_fold)
    if info["classes"] is None:
        raise DataError(
            "this model predicts a number, but what is explained is a class",
            where=run_fold / "checkpoint.json",
            hint="Explain a model of classes",
        )
    table = read_predictions(run_fold / "predictions.tsv")
    table = table[table["role"] == role] if role else table
    table = table.assign(wrong=_wrong(table, info["classes"]))[["scan_id", "role", "predicted", "wrong"]]
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    series = [cache.series(position[scan]) for scan in table["scan_id"]]

    def explain(series: Sequence[NDArray[np.floating]], targets: Sequence[int]) -> list[NDArray[np.floating]]:
        return importance_of(model, series, device, targets, gradient)

    weights = explain(series, [info["classes"].index(name) for name in table["predicted"]])
    return Explained(table, weights, _controls(explain, series, table, weights, info["classes"]))


def _wrong(table: pd.DataFrame, classes: Sequence[str]) -> list[str]:
    """Return the most probable class of each scan other than the predicted one."""
    probability = table[[f"p_{name}" for name in classes]].to_numpy(float)
    predicted = table["predicted"].to_numpy()[:, None] == np.array(classes)
    return [classes[i] for i in np.where(predicted, -1, probability).argmax(axis=1)]


def _controls(
    explain: Callable[[Sequence[NDArray[np.floating]], Sequence[int]], list[NDArray[np.floating]]],
    series: Sequence[NDArray[np.floating]],
    table: pd.DataFrame,
    weights: list[NDArray[np.floating]],
    classes: Sequence[str],
) -> list[NDArray[np.floating]]:
    """Return the weights of each scan for its wrong and for the last class; no class of a scan is explained twice."""
    code, fixed = {name: i for i, name in enumerate(classes)}, classes[-1]
    wrong = explain(series, [code[name] for name in table["wrong"]])
    names = zip(table["predicted"], table["wrong"], strict=True)
    known = [{p: w, q: o} for (p, q), w, o in zip(names, weights, wrong, strict=True)]
    left = [i for i, by_class in enumerate(known) if fixed not in by_class]
    others = explain([series[i] for i in left], [code[fixed]] * len(left))
    for i, other in zip(left, others, strict=True):
        known[i][fixed] = other
    return [np.stack([o, by_class[fixed]]) for o, by_class in zip(wrong, known, strict=True)]


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
    model, info = load_checkpoint(explained_folder(run_fold))
    if not isinstance(model, BolT):
        raise DataError(
            f"importance weights are defined for BolT, not for '{info['model']['model']}'",
            where=run_fold / "checkpoint.json",
            hint="Explain a BolT run",
        )
    return model, info


def explained_folder(run_fold: Path) -> Path:
    """Return the folder of the model that is explained: a fold's, or that of a member of its ensemble."""
    file = run_fold / "checkpoint.json"
    members = read_json(file)["model"].get("members", []) if file.is_file() else []
    for number, member in enumerate(members):
        if has_importance(Model.model_validate(member)):
            return member_folder(run_fold, number, member["name"])
    return run_fold


def importance_of(
    model: BolT,
    series: Sequence[NDArray[np.floating]],
    device: str | torch.device = "auto",
    targets: Sequence[int] | None = None,
    gradient: Gradient = "logit",
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
    gradient : {"logit", "loss", "minus_loss"}
        See `bolt.explain.relevance.relevance`.

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
            for i, row in zip(chosen, importance(model, x, target, gradient).detach().cpu().numpy(), strict=True):
                weights[i] = row
    return weights
