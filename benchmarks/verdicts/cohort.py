"""Does the label differ in age or motion? Relatives, repeated persons, and imbalances of a few participants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.verdicts.simulation import Said, Simulation
from bolt.cohort.confounding import DIFFERS, LEVEL, MEASURES, SIMILAR, compare

CLASSES = ("a", "b", "c")


def former_p(scans: pd.DataFrame) -> float:
    """Return the p-value of version 0.1, which took each participant and label as independent of all others."""
    parts = [part.to_numpy() for _, part in scans.groupby("label")["mean_fd"]]
    test = stats.mannwhitneyu(*parts) if len(parts) == 2 else stats.kruskal(*parts)
    return float(test.pvalue)


def present(scans: pd.DataFrame) -> str:
    """Return the present verdict about head motion, the only measure known."""
    scans = scans.assign(**dict.fromkeys(set(MEASURES) - {"mean_fd"}))
    table = compare(scans, [name for name in CLASSES if name in set(scans["label"])]).set_index("measure")
    return str(table.loc["Head motion", "verdict"])


def differs(scans: pd.DataFrame) -> Said:
    """State whether each rule reports a difference."""
    return {"former": former_p(scans) < LEVEL, "present": present(scans) == DIFFERS}


def denied(scans: pd.DataFrame) -> Said:
    """State whether each rule denies a difference; the former wrote "No evidence that head motion differs"."""
    return {"former": former_p(scans) >= LEVEL, "present": present(scans) == SIMILAR}


def families(seed: int, shared: float, difference: float, n: int = 60) -> Said:
    """Draw families of one to three members; 40 % of the variance is the family's.

    A share `shared` of the families has one label for all members; in the others each member has a label of its own.
    """
    random = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        family, own_label = random.normal(), random.integers(2)
        has_one_label = random.random() < shared
        for j in range(random.integers(1, 4)):
            label = own_label if has_one_label else random.integers(2)
            value = np.sqrt(0.4) * family + np.sqrt(0.6) * random.normal() + difference * label
            rows.append((f"s{i}-{j}", f"f{i}", CLASSES[label], value))
    return differs(pd.DataFrame(rows, columns=["subject", "group", "label", "mean_fd"]))


def tasks(seed: int, n_tasks: int, more_motion: float, n: int = 40, relatives: bool = False) -> Said:
    """Draw persons who do all tasks, in the last of which they move more; their own level varies by half.

    Of pairs of relatives, the differences between tasks are alike, too.
    """
    random = np.random.default_rng(seed)
    family = np.arange(n) // 2 if relatives else np.arange(n)
    within = random.normal(size=(n, n_tasks))
    if relatives:
        within = np.sqrt(0.5) * (within + random.normal(size=(n, n_tasks))[family])
    level = random.normal(np.log(0.15), 0.5, (n, 1)) + 0.12 * within
    motion = np.exp(level) * np.where(np.arange(n_tasks) == n_tasks - 1, 1 + more_motion, 1)
    return differs(
        pd.DataFrame(
            {
                "subject": np.repeat([f"s{i}" for i in range(n)], n_tasks),
                "group": np.repeat([f"f{i}" for i in family], n_tasks),
                "label": np.tile(CLASSES[:n_tasks], n),
                "mean_fd": motion.ravel(),
            }
        )
    )


def two_classes(seed: int, n: int, d: float, said: Callable[[pd.DataFrame], Said] = denied) -> Said:
    """Draw `n` unrelated participants, half of them in each class, whose means are `d` standard deviations apart."""
    random = np.random.default_rng(seed)
    label = np.arange(n) % 2
    names = [f"s{i}" for i in range(n)]
    values = random.normal(size=n) + d * label
    return said(pd.DataFrame({"subject": names, "label": np.array(CLASSES)[label], "mean_fd": values}))


DIFFERENCE, DENIAL = "motion or age differs between classes", "no difference: 'similar', formerly 'no evidence'"
PLAIN = "12 participants, 25.5 against 37 years (sd 12)"
SIMULATIONS = [
    Simulation(verdict, data, effect, draw, nominal, 500)
    for verdict, data, effect, draw, nominal in (
        (DIFFERENCE, "families share label and value", False, partial(families, shared=1.0, difference=0), LEVEL),
        (DIFFERENCE, "half of the families share the label", False, partial(families, shared=0.5, difference=0), LEVEL),
        (DIFFERENCE, "families share label, d = 0.8", True, partial(families, shared=1.0, difference=0.8), None),
        (DIFFERENCE, "half of them share it, d = 0.8", True, partial(families, shared=0.5, difference=0.8), None),
        (DIFFERENCE, "same persons in 3 tasks", False, partial(tasks, n_tasks=3, more_motion=0), LEVEL),
        (DIFFERENCE, "same persons in 2 tasks", False, partial(tasks, n_tasks=2, more_motion=0), LEVEL),
        (
            DIFFERENCE,
            "same persons in 3 tasks, pairs of relatives",
            False,
            partial(tasks, n_tasks=3, more_motion=0, relatives=True),
            LEVEL,
        ),
        (DIFFERENCE, "8 % more in 1 of 3 tasks", True, partial(tasks, n_tasks=3, more_motion=0.08), None),
        (DIFFERENCE, "8 % more in 1 of 2 tasks", True, partial(tasks, n_tasks=2, more_motion=0.08), None),
        (DIFFERENCE, "no relatives, no difference", False, partial(two_classes, n=100, d=0, said=differs), LEVEL),
        (DENIAL, PLAIN, False, partial(two_classes, n=12, d=11.5 / 12), LEVEL),
        (DENIAL, "100 participants, d = 0.5", False, partial(two_classes, n=100, d=0.5), LEVEL),
        (DENIAL, "400 participants, d = 0.5", False, partial(two_classes, n=400, d=0.5), LEVEL),
        (DENIAL, "100 participants, no difference", True, partial(two_classes, n=100, d=0), None),
        (DENIAL, "400 participants, no difference", True, partial(two_classes, n=400, d=0), None),
    )
]
