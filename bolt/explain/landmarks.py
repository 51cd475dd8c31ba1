"""Which volumes of a scan drive the prediction, and whether those volumes alone suffice to classify it.

The landmarks of a scan are its most important volumes (Algorithm 1 of the paper, for the class that the model
*predicts*). A logistic regression is fitted on landmarks of training scans, tested on landmarks of test scans, and
compared with the same regression on random volumes (the paper's table of landmark regressions). True labels are used
to fit the regression, never to choose volumes.

But the choice depends on the prediction, so it can carry the predicted class into volumes that hold no information
about it (Jethani et al. 2021, arXiv 2103.01890). Volumes chosen in other ways are therefore controls, too
(`bolt.explain.controls`).

A model's weights for scans it was trained on may differ from those for new scans. So the regression is repeated with
weights of training scans from models that did not see them, if there are any (`bolt.folds.inner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.classes import METRICS
from bolt.explain.controls import CONTROLS, FoldWeights, along_directions, averaged, random_volumes
from bolt.explain.landmark_tests import TEST_COLUMNS, landmark_tests
from bolt.explain.subsets import SUBSET_COLUMNS, subset_offsets, subset_rows
from bolt.explain.token_regression import LEVELS, FoldScans, Regression
from bolt.explain.weights import SIGN_CONTROLS, is_explained, require_explained
from bolt.io.files import atomic, write_table

METRIC_COLUMNS = {
    "accuracy": "share classified correctly",
    "recall": "of the positive class (two classes), or macro average",
    "precision": "of the positive class (two classes), or macro average",
    "auc": "of the positive class's probability (mean over the volumes of a unit), or macro average",
}
LANDMARK_COLUMNS = {
    "fold": "outer fold; 'mean' and 'sd' (ddof 0) over folds",
    "importance": "fitted: training scans are explained by the model that was trained on them; inner: by models that "
    "did not see them; none: random volumes",
    "tokens": "how volumes were chosen; important: the most important volumes of each scan; "
    + "; ".join(f"{name}: {words}" for name, words in CONTROLS.items()),
    "level": "; ".join(f"{name}: {words}" for name, words in LEVELS.items()) + " (ties: mean probability)",
    "n_test": "number of test scans; in the rows mean and sd, number of folds",
    **METRIC_COLUMNS,
}
KEYS = ["importance", "tokens", "level"]
OUTPUTS = ("landmarks.tsv", "landmark_tests.tsv", "subsets.tsv", "coefficients.npy", "coefficients_controls.npy")
"""Files of the landmark regressions of a run."""


def top_tokens(weights: NDArray[np.floating], tokens: int) -> NDArray[np.intp]:
    """Return the volumes with the largest weights, largest first; of equal weights, the earlier volume first."""
    return np.argsort(-weights, kind="stable")[:tokens]


class Landmarks(NamedTuple):
    """The landmark regressions of a run.

    Attributes
    ----------
    table : DataFrame
        Columns of `LANDMARK_COLUMNS`.
    coefficients : float array (folds, classes, rois)
        Of the regressions on important volumes, see `bolt.explain.token_regression.FoldScans.regress`.
    controls : float array (controls, folds, classes, rois)
        Those of the regressions on other volumes, in the order of `bolt.explain.weights.SIGN_CONTROLS`.
    curve : DataFrame
        Columns of `bolt.explain.subsets.SUBSET_COLUMNS`.
    ratio : float
        Number of test groups divided by that of training groups, mean over folds.
    """

    table: pd.DataFrame
    coefficients: NDArray[np.floating]
    controls: NDArray[np.floating]
    curve: pd.DataFrame
    ratio: float


def landmark_regression(
    cache: Any,
    run: Path,
    folds: Sequence[int],
    classes: Sequence[str],
    *,
    tokens: int = 5,
    random_draws: int = 20,
    offsets: int = 0,
    inner: bool = False,
    seed: int = 0,
) -> Landmarks:
    """Classify scans by a few of their volumes.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : Path
        Folder ``seed-<s>``, its folds explained.
    folds : sequence of int
    classes : sequence of str
        The last is the positive one.
    tokens : int
        Volumes per scan.
    random_draws : int
        Draws (seeded) that are averaged: of random volumes, without replacement, and of random directions.
    offsets : int
        Points of the subset-index curve, see `bolt.explain.subsets.subset_offsets`; 0: no curve.
    inner : bool
        Also evaluate importance of training scans by models that did not see them.
    seed : int

    Raises
    ------
    DataError
        A fold was explained for the predicted class only.
    """
    explained = {fold: FoldWeights.read(run / f"fold-{fold}") for fold in folds}
    shortest = min((len(w) for weights in explained.values() for w in weights.important.values()), default=0)
    rows, coefficients, controls, curve, ratios = [], [], [], [], []
    for fold, weights in explained.items():
        folder = run / f"fold-{fold}"
        data = FoldScans(cache, weights.table, classes, where=folder)
        regressions = _chosen_by(weights, data, tokens, random_draws, [seed, fold])
        coefficients.append(regressions["important"][1])
        lengths = {scan: len(w) for scan, w in weights.important.items()}
        random = averaged([data.regress(draw) for draw in random_volumes(lengths, tokens, random_draws, [seed, fold])])
        controls.append([{**regressions, "random": random}[name][1] for name in SIGN_CONTROLS])
        unseen = _inner_weights(folder, data) if inner else None
        by_inner = _chosen_by(weights.replaced(unseen), data, tokens, random_draws, [seed, fold]) if unseen else {}
        for importance, part in (("fitted", regressions), ("inner", by_inner), ("none", {"random": random})):
            for kind, (metrics, _) in part.items():
                rows += [{"fold": str(fold), "importance": importance, "tokens": kind, **row} for row in metrics]
        points = subset_offsets(shortest, tokens, offsets)
        curve += [{"fold": str(fold), **row} for row in subset_rows(data, weights.important, points, tokens)]
        ratios.append(data.ratio)
    return Landmarks(
        with_means(pd.DataFrame(rows), KEYS)[list(LANDMARK_COLUMNS)],
        np.stack(coefficients),
        np.stack(controls, axis=1),
        with_means(pd.DataFrame(curve, columns=list(SUBSET_COLUMNS)), ["offset", "level"])[list(SUBSET_COLUMNS)],
        float(np.mean(ratios)),
    )


def with_means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Append mean and sd (ddof 0) over folds for each group; their `n_test` is the number of folds."""
    if table.empty:
        return table
    numbers = [name for name in table if name in ("score", *METRICS)]
    groups = table.groupby(keys, sort=False)
    counts = groups.size().rename("n_test").reset_index()
    parts, of = [table], groups[numbers]
    for name, values in (("mean", of.mean()), ("sd", of.std(ddof=0).where(of.count() > 1))):
        parts.append(values.reset_index().merge(counts, on=keys).assign(fold=name))
    return pd.concat(parts, ignore_index=True)


