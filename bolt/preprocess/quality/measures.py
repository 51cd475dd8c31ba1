"""Definitions of the quality measures: labels, units, and meanings, shared by stages, pages and tables.

Artefacts in native voxels: ghosts, and slices whose signal jumps for one volume.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy import ndimage

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
    unit: str
    better: Literal["low", "high", ""]
    about: Literal["T1w", "BOLD", "motion", "ROIs"]
    description: str
    look: float | None = None
    beyond: str = ""


# Good scans should not be flagged by `look`: 0.39 mm is the 95th percentile of mean FD over the paper's 871 scans of
# ABIDE-I, and good simulated scans have up to three slice jumps.
MEASURES: dict[str, Measure] = {
    "mean_fd": Measure("mean FD", "mm", "low", "motion", "Mean framewise displacement (Power et al. 2012)", look=0.4),
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
        "mean standardised DVARS", "", "low", "motion", "Mean standardised DVARS; 1: noise alone", look=1.5
    ),
    "share_spikes": Measure(
        "share of spikes", "", "low", "motion", f"Share of volumes with standardised DVARS above {OUTLIER}", look=0.2
    ),
    "slice_jumps": Measure(
        "slice jumps",
        "",
        "low",
        "motion",
        "Slices whose signal jumps for one volume while the other slices do not: scanner spikes",
        look=5,
    ),
    "n_unsteady": Measure(
        "non-steady-state volumes", "", "low", "BOLD", "Non-steady-state volumes at the start", look=5
    ),
    "n_volumes": Measure("volumes", "", "high", "BOLD", "Number of volumes"),
    "median_tsnr": Measure("median tSNR", "", "high", "BOLD", "Median over the brain of temporal mean/SD", look=30),
    "coregistration_mask_dice": Measure(
        "Dice of BOLD and T1w brain",
        "",
        "high",
        "BOLD",
        "Dice of the two brain masks within the acquired field of view",
        look=0.85,
    ),
    "coregistration_nmi": Measure(
        "NMI of BOLD and T1w",
        "",
        "high",
        "BOLD",
        "Normalised mutual information of BOLD and T1w within the brain",
    ),
    "boundary_cost": Measure(
        "boundary cost",
        "",
        "low",
        "BOLD",
        "Contrast of BOLD along the boundary between white matter and cortex (Greve and Fischl 2009): 0 is full "
        "contrast everywhere, 1 none",
        look=0.6,
    ),
    "boundary_shift": Measure(
        "shift by the boundary",
        "mm",
        "low",
        "BOLD",
        "How far the boundary between white matter and cortex moved the BOLD from where mutual information had put it",
        look=2.5,
    ),
    "coregistration_shift_margin": Measure(
        "BOLD–T1w similarity relative to a 10-mm shift",
        "",
        "high",
        "BOLD",
        "Normalised mutual information of BOLD and T1w over that after a shift by 10 mm (the best of 26 directions); "
        "below 1: the images are misaligned",
        beyond="the images are misaligned",
        look=1.5,
    ),
    "coregistration_flip_margin": Measure(
        "BOLD–T1w similarity relative to the mirror image",
        "",
        "high",
        "BOLD",
        "Normalised mutual information of BOLD and T1w over that of the mirrored BOLD and T1w; below 1: left and right "
        "are exchanged",
        beyond="left and right seem to be exchanged in one of the images",
        look=1.25,
    ),
    "ghost_ratio": Measure(
        "ghost-to-signal ratio",
        "",
        "low",
        "BOLD",
        "Intensity half a field of view away from the brain, relative to the brain",
        look=0.1,
    ),
    "template_brain_covered": Measure(
        "template brain covered", "", "high", "BOLD", "Share of the template's brain that was acquired", look=0.8
    ),
    "template_mask_dice": Measure(
        "Dice with template brain",
        "",
        "high",
        "T1w",
        "Dice of the normalised brain mask and the template's",
        look=0.93,
    ),
    "template_correlation": Measure(
        "correlation with template",
        "",
        "high",
        "T1w",
        "Correlation of T1w and template intensity within the brain",
        look=0.6,
    ),
    "template_nmi": Measure(
        "NMI with template", "", "high", "T1w", "Normalised mutual information of T1w and template within the brain"
    ),
    "template_shift_margin": Measure(
        "T1w–template similarity relative to a 10-mm shift",
        "",
        "high",
        "T1w",
        "Normalised mutual information of T1w and template over that after a shift by 10 mm (the best of 26 "
        "directions); below 1: the images are misaligned",
        beyond="the images are misaligned",
        look=1.5,
    ),
    "ventricle_dice": Measure(
        "Dice of ventricles",
        "",
        "high",
        "T1w",
        "Dice of normalised deep cerebrospinal fluid and the template's",
        look=0.4,
    ),
    "brain_ml": Measure("brain volume", "ml", "", "T1w", "Volume of the brain mask"),
    "coverage": Measure(
        "share of ROIs covered",
        "",
        "high",
        "ROIs",
        "Share of an atlas's ROIs whose coverage reaches `parcellate: coverage`; minimum over atlases",
        look=0.8,
    ),
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


AROUND_HEAD = 3
"""Voxels around the brain that are ignored as skull and scalp."""
JUMP = 10.0
"""Robust standard deviations by which a slice must differ from the volumes before and after."""


def ghost_ratio(reference: np.ndarray, brain: np.ndarray) -> float | None:
    """Compute the ghost-to-signal ratio (Giannelli et al. 2010, doi:10.1120/jacmp.v11i4.3237).

    A ghost is the image of the head shifted by half the field of view along the phase-encoding axis. The header does
    not state this axis, so the larger value of the two in-plane axes is taken.

    Parameters
    ----------
    reference : (X, Y, Z) array
        Mean or median volume in native voxels, slices along the last axis.
    brain : (X, Y, Z) bool array

    Returns
    -------
    float or None
        Mean intensity where a ghost would be, minus that of the remaining background, relative to the brain's; None
        if the field of view has no background.
    """
    head = ndimage.binary_dilation(brain, iterations=AROUND_HEAD)
    signal = float(np.median(reference[brain]))
    ratios = []
    for axis in (0, 1):
        ghost = np.roll(brain, brain.shape[axis] // 2, axis) & ~head
        rest = ~np.roll(head, brain.shape[axis] // 2, axis) & ~head
        if ghost.sum() >= 100 and rest.sum() >= 100 and signal > 0:
            ratios.append(float(reference[ghost].mean() - reference[rest].mean()) / signal)
    return max(ratios, default=None)


def slice_jumps(volumes: Iterable[np.ndarray], brain: np.ndarray) -> int:
    """Count slices, over all volumes, whose signal jumps for one volume and returns while that of the others does not.

    Parameters
    ----------
    volumes : iterable of T (X, Y, Z) arrays
        In native voxels, slices along the last axis.
    brain : (X, Y, Z) bool array
    """
    weight = brain.sum(axis=(0, 1))
    used = weight >= 10  # slices with enough brain
    means = np.stack([(volume * brain).sum(axis=(0, 1))[used] / weight[used] for volume in volumes])
    if len(means) < 3 or not used.any():
        return 0
    jump = means[1:-1] - (means[:-2] + means[2:]) / 2
    jump -= np.median(jump, axis=1, keepdims=True)  # a change common to all slices is not a slice artefact
    spread = 1.4826 * np.median(np.abs(jump), axis=0)
    return int((np.abs(jump) > JUMP * np.maximum(spread, 1e-6)).sum())
