"""Verdicts on random weights and permuted labels, and on importance during a task's events.

Version 0.1 passed a sanity check if the correlation that remained was below 0.2, whatever its interval and whether or
not the importance was reproducible; and it tested importance during events by circular shifts of the curve as it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from benchmarks.verdicts.simulation import Said, Simulation
from bolt.config import Model, Sanity, Training
from bolt.config.layout import ModelRun
from bolt.explain.importance import DRAWS, explain_fold, fresh_model, importance_of, load_bolt
from bolt.explain.tasks import alignment
from bolt.explain.trust.permuted import train_permuted
from bolt.explain.trust.sanity import write_sanity
from bolt.explain.trust.similarity import (
    GONE,
    RETRAINED,
    correlations,
    ranked,
    relative_to_untrained,
    summary,
    without_position,
)
from bolt.io.files import read_table
from bolt.report.pages.verdicts import MEASURES, NOT_TESTED, SUPPORTED, questions
from bolt.report.pages.verdicts import sanity as judge
from bolt.series.cache import SeriesCache
from bolt.training.trainers import train_fold
from tests.caches import dataset, pack, scan_table, split

ALPHA = questions()["events"]["thresholds"]["alpha"]
ROIS, TIME, FOLDS = 20, 120, 3
CLASSES = ["control", "patient"]
DATASET = dataset(CLASSES, crop=100)
HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 10}
MODEL = Model(
    name="tiny",
    model="bolt",
    hyper=HYPER,
    training=Training(epochs=15, batch_size=12, schedule="constant", learning_rate=5e-3),
)
Curves = list[NDArray[np.floating]]


# ---- sanity checks -----------------------------------------------------------------------------------
def said(table: pd.DataFrame, check: str) -> Said:
    """Return what the former and the present rule say about a table of sanity checks."""
    row = table[(table["check"] == check) & (table["fold"] == "all") & table["verdict"].notna()].iloc[-1]
    answer = judge(table, check=check)
    outcome = NOT_TESTED if answer is None else answer.outcome
    return {"former": bool(abs(row["rho"]) < GONE), "present": None if outcome == NOT_TESTED else outcome == SUPPORTED}


def made_up(seed: int, *, scans: int, remains: float, again: float) -> Said:
    """Judge curves of noise whose correlations with the original are given, of random weights and of another seed."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal((4, scans, TIME))
    shares = (1, remains, remains, again)  # the original, two draws of random weights, another seed
    curves = [np.exp(a * noise[0] + np.sqrt(1 - a**2) * own) for a, own in zip(shares, noise, strict=True)]
    curves[0] = np.exp(noise[0])
    original, *others = (ranked(without_position(list(part))) for part in curves)
    names = [f"s{i}" for i in range(scans)]
    about = pd.DataFrame({"scan_id": names, "group": names, "fold": "0", "rho_raw": 0.0})
    checks = [("cascade", 0), ("cascade", 0), (RETRAINED, np.nan)]
    parts = [
        about.assign(check=check, step=step, layer="input", rho=correlations(original, other))
        for (check, step), other in zip(checks, others, strict=True)
    ]
    return said(summary(pd.concat(parts)), "cascade")


