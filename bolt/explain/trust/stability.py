"""Stability: agreement between explanations of models of different folds, and of different random seeds.

Maps of regression weights, selections of top ROIs and importance curves are compared between every two folds, and
between seeds. Folds share most of their training subjects, and seeds all of them: even on noise their maps correlate,
far above the overlap of random selections. Two references are therefore computed.

- Permuted labels: the landmark volumes stay as they are, labels are permuted between people, in the same way in all
  folds and seeds, and the maps are fitted and compared again.
- Disjoint halves: maps of test scans of one half of the people against maps of the other half, each scan explained by
  the model that did not see it (split-half reproducibility, as in NPAIRS; Strother et al. 2002,
  doi:10.1006/nimg.2001.1034). Models memorise their training scans, and then choose volumes by the labels even if these
  are noise. Permuted labels alone cannot show that, but maps of other people do not agree about it.

Logistic regressions on the same samples, with many versions of the labels, are fitted together.

All fits share a bound of the Hessian, which is inverted once (Böhning and Lindsay 1988, doi:10.1007/BF00049423), and
so each step of all fits is a few products of matrices. Steps are accelerated, with restarts (O'Donoghue and Candès
2015, doi:10.1007/s10208-013-9150-3). Weights are those of ``LogisticRegression(C=1.0)``, which takes about ten times
as long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, softmax
from scipy.stats import pearsonr, spearmanr

from bolt.cohort.units import permutations as permuted
from bolt.config.layout import ModelRun
from bolt.evaluate.metrics import read_predictions
from bolt.explain.landmarks import filled, imaged, top_tokens
from bolt.explain.regions import select
from bolt.explain.trust.similarity import correlations, ranked, without_position
from bolt.explain.weights import explained_folds, read_importance
from bolt.io.errors import DataError
from bolt.io.files import columns, holds_something, write_table
from bolt.io.people import people

STABILITY_COLUMNS = columns("explain", "stability")
NULL_COLUMNS = ("pearson_null", "pearson_null_high", "dice_null", "dice_null_high", "p")
"""Those of the rows "mean" that maps with permuted labels fill."""
KEYS = ["between", "what", "class"]
SPLITS = 10
"""Random splits of the people into two halves."""
STEPS = 300
TOLERANCE = 1e-3
"""Relative change of the weights in a step below which a fit has converged."""
TOGETHER = 4_000_000
"""Predictions (samples, fits, classes) that are held in memory at once."""

Array = NDArray[np.floating]
Maps = Array
"""(1 + permutations, classes, rois): the first with the true labels."""
Compared = Mapping[tuple[str, str], Sequence[tuple[Maps, Maps]]]
"""Pairs of maps by ``between`` and ``what``."""
Rows = Sequence[Mapping[str, Any]]
Explained = tuple[pd.DataFrame, list[Array]]
"""What `bolt.explain.weights.read_importance` returns."""


def write_stability(
    cache: Any,
    run: ModelRun,
    seeds: Collection[int],
    folds: Sequence[int],
    classes: Sequence[str],
    *,
    fraction: float,
    tokens: int,
    permutations: int,
) -> None:
    """Write ``stability.tsv`` (`STABILITY_COLUMNS`): every two folds of a run, and the run beside other seeds.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    run : ModelRun
        Its explanation gets the table.
    seeds : collection of int
        Seeds to compare with; those without ``coefficients.npy`` are skipped.
    folds : sequence of int
    classes : sequence of str
    fraction : float
        Share of ROIs that are selected.
    tokens : int
        Landmarks per scan.
    permutations : int
        Permutations of the labels.

    Raises
    ------
    DataError
        This run has no regression weights, or they do not belong to the folds that have finished.
    """
    weights = _weights(run, folds)
    done = list(weights)
    explained = {fold: read_importance(run.fold(fold)) for fold in done}
    scans = pd.concat(read_predictions(run.fold(fold) / "predictions.tsv") for fold in done).drop_duplicates("scan_id")
    families = scans.set_index("scan_id")["group"]  # the folds', where copies of a recording have joined several
    refits = Refits(cache, families, classes, tokens=tokens, permutations=permutations)
    by_fold, halves = refits.fold_maps(run.folder, done), refits.half_maps(run.folder, done)
    rows = map_pairs({str(fold): own for fold, own in weights.items()}, classes, fraction)
    rows += half_pairs(halves, classes, fraction)
    rows += curve_pairs({str(fold): own for fold, own in explained.items()})
    rows = [{"between": "folds", **row} for row in rows]
    compared = {("folds", "regions"): list(combinations(by_fold.values(), 2)), ("folds", "halves"): halves}
    compared |= {("seeds", "regions"): [], ("seeds", "halves"): []}
    for other in (run.with_seed(seed) for seed in sorted(seeds) if seed != run.seed):
        if not holds_something(other.explanation / "coefficients.npy"):
            continue
        theirs = _weights(other, folds)
        shared = [fold for fold in done if fold in theirs]
        if not shared:
            continue
        names = str(run.seed), str(other.seed)
        maps = [np.mean([its[fold] for fold in shared], axis=0) for its in (weights, theirs)]
        pairs = map_pairs(dict(zip(names, maps, strict=True)), classes, fraction)
        own, others = (refits.half_maps(its_run.folder, shared) for its_run in (run, other))
        halves = [(a, b) for (a, _), (_, b) in zip(own, others, strict=True)]  # of two seeds, one half under each
        pairs += half_pairs(halves, classes, fraction, *names)
        curves = []
        for fold in shared:
            both = explained[fold], read_importance(other.fold(fold))
            curves += curve_pairs(dict(zip(names, both, strict=True)))
        mean = pd.DataFrame(curves).mean(numeric_only=True).to_dict()
        pairs.append({"what": "importance", "one": names[0], "other": names[1], **mean})
        rows += [{"between": "seeds", **row} for row in pairs]
        refitted = [[its[fold] for fold in shared] for its in (by_fold, refits.fold_maps(other.folder, shared))]
        compared["seeds", "regions"].append((np.mean(refitted[0], axis=0), np.mean(refitted[1], axis=0)))
        compared["seeds", "halves"] += halves
    write_agreement(rows, compared, classes, fraction, run.explanation / "stability.tsv")


def _weights(run: ModelRun, folds: Sequence[int]) -> dict[int, Array]:
    """Return the regression weights (classes, rois) of each fold."""
    path, done = run.explanation / "coefficients.npy", explained_folds(run.folder, folds)
    if not path.is_file():
        raise DataError("file not found", where=path, hint="Run again")
    coefficients = np.load(path, allow_pickle=False).astype(float)
    if len(coefficients) != len(done):
        what = f"regression weights of {len(coefficients)} folds, but {len(done)} are explained"
        raise DataError(what, where=path, hint="Delete the file and run again")
    return dict(zip(done, coefficients, strict=True))


def compare_maps(a: Array, b: Array, fraction: float) -> dict[str, float]:
    """Return correlations of two maps of weights (rois,), and the overlap of their top ROIs."""
    top_a, top_b = select(a, fraction), select(b, fraction)
    shared, either = int((top_a & top_b).sum()), int((top_a | top_b).sum())
    flat = np.ptp(a) == 0 or np.ptp(b) == 0
    return {
        "pearson": np.nan if flat else float(pearsonr(a, b).statistic),
        "spearman": np.nan if flat else float(spearmanr(a, b).statistic),
        "dice": 2 * shared / (shared + either) if either else np.nan,
        "jaccard": shared / either if either else np.nan,
        "n": len(a),
    }


def map_pairs(maps: Mapping[str, Array], classes: Sequence[str], fraction: float) -> list[dict[str, Any]]:
    """Apply `compare_maps` to every two maps (classes, rois), for each class."""
    return [
        {"what": "regions", "class": name, "one": a, "other": b} | compare_maps(maps[a][c], maps[b][c], fraction)
        for c, name in enumerate(classes)
        for a, b in combinations(maps, 2)
    ]


def half_pairs(
    halves: Sequence[tuple[Maps, Maps]], classes: Sequence[str], fraction: float, one: str = "", other: str = ""
) -> list[dict[str, Any]]:
    """Apply `compare_maps` to the maps of the two halves of each split; `one` and `other` are their seeds, if two."""
    rows = []
    for split, (a, b) in enumerate(halves, start=1):
        names = f"{one} {split}a".strip(), f"{other} {split}b".strip()
        rows += map_pairs(dict(zip(names, (a[0], b[0]), strict=True)), classes, fraction)
    return [row | {"what": "halves"} for row in rows]


def curve_pairs(explained: Mapping[str, Explained]) -> list[dict[str, Any]]:
    """Compare the importance of the same scans under every two models.

    Parameters
    ----------
    explained : mapping
        Name of a model to the result of `bolt.explain.weights.read_importance`, all its scans.
    """
    curves = {}
    for name, (table, weights) in explained.items():
        kinds = ranked(without_position(weights)), ranked(weights), table["predicted"]
        curves[name] = dict(zip(table["scan_id"], zip(*kinds, strict=True), strict=True))
    rows = []
    for a, b in combinations(curves, 2):
        scans = sorted(set(curves[a]) & set(curves[b]))
        pairs = [(curves[a][scan], curves[b][scan]) for scan in scans]
        rho, raw = (correlations([x[kind] for x, _ in pairs], [y[kind] for _, y in pairs]) for kind in (0, 1))
        same = np.array([float(x[2] == y[2]) for x, y in pairs])
        means = {"spearman": _mean(rho), "spearman_raw": _mean(raw), "same_class": _mean(same)}
        rows.append({"what": "importance", "one": a, "other": b, **means, "n": int(np.isfinite(rho).sum())})
    return rows


def _mean(values: Array) -> float:
    """Return the mean of defined values; NaN if they are less than half."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if 2 * len(known) >= max(1, len(values)) else np.nan


