"""Which connections a prediction follows: their correlation with it over the test scans.

The weights of a model say how it computes, not what in the brain goes with its output: a weight may only cancel noise.
What does is the covariance of features and output, which turns the weights of a linear model into its pattern (Haufe et
al. 2014, doi:10.1016/j.neuroimage.2013.10.067). It needs predictions alone, so it is the same for networks, linear
models and ensembles of both.

The output is the log odds of a class, or a predicted number. Within each fold it is z-scored and connections are
centred, because models of different folds have scales of their own; then scans of all folds are joined. Scans of a
family (or person) with one label are averaged first, those of a person with several by label; all, if labels are
numbers.

Predictions follow all that a model reads, also what it learned from noise. So a connection is significant only if it
goes with the true label, too, in the same direction: both are tested, and the larger p-value holds (intersection-union
test; Berger 1982, doi:10.1080/00401706.1982.10487790).

The strength of a region is that of a node in a network: the sum over its significant connections (Rubinov and Sporns
2010, doi:10.1016/j.neuroimage.2009.10.003). A person is tested in one fold, so maps of folds are of different people.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import squareform

from bolt.cohort.units import label_units
from bolt.evaluate.metrics import fold_predictions
from bolt.evaluate.scores import Floats, Positions, number_arrays
from bolt.explain.regions import select
from bolt.explain.trust.stability import map_pairs, write_agreement
from bolt.explain.weights import save_array
from bolt.io.files import columns, write_table
from bolt.io.people import people
from bolt.series.cache import SeriesCache, connectivity, n_pairs

SHUFFLES = 1000
"""Shuffles of the predictions that the strongest correlation is compared with."""
MOST = 100
"""Connections of each class that are listed."""
AT_ONCE = 4096  # connections whose null distribution is in memory at a time
SMALLEST = 1e-12
ALPHA = 0.05
"""Of the p-values below which connections are significant."""
STRONGEST = 0.02
"""Share of a fold's connections that its map of regions is the sum of."""
OUTPUTS = ("connections.tsv", "connection_networks.tsv", "connections.npy")
CONNECTION_COLUMNS = columns("explain", "connections")
NETWORK_COLUMNS = columns("explain", "connection_networks")
REGION_COLUMNS = columns("explain", "connection_regions")


def usable_folds(run: Path, folds: Sequence[int]) -> list[int]:
    """Return the folds that have tested at least two people, so that something can be correlated."""
    return [fold for fold in folds if label_units(_tests(run, fold)).nunique() > 1]


