"""One interpolation through all transforms."""

from __future__ import annotations

import numpy as np

from bolt.preprocess import images, resample

AFFINE = np.array([[3.0, 0, 0, -15], [0, 3, 0, -12], [0, 0, 3, -18], [0, 0, 0, 1]])
SHAPE = (11, 9, 12)


def grid_points() -> np.ndarray:
    return images.apply(AFFINE, np.argwhere(np.ones(SHAPE)).astype(float))


def test_without_transforms_the_voxels_come_back():
    volumes = np.random.default_rng(0).normal(100, 10, (3, *SHAPE)).astype(np.float32)
    still = np.repeat(np.eye(4)[None], 3, axis=0)
    for volume, values in zip(volumes, resample.resample(volumes, AFFINE, still, grid_points()), strict=True):
        np.testing.assert_allclose(values.reshape(SHAPE), volume, rtol=1e-4)


def test_motion_is_followed():
    """A head that moves by a voxel is found a voxel further on."""
    volume = np.random.default_rng(0).normal(100, 10, SHAPE).astype(np.float32)
    later = np.roll(volume, 1, axis=1)
    position = images.rigid_matrix(np.array([0, 3.0, 0, 0, 0, 0]), np.zeros(3))
    (values,) = resample.resample([later], AFFINE, position[None], grid_points())
    np.testing.assert_allclose(values.reshape(SHAPE)[:, :-1], volume[:, :-1], rtol=1e-4)


def test_transforms_are_chained_from_template_to_bold(tmp_path):
    to_space = images.rigid_matrix(np.array([2.0, 0, 0, 0, 0, 0.1]), np.zeros(3))
    to_t1w = images.rigid_matrix(np.array([0, -4.0, 1, 0.2, 0, 0]), np.zeros(3))
    images.write_matrix(to_space, tmp_path / "a.txt")
    images.write_matrix(to_t1w, tmp_path / "b.txt")
    points = resample.places_of_grid(SHAPE, AFFINE, [tmp_path / "a.txt", tmp_path / "b.txt"])
    assert points.shape == (*SHAPE, 3)
    np.testing.assert_allclose(points.reshape(-1, 3), images.apply(to_t1w @ to_space, grid_points()), atol=1e-3)


def test_field_holds_what_every_volume_has_acquired():
    positions = np.stack([np.eye(4), images.rigid_matrix(np.array([0, 0, 6.0, 0, 0, 0]), np.zeros(3))])
    inside = resample.field_mask(grid_points(), positions, SHAPE, AFFINE).reshape(SHAPE)
    assert inside[:, :, :-2].all()
    assert not inside[:, :, -2:].any()


def test_output_reaches_a_little_beyond_the_brain():
    brain = np.zeros(SHAPE, dtype=bool)
    brain[5, 4, 6] = True
    area = resample.output_area(brain, AFFINE)
    assert area[3:8, 4, 6].all() and not area[2, 4, 6] and not area[8, 4, 6]