def with_summaries(rows: Rows) -> pd.DataFrame:
    """Return a table of pairs with mean, lowest and highest of each kind of them."""
    numbers = [name for name in STABILITY_COLUMNS if name not in (*KEYS, "one", "other", *NULL_COLUMNS)]
    pairs, parts = pd.DataFrame(rows, columns=list(STABILITY_COLUMNS)), []
    for keys, part in pairs.groupby(KEYS, sort=False, dropna=False):
        values = part[numbers].astype(float)
        ends = pd.DataFrame({"mean": values.mean(), "lowest": values.min(), "highest": values.max()}).T
        ends = ends.rename_axis("one").reset_index().assign(**dict(zip(KEYS, keys, strict=True)))
        parts += [part, ends]
    return pd.concat(parts, ignore_index=True) if parts else pairs


def write_agreement(rows: Rows, compared: Compared, classes: Sequence[str], fraction: float, path: Path) -> None:
    """Write `STABILITY_COLUMNS` of pairs and their summaries, whose rows "mean" have `null_columns`."""
    table = with_summaries(rows)
    for (between, what), its_pairs in compared.items():
        for name, values in zip(classes, null_columns(its_pairs, fraction) if its_pairs else [], strict=False):
            row = (table["between"] == between) & (table["what"] == what) & (table["class"] == name)
            table.loc[row & (table["one"] == "mean"), list(values)] = list(values.values())
    write_table(table[list(STABILITY_COLUMNS)], path, STABILITY_COLUMNS)


