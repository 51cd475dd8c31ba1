"""Which volumes of a scan drive the prediction, and whether those volumes alone suffice to classify it.

The landmarks of a scan are its most important volumes (Algorithm 1 of the paper, for the class that the model
*predicts*). A logistic regression is fitted on landmarks of training scans, tested on landmarks of test scans, and
compared with the same regression on random volumes (the paper's table of landmark regressions). True labels are used
to fit the regression, never to choose volumes.

But the choice depends on the prediction, so it can carry the predicted class into volumes that hold no information
about it (Jethani et al. 2021, arXiv 2103.01890). Volumes chosen in other ways are therefore controls, too.

A model's weights for scans it was trained on may differ from those for new scans. So the regression is repeated with
weights of training scans from models that did not see them, if there are any (`bolt.folds.splits`).

Volumes chosen in other ways are at random; along a random direction for the predicted class, which needs no model; and
important for another class. `landmark_tests` compares them over folds, which share most of their training scans: by the
corrected resampled t-test (Nadeau and Bengio 2003, doi:10.1023/A:1024068626366).

`subset_rows` is the paper's figure of subset indices: the volumes of each scan are sorted by importance, and a window
of a few consecutive ones slides down that list. At offset 0 they are the landmarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from bolt.evaluate.paired import FEWEST_FOLDS, corrected_t
from bolt.evaluate.scores import METRICS, scores
from bolt.explain.weights import SIGN_CONTROLS, read_controls, read_importance, save_array
from bolt.io.errors import DataError
from bolt.io.files import columns, holds_something, write_table

LANDMARK_COLUMNS = columns("explain", "landmarks")
TEST_COLUMNS = columns("explain", "landmark_tests", FEWEST_FOLDS=FEWEST_FOLDS)
SUBSET_COLUMNS = columns("explain", "subsets")
LEVELS = ("token", "scan", "subject")
"""What is classified: each sample, or a scan or a subject by the vote of its samples."""
CONTROLS = ("random", "random direction", "wrong class", "fixed class")
"""How control volumes are chosen."""
FLOOR = 1e-3
"""Share of a scan's mean weight: the smallest denominator of scores. Volumes that no window reaches have no weight at
all, and a weight near zero would let one scan dominate the mean."""

Array = NDArray[np.floating]
Curves = Mapping[str, Array]
"""Scan to the importance of its volumes (T,)."""
Chosen = Mapping[str, NDArray[np.intp]]
"""Scan to the volumes of it that a regression sees."""
Regression = tuple[list[dict[str, Any]], Array]
"""Rows of metrics, and coefficients, see `FoldScans.regress`."""


def top_tokens(weights: Array, tokens: int) -> NDArray[np.intp]:
    """Return the volumes with the largest weights, largest first; of equal weights, the earlier volume first."""
    return np.argsort(-weights, kind="stable")[:tokens]


def imaged(series: Array, chosen: NDArray[np.intp]) -> Array:
    """Return the chosen volumes (n, rois) of a scan; an ROI that was not imaged is NaN there, and 0 in the cache."""
    return np.where(series.any(axis=0), series[chosen], np.nan)


def filled(x: Array, of: Array) -> Array:
    """Give samples (n, values) where they are NaN the means `of` others, which nothing is learned from."""
    known = np.isfinite(of)
    return np.where(np.isnan(x), np.where(known, of, 0).sum(axis=0) / known.sum(axis=0).clip(1), x)


class ScanTokens(NamedTuple):
    """A scan: its series (T, rois), whose volumes are its tokens; its label (position in the classes)."""

    name: str
    series: Array
    label: int
    subject: str
    group: str


class FoldScans:
    """Training and test scans of one fold, each read once for many regressions.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    table : DataFrame
        scan_id, role; as in ``importance.tsv``.
    classes : sequence of str
        The last is the positive one.
    where : Path
        The fold's folder, for errors.
    side_by_side : bool
        The volumes of a scan are one sample of volumes × rois features, instead of one sample each.

    Raises
    ------
    DataError
        A class has no training scan, or there is no test scan.
    """

    def __init__(
        self, cache: Any, table: pd.DataFrame, classes: Sequence[str], where: Path, *, side_by_side: bool = False
    ) -> None:
        position = {scan: i for i, scan in enumerate(cache.index["scan_id"])}
        code = {name: i for i, name in enumerate(classes)}
        labels, *people = (cache.index[name].astype(str).tolist() for name in ("label", "subject", "group"))
        self.n_classes, self.side_by_side = len(classes), side_by_side
        self.parts: dict[str, list[ScanTokens]] = {}
        for role in ("train", "test"):
            named = [(name, position[name]) for name in table.loc[table["role"] == role, "scan_id"]]
            self.parts[role] = [
                ScanTokens(n, cache.series(i), code[labels[i]], *(of[i] for of in people)) for n, i in named
            ]
        present = {scan.label for scan in self.parts["train"]}
        if len(present) < self.n_classes or not self.parts["test"]:
            what = "landmarks cannot be evaluated: a class has no training scan, or there is no test scan"
            raise DataError(what, where=where, hint="Explain the fold again, or use fewer folds")

    @property
    def ratio(self) -> float:
        """Return the number of test groups (families, else subjects) divided by that of training groups."""
        test, train = (len({scan.group for scan in self.parts[role]}) for role in ("test", "train"))
        return test / train

    def only(self, chosen: Chosen) -> FoldScans:
        """Return the same scans with only the chosen volumes, in that order, copied into memory."""
        few = copy(self)
        few.parts = {
            role: [scan._replace(series=scan.series[chosen[scan.name]]) for scan in part]
            for role, part in self.parts.items()
        }
        return few

    def regress(self, chosen: Chosen) -> Regression:
        """Fit on training scans, evaluate on test scans.

        L2-regularised logistic regression with ``C=1``, as in the paper's published code, on z-scored ROI values; each
        volume is a sample with its scan's label, or each scan (`side_by_side`).

        Parameters
        ----------
        chosen : mapping
            Volumes of every scan of both parts.

        Returns
        -------
        rows : list of dict
            level (of `LEVELS`), n_test (scans) and the metrics. Samples vote for their scan or subject; ties are broken
            by the larger mean probability.
        coefficients : float array (classes, rois)
            In log odds per standard deviation; with two classes, those of the first are those of the second with the
            opposite sign. Side by side: mean over the volumes.
        """
        samples = {}
        for role, scans in self.parts.items():
            volumes = [imaged(scan.series, chosen[scan.name]) for scan in scans]
            x = np.stack([each.ravel() for each in volumes]) if self.side_by_side else np.concatenate(volumes)
            scan_of = np.repeat(range(len(scans)), 1 if self.side_by_side else [len(each) for each in volumes])
            samples[role] = x.astype(float), np.array([scan.label for scan in scans])[scan_of], scan_of
        train, labels, _ = samples["train"]
        regression = LogisticRegression(C=1.0, max_iter=1000).fit(filled(train, train), labels)
        x, labels, scan_of = samples["test"]
        probability, tests = regression.predict_proba(filled(x, train)), self.parts["test"]
        subject = pd.factorize(pd.Series([(scan.subject, scan.label) for scan in tests]))[0]
        rows: list[dict[str, Any]] = []
        for level, unit in zip(LEVELS, (np.arange(len(x)), scan_of, subject[scan_of]), strict=True):
            votes, means = np.zeros((2, unit.max() + 1, probability.shape[1]))
            np.add.at(votes, (unit, probability.argmax(axis=1)), 1)
            np.add.at(means, unit, probability)
            means /= votes.sum(axis=1, keepdims=True)
            truth = np.zeros(len(votes), int)
            truth[unit] = labels
            metrics = scores(truth, (votes + means / 2).argmax(axis=1), means)
            rows.append({"level": level, "n_test": len(tests), **{m: float(metrics[m][0]) for m in METRICS}})
        n_rois = tests[0].series.shape[1]
        coefficients = regression.coef_.reshape(len(regression.coef_), -1, n_rois).mean(axis=1)
        if self.n_classes == 2:
            coefficients = np.concatenate([-coefficients, coefficients])
        return rows, coefficients


def read_curves(folder: Path) -> tuple[pd.DataFrame, dict[str, Curves]]:
    """Read what `bolt.explain.importance` has written; `DataError` if it explained the predicted class only.

    Returns
    -------
    table : DataFrame
        ``importance.tsv``.
    curves : dict
        ``important`` and each of `bolt.explain.weights.OTHER_CLASSES` to the weights of every scan.
    """
    table, important = read_importance(folder)
    weights = {"important": important, **read_controls(folder)}
    return table, {name: dict(zip(table["scan_id"], each, strict=True)) for name, each in weights.items()}


class Landmarks(NamedTuple):
    """The landmark regressions of a run.

    Attributes
    ----------
    table : DataFrame
        Columns of `LANDMARK_COLUMNS`.
    coefficients : float array (folds, classes, rois)
        Of the regressions on important volumes, see `FoldScans.regress`.
    controls : float array (controls, folds, classes, rois)
        Those of the regressions on other volumes, in the order of `bolt.explain.weights.SIGN_CONTROLS`.
    curve : DataFrame
        Columns of `SUBSET_COLUMNS`.
    ratio : Series
        Number of test groups divided by that of training groups, by fold.
    """

    table: pd.DataFrame
    coefficients: Array
    controls: Array
    curve: pd.DataFrame
    ratio: pd.Series


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
    published_score: bool = False,
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
    published_score : bool
        Scores of the curve are divided by the scan's smallest weight, also if that is tiny; see `_relative`.
    seed : int

    Raises
    ------
    DataError
        A fold was explained for the predicted class only; or a scan is too short to have `tokens` volumes side by side.
    """
    explained = {fold: read_curves(run / f"fold-{fold}") for fold in folds}
    shortest = min((len(w) for _, curves in explained.values() for w in curves["important"].values()), default=0)
    if side_by_side and shortest < tokens:
        what = f"a scan has only {shortest} volumes, fewer than the {tokens} that its regression takes side by side"
        hint = "Set a smaller number in 'explain: tokens', or 'landmark_samples: volumes'"
        raise DataError(what, where=run, hint=hint)
    rows, coefficients, controls, curve = [], [], [], []
    ratio = pd.Series(dtype=float)
    for fold, (table, curves) in explained.items():
        folder, drawn = run / f"fold-{fold}", (tokens, random_draws, [seed, fold])
        data = FoldScans(cache, table, classes, where=folder, side_by_side=side_by_side)
        fitted = _chosen_by(table, curves, data, *drawn)
        important = curves["important"]
        lengths = {scan: len(w) for scan, w in important.items()}
        random = averaged([data.regress(draw) for draw in random_volumes(lengths, *drawn)])
        by_inner: dict[str, Regression] = {}
        if inner and holds_something(folder / "inner/importance.tsv"):
            unseen, others = read_curves(folder / "inner")  # weights by models that did not see the training scans
            if {scan.name for scan in data.parts["train"]} <= set(others["important"]):
                joined = {kind: {**own, **others[kind]} for kind, own in curves.items()}
                by_inner = _chosen_by(pd.concat([table, unseen]), joined, data, *drawn)
        for importance, part in (("fitted", fitted), ("inner", by_inner), ("none", {"random": random})):
            for kind, (metrics, _) in part.items():
                rows += [{"fold": str(fold), "importance": importance, "tokens": kind, **row} for row in metrics]
        coefficients.append(fitted["important"][1])
        controls.append([{**fitted, "random": random}[name][1] for name in SIGN_CONTROLS])
        points = subset_offsets(shortest, tokens, offsets)
        curve += [{"fold": str(fold), **row} for row in subset_rows(data, important, points, tokens, published_score)]
        ratio[str(fold)] = data.ratio
    return Landmarks(
        with_means(pd.DataFrame(rows), ["importance", "tokens", "level"])[list(LANDMARK_COLUMNS)],
        np.stack(coefficients),
        np.stack(controls, axis=1),
        with_means(pd.DataFrame(curve, columns=list(SUBSET_COLUMNS)), ["offset", "level"])[list(SUBSET_COLUMNS)],
        ratio,
    )


