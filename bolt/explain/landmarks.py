"""Which volumes of a scan drive the prediction, and whether those volumes alone suffice to classify it.

The landmarks of a scan are its most important volumes (Algorithm 1 of the paper, for the class that the model
*predicts*). A logistic regression is fitted on landmarks of training scans, tested on landmarks of test scans, and
compared with the same regression on random volumes (the paper's table of landmark regressions). True labels are used
to fit the regression, never to choose volumes.

A model's weights for scans it was trained on may differ from those for new scans. So the regression is repeated with
weights of training scans from models that did not see them, if there are any (`bolt.folds.inner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.classes import METRICS
from bolt.explain.subsets import SUBSET_COLUMNS, subset_offsets, subset_rows
from bolt.explain.token_regression import LEVELS, FoldScans
from bolt.explain.weights import is_explained, read_importance, require_explained
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
    "tokens": "important: the most important volumes of each scan; random: as many random volumes, mean over draws",
    "level": "; ".join(f"{name}: {words}" for name, words in LEVELS.items()) + " (ties: mean probability)",
    "n_test": "number of test scans; in the rows mean and sd, number of folds",
    **METRIC_COLUMNS,
}
KINDS = (("fitted", "important"), ("inner", "important"), ("none", "random"))
"""Groups of rows, by importance and tokens, in the order of the table."""


def top_tokens(weights: NDArray[np.floating], tokens: int) -> NDArray[np.intp]:
    """Return the volumes with the largest weights, largest first; of equal weights, the earlier volume first."""
    return np.argsort(-weights, kind="stable")[:tokens]


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
) -> tuple[pd.DataFrame, NDArray[np.floating], pd.DataFrame]:
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
        Random draws (seeded, without replacement) that are averaged.
    offsets : int
        Points of the subset-index curve, see `bolt.explain.subsets.subset_offsets`; 0: no curve.
    inner : bool
        Also evaluate importance of training scans by models that did not see them.
    seed : int

    Returns
    -------
    table : DataFrame
        Columns of `LANDMARK_COLUMNS`.
    coefficients : float array (folds, classes, rois)
        Of the regressions on important volumes, see `bolt.explain.token_regression.FoldScans.regress`.
    curve : DataFrame
        Columns of `bolt.explain.subsets.SUBSET_COLUMNS`.
    """
    explained = {fold: read_importance(run / f"fold-{fold}") for fold in folds}
    shortest = min((len(w) for _, weights in explained.values() for w in weights), default=0)
    rows, coefficients, curve = [], [], []
    for fold, (table, values) in explained.items():
        weights = dict(zip(table["scan_id"], values, strict=True))
        data = FoldScans(cache, table, classes, where=run / f"fold-{fold}")
        landmarks = {scan: top_tokens(w, tokens) for scan, w in weights.items()}
        fitted, coefficient = data.regress(landmarks)
        coefficients.append(coefficient)
        unseen = _inner_tokens(run / f"fold-{fold}", data, tokens) if inner else {}
        by_inner = data.regress(landmarks | unseen)[0] if unseen else []
        random = _random(data, weights, tokens, random_draws, np.random.default_rng([seed, fold]))
        for (importance, kind), group in zip(KINDS, (fitted, by_inner, random), strict=True):
            rows += [{"fold": str(fold), "importance": importance, "tokens": kind, **row} for row in group]
        points = subset_offsets(shortest, tokens, offsets)
        curve += [{"fold": str(fold), **row} for row in subset_rows(data, weights, points, tokens)]
    return (
        with_means(pd.DataFrame(rows), ["importance", "tokens", "level"])[list(LANDMARK_COLUMNS)],
        np.stack(coefficients),
        with_means(pd.DataFrame(curve, columns=list(SUBSET_COLUMNS)), ["offset", "level"])[list(SUBSET_COLUMNS)],
    )


def with_means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Append mean and sd (ddof 0) over folds for each group; their `n_test` is the number of folds."""
    if table.empty:
        return table
    numbers = [name for name in table if name in ("score", *METRICS)]
    groups = table.groupby(keys, sort=False)
    counts = groups.size().rename("n_test").reset_index()
    parts = [table]
    for name, values in (("mean", groups[numbers].mean()), ("sd", groups[numbers].std(ddof=0))):
        parts.append(values.reset_index().merge(counts, on=keys).assign(fold=name))
    return pd.concat(parts, ignore_index=True)


def _random(
    data: FoldScans,
    weights: dict[str, NDArray[np.floating]],
    tokens: int,
    draws: int,
    random: np.random.Generator,
) -> list[dict[str, Any]]:
    """Return the metrics of regressions on random volumes (without replacement), mean over draws."""
    rows = []
    for _ in range(draws):
        drawn = {scan: random.choice(len(w), min(tokens, len(w)), replace=False) for scan, w in weights.items()}
        rows += data.regress(drawn)[0]
    means = pd.DataFrame(rows).groupby("level", sort=False).mean().reset_index()
    return means.astype({"n_test": int}).to_dict("records")


def _inner_tokens(run_fold: Path, data: FoldScans, tokens: int) -> dict[str, NDArray[np.intp]]:
    """Return landmarks of training scans by models that did not see them; empty if any of these is missing."""
    folder = run_fold / "inner"
    if not is_explained(folder):
        return {}
    table, values = read_importance(folder)
    weights = dict(zip(table["scan_id"], values, strict=True))
    training = [scan.name for scan in data.parts["train"]]
    return {name: top_tokens(weights[name], tokens) for name in training} if set(training) <= set(weights) else {}


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
    """Write ``landmarks.tsv``, ``subsets.tsv`` and ``coefficients.npy`` (folds, classes, rois).

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
    table, coefficients, curve = landmark_regression(
        cache, run, done, classes, tokens=tokens, random_draws=random_draws, offsets=offsets, inner=inner, seed=seed
    )
    with atomic(out / "coefficients.npy") as temporary:
        np.save(temporary, coefficients.astype(np.float32))
    write_table(curve, out / "subsets.tsv", SUBSET_COLUMNS)
    write_table(table, out / "landmarks.tsv", LANDMARK_COLUMNS)