class Refits:
    """Landmark regressions with true and with permuted labels.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    families : Series
        Family of each explained scan, by scan; between them labels are permuted.
    classes : sequence of str
    tokens : int
        Landmarks per scan.
    permutations : int
        The same ones, and the same splits into halves, are used for all folds and seeds of the model.
    """

    def __init__(self, cache: Any, families: pd.Series, classes: Sequence[str], tokens: int, permutations: int):
        self.cache, self.tokens, self.n_classes = cache, tokens, len(classes)
        index = cache.index
        self.table = index[index["scan_id"].isin(families.index)].rename_axis("row").reset_index()
        self.table["group"] = self.table["scan_id"].map(families)
        self.position = {scan: i for i, scan in enumerate(self.table["scan_id"])}
        code = {name: i for i, name in enumerate(classes)}
        coded = self.table.assign(label=self.table["label"].astype(str).map(code))
        drawn = permuted(coded, permutations, np.random.default_rng(0))
        self.labels = np.concatenate([coded["label"].to_numpy()[None], drawn]).astype(int)

    def landmarks(self, folder: Path, role: str) -> tuple[Array, NDArray[np.intp]]:
        """Read the landmarks of one role's scans in the folder of a fold.

        Returns
        -------
        volumes : float array (samples, rois)
        scan : int array (samples,)
            The row of the scans' table that each comes from.
        """
        table, weights = read_importance(folder)
        named = zip(table["scan_id"], table["role"], weights, strict=True)
        chosen = [(self.position[scan], w) for scan, its_role, w in named if its_role == role]
        tops = [imaged(self.cache.series(self.table["row"][i]), top_tokens(w, self.tokens)) for i, w in chosen]
        return np.concatenate(tops), np.repeat([i for i, _ in chosen], [len(top) for top in tops])

    def fit(self, volumes: Array, scan: NDArray[np.intp]) -> Maps:
        """Fit the maps of landmarks."""
        return regression_maps(filled(volumes, volumes), self.labels[:, scan], self.n_classes)

    def fold_maps(self, run: Path, folds: Sequence[int]) -> dict[int, Maps]:
        """Return the maps of each fold, fitted on its training scans."""
        return {fold: self.fit(*self.landmarks(run / f"fold-{fold}", "train")) for fold in folds}

    def half_maps(self, run: Path, folds: Sequence[int]) -> list[tuple[Maps, Maps]]:
        """Return the maps of the two halves of each split, fitted on test scans; [] if a half lacks a class."""
        tests = zip(*(self.landmarks(run / f"fold-{fold}", "test") for fold in folds), strict=True)
        volumes, scan = map(np.concatenate, tests)
        tested, position = np.unique(scan, return_inverse=True)
        random, pairs = np.random.default_rng(0), []
        for _ in range(SPLITS):
            first = half_of_people(self.table.iloc[tested], random)[position]
            if any(len(set(self.labels[0, scan[half]])) < self.n_classes for half in (first, ~first)):
                return []
            pairs.append((self.fit(volumes[first], scan[first]), self.fit(volumes[~first], scan[~first])))
        return pairs


