"""Volumes chosen in other ways than landmarks: what the choice of volumes alone can carry about the class.

Landmarks are chosen for the class that the model predicts, so a regression on them can read the prediction from the
choice. How well it can do that without any information in single volumes is shown by other choices: at random; along a
random direction for the predicted class, which needs no model; and by importance for another class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.explain.token_regression import Chosen, FoldScans, Regression
from bolt.explain.weights import read_controls, read_importance

CONTROLS = {
    "random": "as many random volumes, mean over draws",
    "random direction": "the volumes furthest along a random direction in the space of ROIs, one direction per class, "
    "that of the predicted class; mean over draws",
    "wrong class": "the most important volumes for the most probable class other than the predicted one",
    "fixed class": "the most important volumes for the last class, in all scans",
}
"""How control volumes are chosen."""
Curves = Mapping[str, NDArray[np.floating]]
"""Scan to the importance of its volumes (T,)."""


@dataclass(frozen=True)
class FoldWeights:
    """Importance weights of a fold's scans.

    Attributes
    ----------
    table : DataFrame
        ``importance.tsv``.
    curves : dict
        ``important`` and each of `bolt.explain.weights.OTHER_CLASSES` to the weights of every scan.
    predicted : dict
        Scan to its predicted class.
    """

    table: pd.DataFrame
    curves: dict[str, Curves]
    predicted: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> FoldWeights:
        """Read what `bolt.explain.importance` has written; `DataError` if it explained the predicted class only."""
        table, important = read_importance(folder)
        scans = table["scan_id"].tolist()
        weights = {"important": important, **read_controls(folder)}
        curves: dict[str, Curves] = {name: dict(zip(scans, each, strict=True)) for name, each in weights.items()}
        return cls(table, curves, dict(zip(scans, table["predicted"], strict=True)))

    @property
    def important(self) -> Curves:
        """Return the weights for the predicted class."""
        return self.curves["important"]

    def replaced(self, other: FoldWeights) -> FoldWeights:
        """Return the same scans with the weights and predictions of another model, for the scans that it has."""
        curves: dict[str, Curves] = {name: {**own, **other.curves[name]} for name, own in self.curves.items()}
        return FoldWeights(self.table, curves, self.predicted | other.predicted)


def random_volumes(lengths: Mapping[str, int], tokens: int, draws: int, seed: Sequence[int]) -> Iterator[Chosen]:
    """Draw volumes of each scan, without replacement."""
    random = np.random.default_rng(seed)
    for _ in range(draws):
        yield {scan: random.choice(length, min(tokens, length), replace=False) for scan, length in lengths.items()}


def along_directions(
    data: FoldScans, predicted: Mapping[str, str], tokens: int, draws: int, seed: Sequence[int]
) -> list[Chosen]:
    """Choose the volumes furthest along the random direction of each scan's predicted class.

    The directions of a draw sum to zero; with two classes, they are opposite.
    """
    scans = [scan for part in data.parts.values() for scan in part]
    names = sorted(set(predicted.values()))
    classes = max(data.n_classes, len(names))
    directions = np.random.default_rng(seed).standard_normal((classes, draws, scans[0].series.shape[1]))
    directions -= directions.mean(axis=0)
    chosen: list[dict[str, NDArray[np.intp]]] = [{} for _ in range(draws)]
    for scan in scans:  # each series is read once for all draws
        along = scan.series @ directions[names.index(predicted[scan.name])].T
        for draw, column in zip(chosen, along.T, strict=True):
            draw[scan.name] = np.argsort(-column, kind="stable")[:tokens]
    return list(chosen)


def averaged(regressions: Sequence[Regression]) -> Regression:
    """Return the mean metrics of each level, and the mean coefficients."""
    rows = pd.DataFrame([row for metrics, _ in regressions for row in metrics])
    means = rows.groupby("level", sort=False).mean().reset_index().astype({"n_test": int})
    return means.to_dict("records"), np.mean([coefficients for _, coefficients in regressions], axis=0)
