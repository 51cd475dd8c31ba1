"""Head motion is recovered from volumes moved by known amounts."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest

from bolt.config import load_registration
from bolt.preprocess import images
from bolt.preprocess.functional.motion import HeadMotion, _sampled, motion_reference
from tests.preprocess.conftest import moved

SETTINGS = load_registration("fast")
POINTS = np.array([[60, 0, 0], [-60, 0, 0], [0, 70, 0], [0, -70, 0], [0, 0, 50]], dtype=float)


@pytest.fixture(scope="module")
def volume(head) -> tuple[np.ndarray, np.ndarray]:
    scan = nib.load(head.bold)
    return np.asarray(scan.dataobj[..., 0], dtype=np.float32), scan.affine


def noisy(volume: np.ndarray, affine: np.ndarray, matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (moved(volume, affine, matrix) + rng.normal(0, 1, volume.shape)).astype(np.float32)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(images.apply(a, POINTS) - images.apply(b, POINTS), axis=1).mean())


def test_small_and_large_movements_are_found(volume):
    data, affine = volume
    rng = np.random.default_rng(0)
    sizes = [0.02, 0.2, 1.0, 3.0]
    truth = [images.rigid_matrix(size * rng.normal(0, [1] * 3 + [0.015] * 3, 6), np.zeros(3)) for size in sizes]
    estimator = HeadMotion(data, data > 20, affine, SETTINGS)
    estimated = list(estimator.positions(noisy(data, affine, matrix, rng) for matrix in truth))
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
    good = [noisy(data, affine, np.eye(4), rng) for _ in range(6)]
    bad = noisy(data, affine, images.rigid_matrix(np.array([9.0, 0, 9, 0, 0.2, 0]), np.zeros(3)), rng)
    reference, mask = motion_reference([bad, *good], affine, SETTINGS)
    assert np.corrcoef(reference[mask], data[mask])[0, 1] > 0.99


def test_the_edge_of_the_field_of_view_is_ignored_unless_the_image_is_small():
    sampled = _sampled(np.ones((20, 9, 8)), SETTINGS)
    assert sampled.min(axis=0).tolist() == [2, 2, 0] and sampled.max(axis=0).tolist() == [17, 6, 7]
    assert len(_sampled(np.ones((60, 60, 60)), SETTINGS.model_copy(update={"motion_sampling": 0.5}))) == 56**3 // 2
    rim = np.ones((20, 20, 20))
    rim[1:-1, 1:-1, 1:-1] = 0
    assert len(_sampled(rim, SETTINGS)) == min(8000, int(rim.sum()))  # nothing else is left


def test_a_shift_is_found_to_a_fiftieth_of_a_millimetre():
    """A smooth object, computed where it has moved to rather than interpolated."""
    affine = np.diag([3.0, 3, 3, 1])
    affine[:3, 3] = -45
    places = images.apply(affine, np.moveaxis(np.indices((31, 31, 31)), 0, -1).astype(float))

    def blob(centre: np.ndarray) -> np.ndarray:
        return np.sum([
            a * np.exp(-((places - centre - where) ** 2).sum(-1) / (2 * 12.0**2))
            for a, where in ((100, (0, 0, 0)), (60, (20, 5, -8)), (80, (-9, 18, 12)))
        ], axis=0).astype(np.float32)  # fmt: skip

    shift = np.array([1.3, -0.7, 0.4])
    volume = blob(np.zeros(3))
    settings = SETTINGS.model_copy(update={"motion_sampling": 1.0, "motion_iterations": 30})
    position = HeadMotion(volume, volume > 5, affine, settings).position(blob(shift), np.eye(4))
    assert np.abs(position - images.rigid_matrix(np.r_[shift, 0, 0, 0], np.zeros(3))).max() < 0.02
