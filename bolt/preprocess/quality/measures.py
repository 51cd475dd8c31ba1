"""Definitions of the quality measures: labels, units, and meanings, shared by stages, pages and tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from bolt.io.files import read_yaml

HEAD_RADIUS = 50.0
"""mm; Power's sphere, on whose surface rotations are converted to displacements."""
MOVED = 0.5
"""mm of framewise displacement above which a volume counts as moved (Power et al. 2012)."""
OUTLIER = 1.5
"""Standardised DVARS above which a volume counts as an outlier, as in fMRIPrep."""


@dataclass(frozen=True)
class Measure:
    """A quality measure of a scan or of its T1w image.

    Attributes
    ----------
    label : str
        Name shown to readers: "mean FD".
    unit : str
        "" if there is none.
    better : {"low", "high", ""}
        Direction of good quality; "" if there is none.
    about : {"T1w", "BOLD", "motion", "ROIs"}
        What is judged.
    description : str
    look : float or None
        Value beyond which the pictures should be inspected even if no cut-off excludes the scan.
    beyond : str
        Meaning of a value beyond its cut-off.
    """

    label: str
    better: Literal["low", "high", ""]
    about: Literal["T1w", "BOLD", "motion", "ROIs"]
    description: str
    unit: str = ""
    look: float | None = None
    beyond: str = ""


MEASURES = {
    name: Measure(**entry | {"description": entry["description"].format(moved=MOVED, outlier=OUTLIER)})
    for name, entry in read_yaml(Path(__file__).with_suffix(".yaml")).items()
}
"""Quality measures by name, in the order they are shown."""


def motion_numbers(confounds: pd.DataFrame) -> dict[str, float]:
    """Summarise displacement and DVARS of a scan, as far as its confounds table has them.

    Parameters
    ----------
    confounds : DataFrame
        fMRIPrep's column names, one row per volume; the first has no displacement.
    """
    numbers = {}
    displacement = confounds.get("framewise_displacement", pd.Series(dtype=float)).iloc[1:].dropna()
    if len(displacement):
        numbers["mean_fd"] = float(displacement.mean())
        numbers["max_fd"] = float(displacement.max())
        numbers["share_moved"] = float((displacement > MOVED).mean())
    dvars = confounds.get("std_dvars", pd.Series(dtype=float)).iloc[1:].dropna()
    if len(dvars):
        numbers["mean_std_dvars"] = float(dvars.mean())
        numbers["share_spikes"] = float((dvars > OUTLIER).mean())
    return numbers
