"""Conversion between nibabel and ANTs, grids and rigid transforms."""

from __future__ import annotations

import subprocess
import sys

import ants
import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from bolt.config import ROOT
from bolt.io.errors import DataError
from bolt.preprocess import images

OBLIQUE = images.rigid_matrix(np.array([5.0, -7, 3, 0.2, -0.1, 0.3]), np.zeros(3)) @ np.diag([2.0, 3, 4, 1])


def test_a_sheared_affine_is_refused():
    sheared = np.eye(4)
    sheared[0, 1] = 0.3
    with pytest.raises(DataError, match="has shear"):
        images.to_ants(np.zeros((3, 3, 3)), sheared)


def test_written_images_declare_one_geometry(tmp_path):
    data = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    images.save(data, OBLIQUE, tmp_path / "a.nii.gz")
    image = nib.load(tmp_path / "a.nii.gz")
    np.testing.assert_allclose(image.get_sform(), image.get_qform(), atol=1e-4)
    np.testing.assert_array_equal(image.get_fdata(), data)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6), st.lists(st.floats(-80, 80), min_size=3, max_size=3))
def test_rigid_parameters_are_the_inverse_of_rigid_matrix(parameters, centre):
    given_ = np.array(parameters)
    recovered = images.rigid_parameters(images.rigid_matrix(given_, np.array(centre)), np.array(centre))
    np.testing.assert_allclose(recovered, given_, atol=1e-9)


@pytest.mark.parametrize("centre", [None, np.array([10.0, -20, 30])])
def test_a_written_matrix_moves_images_as_it_says(tmp_path, centre):
    """ITK maps points of the target to points of the image; the centre makes no difference."""
    matrix = images.rigid_matrix(np.array([4.0, -6, 2, 0, 0, np.pi / 2]), np.array([10.0, 10, 10]))
    images.write_matrix(matrix, tmp_path / "m.txt", centre)
    np.testing.assert_allclose(images.read_matrix(tmp_path / "m.txt"), matrix, atol=1e-9)
    data = np.zeros((20, 20, 20))
    spot = np.array([12, 8, 11])
    data[tuple(spot)] = 1
    image = images.to_ants(data, np.eye(4))
    moved = ants.apply_transforms(image, image, [str(tmp_path / "m.txt")]).numpy()
    where = np.argwhere(moved > 0.5)[0]
    np.testing.assert_allclose(images.apply(matrix, where.astype(float)), spot, atol=1e-6)


def test_grid_at_the_templates_resolution_is_the_templates(tmp_path):
    affine = np.array([[2.0, 0, 0, -90], [0, 2, 0, -126], [0, 0, 2, -72], [0, 0, 0, 1]])
    images.save(np.zeros((9, 10, 11)), affine, tmp_path / "t.nii.gz")
    shape, same = images.grid(tmp_path / "t.nii.gz", 2.0)
    assert shape == (9, 10, 11)
    np.testing.assert_allclose(same, affine)
    shape, coarse = images.grid(tmp_path / "t.nii.gz", 4.0)
    assert shape == (5, 5, 6)  # the whole field of view is covered
    corner = images.apply(affine, np.full(3, -0.5))
    np.testing.assert_allclose(images.apply(coarse, np.full(3, -0.5)), corner)


@pytest.mark.parametrize("spacing", [1.5, 2.0, 3.3])
@pytest.mark.parametrize("sizes", [(0.7, 0.8, 1.0), (1.5, 1.5, 1.5)])
def test_resampling_to_a_spacing_gives_the_image_of_ants(sizes, spacing):
    image = images.to_ants(np.random.default_rng(0).normal(size=(17, 20, 31)), np.diag([*sizes, 1]))
    expected = ants.resample_image(image, (spacing,) * 3, False, 0)
    resampled = images.resample_to_spacing(image, spacing)
    assert ants.image_physical_space_consistency(expected, resampled)
    assert resampled.shape == expected.shape
    np.testing.assert_allclose(resampled.numpy(), expected.numpy(), atol=2e-6)


