"""What predictions have in common: scans, groups, folds and seeds; and how far sums vary between these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

TAIL = 0.025
"""Share of samples beyond either end of an interval."""
Floats = NDArray[np.floating]
Positions = NDArray[np.integer]
Interval = tuple[float, float]
NO_INTERVAL = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Units:
    """Positions of each prediction's scan, group, fold and seed, (n,) each."""

    scan: Positions
    group: Positions
    fold: Positions
    seed: Positions

    @classmethod
    def of(cls, predictions: pd.DataFrame) -> Units:
        """Read them from the columns of predictions; without folds or seeds, all are of one."""
        columns = predictions.assign(**{name: 0 for name in ("fold", "seed") if name not in predictions})
        names = ("scan_id", "group", "fold", "seed")
        return cls(*(np.unique(columns[name].astype(str), return_inverse=True)[1] for name in names))

    @property
    def cell(self) -> Positions:
        """Return the position of each combination of fold and seed: one trained model."""
        return np.unique(self.fold * (self.seed.max() + 1) + self.seed, return_inverse=True)[1]


def variance_of_sum(deviation: Floats, group: Positions, seed: Positions, n_means: int = 1) -> tuple[float, float]:
    """Return the variance of a sum of deviations, between groups and between seeds, and its degrees of freedom.

    Groups and seeds are crossed random effects. The residual variance is part of both and counts twice: without it, the
    variance between two or three seeds would be too small too often. `n_means` is the number of means from which
    deviations were taken. Degrees of freedom follow Satterthwaite (1946, doi:10.2307/3002019).
    """
    group, seed = (np.unique(of, return_inverse=True)[1] for of in (group, seed))
    n_groups, n_seeds = group.max() + 1, seed.max() + 1
    free = n_groups - n_means
    if free < 1:
        return 0.0, 1.0
    groups = n_groups / free * float((np.bincount(group, deviation) ** 2).sum())
    if n_seeds < 2:
        return groups, free
    seeds = n_seeds / (n_seeds - 1) * float((np.bincount(seed, deviation) ** 2).sum())
    if not groups + seeds:
        return 0.0, free
    return groups + seeds, (groups + seeds) ** 2 / (groups**2 / free + seeds**2 / (n_seeds - 1))


def quantile(freedom: float = np.inf) -> float:
    """Return the quantile of the t distribution at the upper end of an interval."""
    return float(stdtrit(freedom, 1 - TAIL))
