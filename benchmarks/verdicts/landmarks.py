"""Landmark regressions: what is said of important moments where single volumes hold no information, and where they do.

A stand-in for a model predicts the class of each scan with a given accuracy, and importance supports the predicted
class: the projection of each volume on a direction of the model's own, signed by the class. `_bolt` trains BolT itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.verdicts.simulation import Said, Simulation
from bolt.explain.landmarks import Landmarks, landmark_regression, landmark_tests
from bolt.explain.weights import write_controls, write_importance
from bolt.report.pages.verdicts import NOT_TESTED, SUPPORTED, moments, order

N_SCANS, VOLUMES, ROIS = 120, 60, 10
FOLDS, TOKENS, DRAWS, OFFSETS = 10, 5, 3, 12
CLASSES = ["control", "patient"]
GAIN, SHARE, ALPHA, REGAINED = 0.02, 0.75, 0.05, 0.5
HYPER = {"hidden": 24, "n_blocks": 2, "n_heads": 2, "head_dim": 12, "window": 10}
BOLT_SCANS, BOLT_FOLDS, EPOCHS = 180, 6, 25


class Scans(NamedTuple):
    """Labels (0 or 1) and series (scans, T, rois); as much of a cache as the regressions use."""

    labels: NDArray[np.intp]
    x: NDArray[np.floating]

    @property
    def index(self) -> pd.DataFrame:
        """Return the scan table."""
        names = [f"sub-{i:03d}" for i in range(len(self.labels))]
        label = [CLASSES[i] for i in self.labels]
        return pd.DataFrame({"scan_id": names, "subject": names, "group": names, "label": label})

    def series(self, i: int) -> NDArray[np.floating]:
        """Return the series of a scan."""
        return self.x[i]


def _noise(random: np.random.Generator, n: int, rois: int = ROIS) -> NDArray[np.floating]:
    """Return autocorrelated series whose single volumes are the same in both classes."""
    x = random.standard_normal((n, VOLUMES + 1, rois))
    return np.sqrt(0.5) * (x[:, 1:] + x[:, :-1])


def _splits(random: np.random.Generator, labels: NDArray[np.intp], folds: int) -> list[NDArray[np.bool_]]:
    """Return the test scans of each fold."""
    splits = StratifiedKFold(folds, shuffle=True, random_state=int(random.integers(2**31))).split(labels, labels)
    return [np.isin(np.arange(len(labels)), test) for _, test in splits]


def _write_fold(
    scans: Scans, test: NDArray[np.bool_], predicted: NDArray[np.intp], curves: NDArray[np.floating], folder: Path
) -> None:
    """Write the importance of a fold; `curves` are weights of each class (classes, scans, T)."""
    rows, names = np.arange(len(test)), np.array(CLASSES)
    table = scans.index[["scan_id"]].assign(role=np.where(test, "test", "train"))
    table = table.assign(predicted=names[predicted], wrong=names[1 - predicted])
    write_controls(list(np.stack([curves[1 - predicted, rows], curves[1]], axis=1)), folder)
    write_importance(table, list(curves[predicted, rows]), folder)


def _stand_in(
    random: np.random.Generator, scans: Scans, test: NDArray[np.bool_], accuracy: float, signal: NDArray[np.floating]
) -> tuple[NDArray[np.intp], NDArray[np.floating]]:
    """Return predictions (training scans: half of the errors), and importance along a direction near `signal`."""
    errors = (1 - accuracy) * np.where(test, 1, 0.5 if accuracy > 0.5 else 1)
    predicted = np.where(random.random(len(test)) < errors, 1 - scans.labels, scans.labels)
    direction = random.standard_normal(scans.x.shape[2]) / np.sqrt(scans.x.shape[2])
    along = scans.x @ (signal + (0.5 if signal.any() else 1) * direction)
    return predicted, np.stack([-along, along]) - along.min() + along.max()


def _regressions(
    seed: int, accuracy: float, folds: int, strength: float = 0.0, offsets: int = 0
) -> tuple[Landmarks, pd.DataFrame]:
    """Return the regressions on a simulated run, and their tests.

    Parameters
    ----------
    seed : int
    accuracy : float
        Of the stand-in's predictions of test scans.
    folds : int
        Finished ones, of `FOLDS`.
    strength : float
        Of the pattern that four volumes of each scan hold, with opposite signs in the two classes, in units of noise.
    offsets : int
        As in `landmark_regression`.
    """
    random = np.random.default_rng(seed)
    labels, x = random.permutation(np.arange(N_SCANS) % 2), _noise(random, N_SCANS)
    pattern = np.zeros(ROIS)
    pattern[:3] = np.sqrt(1 / 3) * bool(strength)
    for label, series in zip(labels, x, strict=True):
        start = random.integers(VOLUMES - 4)
        series[start : start + 4] += strength * (2 * label - 1) * pattern
    scans = Scans(labels, x)
    with TemporaryDirectory() as folder:
        for fold, test in enumerate(_splits(random, labels, FOLDS)[:folds]):
            _write_fold(scans, test, *_stand_in(random, scans, test, accuracy, pattern), Path(folder) / f"fold-{fold}")
        return _tested(scans, Path(folder), range(folds), offsets)


def _tested(scans: Scans, run: Path, folds: Sequence[int], offsets: int = 0) -> tuple[Landmarks, pd.DataFrame]:
    """Return the regressions on an explained run, and their tests."""
    found = landmark_regression(scans, run, folds, CLASSES, tokens=TOKENS, random_draws=DRAWS, offsets=offsets)
    return found, landmark_tests(found.table, found.curve, found.ratio)


def _former(first: pd.Series, second: pd.Series) -> bool:
    """Return what the former rule says: a gain on average, and in most folds."""
    gains = (first - second).dropna()
    return bool(gains.mean() >= GAIN and (gains > 0).mean() >= SHARE)


def _present(outcome: str) -> bool | None:
    return None if outcome == NOT_TESTED else outcome == SUPPORTED


def _auc(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the AUC of scans, folds × values of a column."""
    rows = table[(table["level"] == "scan") & ~table["fold"].isin(["mean", "sd"])]
    return rows.pivot_table(index="fold", columns=column, values="auc")