def planted(seed: int, n: int, effect: float) -> list[NDArray[np.floating]]:
    """Simulate scans of two classes, by turns, which differ in the sign of a pattern at three short moments."""
    random = np.random.default_rng(seed)
    scans = []
    for i in range(n):
        values = gaussian_filter1d(random.standard_normal((TIME, ROIS)), 1, axis=0) * 2
        for start in random.choice(TIME // 8, 3, replace=False) * 8:
            values[start : start + 6, :5] += effect * (1 if i % 2 else -1)
        scans.append(values)
    return scans


def trained(folder: Path, seed: int, effect: float, n: int) -> tuple[ModelRun, Path]:
    """Train and explain one fold of a tiny BolT; return its run and the table of folds."""
    scans = scan_table([CLASSES[i % 2] for i in range(n)])
    run = ModelRun(folder, "x", "v", "tiny", 0)
    made = pack(folder / "data", planted(seed, n, effect), scans)
    run.cache.parent.mkdir(parents=True)
    made.rename(run.cache)
    folds = split(folder, scans, FOLDS, seed)
    train_fold(run.cache, folds, MODEL, DATASET, fold=0, seed=0, out=run.fold(0), device="cpu", progress=False)
    explain_fold(SeriesCache(run.cache), run.fold(0), "cpu")
    return run, folds


def of_a_model(seed: int, *, check: str, effect: float, n: int = 60) -> Said:
    """Judge a tiny BolT, trained on one fold with true labels, again with another seed, and on permuted labels."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        run, folds = trained(Path(name), seed, effect, n)
        place: Any = {"device": "cpu", "progress": False}
        train_fold(run.cache, folds, MODEL, DATASET, fold=0, seed=1, out=run.retrained, **place)
        settings = Sanity(draws=2, scans=None, independent=False, permuted=check != "cascade")
        if settings.permuted:
            train_permuted(run, folds, MODEL, DATASET, fold=0, device="cpu")
        write_sanity(SeriesCache(run.cache), run, [0], settings, "cpu", [run.retrained])
        table = read_table(run.explanation / "sanity.tsv", text=("check", "layer", "fold", "verdict", "note"))
    return said(table, check)


# ---- events of a task --------------------------------------------------------------------------------
def ends(n: int) -> NDArray[np.bool_]:
    """One block, with rest at both ends of the scan."""
    place = np.arange(n)
    return (place >= 12) & (place < n - 12)


def periodic(n: int) -> NDArray[np.bool_]:
    """Blocks of 15 volumes, every 30, with rest at both ends."""
    place = np.arange(n) - 12
    return (place >= 0) & (place % 30 < 15) & (place < n - 24)


def two(n: int) -> NDArray[np.bool_]:
    """Two blocks of a quarter each."""
    place = np.arange(n) / n
    return ((place > 0.15) & (place < 0.4)) | ((place > 0.6) & (place < 0.85))


def events(
    seed: int,
    *,
    block: Callable[[int], NDArray[np.bool_]],
    scans: int = 12,
    lengths: tuple[int, int] = (150, 150),
    window: int = 20,
    learned: bool = False,
    raised: float = 1.0,
) -> Said:
    """Judge importance during blocks in noise, of a model that is untrained, or trained on other labels of noise."""
    torch.set_num_threads(1)
    random = np.random.default_rng([seed, 1])
    n_volumes = random.integers(lengths[0], lengths[1] + 1, scans)
    series = [_standardised(gaussian_filter1d(random.standard_normal((n, ROIS)), 1.5, axis=0)) for n in n_volumes]
    if learned:
        with tempfile.TemporaryDirectory() as name:
            run, _ = trained(Path(name), seed, effect=0.0, n=36)
            model, info = load_bolt(run.fold(0))
    else:
        hyper = {**HYPER, "window": window}
        info = {"model": {"model": "bolt", "hyper": hyper}, "n_rois": ROIS, "classes": CLASSES, "seed": seed, "fold": 0}
        model = fresh_model(info, DRAWS)  # none of those that are divided by
    during = [block(n) for n in n_volumes]
    weights = importance_of(model, series, "cpu")
    weights = [own * np.where(mask, raised, 1.0) for own, mask in zip(weights, during, strict=True)]
    draws = [importance_of(fresh_model(info, draw), series, "cpu") for draw in range(DRAWS)]
    untrained = [np.mean([own / own.mean() for own in scan], axis=0) for scan in zip(*draws, strict=True)]
    relative, expected = relative_to_untrained(weights, untrained)
    former, found, position = (_aligned(curves, during) for curves in (weights, relative, expected))
    row = {"class": "x", "trial_type": "block", **found, "ratio_untrained": position["ratio"]}
    answer = MEASURES["events"](pd.DataFrame([row]), alpha=ALPHA)
    return {
        "former": bool(former["p"] < ALPHA and former["ratio"] > 1),
        "present": answer is not None and answer.outcome == SUPPORTED,
    }


def _standardised(values: NDArray[np.floating]) -> NDArray[np.floating]:
    return ((values - values.mean(0)) / values.std(0)).astype(np.float32)


def _aligned(curves: Curves, during: list[NDArray[np.bool_]]) -> dict[str, float]:
    """Compare importance during blocks with that of the whole scan."""
    shape = len(curves), max(map(len, curves))
    weights, masks = np.full(shape, np.nan), np.zeros(shape, bool)
    for i, (curve, mask) in enumerate(zip(curves, during, strict=True)):
        weights[i, : len(curve)], masks[i, : len(mask)] = curve / np.nanmean(curve), mask
    return alignment(weights, masks)


def _sanity(data: str, effect: bool, draw: Callable[[int], Said], repetitions: int, of: str = "weights") -> Simulation:
    verdict = f"importance vanishes with {'random weights' if of == 'weights' else 'permuted labels'}"
    return Simulation(verdict, data, effect, draw, None if effect else 0.05, repetitions)


def _events(data: str, repetitions: int, effect: bool = False, **options: Any) -> Simulation:
    nominal = None if effect else ALPHA
    return Simulation(
        "importance is higher during events", data, effect, partial(events, **options), nominal, repetitions
    )


NUMBERS = "importance is random numbers"
PLANTED = "tiny BolT trained on planted moments, 20 scans"
NOISE = "untrained BolT on noise"
KEPT = {"scans": 20, "remains": 0.23, "again": 0.6}
"""Correlations before the mean curve is removed and ranks are taken; 0.23 then is 0.2."""
SIMULATIONS = [
    _sanity(f"{NUMBERS}, 20 scans", False, partial(made_up, scans=20, remains=0.0, again=0.0), 400),
    _sanity(f"{NUMBERS}, 8 scans", False, partial(made_up, scans=8, remains=0.0, again=0.0), 400),
    _sanity("random weights keep ρ = 0.2, 20 scans", False, partial(made_up, **KEPT), 400),
    _sanity("another seed has ρ = 0.3, 20 scans", True, partial(made_up, scans=20, remains=0.0, again=0.35), 400),
    _sanity("another seed has ρ = 0.3, 6 scans", True, partial(made_up, scans=6, remains=0.0, again=0.35), 400),
    _sanity(PLANTED, True, partial(of_a_model, check="cascade", effect=3.0), 50),
    _sanity(PLANTED, True, partial(of_a_model, check="permuted labels", effect=3.0), 50, "labels"),
    _events(f"{NOISE}, rest at both ends", 200, block=ends),
    _events(f"{NOISE}, rest at both ends, window 8, 120 volumes", 200, block=ends, window=8, lengths=(120, 120)),
    _events(f"{NOISE}, rest at both ends, 60 scans", 100, block=ends, scans=60),
    _events(f"{NOISE}, rest at both ends, scans of 110 to 160 volumes", 200, block=ends, lengths=(110, 160)),
    _events(f"{NOISE}, blocks every 30 volumes", 200, block=periodic),
    _events(f"{NOISE}, two blocks", 200, block=two),
    _events("BolT trained on noise, rest at both ends", 100, block=ends, learned=True),
    _events("BolT trained on noise, rest at both ends, 40 scans", 100, block=ends, learned=True, scans=40),
    _events("1.3 times the importance in blocks, rest at both ends", 100, True, block=ends, raised=1.3),
    _events("twice the importance in blocks, rest at both ends", 100, True, block=ends, raised=2.0),
    _events("1.3 times the importance in blocks, every 30 volumes", 100, True, block=periodic, raised=1.3),
    _events("1.3 times the importance in two blocks", 100, True, block=two, raised=1.3),
]