def _chosen_by(
    table: pd.DataFrame, curves: Mapping[str, Curves], data: FoldScans, tokens: int, draws: int, seed: list[int]
) -> dict[str, Regression]:
    """Return the regressions on landmarks and on controls that depend on the model, by how volumes were chosen."""
    regressions = {
        name: data.regress({scan: top_tokens(w, tokens) for scan, w in weights.items()})
        for name, weights in curves.items()
    }
    predicted = dict(zip(table["scan_id"], table["predicted"], strict=True))
    directions = along_directions(data, predicted, tokens, draws, [*seed, 1])
    return regressions | {"random direction": averaged([data.regress(chosen) for chosen in directions])}


def random_volumes(lengths: Mapping[str, int], tokens: int, draws: int, seed: Sequence[int]) -> Iterator[Chosen]:
    """Draw volumes of each scan, without replacement."""
    random = np.random.default_rng(seed)
    for _ in range(draws):
        yield {scan: random.choice(length, min(tokens, length), replace=False) for scan, length in lengths.items()}


def along_directions(
    data: FoldScans, predicted: Mapping[str, str], tokens: int, draws: int, seed: Sequence[int]
) -> list[dict[str, NDArray[np.intp]]]:
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
            draw[scan.name] = top_tokens(column, tokens)
    return chosen


