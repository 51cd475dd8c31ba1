"""Evidence that a brain lies where the template says, by what no brain mask can bring about.

The overlap of brain masks is high by construction, since the mask comes from the template. Folds of the cortex, the
ventricles and brightness within the brain do not take part in finding it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ants
import numpy as np
from scipy import ndimage

from bolt.preprocess import images
from bolt.preprocess.anatomical import tissues
from bolt.preprocess.registration import dice, warp

DEPTH = 26.0
"""mm below the brain's surface beyond which fluid is of the ventricles and the cisterns around the midbrain."""
NEAR = 6.0
"""mm around the template's ventricles within which the subject's are looked for."""
VENTRICLES = "ventricles.nii.gz"
"""In the template folder."""
COARSEST = 2.0
"""mm: the template is segmented at this voxel size."""


def normalisation_evidence(paths: Mapping[str, Path], template: Path, atlas: Path | None = None) -> dict[str, float]:
    """How well a subject's tissues lie on the template's.

    Parameters
    ----------
    paths : mapping
        t1w, gm, csf, forward: see `bolt.preprocess.anatomical.workflow.anatomical_names`.
    template : path
        Template folder.
    atlas : path, optional
        Label image (0 is background) of the cortex in template space, such as Schaefer's.

    Returns
    -------
    dict
        ``gm_in_atlas``: share of the subject's grey matter within the atlas's labels (only with an atlas);
        ``ventricle_dice``: overlap of the ventricles (`ventricles`);
        ``template_correlation``: of brightness within the template's brain.
    """
    brain = images.read(template / "brain_mask.nii.gz")
    inside = brain.numpy() > 0.5
    head = images.read(template / "T1w.nii.gz")
    transforms = [paths["forward"]]
    ours = warp(brain, images.read(paths["t1w"]), transforms).numpy()
    numbers = {}
    if atlas is not None:
        regions = images.read(atlas)
        grey = warp(regions, images.read(paths["gm"]), transforms).numpy()
        numbers["gm_in_atlas"] = float(grey[regions.numpy() > 0].sum() / grey.sum())
    fluid = warp(brain, images.read(paths["csf"]), transforms).numpy() > 0.5
    known = template_ventricles(template)
    near = ndimage.distance_transform_edt(~known, sampling=brain.spacing) <= NEAR
    numbers["ventricle_dice"] = dice(ndimage.binary_opening(fluid & near), known)
    numbers["template_correlation"] = float(np.corrcoef(ours[inside], head.numpy()[inside])[0, 1])
    return numbers


def template_ventricles(template: Path) -> np.ndarray:
    """The template's `ventricles`, as `stage_ventricles` left them, or found now."""
    staged = template / VENTRICLES
    if staged.is_file():
        return images.read(staged).numpy() > 0.5
    return ventricles(images.read(template / "T1w.nii.gz"), images.read(template / "brain_mask.nii.gz"))


def stage_ventricles(template: Path) -> None:
    """Write the template's `ventricles` beside it: finding them takes longer than to judge a subject by them."""
    brain = images.read(template / "brain_mask.nii.gz")
    found = ventricles(images.read(template / "T1w.nii.gz"), brain)
    images.write(brain.new_image_like(found.astype(np.float32)), template / VENTRICLES, "uint8", code=images.MNI)


def ventricles(head: ants.ANTsImage, brain: ants.ANTsImage) -> np.ndarray:
    """The lateral ventricles and the cisterns around the midbrain: fluid deep in the brain, without thin sulci.

    Parameters
    ----------
    head, brain : ANTs image
        A template's T1w and brain mask.

    Returns
    -------
    (X, Y, Z) bool array
    """
    deep = ndimage.distance_transform_edt(brain.numpy() > 0.5, sampling=brain.spacing) > DEPTH
    fluid = tissues.segment(head, brain, COARSEST)["csf"].numpy() > 0.5
    return np.asarray(ndimage.binary_opening(fluid & deep))
