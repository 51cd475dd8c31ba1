"""The whole chain from training to the verdicts of the explanation page: small BolTs on noise and on planted moments.

One chain answers all questions at once, in fifteen seconds; its answers are kept in ``work/verdicts/chain/``, so that
an interrupted measurement resumes. Labels of noise have nothing to do with the series, as if they were permuted. Former
rules are applied to the same files.
"""

from __future__ import annotations

import logging
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.verdicts.simulation import Said, Simulation
from bolt.config import Dataset, Faithfulness, Model, Sanity
from bolt.config import Training as Settings
from bolt.config.layout import ModelRun
from bolt.evaluate.metrics import fold_predictions, write_metrics
from bolt.evaluate.scores import scores
from bolt.explain.importance import explain_fold
from bolt.explain.landmarks import landmark_regression, write_landmarks
from bolt.explain.regions import write_regions
from bolt.explain.trust.faithfulness import write_faithfulness
from bolt.explain.trust.permuted import train_permuted
from bolt.explain.trust.perturb import perturb_fold
from bolt.explain.trust.sanity import write_sanity
from bolt.explain.trust.similarity import GONE
from bolt.explain.trust.stability import write_stability
from bolt.io.files import read_json, read_table, write_json, write_status
from bolt.report.pages.verdicts import NOT_TESTED, Evidence, ask
from bolt.series.cache import SeriesCache
from bolt.training.outputs import Training
from bolt.training.runner import train_folds
from bolt.training.trainers import train_fold
from tests.caches import dataset, pack, scan_table, split

KEPT = Path("work/verdicts/chain")
CLASSES = ["control", "patient"]
PEOPLE, VOLUMES, ROIS, EVENTS, FOLDS, TOKENS = 48, 60, 16, 6, 6, 5
INFORMATIVE = slice(0, 4)
QUESTIONS = (
    *("prediction", "moments", "order", "regions", "folds"),
    *("random weights", "permuted labels", "deletion", "insertion"),
)
OF_THE_CLASS = ("prediction", "moments", "order", "regions", "folds")
"""Questions whose yes is wrong if labels have nothing to do with the series; the others are about the model."""
HYPER = {"hidden": 16, "n_blocks": 2, "n_heads": 2, "head_dim": 8, "window": 10, "dropout": 0.0}
BOLT = Model(
    name="bolt",
    model="bolt",
    hyper=HYPER,
    training=Settings(epochs=15, batch_size=8, warmup_epochs=3, learning_rate=2e-3, peak_learning_rate=1e-2),
)
CURVES = Faithfulness(scans=8, steps=5, random_draws=2, surrogates=1, block=5, gradient_steps=4)
CHECKS = Sanity(draws=1, scans=8, independent=False)
ALIKE = 0.5
"""Former bar of the correlation between maps."""


def series_of(random: np.random.Generator, label: int, strength: float) -> NDArray[np.floating]:
    """Return smooth noise, (volumes, rois), with a pattern of the class at a few moments, `strength` sd high."""
    series = random.standard_normal((VOLUMES, ROIS))
    for t in range(1, VOLUMES):
        series[t] = 0.5 * series[t - 1] + 0.87 * series[t]
    when = random.choice(VOLUMES, EVENTS, replace=False)
    series[when, INFORMATIVE] += strength * (1 if label else -1)
    return series


def explain(folder: Path, seed: int, strength: float) -> ModelRun:
    """Train and explain BolT in all folds; write every file that answers a question."""
    random = np.random.default_rng([seed, round(10 * strength)])
    labels = random.permutation(np.arange(PEOPLE) % 2)
    scans = scan_table([CLASSES[label] for label in labels])
    made = pack(folder / "series", [series_of(random, label, strength) for label in labels], scans)
    run = ModelRun(folder, "toy", "v", BOLT.run_name, seed)
    run.cache.parent.mkdir(parents=True)
    made.rename(run.cache)
    table, data, numbers = split(folder, scans, FOLDS, seed), dataset(CLASSES, VOLUMES), list(range(FOLDS))
    trainings = [Training(fold, seed, run.fold(fold)) for fold in numbers]
    errors = train_folds(run.cache, table, BOLT, data, trainings, device="cpu", progress=False)
    if any(errors):
        raise RuntimeError(f"a training failed: {errors}")
    cache = SeriesCache(run.cache)
    for fold in numbers:
        explain_fold(cache, run.fold(fold), "cpu")
        perturb_fold(cache, run.fold(fold), CURVES, seed=seed, device="cpu")
        write_status(run.fold(fold) / "faithfulness_status.json", "ok", "faithfulness_fold")
    _other_models(run, table, data)
    write_metrics(run.folder, CLASSES, numbers, run.folder)
    settings = {"tokens": TOKENS, "random_draws": 10, "offsets": 20, "seed": seed}
    write_landmarks(landmark_regression(cache, run.folder, numbers, CLASSES, **settings), run.explanation)
    write_regions(run.explanation / "coefficients.npy", cache.rois, CLASSES, None, run.explanation, fraction=0.1)
    write_stability(cache, run, [seed], numbers, CLASSES, fraction=0.1, tokens=TOKENS, permutations=99)
    write_sanity(cache, run, numbers, CHECKS, "cpu", [run.retrained])
    write_faithfulness(run, numbers)
    return run