def write_connections(
    cache: SeriesCache,
    run: Path,
    folds: Sequence[int],
    classes: Sequence[str] | None,
    out: Path,
    *,
    label: str = "label",
    fraction: float = 0.02,
    permutations: int = 200,
) -> None:
    """Write ``connections.tsv`` and ``.npy``, and ``connection_networks.tsv``, ``_regions.tsv`` and ``_stability.tsv``.

    ``connections.npy`` has every correlation, (outputs, R (R - 1) / 2) float32: the strict upper triangle, row by row.

    Parameters
    ----------
    cache : SeriesCache
    run : Path
        Folder with ``fold-<k>``.
    folds : sequence of int
        Some of `usable_folds`.
    classes : sequence of str or None
        In the dataset's order; of two, only the last has an output, because the first is its opposite. None if labels
        are numbers.
    out : Path
        Folder.
    label : str
        Name of the output, if labels are numbers.
    fraction : float
        Share of ROIs to select for a map.
    permutations : int
        Shuffles of the predictions that agreement between folds is compared with.
    """
    shown = [label] if classes is None else classes[-1:] if len(classes) == 2 else classes
    tests = {fold: _tests(run, fold) for fold in folds}
    fold, outputs, truths, values = sample(cache, tests, classes, shown)
    rois = cache.rois.reset_index(drop=True)
    ends = np.triu_indices(len(rois), k=1)
    network = rois["network"].fillna("n/a").to_numpy(str)
    a, b = (network[index] for index in ends)
    between = pd.DataFrame({"network_a": np.where(a < b, a, b), "network_b": np.where(a < b, b, a)})
    maps = [fold_maps(fold, output, values, permutations) for output in outputs.T]  # of each output, each fold
    all_r, listed, networks, regions = [], [], [], []
    for name, output, truth, own_maps in zip(shown, outputs.T, truths.T, maps, strict=True):
        r, p, same_sign = correlate(fold, output, values)
        r_label, p_label, _ = correlate(fold, truth, values)
        p = np.where(np.sign(r) == np.sign(r_label), np.maximum(p, p_label), 1)
        all_r.append(r)
        of_pairs = between.assign(r=r, significant=p < ALPHA)
        named = of_pairs.iloc[:0] if set(network) == {"n/a"} else of_pairs
        grouped = named.groupby(["network_a", "network_b"])
        means = grouped.agg(n_connections=("r", "size"), mean_r=("r", "mean"), n_significant=("significant", "sum"))
        networks.append(means.reset_index().assign(**{"class": name}))
        order = np.lexsort((-np.abs(r), p >= ALPHA))[:MOST]  # the significant first, each by strength
        table = pd.DataFrame({"class": name, "rank": np.arange(1, len(order) + 1), "r": r[order]})
        table = table.assign(r_label=r_label[order], p=p[order])
        for end, index in zip("ab", ends, strict=True):
            for column in ("value", "name", "network"):
                table[f"{column}_{end}"] = rois[column].to_numpy()[index[order]]
        listed.append(table.assign(same_sign=same_sign[order], n_folds=len(np.unique(fold)), n=len(fold)))
        strength = _strengths(rois, np.where(p < ALPHA, r, 0), np.stack([each[0] for each in own_maps]), fraction)
        regions += [each.assign(**{"class": name}) for each in strength]
    save_array(np.stack(all_r), out / "connections.npy")
    by_fold = {str(k): np.stack(each, axis=1) for k, *each in zip(np.unique(fold), *maps, strict=True)}
    pairs = map_pairs({name: each[0] for name, each in by_fold.items()}, shown, fraction)
    rows = [row | {"between": "folds", "what": "connections"} for row in pairs]
    compared = {("folds", "connections"): list(combinations(by_fold.values(), 2))}
    write_agreement(rows, compared, shown, fraction, out / "connection_stability.tsv")
    write_table(pd.concat(regions)[list(REGION_COLUMNS)], out / "connection_regions.tsv", REGION_COLUMNS)
    write_table(pd.concat(networks)[list(NETWORK_COLUMNS)], out / "connection_networks.tsv", NETWORK_COLUMNS)
    write_table(pd.concat(listed)[list(CONNECTION_COLUMNS)], out / "connections.tsv", CONNECTION_COLUMNS)


def correlate(
    fold: Positions, output: Floats, connections: Floats, shuffles: int = SHUFFLES
) -> tuple[Floats, Floats, Floats]:
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


def fold_maps(fold: Positions, output: Floats, connections: Floats, shuffles: int) -> list[Floats]:
    """Return the strength of each region in each fold: the sum of the fold's strongest correlations (`STRONGEST`).

    All of them would bury few in the noise of many, and those that are significant over all folds would be chosen by
    the folds that are compared.

    Parameters
    ----------
    fold, output, connections
        As in `correlate`.
    shuffles : int

    Returns
    -------
    list of float arrays (1 + shuffles, rois)
        Of each fold: of its predictions, and of shuffles of them.
    """
    random, maps = np.random.default_rng(0), []
    n_weak = connections.shape[1] - math.ceil(STRONGEST * connections.shape[1])
    for number in np.unique(fold):
        own, values = output[fold == number].astype(np.float32), connections[fold == number]
        norm = np.linalg.norm(values, axis=0) * np.linalg.norm(own)
        values = values / np.where(norm > 0, norm, np.inf)
        strengths = []
        for r in np.vstack([own, random.permuted(np.tile(own, (shuffles, 1)), axis=1)]) @ values:
            strong = np.abs(r) >= np.partition(np.abs(r), n_weak)[n_weak]
            strengths.append(squareform(np.where(strong, r, 0)).sum(axis=0, dtype=float))
        maps.append(np.stack(strengths))
    return maps


