"""Coregistration by the boundary of cortex, on a folded ball whose place is known, and by a single-band reference.

The latter is aligned with the scan wherever the head was, and refused where it shows something else.
"""

from __future__ import annotations

import re

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from bolt.io.errors import BoltWarning
from bolt.io.files import read_json
from bolt.preprocess import images
from bolt.preprocess.functional import coregistration
from bolt.preprocess.functional.coregistration import align_sbref, boundary_cost, cortical_boundary, refine
from bolt.preprocess.functional.workflow import functional_names, place_sbref
from bolt.preprocess.registration import epi_mask
from tests.preprocess.conftest import SCAN, SETTINGS, SPACE, Head, moved, run_functional

TRUE = images.rigid_matrix(np.array([1.0, -0.8, 0.9, 0.02, -0.01, 0.015]), np.zeros(3))
"""T1w points to BOLD points."""


def tissues(shape, affine, to_t1w):
    """Shares of grey and white matter in the voxels of a grid: cortex, 3 mm thick, around white matter with folds."""
    points = images.apply(to_t1w @ affine, np.moveaxis(np.indices(shape), 0, -1).astype(float))
    radius = np.linalg.norm(points, axis=-1)
    x, y, z = np.moveaxis(points / np.maximum(radius, 1e-6)[..., None], -1, 0)
    depth = radius - 32 - 5 * np.sin(7 * x + 2) * np.sin(6 * y) - 4 * np.sin(8 * z + 1)
    white, brain = (np.clip(0.5 - (depth - edge) / 2, 0, 1) for edge in (0, 3))
    return brain - white, white


def grid(size, n):
    affine = np.diag([size, size, size, 1.0])
    affine[:3, 3] = -size * (n - 1) / 2
    return (n, n, n), affine


@pytest.fixture(scope="module")
def t1w():
    """Grey matter, white matter, T1w and brain mask."""
    shape, affine = grid(1.5, 64)
    grey, white = tissues(shape, affine, np.eye(4))
    return [images.to_ants(part, affine) for part in (grey, white, 60 * grey + 100 * white, grey + white > 0.5)]


def bold(contrast, noise=5.0):
    shape, affine = grid(3.0, 34)
    grey, white = tissues(shape, affine, np.linalg.inv(TRUE))
    values = (100 + contrast / 2) * grey + (100 - contrast / 2) * white + 130 * (1 - grey - white)  # fluid is brightest
    values += ndimage.gaussian_filter(np.random.default_rng(0).normal(0, noise, shape), 0.7)
    return images.to_ants(values, affine), images.to_ants(grey + white > 0.5, affine)


def error(matrix):
    points = 40 * np.vstack([np.eye(3), -np.eye(3)])
    return np.linalg.norm(images.apply(matrix, points) - images.apply(TRUE, points), axis=1).mean()


def test_the_boundary_lies_between_the_tissues(t1w):
    grey, white, *_ = t1w
    found = cortical_boundary(white, grey)
    to_voxels = np.linalg.inv(images.affine_of(white))
    shares = [
        ndimage.map_coordinates(part.numpy(), images.apply(to_voxels, points).T, order=1)
        for part, points in ((white, found.middle), (white, found.inner), (grey, found.outer))
    ]
    assert abs(np.median(shares[0]) - 0.5) < 0.05
    assert shares[1].min() >= coregistration.MIN_WHITE - 1e-5 and shares[2].min() >= coregistration.MIN_GREY - 1e-5
    assert np.linalg.norm(found.inner - found.middle, axis=1) == pytest.approx(coregistration.INNER)
    assert np.linalg.norm(found.outer - found.middle, axis=1) == pytest.approx(coregistration.OUTER)


def test_excluded_places_are_no_boundary(t1w):
    grey, white, *_ = t1w
    left = images.to_ants(np.indices(white.shape)[0] < 32, images.affine_of(white))
    assert cortical_boundary(white, grey, left).middle[:, 0].min() > -1.5


def test_a_millimetre_is_found(t1w):
    grey, white, *head = t1w
    matrix, numbers = refine(*bold(12), *head, cortical_boundary(white, grey), np.eye(4))
    assert error(np.eye(4)) > 1.4 and error(matrix) < 0.4
    assert numbers["coregistration_method"] == "boundary" and numbers["boundary_shift"] == pytest.approx(1.5, abs=0.3)
    assert numbers["boundary_cost"] < numbers["boundary_cost_before"] < 1
    assert numbers["coregistration_nmi"] > numbers["boundary_nmi_before"]


@pytest.mark.parametrize(
    ("change", "because"),
    [
        ({"contrast": -60}, "no contrast"),
        ({"MAX_SHIFT": 1.0}, "moves the boundary by 1"),
        ({"MIN_POINTS": 10**6}, "points of the boundary have signal"),
        ({"NMI_TOLERANCE": -9.0}, "mutual information would fall"),
    ],
)
def test_a_fit_that_cannot_be_trusted_is_left_out(t1w, monkeypatch, change, because):
    grey, white, *head = t1w
    contrast = change.pop("contrast", 12)
    for name, value in change.items():
        monkeypatch.setattr(coregistration, name, value)
    matrix, numbers = refine(*bold(contrast), *head, cortical_boundary(white, grey), np.eye(4))
    np.testing.assert_array_equal(matrix, np.eye(4))
    assert numbers["coregistration_method"] == "mutual information" and because in numbers["boundary_refusal"]
    assert "boundary_nmi_before" not in numbers and numbers["coregistration_nmi"] > 0


