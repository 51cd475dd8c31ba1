"""How far maps of regression weights agree, beyond what two models with the same scans share by chance.

Folds share most of their training scans, and seeds all of them: even on noise their maps correlate, far above the
overlap of random selections. Two references are therefore computed.

- Permuted labels: the landmark volumes stay as they are, labels are permuted between people, in the same way in all
  folds and seeds, and the maps are fitted and compared again.
- Disjoint halves: maps of test scans of one half of the people against maps of the other half, each scan explained by
  the model that did not see it (split-half reproducibility, as in NPAIRS; Strother et al. 2002,
  doi:10.1006/nimg.2001.1034). Models memorise their training scans, and then choose volumes by the labels even if these
  are noise. Permuted labels alone cannot show that, but maps of other people do not agree about it.

Logistic regressions on the same samples, with many versions of the labels, fitted together.

All fits share a bound of the Hessian, which is inverted once (Böhning and Lindsay 1988, doi:10.1007/BF00049423), and
so each step of all fits is a few products of matrices. Steps are accelerated, with restarts (O'Donoghue and Candès
2015, doi:10.1007/s10208-013-9150-3). Weights are those of ``LogisticRegression(C=1.0)``, which takes about ten times
as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, softmax

from bolt.explain.landmarks import top_tokens
from bolt.explain.regions import select
from bolt.explain.weights import read_importance
from bolt.folds.label_permutation import people
from bolt.folds.label_permutation import permutations as permuted

Array = NDArray[np.floating]

STEPS = 300
TOLERANCE = 1e-3
"""Relative change of the weights in a step below which a fit has converged."""
TOGETHER = 4_000_000
"""Predictions (samples, fits, classes) that are held in memory at once."""


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


Maps = NDArray[np.floating]
"""(1 + permutations, classes, rois): the first with the true labels."""
SPLITS = 10
"""Random splits of the people into two halves."""


class Landmarks(NamedTuple):
    """Landmark volumes (samples, rois), and the row of the scans' table that each comes from."""

    volumes: NDArray[np.floating]
    scan: NDArray[np.intp]


class Refits:
    """Landmark regressions with true and with permuted labels.

    Parameters
    ----------
    cache : bolt.series.cache.SeriesCache
    scans : sequence of str
        Explained scans, between which labels are permuted.
    classes : sequence of str
    tokens : int
        Landmarks per scan.
    permutations : int
    seed : int
        For permutations and splits; the same ones are used for all folds and seeds of the model.
    """

    def __init__(
        self,
        cache: Any,
        scans: Sequence[str],
        classes: Sequence[str],
        *,
        tokens: int,
        permutations: int,
        seed: int = 0,
    ) -> None:
        self.cache, self.tokens, self.n_classes = cache, tokens, len(classes)
        index = cache.index
        self.table = index[index["scan_id"].isin(set(scans))].rename_axis("row").reset_index()
        self.position = {scan: i for i, scan in enumerate(self.table["scan_id"])}
        random = np.random.default_rng(seed)
        code = {name: i for i, name in enumerate(classes)}
        coded = self.table.assign(label=self.table["label"].astype(str).map(code))
        drawn = permuted(coded, permutations, random)
        self.labels = np.concatenate([coded["label"].to_numpy()[None], drawn]).astype(int)
        self.seed = seed

    def landmarks(self, folder: Path, role: str) -> Landmarks:
        """Read the landmarks of one role's scans in the folder of a fold."""
        table, weights = read_importance(folder)
        named = zip(table["scan_id"], table["role"], weights, strict=True)
        chosen = [(self.position[scan], w) for scan, its_role, w in named if its_role == role]
        tops = [self.cache.series(self.table["row"][i])[top_tokens(w, self.tokens)] for i, w in chosen]
        return Landmarks(np.concatenate(tops), np.repeat([i for i, _ in chosen], [len(top) for top in tops]))

    def fit(self, landmarks: Landmarks) -> Maps:
        """Fit the maps."""
        return regression_maps(landmarks.volumes, self.labels[:, landmarks.scan], self.n_classes)

    def fold_maps(self, run: Path, folds: Sequence[int]) -> dict[int, Maps]:
        """Return the maps of each fold, fitted on its training scans."""
        return {fold: self.fit(self.landmarks(run / f"fold-{fold}", "train")) for fold in folds}

    def half_maps(self, run: Path, folds: Sequence[int]) -> list[tuple[Maps, Maps]]:
        """Return the maps of the two halves of each split, fitted on test scans; [] if a half lacks a class."""
        tests = [self.landmarks(run / f"fold-{fold}", "test") for fold in folds]
        volumes, scan = np.concatenate([t.volumes for t in tests]), np.concatenate([t.scan for t in tests])
        tested, position = np.unique(scan, return_inverse=True)
        random, pairs = np.random.default_rng(self.seed), []  # the same splits under every seed of the model
        for _ in range(SPLITS):
            first = half_of_people(self.table.iloc[tested], random)[position]
            halves = [Landmarks(volumes[part], scan[part]) for part in (first, ~first)]
            if any(len(set(self.labels[0, half.scan])) < self.n_classes for half in halves):
                return []
            pairs.append((self.fit(halves[0]), self.fit(halves[1])))
        return pairs


def half_of_people(scans: pd.DataFrame, random: np.random.Generator) -> NDArray[np.bool_]:
    """Mark the scans of a random half of the families (else subjects), which has half of those with each label."""
    person = people(scans)
    first = scans.groupby(person, sort=True)["label"].first().sample(frac=1, random_state=random)
    first = first.sort_values(kind="stable")  # by label, in random order within it
    chosen = first.index[random.integers(2) :: 2]
    return person.isin(chosen).to_numpy()


def compare(pairs: Sequence[tuple[Maps, Maps]], fraction: float) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return correlation and Dice coefficient of the top ROIs, mean over pairs, (1 + permutations, classes) each."""
    correlations, overlaps = [], []
    for a, b in pairs:
        x, y = (part - part.mean(-1, keepdims=True) for part in (a, b))
        size = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
        correlations.append(np.divide((x * y).sum(-1), size, out=np.full(size.shape, np.nan), where=size > 0))
        top_a, top_b = select(a, fraction), select(b, fraction)
        n = top_a.sum(-1) + top_b.sum(-1)
        overlaps.append(np.divide(2 * (top_a & top_b).sum(-1), n, out=np.full(size.shape, np.nan), where=n > 0))
    return np.mean(correlations, axis=0), np.mean(overlaps, axis=0)


def null_columns(pairs: Sequence[tuple[Maps, Maps]], fraction: float) -> list[dict[str, float]]:
    """Return for each class the mean and upper end under permuted labels, and p of the mean correlation."""
    correlation, dice = compare(pairs, fraction)
    over_classes = correlation.mean(axis=1)
    beaten = over_classes[1:] < over_classes[0]  # an undefined correlation is not beaten
    p = (1 + (~beaten).sum()) / len(over_classes)
    return [
        {
            "pearson_null": float(np.nanmean(correlation[1:, c])),
            "pearson_null_high": float(np.nanpercentile(correlation[1:, c], 95)),
            "dice_null": float(np.nanmean(dice[1:, c])),
            "dice_null_high": float(np.nanpercentile(dice[1:, c], 95)),
            "p": float(p),
        }
        for c in range(correlation.shape[1])
    ]
