"""Tissue segmentation of a T1w: grey matter, white matter and cerebrospinal fluid.

Where deep grey matter is: as bright as white matter in a T1w, it is segmented as such.

Thalamus and pallidum are called white with a probability of 0.5 to 0.9. Their signal is neuronal and their edge is none
of cortex, so they are kept out of the noise mask of white matter and out of the boundary to which BOLD is fitted.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.images import Image, ants
from bolt.preprocess.registration import brain_box

TISSUES = ("gm", "wm", "csf")
"""In the order of their labels, from 1."""
BY_INTENSITY = ("csf", "gm", "wm")
"""Darkest first, as in every T1w."""
MIN_SHARE = 0.02
"""Share of the brain below which the segmentation of a tissue has failed."""


def segment(t1w: Image, mask: Image, resolution: float) -> dict[str, Image]:
    """Segment the brain into tissue probabilities by Atropos (Avants et al. 2011, doi:10.1007/s12021-011-9109-y).

    Three intensity classes are initialised by k-means and regularised by a Markov random field. There is no spatial
    prior: the default template has none, and it would make the segmentation depend on the registration that it helps to
    judge. Nothing is random.

    Parameters
    ----------
    t1w : ANTs image
        Bias-corrected.
    mask : ANTs image
        Brain, on the same grid.
    resolution : float
        Voxel size (mm) of the segmentation; finer images are downsampled to it, and the probabilities resampled back.

    Returns
    -------
    dict
        ``gm``, ``wm``, ``csf``: probabilities on the grid of the T1w; they sum to 1 in the brain and are 0 outside.

    Raises
    ------
    DataError
        A tissue is not found.
    """
    start, stop = brain_box(mask, frame=3 * resolution)
    box = tuple(map(slice, start, stop))
    whole, t1w, mask = t1w, ants.crop_indices(t1w, start, stop), ants.crop_indices(mask, start, stop)
    image, brain = t1w, mask
    if min(t1w.spacing) < resolution - 0.05:
        image = images.resample_to_spacing(t1w, resolution)
        brain = ants.resample_image_to_target(mask, image, interp_type="linear")
    brain = image.new_image_like((brain.numpy() > 0.5).astype(np.float32))
    classes = dict(zip(BY_INTENSITY, _atropos(image, brain), strict=True))
    if image is not t1w:
        classes = {tissue: ants.resample_image_to_target(part, t1w, "linear") for tissue, part in classes.items()}
    inside = mask.numpy() > 0.5
    values = np.stack([np.clip(classes[tissue].numpy(), 0, 1) * inside for tissue in TISSUES])
    total = values.sum(axis=0)
    # voxels at the edge of the brain that were outside the downsampled mask: cerebrospinal fluid
    values[TISSUES.index("csf")][inside & (total < 0.01)] = 1
    values = np.divide(values, values.sum(axis=0), where=inside, out=np.zeros_like(values))
    for tissue, share in zip(TISSUES, values.sum(axis=(1, 2, 3)) / inside.sum(), strict=True):
        if share < MIN_SHARE:
            raise DataError(
                f"the segmentation found only {100 * share:.1f} % {tissue.upper()} in the brain",
                hint="Check that the image is T1-weighted and that the brain mask fits (see the pictures)",
            )
    full = np.zeros((len(TISSUES), *whole.shape), dtype=np.float32)
    full[(slice(None), *box)] = values
    return {tissue: whole.new_image_like(part) for tissue, part in zip(TISSUES, full, strict=True)}


def labels(tissues: dict[str, Image]) -> Image:
    """Label each voxel by its most probable tissue: 1 GM, 2 WM, 3 CSF, 0 outside the brain."""
    shares = np.stack([tissues[tissue].numpy() for tissue in TISSUES])
    label = np.where(shares.max(axis=0) > 0, 1 + shares.argmax(axis=0), 0)
    return tissues["gm"].new_image_like(label.astype(np.float32))


def _atropos(image: Image, brain: Image) -> list[Image]:
    """Return class probabilities, darkest class first.

    `ants.atropos` is not used because it leaves files behind and is seeded by the time.
    """
    with tempfile.TemporaryDirectory() as folder:
        brain = brain.clone("unsigned int")
        pointers = [ants.internal.get_pointer_string(part) for part in (image, brain)]
        command = ["-d", "3", "-a", pointers[0], "-x", pointers[1], "-i", "KMeans[3]"]
        command += ["-m", "[0.1,1x1x1]", "-c", "[5,0]", "-p", "Socrates[0]", "-r", "0"]
        command += ["-o", f"[{folder}/labels.nii.gz,{folder}/class%02d.nii.gz]"]
        if ants.internal.get_lib_fn("Atropos")(command) != 0:
            raise DataError("Atropos could not segment the brain", hint="Inspect the T1w and its brain mask")
        classes = [ants.image_read(str(path)) for path in sorted(Path(folder).glob("class*.nii.gz"))]
    return sorted(classes, key=lambda part: float(np.average(image.numpy(), weights=part.numpy())))


ELLIPSOIDS = {
    "caudate": ((13.2, 10.3, 8.1), (11.5, 25.0, 25.0)),
    "putamen": ((25.9, 3.2, 1.1), (12.5, 24.0, 16.5)),
    "pallidum": ((19.5, -1.2, -1.1), (11.5, 13.5, 9.0)),
    "thalamus": ((11.9, -18.8, 6.7), (13.0, 17.0, 14.5)),
}
"""Centre and half axes (mm) in MNI space, right side: mean and 2.5 standard deviations of the structures' voxels."""
SPACING = 2.0
"""mm of the grid on which they are drawn."""


def deep_grey(t1w: Image, to_t1w: str | Path) -> Image:
    """Return a mask (0 or 1) of both sides' deep grey matter and what is near it, on the grid of a T1w.

    Parameters
    ----------
    t1w : ANTs image
    to_t1w : path
        Transform from template space (any of the MNI family) to the T1w.
    """
    centres, axes = (np.array(values) for values in zip(*ELLIPSOIDS.values(), strict=True))
    low, high = (centres - axes).min(axis=0) - SPACING, (centres + axes).max(axis=0) + SPACING
    low[0] = -high[0]
    shape = np.ceil((high - low) / SPACING).astype(int) + 1
    affine = np.diag([SPACING, SPACING, SPACING, 1.0])
    affine[:3, 3] = low
    points = images.apply(affine, np.moveaxis(np.indices(shape), 0, -1))
    points[..., 0] = np.abs(points[..., 0])
    inside = [(((points - centre) / axis) ** 2).sum(axis=-1) <= 1 for centre, axis in zip(centres, axes, strict=True)]
    drawn = images.to_ants(np.any(inside, axis=0), affine)
    carried = ants.apply_transforms(t1w, drawn, [str(to_t1w)], interpolator="linear")
    return t1w.new_image_like((carried.numpy() > 0.5).astype(np.float32))
