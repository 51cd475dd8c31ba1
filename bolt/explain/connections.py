"""Which connections a prediction follows: their correlation with it over the test scans.

The weights of a model say how it computes, not what in the brain goes with its output: a weight may only cancel noise.
What does is the covariance of features and output, which turns the weights of a linear model into its pattern (Haufe et
al. 2014, doi:10.1016/j.neuroimage.2013.10.067). It needs predictions alone, so it is the same for networks, linear
models and ensembles of both.

The output is the log odds of a class. Within each fold it is z-scored and connections are centred, because models of
different folds have scales of their own; then scans of all folds are joined. Where a person or family has one label,
its scans are averaged first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.metrics import fold_predictions
from bolt.folds.label_permutation import label_units
from bolt.io.files import atomic, write_table
from bolt.series.cache import SeriesCache
from bolt.series.connectivity import connectivity, n_pairs

SHUFFLES = 1000
"""Shuffles of the predictions that the strongest correlation is compared with."""
MOST = 100
"""Connections of each class that are listed."""
AT_ONCE = 4096  # connections whose null distribution is in memory at a time
SMALLEST = 1e-12
OUTPUTS = ("connections.tsv", "connection_networks.tsv", "connections.npy")
CONNECTION_COLUMNS = {
    "class": "class whose predicted log odds are correlated; of two classes, the positive one",
    "rank": "1 is the strongest correlation of the class",
    "value_a": "label value of one ROI in the atlas's image",
    "name_a": "one ROI",
    "network_a": "network of that ROI",
    "value_b": "label value of the other ROI",
    "name_b": "other ROI",
    "network_b": "network of that ROI",
    "r": "correlation over test scans of the connection (Fisher's z of Pearson's correlation) with the log odds",
    "p": "share of shuffles of the predictions in which the strongest correlation of all connections is at least as "
    "strong (corrected for all connections)",
    "same_sign": "share of folds in which the correlation has this sign",
    "n_folds": "number of folds",
    "n": "people or scans that are correlated",
}
NETWORK_COLUMNS = {
    "class": CONNECTION_COLUMNS["class"],
    "network_a": "one network",
    "network_b": "other network, or the same",
    "n_connections": "connections between them",
    "mean_r": "mean of `r` over these connections",
    "n_significant": "number of them with p < 0.05",
}


class Correlated(NamedTuple):
    """Correlations of connections with the log odds of one class."""

    r: NDArray[np.float32]  # (pairs,)
    p: NDArray[np.float64]  # (pairs,)
    same_sign: NDArray[np.float64]  # (pairs,)


class Sample(NamedTuple):
    """What is correlated: one row per person (or scan) and fold."""

    fold: NDArray[np.integer]  # (n,)
    output: NDArray[np.float64]  # (n, outputs), z-scored within folds
    connections: NDArray[np.float32]  # (n, pairs), centred within folds


def usable_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Return the folds that have tested at least two people (or scans), so that something can be correlated."""
    tests = {fold: _tests(run, fold) for fold in folds}
    return [fold for fold, table in tests.items() if label_units(table).nunique() > 1]


def write_connections(cache: SeriesCache, run: Path, folds: Sequence[int], classes: Sequence[str], out: Path) -> None:
    """Write ``connections.tsv``, ``connection_networks.tsv`` and ``connections.npy``.

    The last has every correlation, (outputs, R (R - 1) / 2) float32: the strict upper triangle, row by row.

    Parameters
    ----------
    cache : SeriesCache
    run : Path
        Folder with ``fold-<k>``.
    folds : sequence of int
        Some of `usable_folds`.
    classes : sequence of str
        In the dataset's order; of two, only the last has an output, because the first is its opposite.
    out : Path
        Folder.
    """
    shown = classes[-1:] if len(classes) == 2 else classes
    sample = _sample(cache, run, folds, classes, shown)
    found = [correlate(sample, output) for output in range(len(shown))]
    rois = cache.rois.reset_index(drop=True)
    with atomic(out / OUTPUTS[2]) as temporary, temporary.open("wb") as file:
        np.save(file, np.stack([one.r for one in found]))
    networks = [_networks(one, rois).assign(**{"class": name}) for name, one in zip(shown, found, strict=True)]
    write_table(pd.concat(networks)[list(NETWORK_COLUMNS)], out / OUTPUTS[1], NETWORK_COLUMNS)
    about = {"n_folds": len(np.unique(sample.fold)), "n": len(sample.fold)}
    listed = [_strongest(one, rois).assign(**{"class": name}, **about) for name, one in zip(shown, found, strict=True)]
    write_table(pd.concat(listed)[list(CONNECTION_COLUMNS)], out / OUTPUTS[0], CONNECTION_COLUMNS)


