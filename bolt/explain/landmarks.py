"""Which volumes of a scan drive the prediction, and whether those volumes alone suffice to classify it.

The landmarks of a scan are its most important volumes (Algorithm 1 of the paper, for the class that the model
*predicts*). A logistic regression is fitted on landmarks of training scans, tested on landmarks of test scans, and
compared with the same regression on random volumes (the paper's table of landmark regressions). True labels are used
to fit the regression, never to choose volumes.

But the choice depends on the prediction, so it can carry the predicted class into volumes that hold no information
about it (Jethani et al. 2021, arXiv 2103.01890). Volumes chosen in other ways are therefore controls, too.

A model's weights for scans it was trained on may differ from those for new scans. So the regression is repeated with
weights of training scans from models that did not see them, if there are any (`bolt.folds.inner`).

Volumes chosen in other ways are at random; along a random direction for the predicted class, which needs no model; and
important for another class. `landmark_tests` compares them over folds, which share most of their training scans: by the
corrected resampled t-test (Nadeau and Bengio 2003, doi:10.1023/A:1024068626366).

`subset_rows` is the paper's figure of subset indices: the volumes of each scan are sorted by importance, and a window
of a few consecutive ones slides down that list. At offset 0 they are the landmarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.classes import METRICS
from bolt.evaluate.paired import FEWEST_FOLDS, corrected_t
from bolt.explain.token_regression import LEVELS, Chosen, FoldScans, Regression
from bolt.explain.weights import SIGN_CONTROLS, is_explained, read_controls, read_importance, require_explained
from bolt.io.errors import DataError
from bolt.io.files import atomic, write_table

SUBSET_COLUMNS = {
    "fold": "outer fold; 'mean' and 'sd' (ddof 0) over folds",
    "offset": "subset index: number of volumes of the scan that are more important than those of the subset",
    "score": "mean weight of the subset's volumes, divided by the scan's smallest weight above zero (at least 1/1000 "
    "of its mean weight); mean over test scans",
    "level": "; ".join(f"{name}: {words}" for name, words in LEVELS.items()),
    "n_test": "number of test scans; in the rows mean and sd, number of folds",
    **dict.fromkeys(METRICS, "as in landmarks.tsv"),
}
FLOOR = 1e-3
"""Share of a scan's mean weight: the smallest denominator of scores. Volumes that no window reaches have no weight at
all, and a weight near zero would let one scan dominate the mean."""


def subset_offsets(shortest: int, tokens: int, n_offsets: int) -> NDArray[np.intp]:
    """Return offsets in the sorted list, evenly spaced from the first to the last of the shortest scan.

    Parameters
    ----------
    shortest : int
        Volumes of the shortest scan, so that every scan has volumes at every offset.
    tokens : int
        Volumes of the subset.
    n_offsets : int
        Largest number of offsets; 0: none.
    """
    last = shortest - tokens
    if n_offsets == 0 or last < 0:
        return np.empty(0, int)
    return np.unique(np.linspace(0, last, min(n_offsets, last + 1)).round().astype(int))


def subset_rows(
    data: FoldScans, weights: Mapping[str, NDArray[np.floating]], offsets: NDArray[np.intp], tokens: int
) -> list[dict[str, Any]]:
    """Return the subset-index curve of one fold.

    Parameters
    ----------
    data : FoldScans
    weights : mapping
        Scan to the importance of its volumes (T,).
    offsets : int array
    tokens : int

    Returns
    -------
    list of dict
        Columns of `SUBSET_COLUMNS` but ``fold``.
    """
    if not len(offsets):
        return []
    needed = np.unique(offsets[:, None] + np.arange(tokens))  # ranks in any subset
    order = {scan: np.argsort(-w, kind="stable")[needed] for scan, w in weights.items()}
    ordered = data.only(order)  # every series is read once for all offsets
    relative = np.stack([_relative(weights[scan.name])[order[scan.name]] for scan in data.parts["test"]])
    rows = []
    for offset in offsets:
        subset = np.searchsorted(needed, offset + np.arange(tokens))
        metrics, _ = ordered.regress(dict.fromkeys(weights, subset))
        score = float(relative[:, subset].mean())
        rows += [{"offset": int(offset), "score": score, **row} for row in metrics]
    return rows


def _relative(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Divide weights by the scan's smallest above zero; ones if all are zero."""
    positive = weights[weights > 0]
    if not len(positive):
        return np.ones(len(weights))
    return weights / max(float(positive.min()), FLOOR * float(weights.mean()))


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


TEST_COLUMNS = {
    "question": "moments: important volumes against a control; order: first against later quarters of the subset curve",
    "importance": "as in landmarks.tsv, of the important volumes",
    "first": "important, or first quarter",
    "second": "what it is compared with: a control (as `tokens` in landmarks.tsv), or second, third or last quarter",
    "auc_first": "AUC per scan, mean over folds",
    "auc_second": "AUC per scan, mean over folds",
    "difference": "first minus second, mean over folds",
    "n_folds": "folds in which both are defined",
    "p": "corrected resampled t-test (Nadeau and Bengio), two-sided, with the ratio of test to training groups; n/a: "
    f"fewer than {FEWEST_FOLDS} folds, or the same difference in all folds",
    "note": "why there is no p",
}


