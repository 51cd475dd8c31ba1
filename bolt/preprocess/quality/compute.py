"""Computation of the quality measures that `bolt.preprocess.quality.measures` defines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bolt.config import Registration
from bolt.io.files import read_table
from bolt.io.streams import iter_volumes
from bolt.preprocess import images
from bolt.preprocess.information import normalised_mutual_information
from bolt.preprocess.quality.agreement import coregistration_numbers, shift_margin
from bolt.preprocess.quality.evidence import normalisation_evidence
from bolt.preprocess.quality.measures import ghost_ratio, motion_numbers, slice_jumps
from bolt.preprocess.registration import dice, warp


def anatomical_numbers(paths: Mapping[str, Path], template: Path) -> dict[str, Any]:
    """Compute the agreement with the template: masks, intensity within the brain, and ventricles.

    Parameters
    ----------
    paths : mapping
        See `bolt.config.derivatives.anatomical_names`.
    template : path
        Template folder.
    """
    brain = images.read(template / "brain_mask.nii.gz")
    inside = brain.numpy() > 0.5
    t1w, head = images.read(paths["warped"]).numpy(), images.read(template / "T1w.nii.gz").numpy()
    mask = images.read(paths["mask"])
    warped_mask = warp(brain, mask, [paths["forward"]]).numpy() > 0.5
    return {
        "template_mask_dice": dice(warped_mask, inside),
        "template_nmi": normalised_mutual_information(head[inside], t1w[inside]),
        "template_shift_margin": shift_margin(head, t1w, inside, np.asarray(brain.spacing)),
        **normalisation_evidence(paths, template),
        "brain_ml": float(mask.numpy().sum() * np.prod(mask.spacing) / 1000),
    }


def functional_numbers(
    paths: Mapping[str, Path], coregistration: Mapping[str, Any], template: Path, settings: Registration
) -> dict[str, Any]:
    """Compute motion, temporal signal-to-noise ratio, artefacts, and agreement with T1w and template.

    Parameters
    ----------
    paths : mapping
        confounds, tsnr and mask (on the output grid, in template space), bold_to_t1w: see
        `bolt.preprocess.functional.workflow.functional_names`; raw (the 4D image), native_reference, native_corrected,
        native_mask, t1w, t1w_mask.
    coregistration : mapping
        Numbers of `bolt.preprocess.functional.boundary.refine`.
    template : path
        Template folder.
    settings : Registration
    """
    table = read_table(paths["confounds"])
    mask = images.read(paths["mask"])
    inside = mask.numpy() > 0
    brain = warp(mask, images.read(template / "brain_mask.nii.gz"), []).numpy() > 0.5
    reference, native_brain = images.load(paths["native_reference"])[0], images.load(paths["native_mask"])[0] > 0
    ghost = ghost_ratio(reference, native_brain)
    return {
        "n_volumes": len(table),
        **motion_numbers(table),
        "slice_jumps": slice_jumps(iter_volumes(paths["raw"]), native_brain),
        **({} if ghost is None else {"ghost_ratio": ghost}),
        "median_tsnr": float(np.median(images.read(paths["tsnr"]).numpy()[inside])),
        **coregistration,
        **coregistration_numbers(
            images.read(paths["native_corrected"]),
            images.read(paths["native_mask"]),
            images.read(paths["t1w"]),
            images.read(paths["t1w_mask"]),
            images.read_matrix(paths["bold_to_t1w"]),
            settings,
        ),
        "template_brain_covered": float((inside & brain).sum() / brain.sum()),
    }