def correlate(sample: Sample, output: int = 0, shuffles: int = SHUFFLES) -> Correlated:
    """Correlate connections with an output, and compare with shuffles of the output within folds.

    The null distribution is that of the strongest of all connections, so that p-values hold for all of them together
    (Westfall and Young 1993).
    """
    y = sample.output[:, output]
    norm = np.sqrt(np.einsum("ij,ij->j", sample.connections, sample.connections, dtype=np.float64) * (y @ y))
    random, by_fold = np.random.default_rng(0), [np.flatnonzero(sample.fold == fold) for fold in np.unique(sample.fold)]
    shuffled = np.tile(y.astype(np.float32), (shuffles, 1))
    for members in by_fold:
        shuffled[:, members] = random.permuted(shuffled[:, members], axis=1)
    r, strongest = np.zeros(len(norm), np.float32), np.zeros(shuffles)
    for some in _blocks(len(norm)):
        values, scale = sample.connections[:, some], np.where(norm[some] > 0, norm[some], np.inf).astype(np.float32)
        r[some] = y.astype(np.float32) @ values / scale
        strongest = np.maximum(strongest, np.abs(shuffled @ values / scale).max(axis=1))
    signs = [np.sign(y[members].astype(np.float32) @ sample.connections[members]) for members in by_fold]
    same = np.mean([sign == np.sign(r) for sign in signs], axis=0)
    at_least = shuffles - np.searchsorted(np.sort(strongest), np.abs(r) * (1 - 1e-6))
    return Correlated(r, (1 + at_least) / (1 + shuffles), same)


def _tests(run: Path, fold: int) -> pd.DataFrame:
    """Return the predictions of a fold's test scans; no rows if it failed."""
    return fold_predictions(run / f"fold-{fold}")[2].query("role == 'test'").reset_index(drop=True)


def _sample(
    cache: SeriesCache, run: Path, folds: Sequence[int], classes: Sequence[str], shown: Sequence[str]
) -> Sample:
    """Read the predictions of test scans and compute their connections."""
    rows = pd.Series(range(len(cache.index)), cache.index["scan_id"])
    parts: list[tuple[int, NDArray[np.floating], NDArray[np.floating]]] = []
    for fold in folds:
        tests = _tests(run, fold)
        unit = pd.factorize(label_units(tests), sort=True)[0]
        n = np.bincount(unit)
        probability = tests[[f"p_{name}" for name in classes]].to_numpy(float).clip(SMALLEST, 1)
        chosen = probability[:, [classes.index(name) for name in shown]]
        odds = np.log(chosen) - np.log((1 - chosen).clip(SMALLEST))
        output = np.stack([np.bincount(unit, column) / n for column in odds.T], axis=1)
        connections = np.zeros((len(n), n_pairs(cache.n_rois)), np.float32)
        for row, scan in zip(unit, tests["scan_id"], strict=True):
            connections[row] += connectivity(cache.finite_series(int(rows[scan])), fisher_z=True) / n[row]
        sd = output.std(axis=0)
        centred = (output - output.mean(axis=0)) / np.where(sd > 0, sd, 1)
        parts.append((fold, centred, connections - connections.mean(axis=0)))
    fold = np.concatenate([np.full(len(output), number) for number, output, _ in parts])
    return Sample(fold, np.concatenate([o for _, o, _ in parts]), np.concatenate([c for *_, c in parts]))


def _blocks(n: int) -> Iterator[slice]:
    for first in range(0, n, AT_ONCE):
        yield slice(first, first + AT_ONCE)


def _strongest(found: Correlated, rois: pd.DataFrame) -> pd.DataFrame:
    """List the strongest connections."""
    order = np.argsort(-np.abs(found.r), kind="stable")[:MOST]
    table = pd.DataFrame({"rank": np.arange(1, len(order) + 1), "r": found.r[order], "p": found.p[order]})
    for end, index in zip("ab", np.triu_indices(len(rois), k=1), strict=True):
        for column in ("value", "name", "network"):
            table[f"{column}_{end}"] = rois[column].to_numpy()[index[order]]
    return table.assign(same_sign=found.same_sign[order])


def _networks(found: Correlated, rois: pd.DataFrame) -> pd.DataFrame:
    """Average over the connections between networks; no row if the atlas has no networks."""
    networks = rois["network"].fillna("n/a").to_numpy(str)
    a, b = (networks[index] for index in np.triu_indices(len(rois), k=1))
    first, second = np.where(a < b, a, b), np.where(a < b, b, a)
    table = pd.DataFrame({"network_a": first, "network_b": second, "r": found.r, "p": found.p})
    if set(networks) == {"n/a"}:
        table = table.iloc[:0]
    grouped = table.assign(significant=table["p"] < 0.05).groupby(["network_a", "network_b"])
    return grouped.agg(
        n_connections=("r", "size"), mean_r=("r", "mean"), n_significant=("significant", "sum")
    ).reset_index()
