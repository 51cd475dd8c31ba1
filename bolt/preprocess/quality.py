"""Measures by which a subject is judged; their names and meaning stand in `bolt.preprocess.measures`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bolt.files import read_table
from bolt.preprocess import images
from bolt.preprocess.measures import motion_numbers
from bolt.preprocess.registration import dice, warp


def anatomical_numbers(paths: Mapping[str, Path], template: Path) -> dict[str, Any]:
    """Agreement with the template: Dice of the brain masks, and correlation of brightness within the brain.

    Parameters
    ----------
    paths : mapping
        mask, forward, warped: see `bolt.preprocess.anatomical.anatomical_names`.
    template : path
        Template folder.
    """
    brain = images.read(template / "brain_mask.nii.gz")
    carried = warp(brain, images.read(paths["mask"]), [paths["forward"]]).numpy() > 0.5
    inside = brain.numpy() > 0.5
    ours, theirs = images.read(paths["warped"]).numpy()[inside], images.read(template / "T1w.nii.gz").numpy()[inside]
    mask = images.read(paths["mask"])
    return {
        "template_mask_dice": dice(carried, inside),
        "template_correlation": float(np.corrcoef(ours, theirs)[0, 1]),
        "brain_ml": float(mask.numpy().sum() * np.prod(mask.spacing) / 1000),
    }


def functional_numbers(paths: Mapping[str, Path], mask_dice: float, template: Path) -> dict[str, Any]:
    """Motion, temporal signal-to-noise and overlaps of a scan.

    Parameters
    ----------
    paths : mapping
        confounds, tsnr, mask: see `bolt.preprocess.functional.functional_names`.
    mask_dice : float
        Overlap of BOLD and T1w brain masks within the acquired field.
    template : path
        Template folder.
    """
    table = read_table(paths["confounds"])
    mask = images.read(paths["mask"])
    inside = mask.numpy() > 0
    brain = warp(mask, images.read(template / "brain_mask.nii.gz"), []).numpy() > 0.5
    return {
        "n_volumes": len(table),
        **motion_numbers(table),
        "median_tsnr": float(np.median(images.read(paths["tsnr"]).numpy()[inside])),
        "coregistration_mask_dice": mask_dice,
        "template_brain_covered": float((inside & brain).sum() / brain.sum()),
    }