def averaged(regressions: Sequence[Regression]) -> Regression:
    """Return the mean metrics of each level, and the mean coefficients."""
    rows = pd.DataFrame([row for metrics, _ in regressions for row in metrics])
    means = rows.groupby("level", sort=False).mean().reset_index().astype({"n_test": int})
    return means.to_dict("records"), np.mean([coefficients for _, coefficients in regressions], axis=0)


def with_means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Append mean and sd (ddof 0) over folds for each group; their `n_test` is the number of folds."""
    if table.empty:
        return table
    groups = table.groupby(keys, sort=False)
    counts, of = groups.size().rename("n_test"), groups[[name for name in table if name in ("score", *METRICS)]]
    parts = {"mean": of.mean(), "sd": of.std(ddof=0).where(of.count() > 1)}
    summaries = [part.join(counts).reset_index().assign(fold=name) for name, part in parts.items()]
    return pd.concat([table, *summaries], ignore_index=True)


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
    data: FoldScans, weights: Mapping[str, Array], offsets: NDArray[np.intp], tokens: int, published_score: bool = False
) -> list[dict[str, Any]]:
    """Return the subset-index curve of one fold.

    Parameters
    ----------
    data : FoldScans
    weights : mapping
        Scan to the importance of its volumes (T,).
    offsets : int array
    tokens : int
    published_score : bool
        As in `landmark_regression`.

    Returns
    -------
    list of dict
        Columns of `SUBSET_COLUMNS` but ``fold``.
    """
    if not len(offsets):
        return []
    needed = np.unique(offsets[:, None] + np.arange(tokens))  # ranks in any subset
    order = {scan: top_tokens(w, len(w))[needed] for scan, w in weights.items()}
    ordered = data.only(order)  # every series is read once for all offsets
    scans = [scan.name for scan in data.parts["test"]]
    relative = np.stack([_relative(weights[scan], published_score)[order[scan]] for scan in scans])
    relative = relative[~np.isnan(relative).any(axis=1)]
    rows = []
    for offset in offsets:
        subset = np.searchsorted(needed, offset + np.arange(tokens))
        metrics, _ = ordered.regress(dict.fromkeys(weights, subset))
        score = float(relative[:, subset].mean()) if len(relative) else float("nan")
        rows += [{"offset": int(offset), "score": score, **row} for row in metrics]
    return rows


def _relative(weights: Array, published: bool = False) -> Array:
    """Divide weights by the scan's smallest above zero, at least `FLOOR` of their mean; ones if all are zero.

    As published: by the smallest, whatever it is; NaN if that is zero.
    """
    if published:
        return weights / weights.min() if weights.min() > 0 else np.full(len(weights), np.nan)
    positive = weights[weights > 0]
    if not len(positive):
        return np.ones(len(weights))
    return weights / max(float(positive.min()), FLOOR * float(weights.mean()))


def landmark_tests(table: pd.DataFrame, curve: pd.DataFrame, ratio: pd.Series) -> pd.DataFrame:
    """Test important volumes against each control, and the first quarter of the subset curve against the others.

    Parameters
    ----------
    table : DataFrame
        Columns of `LANDMARK_COLUMNS`.
    curve : DataFrame
        Columns of `SUBSET_COLUMNS`; if it has fewer than four offsets, they are not tested.
    ratio : Series
        n_test/n_train, by fold.

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