def test_only_the_part_with_signal_counts(t1w):
    """Signal drops out of a third of the head, where there is noise instead."""
    grey, white, _, brain = t1w
    volume, mask = bold(12)
    lost = np.indices(volume.shape)[1] < 12
    noise = np.random.default_rng(1).uniform(0, 30, volume.shape)
    volume = volume.new_image_like(np.where(lost, noise, volume.numpy()).astype(np.float32))
    mask = mask.new_image_like(np.where(lost, 0, mask.numpy()).astype(np.float32))
    matrix, numbers = coregistration.fit_boundary(volume, mask, brain, cortical_boundary(white, grey), np.eye(4))
    assert "boundary_refusal" not in numbers and error(matrix) < 1


def test_the_gradient_of_the_cost_is_its_slope_also_beyond_the_edge():
    rng = np.random.default_rng(0)
    values = rng.uniform(50, 150, (6, 7, 8))
    boundary = coregistration.Boundary(*(rng.uniform(-1, 7, (200, 3)) for _ in range(3)))
    place = images.rigid_matrix(np.array([0.3, -0.2, 0.1, 0.05, -0.04, 0.03]), np.full(3, 3.0))
    cost, gradient = boundary_cost(values, boundary, place, 0.05)
    white, grey = (
        ndimage.map_coordinates(values, images.apply(place, points).T, order=1, mode="nearest")
        for points in (boundary.inner, boundary.outer)
    )
    assert cost == pytest.approx(1 - np.tanh(0.05 * 200 * (grey - white) / (grey + white)).mean())
    for entry in np.ndindex(3, 4):
        step = np.zeros((4, 4))
        step[entry] = 1e-7
        ends = [boundary_cost(values, boundary, place + sign * step, 0.05)[0] for sign in (1, -1)]
        assert gradient[entry] == pytest.approx((ends[0] - ends[1]) / 2e-7, rel=1e-3, abs=1e-6), entry


@pytest.fixture(scope="module")
def reference(head: Head):
    scan = nib.Nifti1Image.from_filename(head.bold)
    volume = np.asarray(scan.dataobj[..., 0], np.float32)
    return volume, scan.affine, epi_mask(volume, scan.affine)


@pytest.fixture
def sbref(reference, tmp_path):
    """An SBRef with more contrast, 3 mm and 2 degrees away, in two volumes and in another order of voxels."""
    volume, affine, mask = reference
    position = images.rigid_matrix(np.array([2, -1, 2.5, 0.02, 0.02, -0.02]), images.mask_centre(mask, affine))
    contrast = moved(volume**2 / volume.max(), affine, position)
    image = nib.Nifti1Image(np.stack([contrast - 1, contrast + 1], axis=-1), affine)
    nib.save(image.as_reoriented(nib.orientations.axcodes2ornt("LAS")), tmp_path / "sbref.nii.gz")
    return tmp_path / "sbref.nii.gz", position, contrast


def test_it_is_brought_to_the_place_of_the_scan(reference, sbref):
    volume, affine, mask = reference
    path, position, contrast = sbref
    aligned, shift = align_sbref(path, *(images.to_ants(data, affine) for data in (volume, mask)), SETTINGS)
    expected, inside = volume**2 / volume.max(), ndimage.binary_erosion(mask, iterations=2)
    known = moved(contrast, affine, np.linalg.inv(position))
    before, after, best = (np.corrcoef(v[inside], expected[inside])[0, 1] for v in (contrast, aligned.numpy(), known))
    assert before < 0.8 and after > best - 0.01 > 0.9
    centre = images.mask_centre(mask, affine)
    sphere = np.linalg.norm(images.apply(position, centre) - centre)  # least shift: that of the centre
    assert sphere < shift < sphere + 3


def test_another_brain_or_a_damaged_file_costs_no_scan(reference, tmp_path):
    volume, affine, mask = reference
    paths = {name: str(tmp_path / f"{name}.nii.gz") for name in ("noise", "cut", "reference", "mask")}
    for name, data in (("noise", np.random.default_rng(0).random(volume.shape)), ("reference", volume), ("mask", mask)):
        images.save(data, affine, paths[name])
    (tmp_path / "cut.nii.gz").write_bytes((tmp_path / "noise.nii.gz").read_bytes()[:5000])
    for name, problem in (("noise", "does not show the brain of the scan"), ("cut", "cut off|damaged|truncated")):
        with pytest.warns(BoltWarning, match=f"not used for the coregistration: .*({problem})"):
            made = place_sbref(tmp_path, SETTINGS, paths[name], paths["reference"], paths["mask"])
        assert made["coregistered"] == paths["reference"] and re.search(problem, made["sbref"]["sbref_refusal"])


@pytest.mark.slow
def test_the_scan_is_coregistered_by_it(head, anat, sbref, tmp_path):
    func = run_functional(head, anat, tmp_path, size=8.0, sbref=sbref[0])
    about = read_json(func / f"{SCAN}_boldref.json")
    assert 1 < read_json(func / f"{SCAN}_desc-quality.json")["sbref_shift"] < 6
    assert "single-band reference" in " ".join(about["Methods"])
    assert any("sbref" in source for source in about["Sources"])
    matrix = images.read_matrix(func / functional_names(SCAN, SPACE)["bold_to_t1w"])
    error = np.linalg.norm((matrix - head.motion[0] @ head.pose)[:3, 3])
    assert error < 4  # mm, one voxel; without alignment the SBRef alone is 3 mm away
