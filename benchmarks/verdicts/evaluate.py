"""Simulations of how predictions are judged: tests of calibration, intervals, tests over seeds, the floor's warning.

The former rules: percentiles of bootstrap samples of groups as interval of every metric; tests of the calibration
error over folds; a warning of a baseline if its interval of accuracy or AUC and the model's overlap.
"""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from benchmarks.verdicts.simulation import Said, Simulation
from bolt.evaluate.intervals import intervals
from bolt.evaluate.paired import compare, corrected_t, wilcoxon
from bolt.evaluate.scores import class_arrays, scores
from bolt.report.tables import baseline_warning

CLASSES = ["control", "patient"]
ALPHA = 0.05
FOLDS = 10
FEATURES = 12
Floats = NDArray[np.floating]


def table(
    truth: NDArray[np.integer],
    probability: Floats,
    group: NDArray[np.integer],
    fold: NDArray[np.integer],
    seed: int = 0,
) -> pd.DataFrame:
    """Return predictions of two classes; every fold's other scans are its training scans."""
    columns = {"scan_id": np.arange(len(truth)), "group": group, "fold": fold, "seed": seed, "role": "test"}
    columns |= {"label": np.array(CLASSES)[truth], "predicted": np.array(CLASSES)[(probability > 0.5).astype(int)]}
    return pd.DataFrame(columns | {"p_control": 1 - probability, "p_patient": probability})


def with_training(tests: pd.DataFrame) -> pd.DataFrame:
    """Add the training scans of each fold."""
    train = [tests[tests["fold"] != fold].assign(fold=fold, role="train") for fold in tests["fold"].unique()]
    return pd.concat([tests, *train], ignore_index=True)