def half_of_people(scans: pd.DataFrame, random: np.random.Generator) -> NDArray[np.bool_]:
    """Mark the scans of a random half of the families (else subjects), which has half of those with each label."""
    person = people(scans)
    first = scans.groupby(person, sort=True)["label"].first().sample(frac=1, random_state=random)
    first = first.sort_values(kind="stable")  # by label, in random order within it
    chosen = first.index[random.integers(2) :: 2]
    return person.isin(chosen).to_numpy()


def regression_maps(volumes: Array, labels: NDArray[np.integer], n_classes: int) -> Array:
    """Fit an L2-regularised logistic regression (C = 1, with intercept) for each version of the labels.

    Parameters
    ----------
    volumes : float array (samples, rois)
    labels : int array (fits, samples)
        Positions in the classes.
    n_classes : int

    Returns
    -------
    float array (fits, classes, rois)
        Log odds; with two classes, weights of the first are those of the second with the opposite sign.
    """
    binary = n_classes == 2
    design = np.column_stack([volumes, np.ones(len(volumes))]).astype(float)
    penalty = np.append(np.ones(volumes.shape[1]), 0)[:, None, None]
    bound = (0.25 if binary else 0.5) * design.T @ design + np.diag(penalty.ravel())
    inverse = np.linalg.pinv(bound, hermitian=True)
    outcomes = np.arange(1, 2) if binary else np.arange(n_classes)
    n_together = max(1, TOGETHER // (len(volumes) * len(outcomes)))
    parts = [
        _fit(design, inverse, penalty, (part.T[..., None] == outcomes).astype(float))
        for part in np.split(labels, range(n_together, len(labels), n_together))
    ]
    weights = np.concatenate(parts, axis=1)[:-1].transpose(1, 2, 0)
    return np.concatenate([-weights, weights], axis=1) if binary else weights


def _fit(design: Array, inverse: Array, penalty: Array, truth: Array) -> Array:
    """Maximise the penalised likelihood of `truth` (samples, fits, outcomes); return (rois + 1, fits, outcomes)."""
    predict = expit if truth.shape[-1] == 1 else lambda logits: softmax(logits, axis=-1)
    weights = np.zeros((design.shape[1], *truth.shape[1:]))
    ahead, momentum, running = weights.copy(), np.ones(truth.shape[1]), np.arange(truth.shape[1])
    for _ in range(STEPS):
        gradient = np.tensordot(design.T, truth[:, running] - predict(np.tensordot(design, ahead, 1)), 1)
        gradient -= penalty * ahead
        new = ahead + np.tensordot(inverse, gradient, 1)
        change = new - weights[:, running]
        weights[:, running] = new
        momentum = np.where((gradient * change).sum((0, 2)) < 0, 1, momentum)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + ((momentum - 1) / following)[:, None] * change
        left = np.linalg.norm(change, axis=(0, 2)) > TOLERANCE * np.linalg.norm(new, axis=(0, 2))
        if not left.any():
            break
        ahead, momentum, running = ahead[:, left], following[left], running[left]
    return weights


def compare(pairs: Sequence[tuple[Maps, Maps]], fraction: float) -> tuple[Array, Array]:
    """Return correlation and Dice coefficient of the top ROIs, (1 + permutations, classes) each.

    Means over the pairs in which they are defined with the true labels: a model with equal outputs has no map. NaN if
    there is no such pair.
    """
    linear, overlaps = [], []
    for a, b in pairs:
        x, y = (part - part.mean(-1, keepdims=True) for part in (a, b))
        size = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
        linear.append(np.divide((x * y).sum(-1), size, out=np.full(size.shape, np.nan), where=size > 0))
        top_a, top_b = select(a, fraction), select(b, fraction)
        n = top_a.sum(-1) + top_b.sum(-1)
        overlaps.append(np.divide(2 * (top_a & top_b).sum(-1), n, out=np.full(size.shape, np.nan), where=n > 0))
    return _mean_of_defined(np.stack(linear)), _mean_of_defined(np.stack(overlaps))


def _mean_of_defined(values: Array) -> Array:
    """Return the mean over pairs, of values (pairs, 1 + permutations, classes), see `compare`."""
    defined = np.isfinite(values[:, :1])
    n = defined.sum(axis=0)
    total = np.where(defined, values, 0).sum(axis=0)
    return np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)


def null_columns(pairs: Sequence[tuple[Maps, Maps]], fraction: float) -> list[dict[str, float]]:
    """Return for each class the mean and upper end under permuted labels, and p of the mean correlation.

    p is NaN if the correlation of a class is.
    """
    correlation, dice = compare(pairs, fraction)
    over_classes = correlation.mean(axis=1)
    beaten = over_classes[1:] < over_classes[0]  # an undefined correlation is not beaten
    p = (1 + (~beaten).sum()) / len(over_classes) if np.isfinite(over_classes[0]) else np.nan
    rows = []
    for c in range(correlation.shape[1]):
        nulls = []
        for values in (correlation[1:, c], dice[1:, c]):
            known = values[np.isfinite(values)]
            nulls += [float(known.mean()), float(np.percentile(known, 95))] if len(known) else [np.nan, np.nan]
        rows.append(dict(zip(NULL_COLUMNS, (*nulls, float(p)), strict=True)))
    return rows
