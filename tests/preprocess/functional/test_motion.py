"""Head motion is recovered from volumes moved by known amounts, and followed in one interpolation."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest

from bolt.config import load_registration
from bolt.io.errors import DataError
from bolt.preprocess import images
from bolt.preprocess.functional import motion
from bolt.preprocess.functional.confounds import write_motion
from bolt.preprocess.functional.motion import HeadMotion, _sampled, motion_reference
from bolt.preprocess.functional.workflow import resample_bold
from tests.preprocess.conftest import moved

SETTINGS = load_registration("fast")
POINTS = np.array([[60, 0, 0], [-60, 0, 0], [0, 70, 0], [0, -70, 0], [0, 0, 50]], dtype=float)


@pytest.fixture(scope="module")
def volume(head) -> tuple[np.ndarray, np.ndarray]:
    scan = nib.load(head.bold)
    return np.asarray(scan.dataobj[..., 0], dtype=np.float32), scan.affine


def test_large_movements_and_brightness_that_changes_are_followed(volume):
    """The workflow's test has small movements."""
    data, affine = volume
    truth = [images.rigid_matrix(np.array([2.0, -3, 1, 0.03, -0.04, 0.02]) * size, np.zeros(3)) for size in (0, 1, 1.5)]
    estimator = HeadMotion(data, data > 20, affine, SETTINGS)
    estimated = estimator.positions(1.05 * moved(data, affine, matrix) for matrix in truth)
    for matrix, true, most in zip(estimated, truth, (0.02, 0.1, 0.1), strict=True):
        assert np.linalg.norm(images.apply(matrix, POINTS) - images.apply(true, POINTS), axis=1).mean() < most


def test_one_bad_volume_does_not_spoil_the_reference(volume):
    data, affine = volume
    rng, away = np.random.default_rng(0), images.rigid_matrix(np.array([9.0, 0, 9, 0, 0.2, 0]), np.zeros(3))
    volumes = [moved(data, affine, away), *[data] * 6]
    volumes = [(one + rng.normal(0, 1, data.shape)).astype(np.float32) for one in volumes]
    reference, mask = motion_reference(volumes, affine, SETTINGS)
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


AFFINE = np.array([[3.0, 0, 0, -15], [0, 3, 0, -12], [0, 0, 3, -18], [0, 0, 0, 1]])
SHAPE = (11, 9, 12)


def grid_points() -> np.ndarray:
    return images.apply(AFFINE, np.argwhere(np.ones(SHAPE)).astype(float))


def test_motion_is_followed():
    """A head that moves by one voxel is sampled one voxel further on."""
    volume = np.random.default_rng(0).normal(100, 10, SHAPE).astype(np.float32)
    later = np.roll(volume, 1, axis=1)
    position = images.rigid_matrix(np.array([0, 3.0, 0, 0, 0, 0]), np.zeros(3))
    (values,) = motion.resample([later], AFFINE, position[None], grid_points())
    np.testing.assert_allclose(values.reshape(SHAPE)[:, :-1], volume[:, :-1], rtol=1e-4)


@pytest.mark.parametrize(("n_volumes", "n_moved", "lost"), [(2, 1, True), (19, 1, True), (20, 1, False), (40, 3, True)])
def test_field_holds_what_nearly_all_volumes_have_acquired(n_volumes, n_moved, lost):
    """Up to a twentieth of them may be elsewhere."""
    positions = np.repeat(np.eye(4)[None], n_volumes, axis=0)
    positions[-n_moved:] = images.rigid_matrix(np.array([0, 0, 6.0, 0, 0, 0]), np.zeros(3))
    inside = motion.field_mask(grid_points(), positions, SHAPE, AFFINE).reshape(SHAPE)
    assert inside[:, :, :-2].all()
    assert inside[:, :, -2:].any() != lost


def test_a_volume_that_is_dropped_costs_no_voxel_and_one_that_costs_all_is_named(tmp_path):
    brain = np.zeros((20, 20, 20))
    brain[4:16, 4:16, 4:16] = 1
    files = {name: str(tmp_path / f"{name}.nii.gz") for name in ("bold", "t1w_mask", "wm", "csf", "deep")}
    affine = np.diag([4.0, 4, 4, 1])
    scan = nib.Nifti1Image((100 * brain[..., None] + np.arange(8)).astype(np.float32), affine)
    nib.save(scan, files["bold"])
    images.save(brain, affine, files["t1w_mask"])
    for name in ("wm", "csf", "deep"):
        images.save(0 * brain, affine, files[name])
    images.write_matrix(np.eye(4), tmp_path / "still.txt")
    positions = np.repeat(np.eye(4)[None], 8, axis=0)
    positions[:2, 0, 3] = [20, 200]  # mm
    write_motion(positions, np.full(3, 40.0), tmp_path / "motion.tsv")
    still = dict.fromkeys(("bold_to_t1w", "t1w_to_space"), str(tmp_path / "still.txt"))
    keys = {**files, **still, "motion": str(tmp_path / "motion.tsv"), "template": files["t1w_mask"]}
    keys |= {"resolution": 4.0, "tr": 2.0, "slice_timing": True, "output": "native"}
    np.testing.assert_array_equal(images.load(resample_bold(tmp_path, **keys, unsteady=2)["mask"])[0], brain)
    with pytest.raises(DataError, match=r"volume 1 \(counted from 0\) alone lacks 100% of the brain"):
        resample_bold(tmp_path, **keys, unsteady=1)


def test_output_reaches_a_little_beyond_the_brain():
    brain = np.zeros(SHAPE, dtype=bool)
    brain[5, 4, 6] = True
    area = motion.output_area(brain, AFFINE)
    assert area[3:8, 4, 6].all() and not area[2, 4, 6] and not area[8, 4, 6]


def test_targets_are_where_their_transforms_lead(tmp_path):
    """A template whose T1w lies 3 mm on along x, and whose BOLD lies 4 mm further along y."""
    images.save(np.ones(SHAPE), AFFINE, tmp_path / "template.nii.gz")
    for name, shift in (("t1w_to_space", [3.0, 0, 0]), ("bold_to_t1w", [0, 4.0, 0])):
        images.write_matrix(images.rigid_matrix(np.r_[shift, 0, 0, 0], np.zeros(3)), tmp_path / f"{name}.txt")
    files = [str(tmp_path / f"{name}.txt") for name in ("t1w_to_space", "bold_to_t1w")]
    target = motion.template_target(tmp_path / "template.nii.gz", 3.0, *files)
    np.testing.assert_allclose(target.points.reshape(-1, 3), grid_points() + np.array([3, 4, 0]), atol=1e-3)
    assert target.shape == SHAPE and target.from_t1w == files[:1] and target.code == images.MNI
    np.testing.assert_allclose(target.affine, AFFINE)
    native = motion.native_target(SHAPE, AFFINE, files[1], tmp_path)
    np.testing.assert_allclose(native.points.reshape(-1, 3), grid_points(), atol=1e-3)
    np.testing.assert_allclose(images.read_matrix(native.from_t1w[0])[:3, 3], [0, -4, 0], atol=1e-6)
    assert native.code == images.SCANNER and native.points.dtype == np.float32
