"""Small CIFTI-2 files: dense series, labels and parcellated series of a brain of two surfaces and a few voxels."""

import nibabel as nib
import numpy as np
from nibabel.cifti2 import BrainModelAxis, LabelAxis, ParcelsAxis, SeriesAxis

T, N = 20, 40
LEFT, RIGHT = "CIFTI_STRUCTURE_CORTEX_LEFT", "CIFTI_STRUCTURE_CORTEX_RIGHT"
NAMES = ["L_a", "L_b", "R_a", "Putamen"]
AFFINE = np.diag([2, 2, 2, 1.0])


def brain(left=range(N), right=range(N), voxels=((0, 0, 0), (0, 0, 1), (1, 0, 0)), n=N, affine=AFFINE, shape=(4, 4, 4)):
    """Two surfaces of `n` vertices, of which some are there, and a few voxels."""
    parts = [BrainModelAxis.from_surface(list(left), n, LEFT), BrainModelAxis.from_surface(list(right), n, RIGHT)]
    voxels = np.array(voxels)
    structure = np.array(["CIFTI_STRUCTURE_PUTAMEN_LEFT"] * len(voxels))
    parts.append(BrainModelAxis(structure, voxel=voxels, affine=affine, volume_shape=shape))
    return parts[0] + parts[1] + parts[2]


def seconds(step=0.72, unit="SECOND", n=T):
    return SeriesAxis(0, step, n, unit)


def save(path, data, *axes):
    nib.save(nib.Cifti2Image(np.asarray(data, np.float32), axes), path)
    return path


def label_of(axis):
    """The left surface is halved, all of the right one is an ROI, and so are the voxels; vertex 0 has no label."""
    values = np.select([axis.name == LEFT, axis.name == RIGHT], [np.where(axis.vertex < 20, 2, 5), 7], 11)
    return np.where(axis.vertex == 0, 0, values)


def save_labels(path, axis, names=NAMES):
    table = {0: ("???", (0, 0, 0, 0)), 99: ("unused", (0, 0, 0, 1))}
    table |= {value: (name, (1, 0, 0, 1)) for value, name in zip((2, 5, 7, 11), names, strict=True)}
    return save(path, label_of(axis)[None], LabelAxis(["parcels"], [table]), axis)


def greyordinates(seed=0):
    """A series for each vertex and voxel of the whole brain: one column per greyordinate of `brain()`."""
    return np.random.default_rng(seed).standard_normal((T, len(brain()))).astype(np.float32)


def columns_of(axis):
    """Which column of the whole brain each greyordinate of an axis is."""
    places = {greyordinate: column for column, greyordinate in enumerate(identities(brain()))}
    return [places[greyordinate] for greyordinate in identities(axis)]


def identities(axis):
    return [(n, v, *x) for n, v, x in zip(axis.name, axis.vertex, axis.voxel.tolist(), strict=True)]


def expected_means(kept=None):
    data, values = greyordinates().astype(float), label_of(brain())
    inside = np.ones(len(values), bool) if kept is None else np.isin(np.arange(len(values)), kept)
    return np.stack([data[:, (values == value) & inside].mean(axis=1) for value in (2, 5, 7, 11)], axis=1)


def ptseries(path, names=NAMES, axis=None, data=None):
    surface = {LEFT: np.array([1, 2])}
    parcels = ParcelsAxis(names, [np.empty((0, 3), int)] * len(names), [surface] * len(names), nvertices={LEFT: N})
    return save(path, expected_means() if data is None else data, axis or seconds(), parcels)