def _other_models(run: ModelRun, table: Path, data: Dataset) -> None:
    """Train on permuted labels, and again with another seed."""
    train_permuted(run, table, BOLT, data, fold=0, device="cpu")
    train_fold(run.cache, table, BOLT, data, fold=0, seed=int(run.seed) + 1, out=run.retrained, device="cpu")
    for folder in (run.permuted, run.retrained):
        if read_json(folder / "status.json")["state"] != "ok":
            raise RuntimeError(f"the training in {folder} failed")


def former(run: ModelRun) -> Said:
    """Apply the rules of version 0.1 to the files of a run."""
    tests = pd.concat([fold_predictions(run.fold(fold))[2] for fold in range(FOLDS)], ignore_index=True)
    tests = tests[tests["role"] == "test"]
    truth, p = (tests["label"] == CLASSES[1]).to_numpy(int), tests[[f"p_{name}" for name in CLASSES]].to_numpy()
    counts = np.random.default_rng(0).multinomial(len(tests), np.full(len(tests), 1 / len(tests)), 1000)
    pooled = scores(truth, truth, p, counts.astype(float))["auc"]
    text = ("fold", "importance", "tokens", "level", "between", "what", "one", "other", "check", "class", "name")
    landmarks, subsets, stability, sanity, rois = (
        read_table(run.explanation / f"{name}.tsv", text=text)
        for name in ("landmarks", "subsets", "stability", "sanity", "roi_weights")
    )
    by_fold = landmarks[(landmarks["level"] == "scan") & ~landmarks["fold"].isin(["mean", "sd"])]
    auc = by_fold.pivot_table(index="fold", columns="tokens", values="auc")
    curve = subsets[(subsets["level"] == "scan") & ~subsets["fold"].isin(["mean", "sd"])]
    curve = curve.pivot_table(index="fold", columns="offset", values="auc")
    quarter = curve.shape[1] // 4
    fall = curve.iloc[:, :quarter].mean(axis=1) - curve.iloc[:, -quarter:].mean(axis=1)
    maps = stability[
        (stability["between"] == "folds") & (stability["one"] == "mean") & (stability["what"] == "regions")
    ]
    shown = rois[rois["selected"].astype(str).str.lower() == "true"]
    ends = sanity[(sanity["fold"] == "all") & sanity["verdict"].notna()].set_index("check")["rho"].abs()
    areas = read_table(run.explanation / "faithfulness_areas.tsv", text=("direction", "order", "better_than_random"))
    areas = areas[areas["order"] == "importance"].groupby("direction")["better_than_random"]
    faithful = areas.agg(lambda answers: bool((answers == "yes").all()))
    return {
        "prediction": bool(np.nanpercentile(pooled, 2.5) > 0.5),
        "moments": _ahead(auc["important"] - auc["random"]),
        "order": _ahead(fall),
        "regions": bool(2 * (shown["selection_frequency"] > 0.5).sum() >= len(shown) > 0),
        "folds": bool(maps["pearson"].mean() >= ALIKE),
        "random weights": bool(ends.get("cascade", np.nan) < GONE),
        "permuted labels": bool(ends.get("permuted labels", np.nan) < GONE),
        "deletion": bool(faithful["deletion"]),
        "insertion": bool(faithful["insertion"]),
    }


def _ahead(gains: pd.Series) -> bool:
    """Return whether a gain was called supported: 0.02 in the mean, and positive in three quarters of the folds."""
    return bool(gains.mean() >= 0.02 and (gains > 0).mean() >= 0.75)


def answers(seed: int, strength: float) -> dict[str, Said]:
    """Return what the former and the present rule say to every question; kept from an earlier call."""
    file = KEPT / f"strength-{strength:g}" / f"{seed}.json"
    if not file.is_file():
        logging.getLogger("bolt").setLevel(logging.ERROR)
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            run = explain(Path(folder), seed, strength)
            evidence, before = Evidence(run.folder, run.explanation, TOKENS), former(run)
            found = {}
            for name in QUESTIONS:
                verdict = ask(name, evidence)
                state = NOT_TESTED if verdict is None else verdict.state
                found[name] = {"former": before[name], "present": None if state == NOT_TESTED else state == "supported"}
        write_json(found, file)
    return read_json(file)


def draw(seed: int, question: str, strength: float) -> Said:
    """Return what both rules say to one question."""
    return answers(seed, strength)[question]


def _simulation(question: str, strength: float, repetitions: int) -> Simulation:
    about_class = question in OF_THE_CLASS
    data = f"planted moments of {strength:g} sd" if strength else "noise"
    nominal = 0.025 if question in ("prediction", "moments", "order") else 0.05
    effect = strength > 0 or not about_class
    judge = partial(draw, question=question, strength=strength)
    title = f"chain: {question}"
    return Simulation(title, f"small BolT, {data}", effect, judge, None if effect else nominal, repetitions)


SIMULATIONS = [
    *(_simulation(question, 0.0, 200) for question in QUESTIONS),
    *(_simulation(question, strength, 40) for strength in (1.0, 2.0, 4.0) for question in QUESTIONS),
]
