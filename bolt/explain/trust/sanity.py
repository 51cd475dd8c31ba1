"""Sanity checks: importance should vanish when the weights are randomised, or the labels permuted.

Two checks after Adebayo et al. 2018 (arXiv 1810.03292). In a cascade, the layers of a trained model are randomised one
after the other, from the classifier down to the input, and the importance of its test scans is computed again after
each. The second check does the same with a model trained on permuted labels. If the curves are still similar, they
reflect the scans or the architecture, not what the model has learned. The explained class is always the one that the
original model predicts, so that curves are comparable; no true label is read.

Curves without any meaning vanish, too. So a check is passed only if the importance of a model trained again with
another seed resembles the original (the positive control), and only if the interval of the remaining correlation is
within the threshold (an equivalence test), because few scans would leave a small correlation by chance.

Importance under models of the same architecture that have learned nothing: initial weights, several draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bolt.config import Sanity
from bolt.config.layout import ModelRun
from bolt.evaluate.metrics import read_predictions
from bolt.explain.importance import importance_of, load_bolt
from bolt.explain.relevance import Gradient
from bolt.explain.trust.sanity_outcome import PERMUTED, RETRAINED, SANITY_COLUMNS, summary
from bolt.explain.trust.similarity import (
    correlations,
    ranked,
    without_position,
)
from bolt.explain.weights import UNTRAINED, read_importance, require_explained, write_importance
from bolt.io.errors import DataError
from bolt.io.files import read_json, write_table
from bolt.models.bolt import BolT
from bolt.models.registry import create_model
from bolt.training.device import device_of

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


def layers_of(model: BolT) -> dict[str, tuple[str, ...]]:
    """Return the layers from output to input: name to the prefixes of its parameters' names."""
    blocks = {f"block {i + 1}": (f"blocks.{i}.",) for i in reversed(range(len(model.blocks)))}
    return {"classifier": ("classifier.", "norm."), **blocks, "input": ("projection.", "cls")}


def with_random(model: BolT, fresh: BolT, layers: Sequence[str]) -> BolT:
    """Return a copy of `model` in which some layers have the weights of `fresh`."""
    prefixes = tuple(prefix for layer in layers for prefix in layers_of(model)[layer])
    weights = model.state_dict()
    replaced = {name: fresh.state_dict()[name] if name.startswith(prefixes) else weights[name] for name in weights}
    copy = deepcopy(model)
    copy.load_state_dict(replaced)
    return copy.eval()