def _tested(first: pd.Series, second: pd.Series, ratio: pd.Series) -> dict[str, Any]:
    """Compare two regressions in the folds in which both are defined."""
    both = pd.DataFrame({"auc_first": first, "auc_second": second}).dropna()
    n, difference = len(both), both["auc_first"] - both["auc_second"]
    p, note = np.nan, f"{n} of at least {FEWEST_FOLDS} folds"
    if n >= FEWEST_FOLDS:
        p = corrected_t(difference.to_numpy(), ratio[both.index].mean())
        note = "the difference is the same in all folds" if np.isnan(p) else ""
    return {**both.mean(), "difference": difference.mean(), "n_folds": n, "p": p, "note": note}


def write_landmarks(landmarks: Landmarks, out: Path) -> None:
    """Write tables, and the coefficients of regressions on important volumes and on controls."""
    save_array(landmarks.coefficients, out / "coefficients.npy")
    save_array(landmarks.controls, out / "coefficients_controls.npy")
    tests = landmark_tests(landmarks.table, landmarks.curve, landmarks.ratio)
    write_table(tests, out / "landmark_tests.tsv", TEST_COLUMNS)
    write_table(landmarks.curve, out / "subsets.tsv", SUBSET_COLUMNS)
    write_table(landmarks.table, out / "landmarks.tsv", LANDMARK_COLUMNS)