def _moments(found: Landmarks, tests: pd.DataFrame) -> Said:
    auc, answer = _auc(found.table, "tokens"), moments(tests, GAIN, ALPHA)
    assert answer is not None
    return {"former": _former(auc["important"], auc["random"]), "present": _present(answer.outcome)}


def draw_moments(seed: int, accuracy: float, folds: int, strength: float = 0.0) -> Said:
    """Return whether important moments are said to predict the class."""
    return _moments(*_regressions(seed, accuracy, folds, strength))


def draw_order(seed: int, accuracy: float, folds: int, strength: float = 0.0) -> Said:
    """Return whether moments are said to be less informative, the less important they are."""
    return _order(*_regressions(seed, accuracy, folds, strength, OFFSETS))


def _order(found: Landmarks, tests: pd.DataFrame) -> Said:
    auc, answer = _auc(found.curve, "offset"), order(tests, GAIN, ALPHA, REGAINED)
    assert answer is not None
    quarter = auc.shape[1] // 4
    ends = auc.iloc[:, :quarter].mean(axis=1), auc.iloc[:, -quarter:].mean(axis=1)
    return {"former": _former(*ends), "present": _present(answer.outcome)}


def draw_bolt(seed: int, lag: float = 0.0, strength: float = 0.0) -> Said:
    """Return whether important moments of BolT are said to predict the class."""
    return _moments(*bolt_regressions(seed, lag, strength))


def draw_bolt_order(seed: int, lag: float) -> Said:
    """Return whether moments of BolT are said to be less informative, the less important they are."""
    return _order(*bolt_regressions(seed, lag))


