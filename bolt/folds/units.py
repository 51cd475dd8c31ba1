"""Units of people over which labels can be permuted: families, subjects, or scans."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def label_units(scans: pd.DataFrame) -> pd.Series:
    """Return the name of each scan's unit: the largest of family, subject and scan whose units have one label each."""
    for unit in (people(scans), scans["subject"]):
        labels = pd.DataFrame({"unit": unit, "label": scans["label"]}).drop_duplicates()
        if labels["unit"].is_unique:
            return unit
    return scans["scan_id"]


def people(scans: pd.DataFrame) -> pd.Series:
    """Return the family of each scan if known, else its subject."""
    return scans["group"].fillna(scans["subject"])


def permutations(scans: pd.DataFrame, n: int, random: np.random.Generator) -> NDArray[np.object_]:
    """Permute labels between units.

    Parameters
    ----------
    scans : DataFrame
        scan_id, subject, group, label.
    n : int
        Number of permutations.
    random : numpy.random.Generator

    Returns
    -------
    array (n, scans) of str
        All scans of a unit get the same label, and the number of units with each label stays the same.
    """
    unit = pd.factorize(label_units(scans), sort=True)[0]
    first = scans["label"].to_numpy(object)[np.unique(unit, return_index=True)[1]]
    return np.stack([random.permutation(first)[unit] for _ in range(n)]) if n else np.empty((0, len(scans)), object)
