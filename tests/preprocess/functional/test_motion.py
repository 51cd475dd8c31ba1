"""Head motion is recovered from volumes moved by known amounts."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from bolt.config import load_registration
from bolt.preprocess import images
from bolt.preprocess.functional.motion import HeadMotion, motion_reference

SETTINGS = load_registration("fast")
POINTS = np.array([[60, 0, 0], [-60, 0, 0], [0, 70, 0], [0, -70, 0], [0, 0, 50]], dtype=float)


@pytest.fixture(scope="module")
def volume(head) -> tuple[np.ndarray, np.ndarray]:
    scan = nib.load(head.bold)
    return np.asarray(scan.dataobj[..., 0], dtype=np.float32), scan.affine


def moved(volume: np.ndarray, affine: np.ndarray, matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    places = np.argwhere(np.ones(volume.shape))
    voxels = images.apply(np.linalg.inv(affine) @ np.linalg.inv(matrix) @ affine, places)
    values = ndimage.map_coordinates(volume, voxels.T, order=3, mode="nearest").reshape(volume.shape)
    return (values + rng.normal(0, 1, volume.shape)).astype(np.float32)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(images.apply(a, POINTS) - images.apply(b, POINTS), axis=1).mean())


def test_small_and_large_movements_are_found(volume):
    data, affine = volume
    rng = np.random.default_rng(0)
    sizes = [0.02, 0.2, 1.0, 3.0]
    truth = [images.rigid_matrix(size * rng.normal(0, [1] * 3 + [0.015] * 3, 6), np.zeros(3)) for size in sizes]
    estimator = HeadMotion(data, data > 20, affine, SETTINGS)
    estimated = list(estimator.positions(moved(data, affine, matrix, rng) for matrix in truth))
    for matrix, true in zip(estimated, truth, strict=True):
        assert distance(matrix, true) < 0.1
    assert distance(np.eye(4), truth[-1]) > 3


def test_brightness_changes_are_no_movement(volume):
    data, affine = volume
    estimator = HeadMotion(data, data > 20, affine, SETTINGS)
    assert distance(estimator.position(1.05 * data, np.eye(4)), np.eye(4)) < 0.02


def test_one_bad_volume_does_not_spoil_the_reference(volume):
    data, affine = volume
    rng = np.random.default_rng(0)
    good = [moved(data, affine, np.eye(4), rng) for _ in range(6)]
    bad = moved(data, affine, images.rigid_matrix(np.array([9.0, 0, 9, 0, 0.2, 0]), np.zeros(3)), rng)
    reference, mask = motion_reference([bad, *good], affine, SETTINGS)
    assert np.corrcoef(reference[mask], data[mask])[0, 1] > 0.99
