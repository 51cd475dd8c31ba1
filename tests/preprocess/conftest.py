"""A small head with a brain, deformed and moved by known amounts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nilearn.datasets import load_mni152_brain_mask, load_mni152_gm_template, load_mni152_template
from scipy import ndimage

from bolt.config import load_registration
from bolt.preprocess import images
from bolt.preprocess.anatomical import preprocess_anatomical
from bolt.preprocess.functional.workflow import preprocess_functional

SPACE = "MNI152NLin2009aSym"
SCAN = "sub-01_task-rest"
SETTINGS = load_registration("testing").model_copy(update={"working_resolution": 4.0})
RESOLUTION = 4
MARGIN = 5
"""Voxels of the grid around the brain: room for the skull, for the deformation and for head motion."""
VOLUMES = 16
MOVED = 8
"""Volume at which the head moves suddenly."""
TR = 2.0


@dataclass
class Head:
    """Template folder, a subject's T1w and BOLD, and the transforms between them.

    `warp` maps template points to T1w points (RAS mm); `pose` maps T1w points to points of the BOLD reference;
    `motion` (T, 4, 4) maps points of the first volume to those of each volume.
    """

    folder: Path
    template: Path
    t1w: Path
    bold: Path
    warp_mm: np.ndarray
    pose: np.ndarray
    motion: np.ndarray
    signal: np.ndarray


def shell(brain: np.ndarray, gap: float, thickness: float) -> np.ndarray:
    """Return a skull-like layer around a brain mask; distances in mm."""
    distance = ndimage.distance_transform_edt(~brain, sampling=RESOLUTION)
    return (distance > gap) & (distance <= gap + thickness)


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], sigma: float, size: float) -> np.ndarray:
    """Return three smooth random maps of a given SD."""
    maps = np.stack([ndimage.gaussian_filter(rng.standard_normal(shape), sigma) for _ in range(3)], axis=-1)
    return maps * size / maps.std(axis=(0, 1, 2))


@pytest.fixture(scope="session")
def head(once) -> Head:
    return once("head", _make_head)


def _make_head(folder: Path) -> Head:
    rng = np.random.default_rng(7)
    t1 = nib.as_closest_canonical(load_mni152_template(resolution=RESOLUTION))
    brain = np.asarray(load_mni152_brain_mask(resolution=RESOLUTION).dataobj) > 0
    grey = np.asarray(load_mni152_gm_template(resolution=RESOLUTION).dataobj)
    where = np.argwhere(brain)
    first, stop = where.min(axis=0), where.max(axis=0) + 1
    box = tuple(slice(low, high) for low, high in zip(first, stop, strict=True))
    brain, grey, bright = (np.pad(image[box], MARGIN) for image in (brain, grey, np.asarray(t1.dataobj)))
    affine = t1.affine.copy()
    affine[:3, 3] = images.apply(t1.affine, first - MARGIN)
    bright = 100 * bright / bright.max() * brain
    template = folder / "template"
    images.save(bright + 40 * shell(brain, 6, 8), affine, template / "T1w.nii.gz")
    images.save(brain, affine, template / "brain_mask.nii.gz", "uint8")
    images.save(grey, affine, template / "gm.nii.gz")

    # the subject's head on the template's grid: the value at p is the template's at p - shift(p)
    shift = smooth_noise(rng, brain.shape, 6, 4.0)
    voxels = np.moveaxis(np.indices(brain.shape), 0, -1) - shift / RESOLUTION
    bent = ndimage.map_coordinates(bright, np.moveaxis(voxels, -1, 0), order=1)
    bent_brain = ndimage.map_coordinates(brain.astype(float), np.moveaxis(voxels, -1, 0), order=1) > 0.5
    whole = bent + 55 * shell(bent_brain, 5, 10) + rng.normal(0, 1, brain.shape)
    images.save(np.clip(whole, 0, None), affine, folder / "sub-01_T1w.nii.gz")

    # BOLD: inverted contrast, moved by `pose`, then by head motion
    pose = images.rigid_matrix(np.array([6.0, -5.0, 8.0, 0.06, -0.04, 0.05]), np.zeros(3))
    walk = np.cumsum(rng.normal(0, [0.08] * 3 + [0.0015] * 3, (VOLUMES, 6)), axis=0)
    walk[MOVED:] += [0.9, -0.5, 0.7, 0.012, -0.009, 0.006]
    walk -= walk[0]
    motion = np.stack([images.rigid_matrix(row, np.zeros(3)) for row in walk])
    contrast = np.where(bent_brain, 120 - 0.6 * bent, 0) + 12 * shell(bent_brain, 5, 10)
    active = ndimage.map_coordinates(grey, np.moveaxis(voxels, -1, 0), order=1)
    signal = np.sin(np.arange(VOLUMES) * 0.9)
    size = nib.affines.voxel_sizes(affine)[0]
    bold = np.empty((*brain.shape, VOLUMES), dtype=np.float32)
    for t, position in enumerate(motion):
        places = np.linalg.inv(affine) @ np.linalg.inv(position @ pose) @ affine
        volume = ndimage.affine_transform(contrast * (1 + 0.02 * signal[t] * active), places, order=3)
        bold[..., t] = volume + rng.normal(0, 0.8, brain.shape)
    scan = nib.Nifti1Image(bold, affine)
    scan.header.set_zooms((size, size, size, TR))
    scan.header.set_xyzt_units("mm", "sec")
    nib.save(scan, folder / "sub-01_task-rest_bold.nii.gz")
    t1w, bold = folder / "sub-01_T1w.nii.gz", folder / "sub-01_task-rest_bold.nii.gz"
    return Head(folder, template, t1w, bold, shift, pose, motion, signal)


@pytest.fixture(scope="session")
def anat(head, once) -> Path:
    """The T1w preprocessed, not to be changed: its folder."""

    def make(folder: Path) -> Path:
        out = folder / "sub-01" / "anat"
        preprocess_anatomical(head.t1w, head.template, SPACE, SETTINGS, out, folder / "work", prefix="sub-01_")
        return out

    return once("anat", make)


@pytest.fixture(scope="session")
def func(head, anat, once) -> Path:
    """The BOLD preprocessed, not to be changed: its folder."""
    return once("func", lambda folder: run_functional(head, anat, folder))


def run_functional(head: Head, anat: Path, folder: Path, bold: Path | None = None, size: float = 4.0, **keys) -> Path:
    """Preprocess the head's BOLD, or another, below a folder; return the folder of the results."""
    out, places = folder / "sub-01" / "func", (bold or head.bold, anat, head.template)
    names = {"scan_id": SCAN, "prefix": "sub-01_", "tr": TR}
    preprocess_functional(*places, SPACE, size, SETTINGS, out, folder / "work", **names, **keys)
    return out


def moved(volume: np.ndarray, affine: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Return a volume of the head after it has moved by `position` (RAS mm)."""
    points = images.apply(affine, np.argwhere(np.ones(volume.shape)))
    places = images.apply(np.linalg.inv(affine) @ np.linalg.inv(position), points)
    return ndimage.map_coordinates(volume, places.T, order=3).reshape(volume.shape)
