"""Labels permuted between people, so that they carry no information about scans."""

from __future__ import annotations

import numpy as np
import pandas as pd


def label_units(scans: pd.DataFrame) -> pd.Series:
    """Return the name of each scan's unit: the largest of family, subject and scan whose units have one label each."""
    for unit in (people(scans), scans["subject"]):
        if (scans.groupby(unit)["label"].nunique() == 1).all():
            return unit
    return scans["scan_id"]


def people(scans: pd.DataFrame) -> pd.Series:
    """Return the family of each scan if known, else its subject."""
    return scans["group"].fillna(scans["subject"])


def permuted(scans: pd.DataFrame, random: np.random.Generator) -> pd.Series:
    """Permute labels between units.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, label.
    random : numpy.random.Generator

    Returns
    -------
    Series
        Labels by the index of `scans`. All scans of a unit get the same label, and the number of units with each label
        stays the same.
    """
    ordered = scans.sort_values("scan_id")
    unit = label_units(ordered)
    first = ordered.groupby(unit, sort=True)["label"].first()
    drawn = dict(zip(first.index, random.permutation(first.to_numpy()), strict=True))
    return unit.map(drawn).reindex(scans.index)
