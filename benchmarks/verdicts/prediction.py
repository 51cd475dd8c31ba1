"""Does the model predict better than chance? Cross-validated linear models on noise, and on classes that differ."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from benchmarks.verdicts.simulation import Said, Simulation
from bolt.evaluate.chance import LEVEL, compare_with_chance
from bolt.evaluate.scores import scores

CLASSES = ["control", "patient"]
LEARNERS = {"SVM": SVC(kernel="linear"), "logistic": LogisticRegression(C=0.01), "naive Bayes": GaussianNB()}


def cross_validate(seed: int, learner: str, n: int, folds: int, run: int, effect: float) -> pd.DataFrame:
    """Return the test rows of a ``predictions.tsv``: 200 features, 20 of which differ between classes by `effect` sd.

    Only the first `run` of `folds` folds are trained. Features share a component, as the edges of a connectome do.
    """
    random = np.random.default_rng([seed, n])
    x = random.standard_normal((n, 200)) + random.standard_normal((n, 1)) * random.standard_normal(200)
    truth = random.permutation(np.arange(n) % 2)
    x[:, :20] += effect * (truth[:, None] - 0.5)
    tables = []
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, truth)
    for fold, (train, test) in enumerate(list(splits)[:run]):
        model = LEARNERS[learner].fit(x[train], truth[train])
        given = getattr(model, "decision_function", lambda part, model=model: model.predict_log_proba(part)[:, 1])
        score = given(x[test])
        p = 1 / (1 + np.exp(-(score - np.median(score)) / score.std()))
        table = pd.DataFrame({"scan_id": test.astype(str), "label": np.array(CLASSES)[truth[test]], "p_patient": p})
        tables.append(table.assign(fold=fold, n_train=len(train)))
    table = pd.concat(tables, ignore_index=True)
    people = {"subject": table["scan_id"], "group": table["scan_id"], "seed": 0, "predicted": CLASSES[0]}
    return table.assign(p_control=1 - table["p_patient"], **people)


def draw(seed: int, learner: str, n: int, folds: int, run: int, effect: float) -> Said:
    """Judge one cross-validation; formerly by the pooled AUC's bootstrap interval."""
    table = cross_validate(seed, learner, n, folds, run, effect)
    truth = (table["label"] == CLASSES[1]).to_numpy().astype(int)
    counts = np.random.default_rng(seed).multinomial(len(table), np.full(len(table), 1 / len(table)), 1000)
    aucs = scores(truth, truth, table[["p_control", "p_patient"]].to_numpy(), counts.astype(float))["auc"]
    found = compare_with_chance(table, CLASSES, draws=999)
    return {"former": bool(np.nanpercentile(aucs, 2.5) > 0.5), "present": found["p"] <= LEVEL}


def _simulation(learner: str, n: int, folds: int, run: int, effect: float) -> Simulation:
    size = f"{n} people, {run} of {folds} folds"
    data = f"classes differ by {effect} sd, {learner}, {size}" if effect else f"noise, {learner}, {size}"
    judge = partial(draw, learner=learner, n=n, folds=folds, run=run, effect=effect)
    nominal = None if effect else LEVEL
    return Simulation("the model predicts", data, effect > 0, judge, nominal, 100 if effect else 500)


SIMULATIONS = [
    *(_simulation(learner, n, 10, 10, 0) for n in (60, 200) for learner in LEARNERS),
    _simulation("SVM", 60, 10, 3, 0),
    _simulation("SVM", 40, 4, 2, 0),
    *(_simulation("SVM", 200, 10, 10, effect) for effect in (0.3, 0.5, 0.8)),
    *(_simulation("SVM", 60, 10, 10, effect) for effect in (0.5, 0.8)),
]