def landmark_tests(table: pd.DataFrame, curve: pd.DataFrame, ratio: float) -> pd.DataFrame:
    """Test important volumes against each control, and the first quarter of the subset curve against the others.

    Parameters
    ----------
    table : DataFrame
        Columns of `LANDMARK_COLUMNS`.
    curve : DataFrame
        Columns of `SUBSET_COLUMNS`; if it has fewer than four offsets, they are not tested.
    ratio : float
        n_test/n_train, mean over folds.

    Returns
    -------
    DataFrame
        Columns of `TEST_COLUMNS`.
    """
    auc = _auc_by_fold(table, ["importance", "tokens"])
    rows = []
    for importance, important in [key for key in auc if key[1] == "important"]:
        keys = [(of, control) for control in CONTROLS for of in (importance, "none")]
        for key in (key for key in keys if key in auc):
            names = {"question": "moments", "importance": importance, "first": important, "second": key[1]}
            rows.append(names | _tested(auc[importance, important], auc[key], ratio))
    by_offset = _auc_by_fold(curve, ["offset"])
    n = by_offset.shape[1]
    quarter = n // 4
    if quarter:
        names = {"question": "order", "importance": "fitted", "first": "first quarter"}
        first = by_offset.iloc[:, :quarter].mean(axis=1)
        others = {"second": slice(quarter, n // 2), "third": slice(n // 2, n - quarter), "last": slice(n - quarter, n)}
        for name, part in others.items():
            second = by_offset.iloc[:, part].mean(axis=1)
            rows.append(names | {"second": f"{name} quarter"} | _tested(first, second, ratio))
    return pd.DataFrame(rows, columns=list(TEST_COLUMNS))


def _auc_by_fold(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the AUC of scans: a row per fold, a column per value of the keys, in the order of the table."""
    rows = table[(table["level"] == "scan") & ~table["fold"].isin(["mean", "sd"])]
    return rows.pivot_table(index="fold", columns=keys, values="auc", sort=False)


def _tested(first: pd.Series, second: pd.Series, ratio: float) -> dict[str, Any]:
    """Compare two regressions in the folds in which both are defined."""
    both = pd.DataFrame({"first": first, "second": second}).dropna()
    n, difference = len(both), (both["first"] - both["second"]).to_numpy()
    p, note = np.nan, f"{n} of at least {FEWEST_FOLDS} folds"
    if n >= FEWEST_FOLDS:
        p = corrected_t(difference, ratio)
        note = "the difference is the same in all folds" if np.isnan(p) else ""
    return {
        "auc_first": both["first"].mean(),
        "auc_second": both["second"].mean(),
        "difference": difference.mean() if n else np.nan,
        "n_folds": n,
        "p": p,
        "note": note,
    }


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
        Of the regressions on important volumes, see `bolt.explain.weights.FoldScans.regress`.
    controls : float array (controls, folds, classes, rois)
        Those of the regressions on other volumes, in the order of `bolt.explain.weights.SIGN_CONTROLS`.
    curve : DataFrame
        Columns of `SUBSET_COLUMNS`.
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
    side_by_side: bool = False,
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
        Points of the subset-index curve, see `subset_offsets`; 0: no curve.
    inner : bool
        Also evaluate importance of training scans by models that did not see them.
    side_by_side : bool
        The volumes of a scan, in the order of their importance, are one sample, instead of one sample each.
    seed : int

    Raises
    ------
    DataError
        A fold was explained for the predicted class only; or a scan is too short to have `tokens` volumes side by side.
    """
    explained = {fold: FoldWeights.read(run / f"fold-{fold}") for fold in folds}
    shortest = min((len(w) for weights in explained.values() for w in weights.important.values()), default=0)
    if side_by_side and shortest < tokens:
        raise DataError(
            f"a scan has only {shortest} volumes, fewer than the {tokens} that its regression takes side by side",
            where=run,
            hint="Set a smaller number in 'explain: tokens', or 'landmark_samples: volumes'",
        )
    rows, coefficients, controls, curve, ratios = [], [], [], [], []
    for fold, weights in explained.items():
        folder = run / f"fold-{fold}"
        data = FoldScans(cache, weights.table, classes, where=folder, side_by_side=side_by_side)
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
    side_by_side: bool = False,
) -> None:
    """Write `OUTPUTS`: tables, and the coefficients of regressions on important volumes and on controls.

    Parameters
    ----------
    out : Path
        Folder.
    cache, run, folds, classes, tokens, random_draws, seed, offsets, inner, side_by_side
        As in `landmark_regression`; folds that are not explained are skipped.

    Raises
    ------
    DataError
        No fold has importance weights.
    """
    done = require_explained(run, folds)
    landmarks = landmark_regression(
        cache,
        run,
        done,
        classes,
        tokens=tokens,
        random_draws=random_draws,
        offsets=offsets,
        inner=inner,
        side_by_side=side_by_side,
        seed=seed,
    )
    arrays = {"coefficients.npy": landmarks.coefficients, "coefficients_controls.npy": landmarks.controls}
    for name, array in arrays.items():
        with atomic(out / name) as temporary:
            np.save(temporary, array.astype(np.float32))
    tests = landmark_tests(landmarks.table, landmarks.curve, landmarks.ratio)
    write_table(tests, out / "landmark_tests.tsv", TEST_COLUMNS)
    write_table(landmarks.curve, out / "subsets.tsv", SUBSET_COLUMNS)
    write_table(landmarks.table, out / "landmarks.tsv", LANDMARK_COLUMNS)
