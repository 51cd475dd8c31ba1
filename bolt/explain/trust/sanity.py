"""Sanity checks: importance should vanish when the weights are randomised, or the labels permuted.

Two checks after Adebayo et al. 2018 (arXiv 1810.03292). In a cascade, the layers of a trained model are randomised one
after the other, from the classifier down to the input, and the importance of its test scans is computed again after
each. The second check does the same with a model trained on permuted labels. If the curves are still similar, they
reflect the scans or the architecture, not what the model has learned. The explained class is always the one that the
original model predicts, so that curves are comparable; no true label is read.

Curves without any meaning vanish, too. So a check is passed only if the importance of a model trained again with
another seed resembles the original (the positive control), and only if the interval of the remaining correlation is
within the threshold (an equivalence test), because few scans would leave a small correlation by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bolt.config import Sanity
from bolt.config.layout import ModelRun
from bolt.evaluate.metrics import read_predictions
from bolt.explain.importance import fresh_model, importance_of, load_bolt
from bolt.explain.relevance import Gradient
from bolt.explain.trust.similarity import (
    PERMUTED,
    RETRAINED,
    SANITY_COLUMNS,
    correlations,
    ranked,
    summary,
    without_position,
)
from bolt.explain.weights import read_importance
from bolt.io.files import read_json, write_table
from bolt.models.bolt import BolT
from bolt.training.device import device_of

Compare = Callable[[BolT, dict[str, Any]], pd.DataFrame]
"""Compares importance under another model with the original: one row per scan, with the given keys."""


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


def _comparison(
    cache: Any, run_fold: Path, scans: int | None, device: str | torch.device, gradient: Gradient
) -> tuple[BolT, dict[str, Any], Compare]:
    """Return the model of a fold, its ``checkpoint.json``, and the comparison of its test scans with other models."""
    model, info = load_bolt(run_fold)
    table, weights = read_importance(run_fold)
    tests = np.flatnonzero((table["role"] == "test").to_numpy())
    if scans is not None and len(tests) > scans:
        random = np.random.default_rng([info["seed"], info["fold"]])
        tests = np.sort(random.choice(tests, scans, replace=False))
    names = table["scan_id"].iloc[tests]
    groups = read_predictions(run_fold / "predictions.tsv").set_index("scan_id")["group"]
    about = pd.DataFrame({"scan_id": names, "group": names.map(groups), "fold": str(info["fold"])})
    position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
    series = [cache.series(position[scan]) for scan in names]
    targets = [info["classes"].index(name) for name in table["predicted"].iloc[tests]]

    def both(curves: list[NDArray[np.floating]]) -> tuple[list[NDArray[np.floating]], ...]:
        """Return ranks with the effect of position removed, and without."""
        return ranked(without_position(curves)), ranked(curves)

    original = both([weights[i] for i in tests])

    def compare(other: BolT, keys: dict[str, Any]) -> pd.DataFrame:
        others = both(importance_of(other, series, device, targets, gradient))
        rho, raw = (correlations(a, b) for a, b in zip(original, others, strict=True))
        return about.assign(**keys, rho=rho, rho_raw=raw)

    return model, info, compare


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
    model, info, compare = _comparison(cache, run_fold, scans, device, gradient)
    names = list(layers_of(model))
    checks: list[tuple[str, float, list[str]]] = [("cascade", k, names[:k]) for k in range(1, len(names) + 1)]
    checks += [("independent", np.nan, [name]) for name in names] * independent
    parts = [compare(model, {"check": "cascade", "step": 0, "layer": "none"})]
    for draw in range(draws):
        fresh = fresh_model(info, draw)
        for check, step, layers in checks:
            random = with_random(model.cpu(), fresh, layers)
            parts.append(compare(random, {"check": check, "step": step, "layer": layers[-1]}))
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
    """Write ``sanity.tsv`` (`SANITY_COLUMNS`) of a run, from folds that are explained.

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
    """
    place = device_of(device, None)
    others = {RETRAINED: list(retrained) if settings.controlled else [], PERMUTED: [run.permuted] * settings.permuted}
    parts, notes = [], {}
    for check, folders in others.items():
        trained, predictions, reasons = [], [], []
        for folder in folders:
            status = read_json(folder / "status.json")
            if status["state"] != "ok":
                reasons.append(str(status["reason"]))
                continue
            model, info = load_bolt(folder)
            if info["fold"] not in folds:
                what = f"fold {info['fold']}, in which it was trained, has no importance weights to compare with"
                reasons.append(what)
                continue
            compare = _comparison(cache, run.fold(info["fold"]), settings.scans, place, gradient)[-1]
            parts.append(compare(model, {"check": check, "step": np.nan, "layer": np.nan}))
            trained.append(info)
            predictions.append(read_predictions(folder / "predictions.tsv"))
        if trained:
            table = pd.concat(predictions)
            correct = (table["predicted"] == table["label"]).groupby(table["role"]).mean()
            right = f"is right about {correct['test']:.0%} of the test scans"
            if check == PERMUTED:
                learned = f"it has learned {correct['train']:.0%} of its permuted training labels"
                notes[check] = f"{learned}, and {right}"
            else:
                of = ", ".join(str(info["fold"]) for info in trained)
                notes[check] = f"seed {trained[0]['seed']}, fold{'s' if len(trained) > 1 else ''} {of}; {right}"
        elif folders:
            notes[check] = reasons[0]
    if settings.draws:
        options: dict[str, Any] = settings.model_dump(include={"draws", "scans", "independent"})
        parts += [cascade(cache, run.fold(fold), device=place, gradient=gradient, **options) for fold in folds]
    table = summary(pd.concat(parts)) if parts else pd.DataFrame(columns=list(SANITY_COLUMNS))
    failed = [check for check in notes if not (table["check"] == check).any()]
    rows = [{"check": c, "fold": "all", "n_scans": 0, "n_undefined": 0, "verdict": "not done"} for c in failed]
    table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True) if rows else table
    table["note"] = table["check"].map(notes)
    write_table(table[list(SANITY_COLUMNS)], run.explanation / "sanity.tsv", SANITY_COLUMNS)
