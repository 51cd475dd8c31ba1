"""Evidence for a correct normalisation that is independent of the brain mask.

The overlap of brain masks is high by construction because the mask comes from the template. Cortical folding, the
ventricles and intensities within the brain do not contribute to the mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy import ndimage

from bolt.preprocess import images, tissues
from bolt.preprocess.antspy import ants
from bolt.preprocess.registration import dice, warp

DEPTH = 26.0
"""mm below the brain surface; deeper fluid belongs to the ventricles and the cisterns around the midbrain."""
NEAR = 6.0
"""mm around the template's ventricles within which the subject's are searched."""
VENTRICLES = "ventricles.nii.gz"
"""File name in the template folder."""
SEGMENTED_AT = 2.0
"""Voxel size (mm) at which the template is segmented."""


def normalisation_evidence(paths: Mapping[str, Path], template: Path, atlas: Path | None = None) -> dict[str, float]:
    """Measure how well a subject's tissues match the template's.

    Parameters
    ----------
    paths : mapping
        t1w, gm, csf, forward: see `bolt.config.derivatives.anatomical_names`.
    template : path
        Template folder.
    atlas : path, optional
        Cortical label image (0 is background) in template space, such as Schaefer's.

    Returns
    -------
    dict
        ``gm_in_atlas``: share of the subject's grey matter within the atlas's labels (only with an atlas);
        ``ventricle_dice``: overlap of the ventricles (`ventricles`);
        ``template_correlation``: of intensities within the template's brain.
    """
    brain = images.read(template / "brain_mask.nii.gz")
    inside = brain.numpy() > 0.5
    head = images.read(template / "T1w.nii.gz")
    transforms = [paths["forward"]]
    t1w = warp(brain, images.read(paths["t1w"]), transforms).numpy()
    numbers = {}
    if atlas is not None:
        regions = images.read(atlas)
        grey = warp(regions, images.read(paths["gm"]), transforms).numpy()
        numbers["gm_in_atlas"] = float(grey[regions.numpy() > 0].sum() / grey.sum())
    fluid = warp(brain, images.read(paths["csf"]), transforms).numpy() > 0.5
    known = template_ventricles(template)
    near = ndimage.distance_transform_edt(~known, sampling=brain.spacing) <= NEAR
    numbers["ventricle_dice"] = dice(ndimage.binary_opening(fluid & near), known)
    numbers["template_correlation"] = float(np.corrcoef(t1w[inside], head.numpy()[inside])[0, 1])
    return numbers


def template_ventricles(template: Path) -> np.ndarray:
    """Return the template's `ventricles`: those written by `stage_ventricles`, or else computed now."""
    staged = template / VENTRICLES
    if staged.is_file():
        return images.read(staged).numpy() > 0.5
    return ventricles(images.read(template / "T1w.nii.gz"), images.read(template / "brain_mask.nii.gz"))


def stage_ventricles(template: Path) -> None:
    """Write the template's `ventricles` beside it, because segmenting them takes longer than judging a subject."""
    brain = images.read(template / "brain_mask.nii.gz")
    mask = ventricles(images.read(template / "T1w.nii.gz"), brain)
    images.write(brain.new_image_like(mask.astype(np.float32)), template / VENTRICLES, "uint8", code=images.MNI)


def ventricles(head: ants.ANTsImage, brain: ants.ANTsImage) -> np.ndarray:
    """Segment the lateral ventricles and the cisterns around the midbrain: deep fluid, without thin sulci.

    Parameters
    ----------
    head, brain : ANTs image
        A template's T1w and brain mask.

    Returns
    -------
    (X, Y, Z) bool array
    """
    deep = ndimage.distance_transform_edt(brain.numpy() > 0.5, sampling=brain.spacing) > DEPTH
    fluid = tissues.segment(head, brain, SEGMENTED_AT)["csf"].numpy() > 0.5
    return np.asarray(ndimage.binary_opening(fluid & deep))
