"""Pieces of the registrations; what they reach together is tested by the workflows."""

from __future__ import annotations

import numpy as np
import pytest

from bolt.errors import DataError
from bolt.preprocess import extraction, images, registration


def test_one_piece_drops_islands_and_fills_holes():
    mask = np.zeros((60, 60, 60), dtype=bool)
    mask[10:50, 10:50, 10:50] = True
    mask[30, 30, 30] = False
    mask[2:4, 2:4, 2:4] = True
    found = extraction.one_piece(mask, (2.0, 2.0, 2.0))
    assert found[30, 30, 30] == 1 and found[2, 2, 2] == 0
    assert found.sum() == 40**3


@pytest.mark.parametrize("size", [0, 5])
def test_a_brain_of_a_few_millilitres_is_refused(size):
    mask = np.zeros((20, 20, 20), dtype=bool)
    mask[:size, :size, :size] = True
    with pytest.raises(DataError, match="no brain"):
        extraction.one_piece(mask, (1.0, 1.0, 1.0))


def test_bright_spots_and_negative_values_are_cut():
    data = np.random.default_rng(0).uniform(10, 20, (20, 20, 20))
    data[0, 0, 0], data[1, 1, 1] = 5000, -3
    found = registration.cut_bright(images.to_ants(data, np.eye(4))).numpy()
    assert found.max() < 21 and found.min() == 0


def test_around_brain_keeps_the_frame_and_the_geometry():
    data = np.zeros((60, 60, 60))
    data[30:34, 20:24, 10:14] = 1
    image = images.to_ants(data, np.diag([4.0, 4, 4, 1]))
    cropped = registration.around_brain(image)
    assert cropped.shape == (10, 10, 10)
    assert cropped.numpy().sum() == data.sum()
    np.testing.assert_allclose(images.affine_of(cropped)[:3, 3], [27 * 4, 17 * 4, 7 * 4])


def test_dice():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert registration.dice(a, b) == pytest.approx(2 / 3)
    assert registration.dice(~a & a, b & ~b) == 0


def test_coregistration_recovers_from_a_wrong_header(head, tmp_path):
    """A BOLD whose header lies by five centimetres is found through the centres of mass."""
    from bolt.config import load_registration

    t1w, mask = images.read(head.template / "T1w.nii.gz"), images.read(head.template / "brain_mask.nii.gz")
    affine = images.affine_of(t1w)
    wrong = images.rigid_matrix(np.array([30.0, 25, -30, 0, 0, 0.05]), np.zeros(3))
    bold = images.to_ants((130 - t1w.numpy()) * mask.numpy(), wrong @ affine)
    matrix, dice = registration.coregister(
        bold, images.to_ants(mask.numpy(), wrong @ affine), t1w, mask, load_registration("testing")
    )
    points = np.array([[40.0, 0, 0], [0, 40, 0], [0, 0, 40]])
    assert np.linalg.norm(images.apply(matrix, points) - images.apply(wrong, points), axis=1).mean() < 1
    assert dice > 0.95