def bolt_regressions(seed: int, lag: float = 0.0, strength: float = 0.0) -> tuple[Landmarks, pd.DataFrame]:
    """Train and explain BolT in each fold; return the landmark regressions and their tests.

    Parameters
    ----------
    seed : int
    lag : float
        Correlation of one ROI with the next volume of another, positive in one class and negative in the other: single
        volumes have the same distribution in both.
    strength : float
        Of a pattern in three volumes of each scan, with opposite signs in the two classes.
    """
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(BOLT_SCANS) % 2)
    x, sign = random.standard_normal((BOLT_SCANS, VOLUMES, ROIS)), (2 * labels - 1)[:, None]
    for one, other in ((0, 1), (2, 3)):
        x[:, 1:, other] = sign * lag * x[:, :-1, one] + np.sqrt(1 - lag**2) * x[:, 1:, other]
    for series, side in zip(x, sign[:, 0], strict=True):
        start = random.integers(VOLUMES - 3)
        series[start : start + 3, :3] += strength * side
    x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    scans = Scans(labels, x.astype(np.float32))
    with TemporaryDirectory() as folder:
        for fold, test in enumerate(_splits(random, labels, BOLT_FOLDS)):
            predicted, curves = _trained(scans, test, random, seed)
            _write_fold(scans, test, predicted, curves, Path(folder) / f"fold-{fold}")
        return _tested(scans, Path(folder), range(BOLT_FOLDS), OFFSETS)


def _trained(
    scans: Scans, test: NDArray[np.bool_], random: np.random.Generator, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.floating]]:
    """Train BolT without the test scans; return its predictions and the importance of each class."""
    import torch

    from bolt.explain.importance import importance_of
    from bolt.models.bolt import BolT
    from bolt.models.registry import create_model

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = create_model("bolt", ROIS, len(CLASSES), **HYPER)
    assert isinstance(model, BolT)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = torch.from_numpy(scans.x), torch.from_numpy(scans.labels)
    training = np.flatnonzero(~test)
    for _ in range(EPOCHS):
        for batch in np.array_split(random.permutation(training), len(training) // 16):
            loss = torch.nn.functional.cross_entropy(model(x[batch]).logits, y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        predicted = model(x).logits.argmax(dim=1).numpy()
    curves = [importance_of(model, list(scans.x), "cpu", [label] * len(test)) for label in range(len(CLASSES))]
    return predicted, np.stack([np.stack(each) for each in curves])


PREDICT = "important moments predict the class"
FALL = "moments are less informative, the less important they are"
NONE = "no information in single volumes"
SIMULATIONS = [
    *(
        Simulation(
            PREDICT, f"{NONE}, model {a:.0%} right, 10 folds", False, partial(draw_moments, accuracy=a, folds=10), 0.025
        )
        for a in (0.65, 0.78, 0.95)
    ),
    *(
        Simulation(PREDICT, f"noise, {k} folds", False, partial(draw_moments, accuracy=0.5, folds=k), 0.025)
        for k in (1, 3, 10)
    ),
    *(
        Simulation(FALL, f"noise, {k} folds", False, partial(draw_order, accuracy=0.5, folds=k), 0.025)
        for k in (1, 3, 10)
    ),
    *(
        Simulation(
            PREDICT,
            f"4 of 60 volumes hold the class ({s:g} sd), model 78% right, 10 folds",
            True,
            partial(draw_moments, accuracy=0.78, folds=10, strength=s),
        )
        for s in (2.0, 3.0, 4.0)
    ),
    *(
        Simulation(
            FALL,
            f"4 of 60 volumes hold the class ({s:g} sd), model 78% right, 10 folds",
            True,
            partial(draw_order, accuracy=0.78, folds=10, strength=s),
        )
        for s in (2.0, 4.0)
    ),
    Simulation(PREDICT, f"{NONE}, BolT trained, 6 folds", False, partial(draw_bolt, lag=0.7), 0.025, 20),
    Simulation(FALL, f"{NONE}, BolT trained, 6 folds", False, partial(draw_bolt_order, lag=0.7), 0.025, 20),
    Simulation(
        PREDICT,
        "3 of 60 volumes hold the class (3 sd), BolT trained, 6 folds",
        True,
        partial(draw_bolt, strength=3.0),
        None,
        20,
    ),
]
