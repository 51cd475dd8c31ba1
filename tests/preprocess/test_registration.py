"""Building blocks of registration (their combination is tested by the workflows)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from bolt.config import load_registration
from bolt.preprocess import images, registration


def test_bright_spots_and_negative_values_are_clipped():
    data = np.random.default_rng(0).uniform(10, 20, (20, 20, 20))
    data[0, 0, 0], data[1, 1, 1] = 5000, -3
    clipped = registration.clip_intensity(images.to_ants(data, np.eye(4))).numpy()
    assert clipped.max() < 21 and clipped.min() == 0


def test_crop_to_brain_keeps_the_frame_and_the_geometry():
    data = np.zeros((60, 60, 60))
    data[30:34, 20:24, 10:14] = 1
    image = images.to_ants(data, np.diag([4.0, 4, 4, 1]))
    cropped = registration.crop_to_brain(image)
    assert cropped.shape == (10, 10, 10)
    assert cropped.numpy().sum() == data.sum()
    np.testing.assert_allclose(images.affine_of(cropped)[:3, 3], [27 * 4, 17 * 4, 7 * 4])


def test_dice():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert registration.dice(a, b) == pytest.approx(2 / 3)
    assert registration.dice(~a & a, b & ~b) == 0


SETTINGS = load_registration("testing")


def brain_of(head):
    return [images.read(head.template / name) for name in ("T1w.nii.gz", "brain_mask.nii.gz")]


def distance(matrix, other, points):
    points = np.diag(np.array(points, float))
    return np.linalg.norm(images.apply(matrix, points) - images.apply(other, points), axis=1).mean()


@pytest.mark.parametrize("shift", [(30, 25, -30), (0, 0, 300)], ids=["overlaps", "apart"])
def test_coregistration_recovers_from_a_wrong_header(head, shift):
    """A BOLD whose header is off by five centimetres, or that lies apart, is aligned by the centres of mass."""
    t1w, mask = brain_of(head)
    wrong = images.rigid_matrix(np.array([*shift, 0, 0, 0.05], float), np.zeros(3))
    parts = (130 - t1w.numpy()) * mask.numpy(), mask.numpy()
    bold, seen = (images.to_ants(part, wrong @ images.affine_of(t1w)) for part in parts)
    matrix = registration.coregister(bold, seen, t1w, mask, SETTINGS)
    assert distance(matrix, wrong, [40, 40, 40]) < 1
    assert registration.agreement(bold, seen, t1w, mask, matrix)[0] > 0.95


@pytest.mark.parametrize("angles", [(8, 0, 0), (0, 8, 0), (0, 0, -8)])
def test_a_head_that_turned_between_the_scans_is_followed(head, angles):
    """A noisy, coarse BOLD of a head that turned by about eight degrees after the T1w."""
    t1w, mask = brain_of(head)
    affine, rng = images.affine_of(t1w), np.random.default_rng(0)
    turned = images.rigid_matrix(np.array([3.0, -2, 2, *np.radians(angles)]), np.zeros(3))
    grid = images.to_ants(np.zeros(t1w.shape), affine)
    contrast = 130 - t1w.numpy() + 8 * ndimage.gaussian_filter(rng.standard_normal(t1w.shape), 1) / 0.15
    parts = (images.to_ants(a, turned @ affine) for a in (contrast * mask.numpy(), mask.numpy()))
    bold, seen = (registration.warp(grid, part, []) for part in parts)
    assert distance(registration.coregister(bold, seen, t1w, mask, SETTINGS), turned, [60, 70, 50]) < 1.5


AFFINE = np.diag([4.0, 4, 4, 1])


def boxes():
    """Mask of a brain, and a BOLD mask that lacks a quarter of it."""
    brain, seen = np.zeros((2, 40, 40, 40))
    brain[8:32, 8:32, 8:32], seen[8:26, 8:32, 8:32] = 1, 1
    return brain, seen


@pytest.mark.parametrize("right_first", [True, False])
@pytest.mark.parametrize("shift", [0, 8])
def test_images_decide_between_positions_with_equal_mask_overlap(monkeypatch, right_first, shift):
    """A BOLD mask that lacks a quarter of the brain overlaps the T1w mask as well when rotated by 180°."""
    data = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(40, 40, 40)), 2) * 50 + 20
    t1w, bold, mask, bold_mask = (images.to_ants(a, AFFINE) for a in (data, 60 - data, *boxes()))
    right, turned = np.eye(4), images.rigid_matrix(np.array([0, 0, 0, 0, 0, np.pi]), np.full(3, 78.0))
    right[0, 3] = shift / 10  # mm: the masks overlap a little less
    places = iter([right, turned] if right_first else [turned, right])
    monkeypatch.setattr(registration, "rigid", lambda *_: np.linalg.inv(next(places)))
    matrix = registration.coregister(bold, bold_mask, t1w, mask, SETTINGS)
    np.testing.assert_allclose(matrix, right, atol=1e-9)
    assert 0.8 < registration.agreement(bold, bold_mask, t1w, mask, matrix)[0] < registration.GOOD_DICE


def test_a_position_with_little_mask_overlap_is_not_chosen(monkeypatch):
    brain, seen = boxes()
    t1w, mask, bold_mask = (
        images.to_ants(a, AFFINE) for a in (brain * (1 + np.indices(brain.shape)[0] % 2), brain, seen)
    )
    away = np.eye(4)
    away[0, 3] = 48
    places = iter([away, np.eye(4)])
    monkeypatch.setattr(registration, "rigid", lambda *_: np.linalg.inv(next(places)))
    monkeypatch.setattr(registration, "normalised_mutual_information", lambda a, _: 1 / len(a))  # small is best
    np.testing.assert_allclose(registration.coregister(t1w, bold_mask, t1w, mask, SETTINGS), np.eye(4), atol=1e-9)


@pytest.mark.slow
def test_a_bias_field_is_removed_though_the_edge_of_the_head_is_almost_zero():
    """The logarithm of a voxel of 1e-42, as interpolation leaves it, spans a hundred times the range of tissue."""
    x, y, z = np.indices((40, 40, 40)) - 20.0
    radius = np.sqrt(x**2 + y**2 + z**2)
    tissue = np.select([radius < 8, radius < 13, radius < 16], [100.0, 60.0, 30.0], 0.0)
    bias = np.exp(0.02 * x)
    head = tissue * bias + np.random.default_rng(0).normal(0, 1, tissue.shape) * (tissue > 0)
    head[(radius >= 16) & (radius < 17)] = 1e-42
    settings = SETTINGS.model_copy(update={"n4_resolution": 4.0, "n4_iterations": [50, 50, 50]})
    corrected = registration.bias_correct(images.to_ants(head, AFFINE), settings).numpy()
    for low, high in ((0, 8), (8, 13)):
        shell = (radius >= low) & (radius < high)
        before, after = (np.std(image[shell]) / np.mean(image[shell]) for image in (head, corrected))
        assert after < before / 2
