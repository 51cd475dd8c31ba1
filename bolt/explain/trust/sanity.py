"""Sanity checks: importance should vanish when the weights are randomised, or the labels permuted.

Two checks after Adebayo et al. 2018 (arXiv 1810.03292). In a cascade, the layers of a trained model are randomised one
after the other, from the classifier down to the input, and the importance of its test scans is computed again after
each. The second check does the same with a model trained on permuted labels. If the curves are still similar, they
reflect the scans or the architecture, not what the model has learned. The explained class is always the one that the
original model predicts, so that curves are comparable; no true label is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from bolt.explain.importance import importance_of, load_bolt
from bolt.explain.trust.similarity import GONE, correlations, mean_and_interval, ranked, without_position
from bolt.explain.weights import read_importance, require_explained
from bolt.io.errors import DataError
from bolt.io.files import read_json, write_table
from bolt.models.bolt import BolT
from bolt.models.registry import create_model
from bolt.training.device import device_of

SANITY_COLUMNS = {
    "check": "cascade: all layers from the classifier down to this one are random; independent: only this layer is "
    "random; permuted labels: a model trained on permuted labels",
    "step": "cascade: number of random layers; else n/a",
    "layer": "layer that was randomised last; n/a for permuted labels",
    "fold": "outer fold whose model was checked; 'all': the test scans of all folds together",
    "rho": "Spearman's correlation of a scan's importance with the original, after the mean curve of the other scans "
    "is removed from both; mean over test scans (and over draws of random weights)",
    "low": "lower end of its 95 % bootstrap interval over families (else subjects)",
    "high": "upper end",
    "rho_raw": "the same without removing the mean curve, so that it includes the effect of position",
    "raw_low": "lower end of its interval",
    "raw_high": "upper end",
    "n_scans": "number of test scans",
    "n_undefined": "number of them without a rank correlation, because nothing is left after the mean curve is "
    "removed; if more than half, rho is n/a",
    "verdict": f"for the last step of each check, all folds together: 'passed' if |rho| < {GONE}, 'not passed' if not "
    "or if rho is undefined, 'not done'; else n/a",
    "note": "remarks",
}
KEYS = ["check", "step", "layer"]
PERMUTED = "permuted labels"


def layers_of(model: BolT) -> dict[str, tuple[str, ...]]:
    """Return the layers from output to input: name to the prefixes of its parameters' names."""
    blocks = {f"block {i + 1}": (f"blocks.{i}.",) for i in reversed(range(len(model.blocks)))}
    return {"classifier": ("classifier.", "norm."), **blocks, "input": ("projection.", "cls")}


def fresh_model(info: dict[str, Any], draw: int) -> BolT:
    """Build the model of a ``checkpoint.json`` with initial weights, different for each `draw`; on the CPU."""
    seed = np.random.SeedSequence([info["seed"], info["fold"], 0, 0, 1 + draw]).generate_state(1)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        return create_model(info["model"]["model"], info["n_rois"], len(info["classes"]), **info["model"]["hyper"])


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

    def __init__(self, cache: Any, run_fold: Path, scans: int | None) -> None:
        self.model, self.info = load_bolt(run_fold)
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
        other = self._ranked(importance_of(model, self._series, device, self._targets))
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

    Returns
    -------
    DataFrame
        One row per scan, check, layer and draw: scan_id, group, fold, `KEYS`, rho, rho_raw. Step 0 is the model itself.
    """
    fold = _Fold(cache, run_fold, scans)
    parts = [fold.compare(fold.model, device, {"check": "cascade", "step": 0, "layer": "none"})]
    for draw in range(draws):
        fresh = fresh_model(fold.info, draw)
        for keys, layers in randomisations(fold.model, independent):
            parts.append(fold.compare(with_random(fold.model.cpu(), fresh, layers), device, keys))
    return pd.concat(parts, ignore_index=True)


def summary(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return mean and interval of each check and layer, for all folds together and for each fold.

    Parameters
    ----------
    comparisons : DataFrame
        Rows of `cascade`.

    Returns
    -------
    DataFrame
        Columns of `SANITY_COLUMNS`.
    """
    single = comparisons.groupby([*KEYS, "fold", "scan_id", "group"], sort=False, dropna=False, as_index=False)
    scans = single[["rho", "rho_raw"]].mean()
    ends = {"cascade": scans.loc[scans["check"] == "cascade", "step"].max()}
    rows = []
    for whole in (True, False):
        by = KEYS if whole else ["fold", *KEYS]
        for _, part in scans.groupby(by, sort=False, dropna=False):
            keys = part.iloc[0][KEYS].to_dict()
            rho, low, high = mean_and_interval(part["rho"].to_numpy(), part["group"])
            raw, raw_low, raw_high = mean_and_interval(part["rho_raw"].to_numpy(), part["group"])
            final = keys["check"] == PERMUTED or keys["step"] == ends.get(keys["check"])
            rows.append(
                {
                    **keys,
                    "fold": "all" if whole else part["fold"].iloc[0],
                    **{"rho": rho, "low": low, "high": high, "rho_raw": raw, "raw_low": raw_low, "raw_high": raw_high},
                    "n_scans": len(part),
                    "n_undefined": int(part["rho"].isna().sum()),
                    "verdict": verdict(rho) if whole and final else None,
                    "note": None,
                }
            )
    return pd.DataFrame(rows, columns=list(SANITY_COLUMNS))