def _strengths(rois: pd.DataFrame, r: Floats, by_fold: Floats, fraction: float) -> list[pd.DataFrame]:
    """Return strengths of regions where connections (pairs,) are stronger with the output, and where they are weaker.

    `r` is 0 where not significant, `by_fold` (folds, rois) are `fold_maps`.
    """
    matrix, tables = squareform(r), []
    for direction, sign in (("stronger", 1), ("weaker", -1)):
        strength, frequency = sign * matrix.sum(axis=0, dtype=float), (sign * by_fold > 0).mean(axis=0)
        numbers = {"strength": strength, "n_significant": (sign * matrix > 0).sum(axis=0)}
        numbers |= {"selected": select(strength, fraction), "selection_frequency": frequency, "n_folds": len(by_fold)}
        table = rois[["value", "name", "network", "hemisphere"]].assign(direction=direction, **numbers)
        table = table.sort_values("strength", ascending=False, kind="stable")
        tables.append(table.assign(rank=np.arange(1, len(table) + 1)))
    return tables


def _tests(run: Path, fold: int) -> pd.DataFrame:
    """Return the predictions of a fold's test scans; no rows if it failed."""
    return fold_predictions(run / f"fold-{fold}")[2].query("role == 'test'").reset_index(drop=True)


def _outputs(tests: pd.DataFrame, classes: Sequence[str] | None, shown: Sequence[str]) -> tuple[Floats, Floats]:
    """Return log odds of the shown classes, or predicted numbers, and the truth, (scans, outputs) each."""
    if classes is None:
        truth, predicted = number_arrays(tests)
        return predicted[:, None], truth[:, None]
    probability = tests[[f"p_{name}" for name in classes]].to_numpy(float).clip(SMALLEST, 1)
    chosen = probability[:, [classes.index(name) for name in shown]]
    odds = np.log(chosen) - np.log((1 - chosen).clip(SMALLEST))
    return odds, (tests["label"].to_numpy(str)[:, None] == np.array(shown)).astype(float)


def sample(
    cache: SeriesCache, tests: Mapping[int, pd.DataFrame], classes: Sequence[str] | None, shown: Sequence[str]
) -> tuple[Positions, Floats, Floats, Floats]:
    """Return fold, outputs and truths (n, outputs), and connections (n, pairs) of tested people and folds.

    Outputs and truths are z-scored within folds, connections centred. `tests` are test rows of each fold's predictions,
    `shown` the classes that have an output. A connection of an ROI that was not imaged is no correlation of 0, which
    would go with all that coverage goes with: it is left out of a person's mean, or counts as the fold's mean.
    """
    rows = pd.Series(range(len(cache.index)), cache.index["scan_id"])
    units = {}
    for fold, table in tests.items():  # over these, shuffles are fair
        unit = people(table) if classes is None else label_units(table) + "\0" + table["label"]
        units[fold] = pd.factorize(unit, sort=True)[0]
    ends = np.cumsum([unit.max() + 1 for unit in units.values()])
    values = np.zeros((ends[-1], n_pairs(cache.n_rois)), np.float32)  # once: of 40,000 people and 400 ROIs it has 13 GB
    (a, b), parts = np.triu_indices(cache.n_rois, k=1), []
    for (fold, unit), centred in zip(units.items(), np.split(values, ends[:-1]), strict=True):
        n = np.bincount(unit)
        scored = []
        for given in _outputs(tests[fold], classes, shown):
            mean = np.stack([np.bincount(unit, column) / n for column in given.T], axis=1)
            sd = mean.std(axis=0)
            scored.append((mean - mean.mean(axis=0)) / np.where(sd > 0, sd, 1))
        dead: dict[int, list[Any]] = {}  # by unit: which ROIs were not imaged, in each scan that lacks some
        for row, scan in zip(unit, tests[fold]["scan_id"], strict=True):
            series = cache.finite_series(int(rows[scan]))
            centred[row] += connectivity(series, fisher_z=True) / n[row]
            if not (imaged := series.any(axis=0)).all():
                dead.setdefault(row, []).append(~imaged)
        missing, n_units = {}, np.full(values.shape[1], len(n), np.float32)
        for row, of_scans in dead.items():
            n_lost = np.sum([rois[a] | rois[b] for rois in of_scans], axis=0)
            centred[row] *= n[row] / np.maximum(n[row] - n_lost, 1)
            missing[row] = np.flatnonzero(n_lost == n[row])
            n_units[missing[row]] -= 1
        centred -= centred.mean(axis=0) * (len(n) / np.maximum(n_units, 1))
        for row, pairs in missing.items():
            centred[row, pairs] = 0
        parts.append((np.full(len(n), fold), *scored))
    fold, outputs, truths = (np.concatenate(part) for part in zip(*parts, strict=True))
    return fold, outputs, truths, values
