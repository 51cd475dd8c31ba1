"""What quality numbers are called, mean, and are measured in: the one list that stages, pages and tables read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

MOVED = 0.5
"""mm of framewise displacement above which a volume counts as moved (Power et al. 2012)."""
OUTLIER = 1.5
"""Standardised DVARS above which a volume counts as an outlier, as in fMRIPrep."""


@dataclass(frozen=True)
class Measure:
    """One number of a scan or of its T1w image.

    Attributes
    ----------
    label : str
        As people say it: "mean FD".
    unit : str
        "" where it has none.
    better : {"low", "high", ""}
        Which end is good; "" where neither is.
    about : {"T1w", "BOLD", "motion", "ROIs"}
        What it judges.
    description : str
    look : float or None
        Where a person should look at the pictures, although no cut-off says so.
    beyond : str
        What a value beyond its cut-off means.
    """

    label: str
    unit: str
    better: Literal["low", "high", ""]
    about: Literal["T1w", "BOLD", "motion", "ROIs"]
    description: str
    look: float | None = None
    beyond: str = ""


MEASURES: dict[str, Measure] = {
    "mean_fd": Measure("mean FD", "mm", "low", "motion", "Mean framewise displacement (Power et al. 2012)", look=0.3),
    "max_fd": Measure("largest FD", "mm", "low", "motion", "Largest framewise displacement", look=3.0),
    "share_moved": Measure(
        "share of moved volumes",
        "",
        "low",
        "motion",
        f"Share of volumes with framewise displacement above {MOVED} mm",
        look=0.2,
    ),
    "mean_std_dvars": Measure(
        "mean standardised DVARS", "", "low", "motion", "Mean standardised DVARS; 1 is noise", look=1.5
    ),
    "share_spikes": Measure(
        "share of spikes", "", "low", "motion", f"Share of volumes with standardised DVARS above {OUTLIER}", look=0.2
    ),
    "slice_jumps": Measure(
        "slice jumps",
        "",
        "low",
        "motion",
        "Slices that jump for one volume while the head does not: scanner spikes",
        look=0.5,
    ),
    "n_unsteady": Measure(
        "non-steady volumes", "", "low", "BOLD", "Volumes at the start before the steady state", look=5
    ),
    "n_volumes": Measure("volumes", "", "high", "BOLD", "Volumes of the scan"),
    "median_tsnr": Measure("median tSNR", "", "high", "BOLD", "Median over the brain of mean over SD in time", look=30),
    "coregistration_mask_dice": Measure(
        "Dice of BOLD and T1w brain",
        "",
        "high",
        "BOLD",
        "Dice of the two brain masks within the acquired field",
        look=0.85,
    ),
    "coregistration_nmi": Measure(
        "NMI of BOLD and T1w",
        "",
        "high",
        "BOLD",
        "Normalised mutual information of BOLD and T1w in the brain",
    ),
    "coregistration_shift_margin": Measure(
        "fit of BOLD to T1w over that 10 mm away",
        "",
        "high",
        "BOLD",
        "How many times better the BOLD fits the T1w where it is than 10 mm away; below 1 it lies elsewhere",
        beyond="the two lie apart",
        look=1.5,
    ),
    "coregistration_flip_margin": Measure(
        "fit of BOLD to T1w over that of its mirror image",
        "",
        "high",
        "BOLD",
        "How many times better the BOLD fits the T1w as it is than mirrored; below 1 left and right are exchanged",
        beyond="left and right seem to be exchanged in one of the two",
        look=1.25,
    ),
    "ghost_ratio": Measure(
        "ghost-to-signal ratio",
        "",
        "low",
        "BOLD",
        "Brightness half a field of view from the brain, over the brain's",
        look=0.1,
    ),
    "template_brain_covered": Measure(
        "template brain covered", "", "high", "BOLD", "Share of the template's brain that the scan acquired", look=0.8
    ),
    "template_mask_dice": Measure(
        "Dice with template brain",
        "",
        "high",
        "T1w",
        "Dice of the brain mask, carried over, and the template's",
        look=0.93,
    ),
    "template_correlation": Measure(
        "correlation with template",
        "",
        "high",
        "T1w",
        "Correlation of T1w and template brightness within the brain",
        look=0.6,
    ),
    "template_nmi": Measure(
        "NMI with template", "", "high", "T1w", "Normalised mutual information of T1w and template within the brain"
    ),
    "template_shift_margin": Measure(
        "fit of T1w to template over that 10 mm away",
        "",
        "high",
        "T1w",
        "How many times better the T1w fits the template where it is than 10 mm away; below 1 it lies elsewhere",
        beyond="the two lie apart",
        look=1.5,
    ),
    "ventricle_dice": Measure(
        "Dice of ventricles",
        "",
        "high",
        "T1w",
        "Dice of deep cerebrospinal fluid, carried over, and the template's",
        look=0.4,
    ),
    "brain_ml": Measure("brain volume", "ml", "", "T1w", "Volume of the brain mask"),
    "coverage": Measure(
        "share of ROIs covered",
        "",
        "high",
        "ROIs",
        "Share of an atlas's ROIs whose coverage reaches `parcellate: coverage`; the smallest over the atlases",
        look=0.8,
    ),
}
"""Names of the quality numbers, in the order they are shown."""


def motion_numbers(confounds: pd.DataFrame) -> dict[str, float]:
    """Displacement and DVARS of a scan, as far as its confounds table has them.

    Parameters
    ----------
    confounds : DataFrame
        In fMRIPrep's names, a row a volume; the first has no displacement.
    """
    found = {}
    displacement = confounds.get("framewise_displacement", pd.Series(dtype=float)).iloc[1:].dropna()
    if len(displacement):
        found["mean_fd"] = float(displacement.mean())
        found["max_fd"] = float(displacement.max())
        found["share_moved"] = float((displacement > MOVED).mean())
    dvars = confounds.get("std_dvars", pd.Series(dtype=float)).iloc[1:].dropna()
    if len(dvars):
        found["mean_std_dvars"] = float(dvars.mean())
        found["share_spikes"] = float((dvars > OUTLIER).mean())
    return found
