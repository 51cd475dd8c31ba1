"""Single-band reference: aligned with the scan wherever the head was, and refused where it shows something else."""

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from bolt.io.errors import BoltWarning, DataError
from bolt.io.files import read_json
from bolt.preprocess import images
from bolt.preprocess.functional.sbref import align_sbref
from bolt.preprocess.functional.workflow import functional_names
from bolt.preprocess.registration import epi_mask
from tests.preprocess.conftest import SCAN, SETTINGS, SPACE, Head, moved, run_functional


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
    image = nib.Nifti1Image(np.stack([contrast - 1, contrast + 1], axis=-1)[::-1], affine @ flipped_x(volume.shape[0]))
    image.set_sform(image.affine, 1)
    nib.save(image, tmp_path / "sbref.nii.gz")
    return tmp_path / "sbref.nii.gz", position, contrast


def flipped_x(n: int) -> np.ndarray:
    flip = np.diag([-1.0, 1, 1, 1])
    flip[0, 3] = n - 1
    return flip


def test_it_is_brought_to_the_place_of_the_scan(reference, sbref):
    volume, affine, mask = reference
    path, position, contrast = sbref
    reference_image, brain = images.to_ants(volume, affine), images.to_ants(mask, affine)
    aligned, shift = align_sbref(path, reference_image, brain, SETTINGS)
    expected, inside = volume**2 / volume.max(), ndimage.binary_erosion(mask, iterations=2)
    known = moved(contrast, affine, np.linalg.inv(position))
    before, after, best = (np.corrcoef(v[inside], expected[inside])[0, 1] for v in (contrast, aligned.numpy(), known))
    assert before < 0.8 and after > best - 0.01 > 0.9
    centre = images.mask_centre(mask, affine)
    sphere = np.linalg.norm(images.apply(position, centre) - centre)  # least shift: that of the centre
    assert sphere < shift < sphere + 3


def test_another_brain_or_a_damaged_file_is_refused(reference, tmp_path):
    volume, affine, mask = reference
    noise = np.random.default_rng(0).random(volume.shape)
    images.save(noise, affine, tmp_path / "noise.nii.gz")
    (tmp_path / "cut.nii.gz").write_bytes((tmp_path / "noise.nii.gz").read_bytes()[:5000])
    for name, problem in (("noise", "does not show the brain of the scan"), ("cut", "cut off|damaged|truncated")):
        with pytest.raises(DataError, match=problem):
            align_sbref(tmp_path / f"{name}.nii.gz", *(images.to_ants(a, affine) for a in (volume, mask)), SETTINGS)


@pytest.mark.slow
def test_the_scan_is_coregistered_by_it(head, anat, sbref, tmp_path):
    func = run_functional(head, anat, tmp_path, size=8.0, sbref=sbref[0])
    about = read_json(func / f"{SCAN}_boldref.json")
    assert 1 < read_json(func / f"{SCAN}_desc-quality.json")["sbref_shift"] < 6
    assert "single-band reference" in " ".join(about["Methods"])
    assert any("sbref" in source for source in about["Sources"])
    matrix = images.read_matrix(func / functional_names(SCAN, SPACE)["bold_to_t1w"])
    centre = np.zeros(3)
    error = np.linalg.norm(images.apply(matrix, centre) - images.apply(head.motion[0] @ head.pose, centre))
    assert error < 4  # mm, one voxel; without alignment the SBRef alone is 3 mm away


@pytest.mark.slow
def test_one_that_cannot_be_used_costs_no_scan(head, anat, reference, tmp_path):
    noise = tmp_path / "noise.nii.gz"
    images.save(np.random.default_rng(0).random(reference[0].shape), reference[1], noise)
    with pytest.warns(BoltWarning, match="not used for the coregistration: it does not show the brain"):
        func = run_functional(head, anat, tmp_path, size=8.0, sbref=noise)
    numbers = read_json(func / f"{SCAN}_desc-quality.json")
    assert "does not show" in numbers["sbref_refusal"] and numbers["coregistration_mask_dice"] > 0.8
