"""Which moments of a scan decide, and whether those moments alone are enough.

The importance weights of every scan (Algorithm 1 of the paper, for the class that the model
*predicts*) name its landmarks: the few most important volumes. A logistic regression is then fitted
on landmarks of training scans and tested on landmarks of test scans, and compared with the same
regression on random volumes (the paper's table of landmark regressions). The true label is used to
fit the regression, never to choose volumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bolt.errors import DataError
from bolt.evaluate.classes import METRICS, scores
from bolt.explain.weights import read_importance
from bolt.files import atomic, read_json, write_table

LANDMARK_COLUMNS = {
    "fold": "outer fold; 'mean' and 'sd' (ddof 0) over folds",
    "tokens": "important: the most important volumes of each scan; random: as many others, mean over the draws",
    "level": "token: each volume is judged; scan: its volumes vote (ties: mean probability)",
    "n_test": "test scans; number of folds in the last rows",
    "accuracy": "share judged right",
    "recall": "of the positive class (two classes), or macro average",
    "precision": "of the positive class (two classes), or macro average",
    "auc": "of the positive class's probability (mean over a scan's volumes), or macro average",
}


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
    seed: int = 0,
) -> tuple[pd.DataFrame, NDArray[np.floating]]:
    """Classify scans by a few of their volumes.

    L2-regularised logistic regression with ``C=1``, as in the paper's published code, on z-scored
    ROI values; each volume is a sample with its scan's label.

    Parameters
    ----------
    cache : bolt.series.SeriesCache
    run : Path
        Folder ``seed-<s>``, its folds explained.
    folds : sequence of int
    classes : sequence of str
        The last is the positive one.
    tokens : int
        Volumes a scan.
    random_draws : int
        Random choices (seeded, without replacement) that are averaged.
    seed : int

    Returns
    -------
    table : DataFrame
        Columns of `LANDMARK_COLUMNS`.
    coefficients : float array (folds, classes, rois)
        Weights of the regressions on important volumes, in log odds per standard deviation; with
        two classes the first class's are the second's with the opposite sign.
    """
    rows, coefficients = [], []
    for fold in folds:
        table, weights = read_importance(run / f"fold-{fold}")
        lengths = dict(zip(table["scan_id"], (len(w) for w in weights), strict=True))
        ranked = dict(zip(table["scan_id"], (top_tokens(w, tokens) for w in weights), strict=True))
        data = _FoldData(cache, table, classes, where=run / f"fold-{fold}")
        values, coefficient = data.fit_and_test(ranked)
        coefficients.append(coefficient)
        rows += [{"fold": str(fold), "tokens": "important", **v} for v in values]
        random = np.random.default_rng([seed, fold])
        draws = []
        for _ in range(random_draws):
            drawn = {scan: random.choice(n, min(tokens, n), replace=False) for scan, n in lengths.items()}
            draws += data.fit_and_test(drawn)[0]
        means = pd.DataFrame(draws).groupby("level", sort=True).mean().reset_index()
        rows += [{"fold": str(fold), "tokens": "random", **v} for v in means.to_dict("records")]
    result = pd.DataFrame(rows)
    grouped = result.groupby(["tokens", "level"], sort=True)[list(METRICS)]
    for name, summary in (("mean", grouped.mean()), ("sd", grouped.std(ddof=0))):
        result = pd.concat([result, summary.reset_index().assign(fold=name, n_test=len(folds))], ignore_index=True)
    return result[list(LANDMARK_COLUMNS)], np.stack(coefficients)


class _FoldData:
    """The scans of one fold, from which volumes are chosen again and again."""

    def __init__(self, cache: Any, table: pd.DataFrame, classes: Sequence[str], where: Path) -> None:
        rows = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
        code = {name: i for i, name in enumerate(classes)}
        labels = cache.index["label"].astype(str)
        self.n_classes = len(classes)
        self.parts: dict[str, list[tuple[str, NDArray[np.floating], int]]] = {
            role: [
                (scan, cache.series(rows[scan]), code[labels.iloc[rows[scan]]])
                for scan in table.loc[table["role"] == role, "scan_id"]
            ]
            for role in ("train", "test")
        }
        present = {label for _, _, label in self.parts["train"]}
        if len(present) < self.n_classes or not self.parts["test"]:
            raise DataError(
                "landmarks cannot be judged: a class has no training scan, or there is no test scan",
                where=where,
                mend="Explain the fold again, or use fewer folds",
            )

    def _samples(self, part: str, chosen: dict[str, NDArray[np.intp]]) -> tuple[NDArray[Any], NDArray[Any]]:
        pairs = [(series[chosen[scan]], np.full(len(chosen[scan]), label)) for scan, series, label in self.parts[part]]
        return np.concatenate([x for x, _ in pairs]).astype(float), np.concatenate([y for _, y in pairs])

    def fit_and_test(
        self, chosen: dict[str, NDArray[np.intp]]
    ) -> tuple[list[dict[str, float | str]], NDArray[np.floating]]:
        """Fit on training scans; metrics at both levels, and coefficients (classes, rois)."""
        regression = LogisticRegression(C=1.0, max_iter=1000).fit(*self._samples("train", chosen))
        x, truth = self._samples("test", chosen)
        probability = regression.predict_proba(x)
        scan = np.repeat(np.arange(len(self.parts["test"])), [len(chosen[s]) for s, _, _ in self.parts["test"]])
        votes, means = np.zeros((2, scan[-1] + 1, self.n_classes))
        np.add.at(votes, (scan, probability.argmax(axis=1)), 1)
        np.add.at(means, scan, probability)
        means /= votes.sum(axis=1, keepdims=True)
        scan_truth = np.array([label for _, _, label in self.parts["test"]])
        coefficient = regression.coef_
        if self.n_classes == 2:
            coefficient = np.concatenate([-coefficient, coefficient])
        values = [
            ("scan", scores(scan_truth, (votes + means / 2).argmax(axis=1), means)),
            ("token", scores(truth, probability.argmax(axis=1), probability)),
        ]
        n_test = len(scan_truth)
        return [
            {"level": level, "n_test": n_test, **{m: float(v[m][0]) for m in METRICS}} for level, v in values
        ], coefficient


def explained_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Folds of `run` that are finished and have importance weights."""
    done = []
    for fold in folds:
        folder = run / f"fold-{fold}"
        explained = (folder / "importance.tsv").is_file() and (folder / "importance.tsv").stat().st_size > 0
        if explained and read_json(folder / "status.json")["state"] == "ok":
            done.append(fold)
    return done


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
) -> None:
    """Write ``landmarks.tsv`` and ``coefficients.npy`` (folds, classes, rois) into `out`, from the
    folds that finished. Parameters as in `landmark_regression`."""
    done = explained_folds(run, folds)
    if not done:
        raise DataError(
            "no fold of this run has importance weights", where=run, mend="See the status.json of its folds"
        )
    table, coefficients = landmark_regression(
        cache, run, done, classes, tokens=tokens, random_draws=random_draws, seed=seed
    )
    with atomic(out / "coefficients.npy") as temporary:
        np.save(temporary, coefficients.astype(np.float32))
    write_table(table, out / "landmarks.tsv", LANDMARK_COLUMNS)
