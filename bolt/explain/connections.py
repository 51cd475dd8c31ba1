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

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.evaluate.metrics import fold_predictions
from bolt.folds.label_permutation import label_units
from bolt.io.files import atomic, columns, write_table
from bolt.series.cache import SeriesCache
from bolt.series.connectivity import connectivity, n_pairs

SHUFFLES = 1000
"""Shuffles of the predictions that the strongest correlation is compared with."""
MOST = 100
"""Connections of each class that are listed."""
AT_ONCE = 4096  # connections whose null distribution is in memory at a time
SMALLEST = 1e-12
OUTPUTS = ("connections.tsv", "connection_networks.tsv", "connections.npy")
CONNECTION_COLUMNS = columns("explain", "connections")
NETWORK_COLUMNS = columns("explain", "connection_networks")


def usable_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Return the folds that have tested at least two people (or scans), so that something can be correlated."""
    return [fold for fold in folds if label_units(_tests(run, fold)).nunique() > 1]


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
    fold, outputs, values = _sample(cache, run, folds, classes, shown)
    rois = cache.rois.reset_index(drop=True)
    ends = np.triu_indices(len(rois), k=1)
    network = rois["network"].fillna("n/a").to_numpy(str)
    a, b = (network[index] for index in ends)
    between = pd.DataFrame({"network_a": np.where(a < b, a, b), "network_b": np.where(a < b, b, a)})
    all_r, listed, networks = [], [], []
    for name, output in zip(shown, outputs.T, strict=True):
        r, p, same_sign = correlate(fold, output, values)
        all_r.append(r)
        of_pairs = between.assign(r=r, significant=p < 0.05)
        named = of_pairs.iloc[:0] if set(network) == {"n/a"} else of_pairs
        grouped = named.groupby(["network_a", "network_b"])
        means = grouped.agg(n_connections=("r", "size"), mean_r=("r", "mean"), n_significant=("significant", "sum"))
        networks.append(means.reset_index().assign(**{"class": name}))
        order = np.argsort(-np.abs(r), kind="stable")[:MOST]
        table = pd.DataFrame({"class": name, "rank": np.arange(1, len(order) + 1), "r": r[order], "p": p[order]})
        for end, index in zip("ab", ends, strict=True):
            for column in ("value", "name", "network"):
                table[f"{column}_{end}"] = rois[column].to_numpy()[index[order]]
        listed.append(table.assign(same_sign=same_sign[order], n_folds=len(np.unique(fold)), n=len(fold)))
    with atomic(out / OUTPUTS[2]) as temporary, temporary.open("wb") as file:
        np.save(file, np.stack(all_r))
    write_table(pd.concat(networks)[list(NETWORK_COLUMNS)], out / OUTPUTS[1], NETWORK_COLUMNS)
    write_table(pd.concat(listed)[list(CONNECTION_COLUMNS)], out / OUTPUTS[0], CONNECTION_COLUMNS)


def correlate(
    fold: NDArray[np.integer], output: NDArray[np.floating], connections: NDArray[np.float32], shuffles: int = SHUFFLES
) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]]:
    """Correlate connections with an output, and compare with shuffles of the output within folds.

    The null distribution is that of the strongest of all connections, so that p-values hold for all of them together
    (Westfall and Young 1993).

    Parameters
    ----------
    fold : int array (n,)
        Of each person (or scan).
    output : float array (n,)
        z-scored within folds.
    connections : float array (n, pairs)
        Centred within folds.
    shuffles : int

    Returns
    -------
    r, p, same_sign : arrays (pairs,)
        The last is the share of folds in which the correlation has this sign.
    """
    single = output.astype(np.float32)
    norm = np.sqrt(np.einsum("ij,ij->j", connections, connections, dtype=np.float64) * (output @ output))
    random, by_fold = np.random.default_rng(0), [np.flatnonzero(fold == number) for number in np.unique(fold)]
    shuffled = np.tile(single, (shuffles, 1))
    for members in by_fold:
        shuffled[:, members] = random.permuted(shuffled[:, members], axis=1)
    r, strongest = np.zeros(len(norm), np.float32), np.zeros(shuffles)
    for first in range(0, len(norm), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        values, scale = connections[:, some], np.where(norm[some] > 0, norm[some], np.inf).astype(np.float32)
        r[some] = single @ values / scale
        strongest = np.maximum(strongest, np.abs(shuffled @ values / scale).max(axis=1))
    signs = [np.sign(single[members] @ connections[members]) for members in by_fold]
    at_least = shuffles - np.searchsorted(np.sort(strongest), np.abs(r) * (1 - 1e-6))
    return r, (1 + at_least) / (1 + shuffles), np.mean([sign == np.sign(r) for sign in signs], axis=0)


def _tests(run: Path, fold: int) -> pd.DataFrame:
    """Return the predictions of a fold's test scans; no rows if it failed."""
    return fold_predictions(run / f"fold-{fold}")[2].query("role == 'test'").reset_index(drop=True)


def _sample(
    cache: SeriesCache, run: Path, folds: Sequence[int], classes: Sequence[str], shown: Sequence[str]
) -> tuple[NDArray[np.integer], NDArray[np.float64], NDArray[np.float32]]:
    """Return fold, outputs (n, outputs) and connections (n, pairs) of each tested person (or scan) and fold."""
    rows = pd.Series(range(len(cache.index)), cache.index["scan_id"])
    numbers, outputs, values = [], [], []
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
        numbers.append(np.full(len(output), fold))
        outputs.append((output - output.mean(axis=0)) / np.where(sd > 0, sd, 1))
        values.append(connections - connections.mean(axis=0))
    return np.concatenate(numbers), np.concatenate(outputs), np.concatenate(values)