def verdict(rho: float) -> str:
    """Return 'passed' if the original importance has vanished; an undefined correlation has not passed."""
    return "passed" if abs(rho) < GONE else "not passed"


def write_sanity(cache: Any, run: ModelRun, folds: Sequence[int], settings: Sanity, device: str = "auto") -> None:
    """Write ``sanity.tsv`` (`SANITY_COLUMNS`) of a run, from the folds that are explained.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : ModelRun
    folds : sequence of int
    settings : Sanity
        Without draws there is no cascade. If the training on permuted labels failed, the table gives the reason.
    device : {"auto", "cpu", "cuda"}

    Raises
    ------
    DataError
        No fold has importance weights.
    """
    done = require_explained(run.folder, folds)
    place = device_of(device, None)
    parts, note = [], ""
    if settings.draws:
        options: dict[str, Any] = settings.model_dump(include={"draws", "scans", "independent"})
        parts = [cascade(cache, run.fold(fold), device=place, **options) for fold in done]
    if settings.permuted:
        rows, note = _compare_permuted(cache, run, done, settings.scans, place)
        parts += [] if rows is None else [rows]
    table = summary(pd.concat(parts)) if parts else pd.DataFrame(columns=list(SANITY_COLUMNS))
    if note and not (table["check"] == PERMUTED).any():
        failed = {"check": PERMUTED, "fold": "all", "n_scans": 0, "n_undefined": 0, "verdict": "not done"}
        table = pd.concat([table, pd.DataFrame([failed])], ignore_index=True)
    table.loc[table["check"] == PERMUTED, "note"] = note
    write_table(table[list(SANITY_COLUMNS)], run.explanation / "sanity.tsv", SANITY_COLUMNS)


def _compare_permuted(
    cache: Any, run: ModelRun, done: Sequence[int], scans: int | None, device: torch.device
) -> tuple[pd.DataFrame | None, str]:
    """Return rows as of `cascade` for the model trained on permuted labels, or None, and a note."""
    status = read_json(run.permuted / "status.json")
    if status["state"] != "ok":
        return None, status["reason"]
    model, info = load_bolt(run.permuted)
    if info["fold"] not in done:
        return None, f"fold {info['fold']}, whose labels were permuted, has no importance weights to compare with"
    fold = _Fold(cache, run.fold(info["fold"]), scans)
    rows = fold.compare(model, device, {"check": PERMUTED, "step": np.nan, "layer": np.nan})
    table = read_predictions(run.permuted / "predictions.tsv")
    correct = (table["predicted"] == table["label"]).groupby(table["role"]).mean()
    return rows, (
        f"it has learned {correct['train']:.0%} of its permuted training labels, and is right about "
        f"{correct['test']:.0%} of the test scans"
    )