def randomisations(model: BolT, independent: bool) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the `KEYS` of each check of one model, and the layers that are random in it."""
    names = list(layers_of(model))
    for step, name in enumerate(names, start=1):
        yield {"check": "cascade", "step": step, "layer": name}, names[:step]
    for name in names if independent else []:
        yield {"check": "independent", "step": np.nan, "layer": name}, [name]


class _Fold:
    """Test scans of one fold, and their importance under its model."""

    def __init__(self, cache: Any, run_fold: Path, scans: int | None, gradient: Gradient) -> None:
        (self.model, self.info), self._gradient = load_bolt(run_fold), gradient
        if self.info["classes"] is None:
            raise DataError(
                "sanity checks need a model that predicts classes",
                where=run_fold / "checkpoint.json",
                hint="Explain a model of classes",
            )
        table, weights = read_importance(run_fold)
        tests = np.flatnonzero((table["role"] == "test").to_numpy())
        if scans is not None and len(tests) > scans:
            random = np.random.default_rng([self.info["seed"], self.info["fold"]])
            tests = np.sort(random.choice(tests, scans, replace=False))
        names = table["scan_id"].iloc[tests]
        groups = read_predictions(run_fold / "predictions.tsv").set_index("scan_id")["group"]
        position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
        self.about = pd.DataFrame({"scan_id": names, "group": names.map(groups), "fold": str(self.info["fold"])})
        self._series = [cache.series(position[scan]) for scan in names]
        self._targets = [self.info["classes"].index(c) for c in table["predicted"].iloc[tests]]
        self._original = self._ranked([weights[i] for i in tests])

    @staticmethod
    def _ranked(weights: list[NDArray[np.floating]]) -> tuple[list[NDArray[np.floating]], ...]:
        """Return ranks with the effect of position removed, and without."""
        return ranked(without_position(weights)), ranked(weights)

    def compare(self, model: BolT, device: str | torch.device, keys: dict[str, Any]) -> pd.DataFrame:
        """Compare the importance of the scans under another model with the original: one row per scan."""
        other = self._ranked(importance_of(model, self._series, device, self._targets, self._gradient))
        rho, raw = (correlations(a, b) for a, b in zip(self._original, other, strict=True))
        return self.about.assign(**keys, rho=rho, rho_raw=raw)


def cascade(
    cache: Any,
    run_fold: Path,
    *,
    draws: int,
    scans: int | None,
    independent: bool,
    device: str | torch.device = "auto",
    gradient: Gradient = "logit",
) -> pd.DataFrame:
    """Compare importance under a fold's model with that under the same model, increasingly randomised.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run_fold : Path
        Folder of a fold that is explained.
    draws : int
        Draws of random weights.
    scans : int, optional
        Largest number of test scans (a seeded random choice); by default all.
    independent : bool
        Whether each layer is also randomised alone.
    device : {"auto", "cpu", "cuda"} or torch.device
    gradient : {"logit", "loss", "minus_loss"}
        With which the fold was explained.

    Returns
    -------
    DataFrame
        One row per scan, check, layer and draw: scan_id, group, fold, `KEYS`, rho, rho_raw. Step 0 is the model itself.
    """
    fold = _Fold(cache, run_fold, scans, gradient)
    parts = [fold.compare(fold.model, device, {"check": "cascade", "step": 0, "layer": "none"})]
    for draw in range(draws):
        fresh = fresh_model(fold.info, draw)
        for keys, layers in randomisations(fold.model, independent):
            parts.append(fold.compare(with_random(fold.model.cpu(), fresh, layers), device, keys))
    return pd.concat(parts, ignore_index=True)


def write_sanity(
    cache: Any,
    run: ModelRun,
    folds: Sequence[int],
    settings: Sanity,
    device: str = "auto",
    retrained: Sequence[Path] = (),
    gradient: Gradient = "logit",
) -> None:
    """Write ``sanity.tsv`` (`SANITY_COLUMNS`) of a run, from the folds that are explained.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : ModelRun
    folds : sequence of int
    settings : Sanity
        Without draws there is no cascade.
    device : {"auto", "cpu", "cuda"}
    retrained : sequence of Path
        Folders of models trained again with another seed, one per fold (`ModelRun.trained_again`). If all such
        trainings failed, or that on permuted labels, the table gives the reason.
    gradient : {"logit", "loss", "minus_loss"}
        With which the folds were explained.

    Raises
    ------
    DataError
        No fold has importance weights.
    """
    done = require_explained(run.folder, folds)
    place = device_of(device, None)
    others = {RETRAINED: list(retrained) if settings.controlled else [], PERMUTED: [run.permuted] * settings.permuted}
    parts, notes = [], {}
    for check, folders in others.items():
        models = [_other_model(folder, done) for folder in folders]
        compared = [model for model in models if not isinstance(model, str)]
        parts += [_compare(cache, run, model, check, settings.scans, place, gradient) for model in compared]
        if models:
            notes[check] = _learned(compared, check) if compared else str(models[0])
    if settings.draws:
        options: dict[str, Any] = settings.model_dump(include={"draws", "scans", "independent"})
        parts += [cascade(cache, run.fold(fold), device=place, gradient=gradient, **options) for fold in done]
    table = summary(pd.concat(parts)) if parts else pd.DataFrame(columns=list(SANITY_COLUMNS))
    failed = [check for check in notes if not (table["check"] == check).any()]
    rows = [{"check": c, "fold": "all", "n_scans": 0, "n_undefined": 0, "verdict": "not done"} for c in failed]
    table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True) if rows else table
    table["note"] = table["check"].map(notes)
    write_table(table[list(SANITY_COLUMNS)], run.explanation / "sanity.tsv", SANITY_COLUMNS)


class _Other(NamedTuple):
    """Another model of one fold, the seed and the fold of its training, and its predictions."""

    model: BolT
    seed: int
    fold: int
    predictions: pd.DataFrame


def _other_model(folder: Path, done: Sequence[int]) -> _Other | str:
    """Load another model to compare with, or return why that is impossible."""
    status = read_json(folder / "status.json")
    if status["state"] != "ok":
        return str(status["reason"])
    model, info = load_bolt(folder)
    if info["fold"] not in done:
        return f"fold {info['fold']}, in which it was trained, has no importance weights to compare with"
    return _Other(model, info["seed"], info["fold"], read_predictions(folder / "predictions.tsv"))


def _compare(
    cache: Any,
    run: ModelRun,
    other: _Other,
    check: str,
    scans: int | None,
    device: torch.device,
    gradient: Gradient,
) -> pd.DataFrame:
    """Return rows as of `cascade` for another model of a fold."""
    keys = {"check": check, "step": np.nan, "layer": np.nan}
    return _Fold(cache, run.fold(other.fold), scans, gradient).compare(other.model, device, keys)


def _learned(others: Sequence[_Other], check: str) -> str:
    """Describe what other models have learned."""
    table = pd.concat([other.predictions for other in others])
    correct = (table["predicted"] == table["label"]).groupby(table["role"]).mean()
    right = f"is right about {correct['test']:.0%} of the test scans"
    if check == PERMUTED:
        return f"it has learned {correct['train']:.0%} of its permuted training labels, and {right}"
    folds = ", ".join(str(other.fold) for other in others)
    return f"seed {others[0].seed}, fold{'s' if len(others) > 1 else ''} {folds}; {right}"
