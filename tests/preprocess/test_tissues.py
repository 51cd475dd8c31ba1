"""Segmentation of a ball with three shells, and of one that lacks a tissue."""

from __future__ import annotations

import numpy as np
import pytest

from bolt.io.errors import DataError
from bolt.preprocess import images, tissues
from bolt.preprocess.registration import dice

AFFINE = np.diag([2.0, 2, 2, 1])


def ball(size: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (1 GM, 2 WM, 3 CSF, 0 outside) and intensities of a ball: CSF, WM, GM, CSF from the centre."""
    distance = np.linalg.norm(np.indices((size,) * 3) - (size - 1) / 2, axis=0)
    truth = np.select([distance < 5, distance < 13, distance < 18, distance < 21], [3, 2, 1, 3], 0)
    bright = np.select([truth == 3, truth == 1, truth == 2], [20.0, 60.0, 90.0], 130.0)
    return truth, bright + np.random.default_rng(0).normal(0, 6, bright.shape)


@pytest.mark.parametrize(("resolution", "least"), [(2.0, 0.97), (3.0, 0.8)])
def test_tissues_are_found_in_their_order(resolution, least):
    truth, bright = ball()
    mask = images.to_ants(truth > 0, AFFINE)
    probabilities = tissues.segment(images.to_ants(bright, AFFINE), mask, resolution)
    labels = tissues.labels(probabilities).numpy()
    for label in (1, 2, 3):
        assert dice(labels == label, truth == label) > least
    total = sum(part.numpy() for part in probabilities.values())
    np.testing.assert_allclose(total, truth > 0, atol=1e-5)
    assert not labels[truth == 0].any()


def test_a_second_segmentation_is_the_same():
    truth, bright = ball(32)
    image, mask = images.to_ants(bright, AFFINE), images.to_ants(truth > 0, AFFINE)
    first, second = (tissues.segment(image, mask, 2.0)["gm"].numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_class_of_a_few_bright_voxels_is_no_tissue():
    truth, bright = ball(32)
    bright = 60 + np.random.default_rng(0).normal(0, 1, bright.shape)
    bright[14:18, 14:18, 14:18] *= np.linspace(4, 6, 4)  # such as fat or a vessel
    with pytest.raises(DataError, match="the segmentation found"):
        tissues.segment(images.to_ants(bright, AFFINE), images.to_ants(truth > 0, AFFINE), 2.0)


def test_deep_grey_matter_is_carried_to_the_head(tmp_path):
    affine = np.diag([2.0, 2, 2, 1])
    affine[:3, 3] = [-90, -120, -70]
    head = images.to_ants(np.ones((90, 110, 90)), affine)
    moved = images.rigid_matrix(np.array([10.0, 0, 0, 0, 0, 0]), np.zeros(3))
    images.write_matrix(moved, tmp_path / "to_t1w.txt")  # points of the T1w to points of the template
    mask = tissues.deep_grey(head, tmp_path / "to_t1w.txt").numpy()

    def at(*place):
        return mask[tuple(np.round(images.apply(np.linalg.inv(moved @ affine), np.array(place))).astype(int))]

    for side in (-1, 1):
        for inside in ((12, -19, 7), (13, 10, 8), (26, 4, 2), (19, -1, -1)):  # thalamus, caudate, putamen, pallidum
            assert at(side * inside[0], *inside[1:]) == 1, inside
        for outside in ((30, -40, 30), (30, -70, 10), (50, 0, 20), (25, 40, 10), (12, -19, 45)):  # centrum semiovale, …
            assert at(side * outside[0], *outside[1:]) == 0, outside
    assert 60 < mask.sum() * 8 / 1000 < 140  # ml
