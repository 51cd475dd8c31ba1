"""Measures of normalisation fall as a brain is moved off the template."""

from __future__ import annotations

import shutil
from itertools import pairwise

import nibabel as nib
import numpy as np
import pytest

from bolt.preprocess import images, tissues
from bolt.preprocess.quality.compute import VENTRICLES, normalisation_evidence, stage_ventricles


@pytest.fixture(scope="module")
def brain(head, tmp_path_factory):
    """Use the template itself as a subject, and make an atlas of its grey matter."""
    folder = tmp_path_factory.mktemp("evidence")
    t1w, mask = images.read(head.template / "T1w.nii.gz"), images.read(head.template / "brain_mask.nii.gz")
    probabilities = tissues.segment(t1w, mask, 4.0)
    paths = {"t1w": head.template / "T1w.nii.gz"}
    for tissue, image in probabilities.items():
        paths[tissue] = folder / f"{tissue}.nii.gz"
        images.write(image, paths[tissue])
    atlas = folder / "atlas.nii.gz"
    images.save(probabilities["gm"].numpy() > 0.5, images.affine_of(t1w), atlas, "uint8")
    return paths, atlas


def test_evidence_falls_with_the_distance(head, brain, tmp_path):
    paths, atlas = brain
    evidence = []
    for distance in (0.0, 4.0, 10.0):
        matrix = images.rigid_matrix(np.array([distance, 0, 0, 0, 0, 0]), np.zeros(3))
        images.write_matrix(matrix, tmp_path / "moved.mat")
        evidence.append(normalisation_evidence({**paths, "forward": tmp_path / "moved.mat"}, head.template, atlas))
    assert evidence[0]["template_correlation"] > 0.99 and evidence[0]["ventricle_dice"] > 0.95
    grey = nib.load(paths["gm"]).get_fdata()
    assert evidence[0]["gm_in_atlas"] == pytest.approx(grey[grey > 0.5].sum() / grey.sum(), rel=1e-3)
    for before, after in pairwise(evidence):
        assert all(after[name] < before[name] - 0.02 for name in before)


@pytest.fixture
def template(head, tmp_path):
    """A copy of the template, without ventricles."""
    folder = tmp_path / "template"
    folder.mkdir()
    for name in ("T1w.nii.gz", "brain_mask.nii.gz"):
        shutil.copy(head.template / name, folder)
    return folder


@pytest.fixture
def still(brain, tmp_path):
    images.write_matrix(np.eye(4), tmp_path / "still.mat")
    return {**brain[0], "forward": tmp_path / "still.mat"}


def test_ventricles_that_were_staged_are_the_ones_compared_with(still, template):
    computed = normalisation_evidence(still, template)
    assert set(computed) == {"ventricle_dice", "template_correlation"}  # without an atlas its measure is left out
    stage_ventricles(template)
    staged = nib.load(template / VENTRICLES)
    assert staged.get_data_dtype() == np.uint8 and int(staged.header["sform_code"]) == images.MNI
    assert normalisation_evidence(still, template) == computed
    images.save(np.roll(staged.get_fdata(), 3, axis=1), staged.affine, template / VENTRICLES, "uint8")
    assert normalisation_evidence(still, template)["ventricle_dice"] < computed["ventricle_dice"] - 0.1


def test_fluid_far_from_the_ventricles_does_not_count(still, template, tmp_path):
    """With 4-mm voxels, `NEAR` (6 mm) is one voxel along an axis."""
    whole, affine = images.load(template / "brain_mask.nii.gz")
    known = np.zeros(whole.shape, bool)
    x, y, z = (n // 2 for n in whole.shape)
    known[x - 3 : x + 3, y - 3 : y + 3, z - 3 : z + 3] = True
    images.save(known, affine, template / VENTRICLES, "uint8")
    found = []
    for gap, length in ((0, 0), (0, 4), (3, 4)):
        fluid = known.copy()
        fluid[x + 3 + gap : x + 3 + gap + length, y - 3 : y + 3, z - 3 : z + 3] = True
        images.save(fluid, affine, tmp_path / "csf.nii.gz")
        found.append(normalisation_evidence({**still, "csf": tmp_path / "csf.nii.gz"}, template)["ventricle_dice"])
    none, near, far = found
    assert far == none != near
