"""Units of people over which labels can be permuted: families, else people; with their scans, if labels differ."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.io.people import people


def label_units(scans: pd.DataFrame) -> pd.Series:
    """Return the name of each scan's unit: the family if each has one label, else the subject.

    If the scans of a subject differ in label, families with one label are still units; of others, each subject is.
    """
    family, subject = people(scans), scans["subject"]
    one_label = _has_one_label(scans, family)
    if one_label.all():
        return family
    if _has_one_label(scans, subject).all():
        return subject
    return ("family " + family).where(one_label, subject)  # family 5 is not person 5


def permutations(scans: pd.DataFrame, n: int, random: np.random.Generator) -> NDArray[np.object_]:
    """Permute labels between units; arguments as of `exchange_labels`, whose scans' labels are returned."""
    return scans["label"].to_numpy(object)[exchange_labels(scans, n, random)]


def exchange_labels(scans: pd.DataFrame, n: int, random: np.random.Generator) -> NDArray[np.int_]:
    """Exchange labels between the units of `label_units`.

    Units with one label exchange it among themselves. A subject with several exchanges them with a subject who has
    several, in equally many scans, and among the own scans.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, label.
    n : int
        Number of permutations.
    random : numpy.random.Generator

    Returns
    -------
    array (n, scans) of int
        The position of the scan whose label each gets.
    """
    units = label_units(scans)
    unit, one = pd.factorize(units, sort=True)[0], _has_one_label(scans, units).to_numpy()
    alike, mixed = np.flatnonzero(one), np.flatnonzero(~one)
    result = np.empty((n, len(scans)), int, order="F")  # by this order, sums over scans round as they did
    _, first, member = np.unique(unit[alike], return_index=True, return_inverse=True)
    result[:, alike] = random.permuted(np.tile(alike[first], (n, 1)), axis=1)[:, member]
    result[:, mixed] = mixed[exchange(unit[mixed], n, random)]
    return result


def exchange(block: NDArray[np.int_], n: int, random: np.random.Generator) -> NDArray[np.int_]:
    """Exchange blocks of equally many rows, and the rows within each; returns (n, rows) positions.

    That is whole-block and within-block exchangeability (Winkler et al. 2015, NeuroImage 123:253).
    """
    _, code, size = np.unique(block, return_inverse=True, return_counts=True)
    order = np.argsort(code, kind="stable")
    result = np.empty((n, len(block)), int)
    for rows_each in np.unique(size):
        blocks = order[size[code[order]] == rows_each].reshape(-1, rows_each)
        moved = blocks[random.random((n, len(blocks))).argsort(axis=1)]
        within = random.random(moved.shape).argsort(axis=2)
        result[:, blocks] = np.take_along_axis(moved, within, axis=2)
    return result


def _has_one_label(scans: pd.DataFrame, unit: pd.Series) -> pd.Series:
    """Mark the scans of units with one label."""
    return scans["label"].groupby(unit).transform("nunique") == 1
