"""Does the explanation depend on what the model has learned? Two checks after Adebayo et al. 2018 (arXiv 1810.03292).

In a cascade the layers of a trained model are given random weights, from the classifier down to the input, and the
importance of its test scans is taken again after each; a model trained on permuted labels is asked the same. If the
curves still look alike, they show the scans or the architecture, not the model's reasons. The class that is explained
is always the one that the original model predicts, so that all curves answer one question; no true label is read.
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

from bolt.evaluate.metrics import read_predictions
from bolt.explain.importance import importance_of
from bolt.explain.trust.similarity import GONE, correlations, mean_and_interval, ranked, without_position
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import read_json, write_table
from bolt.models.bolt import BolT
from bolt.models.registry import create_model
from bolt.training.checkpoint import load_checkpoint
from bolt.training.device import device_of

SANITY_COLUMNS = {
    "check": "cascade: layers random from the classifier down to this one; independent: this layer alone random; "
    "permuted labels: a model trained on permuted labels",
    "step": "cascade: number of layers that are random; else n/a",
    "layer": "layer that has got random weights last; n/a for a model that was trained anew",
    "fold": "outer fold whose model was checked; 'all': their test scans together",
    "rho": "Spearman's correlation of a scan's importance with the original, after the mean curve of the other scans "
    "is removed from both; mean over test scans (and over draws of random weights)",
    "low": "lower end of its 95 % bootstrap interval over families (else subjects)",
    "high": "upper end",
    "rho_raw": "the same without removing the mean curve: what position alone makes alike counts too",
    "raw_low": "lower end of its interval",
    "raw_high": "upper end",
    "n_scans": "test scans",
    "n_undefined": "of these, scans without a rank correlation, as nothing was left once the mean curve was removed; "
    "where they are more than half, rho is n/a",
    "verdict": f"of the checks' ends, all folds together: 'passed' where |rho| < {GONE}, 'not passed' otherwise or "
    "where rho is undefined, 'not done'; else n/a",
    "note": "what else there is to know",
}
KEYS = ["check", "step", "layer"]


def layers_of(model: BolT) -> dict[str, tuple[str, ...]]:
    """Layers from the output to the input: name to the beginnings of its parameters' names."""
    blocks = {f"block {i + 1}": (f"blocks.{i}.",) for i in reversed(range(len(model.blocks)))}
    return {"classifier": ("classifier.", "norm."), **blocks, "input": ("projection.", "cls")}


