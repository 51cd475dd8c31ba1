"""Connections that go with the prediction: named on pure noise, and where the correlation of a few differs by class.

Series are multivariate normal: four networks, a signal that all regions share, as strong as it happens to be in a
person, and five planted connections. Linear models and BolT (small) are cross-validated on them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.verdicts.simulation import Said, Simulation
from bolt import estimator
from bolt.explain.connections import ALPHA, correlate, sample, write_connections
from bolt.io.files import read_table, write_status
from bolt.models.registry import create_model
from bolt.report.pages.verdicts import SUPPORTED, connected, questions
from bolt.series.cache import connectivity
from bolt.training.outputs import write_predictions

N_SCANS, VOLUMES, ROIS, FOLDS = 100, 100, 20, 5
CLASSES = ["control", "patient"]
PLANTED = [(0, 5), (2, 11), (6, 16), (8, 13), (10, 19)]
"""Pairs of regions of different networks."""
SHARED = 0.6
"""Largest strength of the signal that all regions share."""
EPOCHS = 10
"""Of BolT (small)."""


class Scans:
    """As much of `bolt.series.cache.SeriesCache` as connections use."""

    def __init__(self, series: NDArray[np.floating], labels: NDArray[np.intp]) -> None:
        names = [f"sub-{i:03d}" for i in range(len(series))]
        self.index = pd.DataFrame({"scan_id": names, "subject": names, "group": names})
        self.index["label"] = np.array(CLASSES)[labels]
        values = np.arange(ROIS)
        self.rois = pd.DataFrame({"value": values, "name": values.astype(str), "network": np.nan, "hemisphere": "L"})
        self.n_rois, self.series, self.finite_series = ROIS, series, series.__getitem__


def simulate(seed: int, effect: float) -> tuple[Scans, NDArray[np.intp]]:
    """Return scans and their classes; planted correlations are higher by `effect` in the second."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(N_SCANS) % 2)
    shared = random.uniform(0, SHARED, N_SCANS)
    within = np.kron(np.eye(4), np.full((5, 5), 0.3)) + 0.7 * np.eye(ROIS)
    series = []
    for label, strength in zip(labels, shared, strict=True):
        matrix = within.copy()
        for a, b in PLANTED:
            matrix[a, b] = matrix[b, a] = effect * label
        x = random.standard_normal((VOLUMES, ROIS)) @ np.linalg.cholesky(matrix).T
        series.append(x + strength * random.standard_normal((VOLUMES, 1)))
    return Scans(np.stack(series), labels), labels


def cross_validate(scans: Scans, labels: NDArray[np.intp], learner: str, run: Path, seed: int) -> None:
    """Train and test a model in each fold, and write its predictions."""
    vectors = np.stack([connectivity(scans.finite_series(i)) for i in range(N_SCANS)])
    groups = np.arange(N_SCANS)
    for fold, (train, test) in enumerate(
        StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(vectors, labels)
    ):
        if learner == "bolt_small":
            model = estimator("bolt_small", seed=seed, progress=False, threads=1, epochs=EPOCHS)
            p = model.fit(scans.series[train], labels[train]).predict_proba(scans.series)
        else:
            model = create_model(learner, ROIS, 2)
            model.fit(vectors[train], labels[train], groups[train])
            p = model.probabilities(vectors)
        role = np.where(np.isin(groups, test), "test", "train")
        table = scans.index.assign(site="here", role=role, fold=fold, seed=0, predicted=np.array(CLASSES)[p.argmax(1)])
        write_predictions(table.assign(p_control=p[:, 0], p_patient=p[:, 1]), run / f"fold-{fold}/predictions.tsv")
        write_status(run / f"fold-{fold}/status.json", "ok", "train")


Named = set[tuple[int, int]]
"""Pairs of regions."""


def significant(seed: int, learner: str, effect: float) -> tuple[Named, Named, bool]:
    """Return the connections named by shuffled predictions alone, those of ``connections.tsv``, and if folds agree."""
    with TemporaryDirectory() as folder:
        run, (scans, labels) = Path(folder), simulate(seed, effect)
        for fold in range(FOLDS):
            (run / f"fold-{fold}").mkdir()
        cross_validate(scans, labels, learner, run, seed)
        write_connections(scans, run, range(FOLDS), CLASSES, run, permutations=60)
        table = read_table(run / "connections.tsv")
        agree = connected(read_table(run / "connection_stability.tsv"), **questions()["connections"]["thresholds"])
        tests = {
            fold: read_table(run / f"fold-{fold}/predictions.tsv").query("role == 'test'") for fold in range(FOLDS)
        }
        fold, output, _, values = sample(scans, tests, CLASSES, CLASSES[-1:])
    _, p, _ = correlate(fold, output[:, 0], values)
    pairs = list(zip(*np.triu_indices(ROIS, k=1), strict=True))
    named = table.loc[table["p"] < ALPHA, ["value_a", "value_b"]].itertuples(index=False, name=None)
    former = {(int(a), int(b)) for (a, b), one in zip(pairs, p, strict=True) if one < ALPHA}
    return former, set(named), agree is not None and agree.outcome == SUPPORTED


def draw(seed: int, learner: str, effect: float, asked: Callable[[Named], bool] | None) -> Said:
    """Judge one cross-validation; formerly by shuffled predictions alone. Without `asked`: do folds agree?"""
    former, present, agree = significant(seed, learner, effect)
    return {"former": None, "present": agree} if asked is None else {"former": asked(former), "present": asked(present)}


def any_other(named: Named) -> bool:
    """Return whether a connection is named that was not planted."""
    return bool(named - set(PLANTED))


def first_planted(named: Named) -> bool:
    """Return whether the first of the planted connections is named."""
    return PLANTED[0] in named


def _simulation(learner: str, effect: float, asked: Callable[[Named], bool] | None, repetitions: int) -> Simulation:
    verdict = "a planted connection is named" if asked is first_planted else "a connection without effect is named"
    verdict = verdict if asked else "connections agree between folds"
    data = f"{len(PLANTED)} of {ROIS * (ROIS - 1) // 2} correlations differ by {effect}" if effect else "noise"
    judge = partial(draw, learner=learner, effect=effect, asked=asked)
    nominal = ALPHA if asked is any_other or not effect else None
    about = f"{data}, {learner}, {N_SCANS} people"
    return Simulation(
        verdict, about, asked is first_planted or (asked is None and effect > 0), judge, nominal, repetitions
    )


LEARNERS = ("ridge", "tangent")
SIMULATIONS = [
    *(_simulation(learner, 0, any_other, 200) for learner in LEARNERS),
    *(_simulation(learner, effect, first_planted, 40) for effect in (0.1, 0.15) for learner in LEARNERS),
    _simulation("ridge", 0.1, any_other, 200),
    *(_simulation("ridge", effect, None, repetitions) for effect, repetitions in ((0, 200), (0.15, 40), (0.25, 40))),
    _simulation("bolt_small", 0, any_other, 60),
    _simulation("bolt_small", 0.15, first_planted, 20),
]