def test_interpolation_is_exact_for_a_linear_field_and_repeats_the_last_value():
    x, y, z = np.indices((6, 7, 5)) * 4.0
    field = (1 + 0.1 * x + 0.02 * y - 0.03 * z).astype(np.float32)
    fine = images.interpolated(field, [0.25] * 3, (24, 22, 16))
    x, y, z = np.indices(fine.shape).astype(float)
    np.testing.assert_allclose(fine, 1 + 0.1 * np.minimum(x, 20) + 0.02 * y - 0.03 * z, rtol=1e-5)


def test_transforms_are_chained_from_template_to_bold(tmp_path):
    shape = (11, 9, 12)
    to_space = images.rigid_matrix(np.array([2.0, 0, 0, 0, 0, 0.1]), np.zeros(3))
    to_t1w = images.rigid_matrix(np.array([0, -4.0, 1, 0.2, 0, 0]), np.zeros(3))
    images.write_matrix(to_space, tmp_path / "a.txt")
    images.write_matrix(to_t1w, tmp_path / "b.txt")
    points = images.places_of_grid(shape, OBLIQUE, [tmp_path / "a.txt", tmp_path / "b.txt"])
    assert points.shape == (*shape, 3)
    grid_points = images.apply(OBLIQUE, np.argwhere(np.ones(shape)).astype(float))
    np.testing.assert_allclose(points.reshape(-1, 3), images.apply(to_t1w @ to_space, grid_points), atol=1e-3)


def test_a_composite_is_small_and_moves_images_as_its_parts_do(tmp_path):
    rng, grid = np.random.default_rng(0), images.to_ants(np.zeros((20, 24, 22)), np.diag([5.0, 5, 5, 1]))
    affine = np.eye(4)
    affine[:3, :3] += rng.normal(0, 0.05, (3, 3))
    images.write_matrix(affine, tmp_path / "affine.mat")
    smooth = [ndimage.gaussian_filter(rng.normal(0, 30, grid.shape), 3) for _ in range(3)]
    field = ants.merge_channels([grid.new_image_like(part) for part in smooth])
    ants.image_write(field, str(tmp_path / "field.nii.gz"))
    parts = [ants.transform_from_displacement_field(field), ants.read_transform(str(tmp_path / "affine.mat"))]
    images.write_composite(parts, tmp_path / "both.h5")
    image = grid.new_image_like(ndimage.gaussian_filter(rng.normal(size=grid.shape), 1).astype(np.float32))
    together = ants.apply_transforms(grid, image, [str(tmp_path / "both.h5")]).numpy()
    apart = ants.apply_transforms(grid, image, [str(tmp_path / name) for name in ("field.nii.gz", "affine.mat")])
    assert np.abs(together - image.numpy()).max() > 0.1
    np.testing.assert_allclose(together, apart.numpy(), atol=2e-3)
    assert (tmp_path / "both.h5").stat().st_size < 0.4 * 8 * 3 * grid.numpy().size


def test_values_beyond_the_range_of_an_integer_do_not_wrap_around(tmp_path):
    """As tSNR in a voxel that hardly varies."""
    data = np.array([[[0.014, 250.0, 1e12, -1e12]]])
    images.save(data, np.eye(4), tmp_path / "a.nii.gz", "int32", step=0.01)
    kept = images.load(tmp_path / "a.nii.gz")[0].ravel()
    np.testing.assert_allclose(kept[:2], [0.01, 250], rtol=1e-6)
    assert kept[2] > 2e7 and kept[3] < -2e7


@pytest.mark.slow
def test_jobs_start_without_statsmodels_which_others_can_import():
    code = """
import sys, bolt.preprocess.images
assert "ants" in sys.modules and not any(name.startswith("statsmodels") for name in sys.modules)
import statsmodels.api
statsmodels.api.OLS
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
