"""Do maps of folds and seeds agree, and is importance faithful? On noise, on position alone, and on planted moments.

Former rules: maps agree if they correlate by 0.5 in the mean over pairs; importance is faithful if it is better than
random orders, for both replacements.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from benchmarks.verdicts.simulation import Said, Simulation
from bolt.config import Faithfulness
from bolt.config.layout import ModelRun
from bolt.explain.relevance import importance
from bolt.explain.trust.faithfulness import summarise
from bolt.explain.trust.perturb import scan_curves
from bolt.explain.trust.similarity import position_curves
from bolt.explain.trust.stability import Refits, write_stability
from bolt.explain.weights import write_importance
from bolt.io.files import read_table, write_status
from bolt.models.bolt import BolT
from bolt.report.pages.verdicts import MEASURES, NOT_TESTED, SUPPORTED, Evidence, ask

Array = np.ndarray
Choice = Callable[[np.random.Generator, Array, Array, Array], Array]
"""Importance (scans, volumes) from random numbers, series, labels and which scans are for training."""

CLASSES = ["control", "patient"]
PEOPLE, VOLUMES, ROIS, PLANTED, TOKENS, FOLDS, PERMUTATIONS = 80, 60, 40, 4, 5, 10, 99


# ---- maps ----------------------------------------------------------------------------------------


def noise(random: np.random.Generator) -> tuple[Array, Array]:
    """Return smooth noise (people, volumes, rois) and labels that have nothing to do with it."""
    series = random.standard_normal((PEOPLE, VOLUMES, ROIS))
    for t in range(1, VOLUMES):
        series[:, t] = 0.6 * series[:, t - 1] + 0.8 * series[:, t]
    return zscored(series), random.permutation(np.arange(PEOPLE) % 2)


def zscored(series: Array) -> Array:
    """Z-score each ROI of each scan."""
    return (series - series.mean(1, keepdims=True)) / series.std(1, keepdims=True)


def same_volumes(random: np.random.Generator, series: Array, labels: Array, train: Array) -> Array:
    """Return the same random importance in all folds."""
    return np.random.default_rng(0).random(series.shape[:2])


def similar_volumes(random: np.random.Generator, series: Array, labels: Array, train: Array) -> Array:
    """Return similar random importance in all folds and seeds."""
    return same_volumes(random, series, labels, train) + random.uniform(0, 0.1, series.shape[:2])


def memorised(random: np.random.Generator, series: Array, labels: Array, train: Array) -> Array:
    """Return support for the class that a model predicts which knows its training labels by heart.

    The model is linear in the skewness of the ROIs, and importance is each volume's contribution.
    """
    skewness = (series**3).mean(1)
    kernel = skewness[train].T @ skewness[train] + np.eye(series.shape[-1])
    direction = np.linalg.solve(kernel, skewness[train].T @ (2.0 * labels[train] - 1))
    direction += random.normal(0, 0.1 * direction.std(), len(direction))  # models of two seeds differ a little
    sign = np.where(skewness @ direction > 0, 1, -1)
    return np.exp(sign[:, None] * (series @ direction) / np.linalg.norm(direction))


def map_verdict(seed: int, choose: Choice, strength: float = 0.0, *, between: str = "folds") -> Said:
    """Judge maps of noise, or of noise with regions planted in the volumes that are chosen."""
    random = np.random.default_rng(seed)
    series, labels = noise(random)
    if strength:
        marks = choose(random, series, labels, labels >= 0)
        for scan, label, weights in zip(series, labels, marks, strict=True):
            scan[np.argsort(-weights)[:TOKENS], :PLANTED] += strength * (2 * label - 1)
    fold_of = random.permutation(np.arange(PEOPLE) % FOLDS)
    names = [f"s{i:03d}" for i in range(PEOPLE)]
    index = pd.DataFrame({"scan_id": names, "subject": names, "group": names})
    index["label"] = [CLASSES[label] for label in labels]
    cache: Any = SimpleNamespace(index=index, series=lambda i: series[i])
    with tempfile.TemporaryDirectory() as folder:
        run = ModelRun(Path(folder), "x", "v", "m", 0)
        seeds = [0, 1] if between == "seeds" else [0]
        for its_run in (run.with_seed(s) for s in seeds):
            for fold in range(FOLDS):
                train = fold_of != fold
                weights = choose(random, series, labels, train)
                table = index.assign(role=np.where(train, "train", "test"), predicted=CLASSES[0])
                write_importance(table, list(weights), its_run.fold(fold))
                table.to_csv(its_run.fold(fold) / "predictions.tsv", sep="\t", index=False)
                write_status(its_run.fold(fold) / "status.json", "ok", "train")
            refits = Refits(cache, index.set_index("scan_id")["group"], CLASSES, tokens=TOKENS, permutations=0)
            maps = [fitted[0] for fitted in refits.fold_maps(its_run.folder, range(FOLDS)).values()]
            its_run.explanation.mkdir(parents=True)
            np.save(its_run.explanation / "coefficients.npy", np.stack(maps))
        settings = {"fraction": 0.1, "tokens": TOKENS, "permutations": PERMUTATIONS}
        write_stability(cache, run, seeds, range(FOLDS), CLASSES, **settings)
        table = read_table(run.explanation / "stability.tsv", text=("between", "what", "class", "one", "other"))
        maps = table[(table["between"] == between) & (table["what"] == "regions") & (table["one"] == "mean")]
        state = ask(between, Evidence(run.folder, run.explanation, TOKENS)).state
    return {
        "former": bool(maps["pearson"].mean() >= 0.5),
        "present": None if state == NOT_TESTED else state == SUPPORTED,
    }


# ---- deletion and insertion ----------------------------------------------------------------------

HYPER = {"hidden": 16, "n_blocks": 1, "n_heads": 2, "head_dim": 8, "window": 8, "dropout": 0.0}
SETTINGS = Faithfulness(steps=5, random_draws=3, surrogates=1, block=4, gradient_steps=2)
LENGTH, COLUMNS, STEPS, TESTS = 44, 6, 60, 16


def scans_of(random: np.random.Generator, labels: Array, amplitude: float, *, fixed: bool) -> tuple[Array, Array]:
    """Return scans (n, time, rois) whose class shows in two short stretches, and marks of these."""
    series, marks = 0.5 * random.standard_normal((len(labels), LENGTH, COLUMNS)), np.zeros((len(labels), LENGTH))
    for scan, mark, label in zip(series, marks, labels, strict=True):
        for start in (4, 12) if fixed else random.choice(np.arange(0, LENGTH, 4), 2, replace=False):
            mark[start : start + 2] = 1
        scan[mark == 1, 0] += amplitude * (2 * label - 1)
    return series.astype(np.float32), marks


def tiny_bolt(random: np.random.Generator, seed: int, amplitude: float, *, fixed: bool, learns: str) -> BolT:
    """Return a model that is not trained (`learns` "nothing"), or trained on "noise" labels or on the "class"."""
    torch.manual_seed(seed)
    model = BolT(COLUMNS, 2, **HYPER)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    labels = random.integers(0, 2, 24)
    x = scans_of(random, labels, 0.0, fixed=fixed)[0]
    for _ in range(STEPS * (learns != "nothing")):
        if learns == "class":
            labels = random.integers(0, 2, 16)
            x = scans_of(random, labels, amplitude, fixed=fixed)[0]
        optimizer.zero_grad()
        cross_entropy(model(torch.from_numpy(x)).logits, torch.from_numpy(labels)).backward()
        optimizer.step()
    return model.eval()


def faithfulness_verdict(
    seed: int, direction: str, learns: str, amplitude: float = 0.0, *, weights_of: str, fixed: bool = False
) -> Said:
    """Judge the importance of a tiny BolT's test scans.

    It is that of "algorithm 1", of "other scans" at the same position, "shifted" in time, of "planted" volumes, or
    "random". The class shows in volumes at random times or, if `fixed`, in the same volumes of all scans.
    """
    torch.set_num_threads(1)
    random = np.random.default_rng(seed)
    model = tiny_bolt(random, seed, amplitude, fixed=fixed, learns=learns)
    scans, planted = scans_of(random, random.integers(0, 2, TESTS), amplitude, fixed=fixed)
    explained = [importance(model, torch.from_numpy(scan)[None])[0].numpy() for scan in scans]
    weights = {
        "algorithm 1": explained,
        "other scans": position_curves(explained),
        "shifted": [np.roll(curve, random.integers(LENGTH)) for curve in explained],
        "planted": planted,
        "random": random.random((TESTS, LENGTH)),
    }[weights_of]
    weights = [np.nan_to_num(curve) for curve in weights]  # an untrained model may give a scan no importance at all
    weights = [curve + random.uniform(0, 0.01 * curve.mean(), LENGTH) for curve in weights]
    curves = [
        scan_curves(model, scan, own, others, SETTINGS, random)
        for scan, own, others in zip(scans, weights, position_curves(weights), strict=True)
    ]
    areas = summarise([f"p{i}" for i in range(TESTS)], np.stack(curves))[1]
    rows = areas[(areas["order"] == "importance") & (areas["direction"] == direction)]
    answer = MEASURES[direction](areas)
    return {
        "former": bool((rows["better_than_random"] == "yes").all()),
        "present": None if answer is None else answer.outcome == SUPPORTED,
    }


FOLD_MAPS, SEED_MAPS = "maps of folds agree", "maps of seeds agree"
FAITHFUL = {"deletion": "the prediction falls without important moments", "insertion": "it recovers with them"}


def map_simulation(data: str, choose: Choice, strength: float = 0.0, between: str = "folds") -> Simulation:
    """Return a simulation of maps."""
    draw = partial(map_verdict, choose=choose, strength=strength, between=between)
    verdict = FOLD_MAPS if between == "folds" else SEED_MAPS
    return Simulation(verdict, data, strength > 0, draw, 0.05, repetitions=200)


def faithfulness_simulations(data: str, effect: bool, **settings: Any) -> list[Simulation]:
    """Return simulations of deletion and of insertion."""
    return [
        Simulation(verdict, data, effect, partial(faithfulness_verdict, direction=name, **settings), 0.025, 100)
        for name, verdict in FAITHFUL.items()
    ]


SIMULATIONS = [
    map_simulation("noise, the same volumes in all folds", same_volumes),
    map_simulation("noise, volumes of models that memorised their training labels", memorised),
    map_simulation("noise, similar volumes under both seeds", similar_volumes, between="seeds"),
    map_simulation("noise, volumes of two seeds that memorised their labels", memorised, between="seeds"),
    *(map_simulation(f"4 of 40 regions shifted by {s} SD", similar_volumes, s) for s in (0.1, 0.2, 0.4)),
    *(map_simulation(f"4 of 40 regions shifted by {s} SD", similar_volumes, s, "seeds") for s in (0.1, 0.2, 0.4)),
    *faithfulness_simulations(
        "random importance, BolT that uses few volumes", False, learns="class", amplitude=5, weights_of="random"
    ),
    *faithfulness_simulations(
        "shifted importance, BolT that uses few volumes", False, learns="class", amplitude=5, weights_of="shifted"
    ),
    *faithfulness_simulations("position alone, untrained BolT", False, learns="nothing", weights_of="other scans"),
    *faithfulness_simulations("position alone, BolT trained on noise", False, learns="noise", weights_of="other scans"),
    *faithfulness_simulations(
        "position alone, BolT that uses the same volumes of all scans",
        False,
        learns="class",
        amplitude=5,
        weights_of="other scans",
        fixed=True,
    ),
    *faithfulness_simulations(
        "Algorithm 1, BolT that uses few volumes, 10 SD", True, learns="class", amplitude=5, weights_of="algorithm 1"
    ),
    *(
        simulation
        for amplitude in (1, 2, 5)
        for simulation in faithfulness_simulations(
            f"planted volumes, BolT that uses few volumes, {2 * amplitude} SD",
            True,
            learns="class",
            amplitude=amplitude,
            weights_of="planted",
        )
    ),
]