def _chosen_by(
    weights: FoldWeights, data: FoldScans, tokens: int, draws: int, seed: list[int]
) -> dict[str, Regression]:
    """Return the regressions on landmarks and on controls that depend on the model, by how volumes were chosen."""
    regressions = {
        name: data.regress({scan: top_tokens(w, tokens) for scan, w in curves.items()})
        for name, curves in weights.curves.items()
    }
    directions = along_directions(data, weights.predicted, tokens, draws, [*seed, 1])
    return regressions | {"random direction": averaged([data.regress(chosen) for chosen in directions])}


def _inner_weights(run_fold: Path, data: FoldScans) -> FoldWeights | None:
    """Return weights of training scans by models that did not see them; None if those of any scan are missing."""
    folder = run_fold / "inner"
    if not is_explained(folder):
        return None
    weights = FoldWeights.read(folder)
    return weights if {scan.name for scan in data.parts["train"]} <= set(weights.important) else None


def write_landmarks(
    cache: Any,
    run: Path,
    folds: Sequence[int],
    classes: Sequence[str],
    out: Path,
    *,
    tokens: int,
    random_draws: int,
    seed: int,
    offsets: int = 0,
    inner: bool = False,
) -> None:
    """Write `OUTPUTS`: tables, and the coefficients of regressions on important volumes and on controls.

    Parameters
    ----------
    out : Path
        Folder.
    cache, run, folds, classes, tokens, random_draws, seed, offsets, inner
        As in `landmark_regression`; folds that are not explained are skipped.

    Raises
    ------
    DataError
        No fold has importance weights.
    """
    done = require_explained(run, folds)
    landmarks = landmark_regression(
        cache, run, done, classes, tokens=tokens, random_draws=random_draws, offsets=offsets, inner=inner, seed=seed
    )
    arrays = {"coefficients.npy": landmarks.coefficients, "coefficients_controls.npy": landmarks.controls}
    for name, array in arrays.items():
        with atomic(out / name) as temporary:
            np.save(temporary, array.astype(np.float32))
    tests = landmark_tests(landmarks.table, landmarks.curve, landmarks.ratio)
    write_table(tests, out / "landmark_tests.tsv", TEST_COLUMNS)
    write_table(landmarks.curve, out / "subsets.tsv", SUBSET_COLUMNS)
    write_table(landmarks.table, out / "landmarks.tsv", LANDMARK_COLUMNS)