def compared(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the tests of two models by metric."""
    return {row["metric"]: row for row in compare(with_training(first), with_training(second), CLASSES)}


def misses(ends: tuple[float, float], truth: float) -> bool | None:
    """Return whether an interval misses the truth; None without an interval."""
    return None if np.isnan(ends[0]) else not ends[0] <= truth <= ends[1]


def former_intervals(predictions: pd.DataFrame, seed: int) -> dict[str, tuple[float, float]]:
    """Return the percentiles of bootstrap samples of groups."""
    groups, place = np.unique(predictions["group"], return_inverse=True)
    shares = np.full(len(groups), 1 / len(groups))
    counts = np.random.default_rng(seed).multinomial(len(groups), shares, size=500)[:, place].astype(float)
    samples = scores(*class_arrays(predictions, CLASSES), counts)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # an AUC without one of the classes
        return {name: tuple(np.nanpercentile(sample, [2.5, 97.5])) for name, sample in samples.items()}


# ---- calibration ---------------------------------------------------------------------------------------------------
def ece(right: NDArray[np.bool_], confidence: Floats) -> float:
    """Return the expected calibration error in 15 bins of equal width."""
    bins = np.minimum((confidence * 15).astype(int), 14)
    return float(np.abs(np.bincount(bins, right - confidence)).sum() / len(right))


def calibrated_models(seed: int, n: int = 400) -> tuple[pd.DataFrame, pd.DataFrame, Floats]:
    """Return two perfectly calibrated models of equal decisions: one sure of some scans, the other equally of all."""
    random = np.random.default_rng(seed)
    confidence, side = random.uniform(0.5, 1, n), random.integers(0, 2, n)
    truth = np.where(random.random(n) < confidence, side, 1 - side)
    fold = np.arange(n) % FOLDS
    spread, flat = (np.where(side == 1, c, 1 - c) for c in (confidence, np.full(n, 0.75)))
    models = [table(truth, p, np.arange(n), fold) for p in (spread, flat)]
    errors = [
        [ece(truth[fold == k] == side[fold == k], c[fold == k]) for k in range(FOLDS)]
        for c in (confidence, np.full(n, 0.75))
    ]
    return models[0], models[1], np.array(errors)


def calibration_errors(seed: int, test: str) -> Said:
    """Test the calibration error over folds, as the former rule did; the present one does not."""
    _, _, errors = calibrated_models(seed)
    difference = errors[0] - errors[1]
    p = wilcoxon(difference) if test == "wilcoxon_p" else corrected_t(difference, 1 / (FOLDS - 1))
    return {"former": p < ALPHA, "present": None}


def calibration_outside(seed: int) -> Said:
    """Return whether the calibration error of all scans lies below its own bootstrap interval."""
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.5, 1, 200)
    right = random.random(200) < confidence
    drawn = random.integers(0, 200, (1000, 200))
    low = np.percentile([ece(right[rows], confidence[rows]) for rows in drawn], 2.5)
    return {"former": bool(ece(right, confidence) < low), "present": None}


@cache
def compared_calibrated(seed: int) -> dict[str, dict[str, Any]]:
    """Compare the two calibrated models by all tests."""
    return compared(*calibrated_models(seed)[:2])


def sharper_model(seed: int, metric: str, test: str) -> Said:
    """Test the losses of two calibrated models, of which the one of unequal probabilities is truly better."""
    p = compared_calibrated(seed)[metric][test]
    return {"former": p < ALPHA if (metric, test) == ("brier", "corrected_t_p") else None, "present": p < ALPHA}


# ---- models that learn ---------------------------------------------------------------------------------------------
def learned(random: np.random.Generator, y: NDArray[np.integer], signal: float, seeds: int, folds: int) -> pd.DataFrame:
    """Cross-validate ridge regression on features of which each seed and fold sees a random half."""
    n = len(y)
    x = random.normal(size=(n, FEATURES)) + signal * (2 * y - 1)[:, None] / np.sqrt(FEATURES)
    fold, parts = np.arange(n) // 2 % folds, []
    for seed in range(seeds):
        score = np.zeros(n)
        for k in range(folds):
            seen, train = random.permutation(FEATURES)[: FEATURES // 2], fold != k
            features = x[:, seen]
            inner = features[train].T @ features[train] + 10 * np.eye(len(seen))
            score[fold == k] = features[fold == k] @ np.linalg.solve(inner, features[train].T @ (2 * y[train] - 1))
        parts.append(table(y, 1 / (1 + np.exp(-2 * score)), np.arange(n), fold, seed))
    return pd.concat(parts, ignore_index=True)


def two_learned(
    seed: int, signals: tuple[float, float], seeds: int = 1, folds: int = FOLDS, n: int = 100
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two models of the same scans, from features of their own."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    first, second = (learned(random, y, signal, seeds, folds) for signal in signals)
    return first, second


@cache
def compared_learned(seed: int, signals: tuple[float, float], seeds: int) -> dict[str, dict[str, Any]]:
    """Compare two models that learned, by all tests."""
    return compared(*two_learned(seed, signals, seeds))


def learned_differ(seed: int, metric: str, test: str, signals: tuple[float, float], seeds: int) -> Said:
    """Test two models; the former rule tested neither the log loss nor, by sign flips, the Brier score."""
    p = compared_learned(seed, signals, seeds)[metric][test]
    new = metric == "log_loss" or (metric == "brier" and test == "permutation_p")
    return {"former": None if new else p < ALPHA, "present": p < ALPHA}


def given_differ(seed: int, metric: str) -> Said:
    """Test two given models, of equally noisy logits, by sign flips."""
    random = np.random.default_rng(seed)
    y, n = np.arange(100) % 2, 100
    logit = 0.7 * (2 * y - 1) + random.normal(size=n)
    models = [table(y, 1 / (1 + np.exp(-logit - random.normal(size=n))), np.arange(n), y * 0) for _ in range(2)]
    p = compared(*models)[metric]["permutation_p"]
    return {"former": p < ALPHA if metric == "accuracy" else None, "present": p < ALPHA}


def beats_floor(seed: int, signals: tuple[float, float], folds: int, seeds: int = 1) -> Said:
    """Return whether the report says nothing against a model beside a baseline without brain data."""
    model, floor = two_learned(seed, signals, seeds, folds)
    ends = [former_intervals(predictions, seed) for predictions in (model, floor)]
    tests = pd.DataFrame(compared(model, floor).values())
    return {
        "former": all(ends[0][metric][0] > ends[1][metric][1] for metric in ("accuracy", "auc")),
        "present": baseline_warning("floor", "model", tests) == "",
    }


# ---- intervals -----------------------------------------------------------------------------------------------------
def accuracy_missed(seed: int, truth: float, n: int, per_group: int) -> Said:
    """Return whether intervals miss the accuracy; scans of a group are right together with a correlation of 0.5."""
    random = np.random.default_rng(seed)
    share = random.beta(truth, 1 - truth, n) if per_group > 1 else np.full(n, truth)
    group = np.repeat(np.arange(n), per_group)
    y = group % 2
    right = random.random(len(y)) < share[group]
    predictions = table(y, np.where(right == (y == 1), 0.8, 0.2), group, np.zeros(len(y), int))
    ends = intervals(predictions, CLASSES, over_folds=False, draws=20)["accuracy"]
    return {
        "former": misses(former_intervals(predictions, seed)["accuracy"], truth),
        "present": misses(ends, truth),
    }


def auc_missed(seed: int, truth: float, n: int, per_group: int) -> Said:
    """Return whether intervals miss the AUC of normal scores; those of a group correlate by 0.5."""
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(n), per_group)
    y = group % 2
    share = 0.5 if per_group > 1 else 0.0
    noise = np.sqrt(share) * random.normal(size=n)[group] + np.sqrt(1 - share) * random.normal(size=len(y))
    score = noise + y * norm.ppf(truth) * np.sqrt(2)
    predictions = table(y, 1 / (1 + np.exp(-score)), group, np.zeros(len(y), int))
    ends = intervals(predictions, CLASSES, over_folds=False, draws=20)["auc"]
    return {"former": misses(former_intervals(predictions, seed)["auc"], truth), "present": misses(ends, truth)}


@cache
def expected_loss(metric: str, overconfidence: float) -> float:
    """Return the mean loss over log odds with a standard deviation of 1.5."""
    log_odds = 1.5 * norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    p, said = expit(log_odds), expit(overconfidence * log_odds)
    if metric == "brier":
        return float((p * (1 - said) ** 2 + (1 - p) * said**2).mean())
    return float(-(p * np.log(said) + (1 - p) * np.log(1 - said)).mean())


def loss_missed(seed: int, metric: str, overconfidence: float, n: int, per_group: int) -> Said:
    """Return whether intervals miss the mean loss of a model; log odds of a group correlate by 0.5."""
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(n), per_group)
    share = 0.5 if per_group > 1 else 0.0
    log_odds = np.sqrt(share) * random.normal(size=n)[group] + np.sqrt(1 - share) * random.normal(size=len(group))
    truth = (random.random(len(group)) < expit(1.5 * log_odds)).astype(int)
    predictions = table(truth, expit(1.5 * overconfidence * log_odds), group, np.zeros(len(group), int))
    ends, expected = intervals(predictions, CLASSES, over_folds=False)[metric], expected_loss(metric, overconfidence)
    return {"former": misses(former_intervals(predictions, seed)[metric], expected), "present": misses(ends, expected)}


def seeds_missed(seed: int, n_seeds: int) -> Said:
    """Return whether intervals miss the accuracy of 0.7 expected of further seeds, which differ by 0.05 (sd)."""
    random = np.random.default_rng(seed)
    n, y = 300, np.arange(300) % 2
    parts = []
    ease = random.normal(size=n)
    for k in range(n_seeds):
        skill = norm.ppf(np.clip(0.7 + 0.05 * random.normal(), 0.01, 0.99)) * np.sqrt(2)
        right = ease + random.normal(size=n) + skill > 0
        parts.append(table(y, np.where(right == (y == 1), 0.8, 0.2), np.arange(n), np.arange(n) // 2 % FOLDS, k))
    predictions = pd.concat(parts, ignore_index=True)
    ends = intervals(predictions, CLASSES, over_folds=True, draws=20)["accuracy"]
    return {"former": misses(former_intervals(predictions, seed)["accuracy"], 0.7), "present": misses(ends, 0.7)}


NAMES = {"corrected_t_p": "corrected t", "wilcoxon_p": "Wilcoxon", "permutation_p": "sign flips"}
SPREAD = "two calibrated models, equal decisions, unequal confidence, 400 scans, 10 folds"
EQUAL = "two equally good models, trained on 100 scans, 10 folds"
GIVEN = "two given models, equally good, 100 scans"
UNEQUAL = "one model better (signal 1.0 against 0.5), trained on 100 scans, 10 folds"


def _calibration() -> list[Simulation]:
    tests = ("corrected_t_p", "wilcoxon_p")
    rows = [
        Simulation(f"calibration errors differ ({NAMES[t]})", SPREAD, False, partial(calibration_errors, test=t), ALPHA)
        for t in tests
    ]
    alone = "one calibrated model, 200 scans"
    rows.append(Simulation("calibration error below its own interval", alone, False, calibration_outside, 0.025))
    losses = {"brier": "Brier scores", "log_loss": "log losses"}
    for metric, name in losses.items():
        for test in ("corrected_t_p", "permutation_p"):
            verdict = f"{name} differ ({NAMES[test]})"
            rows.append(Simulation(verdict, SPREAD, True, partial(sharper_model, metric=metric, test=test), ALPHA))
        equal = partial(learned_differ, metric=metric, test="corrected_t_p", signals=(0.7, 0.7), seeds=1)
        rows.append(Simulation(f"{name} differ (corrected t)", EQUAL, False, equal, ALPHA))
        rows.append(
            Simulation(f"{name} differ (sign flips)", GIVEN, False, partial(given_differ, metric=metric), ALPHA)
        )
    return rows


def _seeds() -> list[Simulation]:
    given = partial(given_differ, metric="accuracy")
    rows = [Simulation("accuracies differ (sign flips)", GIVEN, False, given, ALPHA)]
    for test in ("corrected_t_p", "permutation_p", "wilcoxon_p"):
        promised = ALPHA if test == "corrected_t_p" else None  # the others say nothing of models that are trained again
        for seeds in (1, 5):
            for signals, data, effect in (((0.7, 0.7), EQUAL, False), ((1.0, 0.5), UNEQUAL, True)):
                draw = partial(learned_differ, metric="accuracy", test=test, signals=signals, seeds=seeds)
                words = f"{data}, {seeds} seed{'s' * (seeds > 1)}"
                rows.append(Simulation(f"accuracies differ ({NAMES[test]})", words, effect, draw, promised))
    for seeds in (2, 5):
        draw, data = partial(seeds_missed, n_seeds=seeds), f"accuracy 0.7, sd over seeds 0.05, {seeds} seeds, 300 scans"
        rows.append(Simulation("interval misses the accuracy", data, False, draw, ALPHA, 300))
    return rows


def _floor() -> list[Simulation]:
    cases = {"equally good": (0.7, 0.7), "model better": (1.0, 0.5), "model much better": (1.4, 0.3)}
    return [
        Simulation(
            "model is better than its floor",
            f"{case}, 100 scans, {folds} folds, {seeds} seed{'s' * (seeds > 1)}",
            signals[0] > signals[1],
            partial(beats_floor, signals=signals, folds=folds, seeds=seeds),
            ALPHA,
        )
        for case, signals in cases.items()
        for folds, seeds in ((10, 1), (3, 1), (10, 3))
    ]


def _coverage() -> list[Simulation]:
    rows = []
    for per_group in (1, 4):
        units = "scans" if per_group == 1 else "subjects of 4 scans"
        for truth in (0.5, 0.75, 0.9, 0.97):
            for n in (8, 20, 100):
                draw = partial(accuracy_missed, truth=truth, n=n, per_group=per_group)
                data = f"accuracy {truth:g}, {n} {units}"
                rows.append(Simulation("interval misses the accuracy", data, False, draw, ALPHA, 300))
        for truth in (0.5, 0.75, 0.95):
            for n in (10, 20, 100):
                draw = partial(auc_missed, truth=truth, n=n, per_group=per_group)
                rows.append(
                    Simulation("interval misses the AUC", f"AUC {truth:g}, {n} {units}", False, draw, ALPHA, 500)
                )
    return rows


def _coverage_of_losses() -> list[Simulation]:
    rows = []
    for metric, name in {"brier": "Brier score", "log_loss": "log loss"}.items():
        for case, overconfidence in {"calibrated": 1, "log odds three times too large": 3}.items():
            for n, per_group in ((8, 1), (20, 1), (100, 1), (8, 4), (20, 4)):
                units = "scans" if per_group == 1 else "subjects of 4 scans"
                draw = partial(loss_missed, metric=metric, overconfidence=overconfidence, n=n, per_group=per_group)
                data = f"{case}, {n} {units}"
                rows.append(Simulation(f"interval misses the {name}", data, False, draw, ALPHA, 500))
    return rows


SIMULATIONS = [*_calibration(), *_coverage(), *_coverage_of_losses(), *_seeds(), *_floor()]
