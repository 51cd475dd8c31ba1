"""Which moments of a scan decide, and whether those moments alone are enough.

The importance weights of every scan (Algorithm 1 of the paper, for the class that the model
*predicts*) name its landmarks: the few most important volumes. A logistic regression is then fitted
on landmarks of training scans and tested on landmarks of test scans, and compared with the same
regression on random volumes (the paper's table of landmark regressions). The true label is used to
fit the regression, never to choose volumes.

A model's weights for the scans it was fitted to may be unlike those for new scans. So the same is done once more with
weights of training scans from models that did not see them, where there are such (`bolt.folds.inner`).
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
from bolt.explain.weights import explained_folds, is_explained, read_importance
from bolt.io.errors import DataError
from bolt.io.files import atomic, write_table

METRIC_COLUMNS = {
    "accuracy": "share judged right",
    "recall": "of the positive class (two classes), or macro average",
    "precision": "of the positive class (two classes), or macro average",
    "auc": "of the positive class's probability (mean over the volumes of a unit), or macro average",
}
LANDMARK_COLUMNS = {
    "fold": "outer fold; 'mean' and 'sd' (ddof 0) over folds",
    "importance": "fitted: training scans are explained by the model that was fitted to them; inner: by models that "
    "did not see them; none: random volumes",
    "tokens": "important: the most important volumes of each scan; random: as many others, mean over the draws",
    "level": "; ".join(f"{name}: {words}" for name, words in LEVELS.items()) + " (ties: mean probability)",
    "n_test": "test scans; number of folds in the last rows",
    **METRIC_COLUMNS,
}
KINDS = (("fitted", "important"), ("inner", "important"), ("none", "random"))
"""Groups of rows, by importance and tokens, in the order of the table."""


def top_tokens(weights: NDArray[np.floating], tokens: int) -> NDArray[np.intp]:
    """Volumes with the largest weights, largest first; of equals, the earlier."""
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
        Volumes a scan.
    random_draws : int
        Random choices (seeded, without replacement) that are averaged.
    offsets : int
        Places of the subset-index curve, see `bolt.explain.subsets.subset_offsets`; 0: no curve.
    inner : bool
        Judge importance of training scans by models that did not see them too.
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
        chosen = {scan: top_tokens(w, tokens) for scan, w in weights.items()}
        found, coefficient = data.regress(chosen)
        coefficients.append(coefficient)
        groups = [found]
        unseen = _inner_tokens(run / f"fold-{fold}", data, tokens) if inner else {}
        groups.append(data.regress(chosen | unseen)[0] if unseen else [])
        groups.append(_random(data, weights, tokens, random_draws, np.random.default_rng([seed, fold])))
        for (importance, what), group in zip(KINDS, groups, strict=True):
            rows += [{"fold": str(fold), "importance": importance, "tokens": what, **row} for row in group]
        places = subset_offsets(shortest, tokens, offsets)
        curve += [{"fold": str(fold), **row} for row in subset_rows(data, weights, places, tokens)]
    return (
        with_means(pd.DataFrame(rows), ["importance", "tokens", "level"])[list(LANDMARK_COLUMNS)],
        np.stack(coefficients),
        with_means(pd.DataFrame(curve, columns=list(SUBSET_COLUMNS)), ["offset", "level"])[list(SUBSET_COLUMNS)],
    )


def with_means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The rows of folds, and for each group mean and sd (ddof 0) over them, `n_test` being the number of folds."""
    if table.empty:
        return table
    numbers = [name for name in table if name in ("score", *METRICS)]
    groups = table.groupby(keys, sort=False)
    counts = groups.size().rename("n_test").reset_index()
    found = [table]
    for name, values in (("mean", groups[numbers].mean()), ("sd", groups[numbers].std(ddof=0))):
        found.append(values.reset_index().merge(counts, on=keys).assign(fold=name))
    return pd.concat(found, ignore_index=True)


def _random(
    data: FoldScans,
    weights: dict[str, NDArray[np.floating]],
    tokens: int,
    draws: int,
    random: np.random.Generator,
) -> list[dict[str, Any]]:
    """Metrics of random volumes, without replacement, mean over the draws."""
    found = []
    for _ in range(draws):
        drawn = {scan: random.choice(len(w), min(tokens, len(w)), replace=False) for scan, w in weights.items()}
        found += data.regress(drawn)[0]
    means = pd.DataFrame(found).groupby("level", sort=False).mean().reset_index()
    return means.astype({"n_test": int}).to_dict("records")


def _inner_tokens(run_fold: Path, data: FoldScans, tokens: int) -> dict[str, NDArray[np.intp]]:
    """Volumes of training scans by models that did not see them; none where such a model is missing."""
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
    """Write ``landmarks.tsv``, ``subsets.tsv`` and ``coefficients.npy`` (folds, classes, rois) into `out`, from the
    folds that finished. Parameters as in `landmark_regression`."""
    done = explained_folds(run, folds)
    if not done:
        raise DataError(
            "no fold of this run has importance weights", where=run, hint="See the status.json of its folds"
        )
    table, coefficients, curve = landmark_regression(
        cache, run, done, classes, tokens=tokens, random_draws=random_draws, offsets=offsets, inner=inner, seed=seed
    )
    with atomic(out / "coefficients.npy") as temporary:
        np.save(temporary, coefficients.astype(np.float32))
    write_table(curve, out / "subsets.tsv", SUBSET_COLUMNS)
    write_table(table, out / "landmarks.tsv", LANDMARK_COLUMNS)
