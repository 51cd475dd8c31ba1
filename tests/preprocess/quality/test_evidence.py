"""Measures of normalisation fall as a brain is moved off the template."""

from __future__ import annotations

import shutil
from itertools import pairwise

import nibabel as nib
import numpy as np
import pytest

from bolt.preprocess import images, tissues
from bolt.preprocess.quality.evidence import VENTRICLES, normalisation_evidence, stage_ventricles


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
    for before, after in pairwise(evidence):
        assert all(after[name] < before[name] - 0.02 for name in before)


def test_without_an_atlas_its_measure_is_left_out(head, brain, tmp_path):
    images.write_matrix(np.eye(4), tmp_path / "still.mat")
    evidence = normalisation_evidence({**brain[0], "forward": tmp_path / "still.mat"}, head.template)
    assert set(evidence) == {"ventricle_dice", "template_correlation"}


def test_ventricles_that_were_staged_are_the_ones_compared_with(head, brain, tmp_path):
    template = tmp_path / "template"
    template.mkdir()
    for name in ("T1w.nii.gz", "brain_mask.nii.gz"):
        shutil.copy(head.template / name, template)
    images.write_matrix(np.eye(4), tmp_path / "still.mat")
    paths = {**brain[0], "forward": tmp_path / "still.mat"}
    computed = normalisation_evidence(paths, template)
    stage_ventricles(template)
    assert normalisation_evidence(paths, template) == computed
    staged, affine = images.load(template / VENTRICLES)
    images.save(np.roll(staged, 3, axis=1), affine, template / VENTRICLES, "uint8")
    assert normalisation_evidence(paths, template)["ventricle_dice"] < computed["ventricle_dice"] - 0.1


def test_fluid_far_from_the_ventricles_does_not_count(head, brain, tmp_path):
    """With 4-mm voxels, `NEAR` (6 mm) is one voxel along an axis."""
    template = tmp_path / "template"
    template.mkdir()
    for name in ("T1w.nii.gz", "brain_mask.nii.gz"):
        shutil.copy(head.template / name, template)
    whole, affine = images.load(template / "brain_mask.nii.gz")
    known = np.zeros(whole.shape, bool)
    centre = tuple(n // 2 for n in whole.shape)
    known[tuple(slice(c - 3, c + 3) for c in centre)] = True
    images.save(known, affine, template / VENTRICLES, "uint8")
    images.write_matrix(np.eye(4), tmp_path / "still.mat")
    found = []
    for name, gap, length in (("none", 0, 0), ("near", 0, 4), ("far", 3, 4)):
        fluid = known.copy()
        start = centre[0] + 3 + gap
        fluid[start : start + length, centre[1] - 3 : centre[1] + 3, centre[2] - 3 : centre[2] + 3] = True
        images.save(fluid, affine, tmp_path / f"{name}.nii.gz")
        paths = {**brain[0], "csf": tmp_path / f"{name}.nii.gz", "forward": tmp_path / "still.mat"}
        found.append(normalisation_evidence(paths, template)["ventricle_dice"])
    none, near, far = found
    assert far == none != near


def test_ventricles_are_staged_as_whole_numbers_in_the_templates_space(head, tmp_path):
    for name in ("T1w.nii.gz", "brain_mask.nii.gz"):
        shutil.copy(head.template / name, tmp_path)
    stage_ventricles(tmp_path)
    staged = nib.load(tmp_path / VENTRICLES)
    assert staged.get_data_dtype() == np.uint8 and int(staged.header["sform_code"]) == images.MNI