def fresh_model(info: dict[str, Any], draw: int) -> BolT:
    """The model of a ``checkpoint.json`` with weights as before training, other ones for each `draw`; on the CPU."""
    seed = np.random.SeedSequence([info["seed"], info["fold"], 0, 0, 1 + draw]).generate_state(1)[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        return create_model(info["model"]["model"], info["n_rois"], len(info["classes"]), **info["model"]["hyper"])


def with_random(model: BolT, fresh: BolT, layers: Sequence[str]) -> BolT:
    """A copy of `model` in which some layers have the weights of `fresh`."""
    begins = tuple(begin for layer in layers for begin in layers_of(model)[layer])
    weights = model.state_dict()
    replaced = {name: fresh.state_dict()[name] if name.startswith(begins) else weights[name] for name in weights}
    copy = deepcopy(model)
    copy.load_state_dict(replaced)
    return copy.eval()


def randomisations(model: BolT, independent: bool) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """`KEYS` of each check of one model, and the layers that are random in it."""
    names = list(layers_of(model))
    for step, name in enumerate(names, start=1):
        yield {"check": "cascade", "step": step, "layer": name}, names[:step]
    for name in names if independent else []:
        yield {"check": "independent", "step": np.nan, "layer": name}, [name]


class _Fold:
    """Test scans of one fold, and their importance under its model."""

    def __init__(self, cache: Any, run_fold: Path, scans: int | None) -> None:
        model, self.info = load_checkpoint(run_fold)
        if not isinstance(model, BolT) or self.info["classes"] is None:
            raise DataError("these checks are of BolT models that predict classes", where=run_fold / "checkpoint.json")
        self.model = model
        table, weights = read_importance(run_fold)
        tests = np.flatnonzero((table["role"] == "test").to_numpy())
        if scans is not None and len(tests) > scans:
            random = np.random.default_rng([self.info["seed"], self.info["fold"]])
            tests = np.sort(random.choice(tests, scans, replace=False))
        names = table["scan_id"].iloc[tests]
        groups = read_predictions(run_fold / "predictions.tsv").set_index("scan_id")["group"]
        place = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
        self.about = pd.DataFrame({"scan_id": names, "group": names.map(groups), "fold": str(self.info["fold"])})
        self._series = [cache.series(place[scan]) for scan in names]
        self._targets = [self.info["classes"].index(c) for c in table["predicted"].iloc[tests]]
        self._original = self._ranked([weights[i] for i in tests])

    @staticmethod
    def _ranked(weights: list[NDArray[np.floating]]) -> tuple[list[NDArray[np.floating]], ...]:
        return ranked(without_position(weights)), ranked(weights)

    def compare(self, model: BolT, device: str | torch.device, keys: dict[str, Any]) -> pd.DataFrame:
        """The importance of the scans under another model beside the original: a row a scan."""
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
    """Compare importance under a fold's model with that under the same model, more and more of it random.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run_fold : Path
        Folder of a fold that is explained.
    draws : int
        Draws of random weights.
    scans : int, optional
        Test scans, at most (drawn, seeded); by default all.
    independent : bool
        Whether each layer is made random alone, too.
    device : {"auto", "cpu", "cuda"} or torch.device

    Returns
    -------
    DataFrame
        A row a scan, check, layer and draw: scan_id, group, fold, `KEYS`, rho, rho_raw. Step 0 is the model as it is.
    """
    fold = _Fold(cache, run_fold, scans)
    found = [fold.compare(fold.model, device, {"check": "cascade", "step": 0, "layer": "none"})]
    for draw in range(draws):
        fresh = fresh_model(fold.info, draw)
        for keys, layers in randomisations(fold.model, independent):
            found.append(fold.compare(with_random(fold.model.cpu(), fresh, layers), device, keys))
    return pd.concat(found, ignore_index=True)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval of each check and layer, all folds together and each alone; columns of `SANITY_COLUMNS`.

    Parameters
    ----------
    found : DataFrame
        Rows of `cascade`.
    """
    single = found.groupby([*KEYS, "fold", "scan_id", "group"], sort=False, dropna=False, as_index=False)
    scans = single[["rho", "rho_raw"]].mean()
    ends = {"cascade": scans.loc[scans["check"] == "cascade", "step"].max()}
    rows = []
    for whole in (True, False):
        by = KEYS if whole else ["fold", *KEYS]
        for _, part in scans.groupby(by, sort=False, dropna=False):
            keys = part.iloc[0][KEYS].to_dict()
            rho, low, high = mean_and_interval(part["rho"].to_numpy(), part["group"])
            raw, raw_low, raw_high = mean_and_interval(part["rho_raw"].to_numpy(), part["group"])
            final = keys["check"] == "permuted labels" or keys["step"] == ends.get(keys["check"])
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
    """Whether the curve is gone; one that cannot be compared has not passed."""
    return "passed" if abs(rho) < GONE else "not passed"


def write_sanity(
    cache: Any,
    run: Path,
    folds: Sequence[int],
    permuted: Path | None,
    out: Path,
    *,
    draws: int,
    scans: int | None,
    independent: bool,
    device: str = "auto",
) -> None:
    """Write ``sanity.tsv`` (`SANITY_COLUMNS`) into `out`, of the folds that are explained.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : Path
        Folder ``seed-<s>``.
    folds : sequence of int
    permuted : Path, optional
        Folder of `bolt.explain.trust.permuted.train_permuted`; one that failed is said, not raised.
    out : Path
        Folder.
    draws, scans, independent, device
        As in `cascade`; without draws there is no cascade.

    Raises
    ------
    DataError
        Where no fold has importance weights.
    """
    done = explained_folds(run, folds)
    if not done:
        raise DataError(
            "no fold of this run has importance weights", where=run, hint="See the status.json of its folds"
        )
    found, note = [], ""
    place = device_of(device, None)
    if draws:
        settings: dict[str, Any] = {"draws": draws, "scans": scans, "independent": independent, "device": place}
        found = [cascade(cache, run / f"fold-{fold}", **settings) for fold in done]
    if permuted is not None:
        status = read_json(permuted / "status.json")
        model, info = load_checkpoint(permuted) if status["state"] == "ok" else (None, {})
        if model is None:
            note = status["reason"]
        elif info["fold"] not in done:
            note = f"fold {info['fold']}, whose labels were permuted, has no importance weights to compare with"
        else:
            note = _how_well(permuted)
            fold = _Fold(cache, run / f"fold-{info['fold']}", scans)
            keys = {"check": "permuted labels", "step": np.nan, "layer": np.nan}
            found.append(fold.compare(model, place, keys))  # type: ignore[arg-type]
    table = summary(pd.concat(found)) if found else pd.DataFrame(columns=list(SANITY_COLUMNS))
    if note and not (table["check"] == "permuted labels").any():
        failed = {"check": "permuted labels", "fold": "all", "n_scans": 0, "n_undefined": 0, "verdict": "not done"}
        table = pd.concat([table, pd.DataFrame([failed])], ignore_index=True)
    table.loc[table["check"] == "permuted labels", "note"] = note
    write_table(table[list(SANITY_COLUMNS)], out / "sanity.tsv", SANITY_COLUMNS)


def _how_well(permuted: Path) -> str:
    """What the model that was trained on permuted labels has learned of them, and of the true ones."""
    table = read_predictions(permuted / "predictions.tsv")
    right = (table["predicted"] == table["label"]).groupby(table["role"]).mean()
    return (
        f"it has learned {right['train']:.0%} of its permuted training labels, and is right about "
        f"{right['test']:.0%} of the test scans"
    )
