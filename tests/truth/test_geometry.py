"""Errors against a known truth: right ones are zero, wrong ones are as large as they are."""

import nibabel as nib
import numpy as np
import pytest

from bolt.preprocess import images
from bolt.truth.geometry import (
    away,
    coregistration_error,
    correlation,
    normalisation_error,
    position_errors,
    sphere_error,
)

CENTRE = np.array([3.0, -20.0, 11.0])


def walk(n: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.normal(0, [0.3] * 3 + [0.005] * 3, (n, 6)), axis=0)
    return np.stack([images.rigid_matrix(row - rows[0], CENTRE) for row in rows])


def test_positions_to_another_reference_are_right():
    true = walk()
    other = images.rigid_matrix(np.array([0.5, -0.2, 0.4, 0.01, 0, -0.02]), CENTRE)
    translation, rotation = position_errors(true @ other, true, CENTRE)
    assert np.abs(translation).max() < 1e-9 and np.abs(rotation).max() < 1e-9
    assert sphere_error(true @ other, true, CENTRE) < 1e-9


def test_a_wrong_position_is_as_wrong_as_it_is():
    true, found = walk(), walk()
    found[4] = found[4] @ images.rigid_matrix(np.array([0.3, 0, -0.4, 0, np.radians(2), 0]), CENTRE)
    translation, rotation = position_errors(found, true, CENTRE)
    assert translation[4] == pytest.approx([0.3, 0, -0.4]) and rotation[4] == pytest.approx([0, 2, 0])
    assert np.abs(np.delete(translation, 4, axis=0)).max() < 1e-9


def test_motion_error_forgives_the_reference_and_nothing_else():
    rng = np.random.default_rng(0)
    true = rng.standard_normal((30, 50, 3))
    offset = np.array([3.0, 0, 0])
    assert away((true + offset) - true) == pytest.approx(0)
    wrong = true.copy()
    wrong[::2] += [2.0, 0, 0]  # every other volume is off
    assert away(wrong - true) == pytest.approx(1.0)


def test_normalisation_error_of_a_known_shift(tmp_path):
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    shape = (12, 12, 12)
    places = images.apply(affine, np.moveaxis(np.indices(shape), 0, -1).astype(float))
    true = nib.Nifti1Image(places + np.array([3.0, 0, 4.0]), affine)
    grey = nib.Nifti1Image(np.pad(np.ones((6, 6, 6)), 3), affine)
    shift = np.eye(4)
    shift[:3, 3] = [3.0, 0, 0]
    images.write_matrix(shift, tmp_path / "shift.mat")
    found, affine_part, nothing = normalisation_error(true, grey, tmp_path / "shift.mat")
    assert (found, affine_part, nothing) == pytest.approx((4, 4, 5), abs=1e-3)


def test_correlation_is_that_of_numpy_and_nan_for_constants():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 3)), rng.standard_normal((40, 3))
    a[:, 2] = 1
    found = correlation(a, b)
    assert found[0] == pytest.approx(np.corrcoef(a[:, 0], b[:, 0])[0, 1])
    assert np.isnan(found[2])


def test_coregistration_is_judged_in_the_volumes_whatever_volume_is_the_reference():
    true_motion = walk(5)
    true = images.rigid_matrix(np.array([3.0, -2, 1, 0.05, 0, 0]), np.zeros(3))
    to_reference = true_motion[2] @ true  # the third volume is the reference
    positions = true_motion @ np.linalg.inv(true_motion[2])
    assert coregistration_error(to_reference, positions, true, true_motion, CENTRE) == pytest.approx(0, abs=1e-9)
    wrong = images.rigid_matrix(np.array([0, 1.5, 0, 0, 0, 0]), np.zeros(3)) @ to_reference
    assert coregistration_error(wrong, positions, true, true_motion, CENTRE) == pytest.approx(1.5)
