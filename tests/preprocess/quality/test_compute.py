"""Quality numbers of small images, by hand; shifts, left-right flips and artefacts, on images made to have them."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from bolt.config import load_registration
from bolt.preprocess import images, registration, tissues
from bolt.preprocess.quality import compute
from bolt.preprocess.quality.compute import _mirrored, coregistration_numbers, ghost_ratio, shift_margin, slice_jumps
from bolt.preprocess.registration import normalised_mutual_information

SHAPE, SIZE = (24, 22, 20), 2.0
AFFINE = np.diag([SIZE, SIZE, SIZE, 1.0])
RANDOM = np.random.default_rng(0)
SETTINGS = load_registration("testing")


def box(start: int, end: int) -> np.ndarray:
    data = np.zeros(SHAPE)
    data[start:end, 5:17, 5:15] = 1
    return data


def save(folder: Path, **arrays: np.ndarray) -> dict[str, Path]:
    for name, data in arrays.items():
        images.save(data, AFFINE, folder / f"{name}.nii.gz")
    return {name: folder / f"{name}.nii.gz" for name in arrays}


@pytest.fixture
def template(tmp_path: Path) -> Path:
    folder = tmp_path / "template"
    folder.mkdir()
    head = 100 * RANDOM.random(SHAPE)
    save(folder, brain_mask=box(4, 16), T1w=head)
    return folder


def test_anatomy(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = images.load(template / "T1w.nii.gz")[0]
    warped = np.where(box(4, 16) > 0, -(head**3), RANDOM.random(SHAPE))  # another contrast; nonsense outside the brain
    images.write_matrix(np.eye(4), tmp_path / "still.txt")
    paths = save(tmp_path, warped=warped, mask=box(6, 18)) | {"forward": tmp_path / "still.txt"}
    monkeypatch.setattr(compute, "normalisation_evidence", lambda *given: {"given": given})
    numbers = compute.anatomical_numbers(paths, template)
    assert numbers["template_mask_dice"] == pytest.approx(10 / 12)  # 10 of 12 layers are shared
    assert numbers["brain_ml"] == pytest.approx(12 * 12 * 10 * 8 / 1000)
    assert numbers["template_nmi"] > 0.4 and numbers["template_shift_margin"] > 3
    assert numbers["given"] == (paths, template)


def test_functional(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brain, covered = box(4, 16), box(7, 18)
    tsnr = np.where(covered > 0, RANDOM.uniform(40, 60, SHAPE), 900)
    tsnr[7:9] = 200  # the median is not the mean
    bold = (100 * brain[..., None] + RANDOM.normal(0, 1, (*SHAPE, 12))).astype(np.float32)
    reference = bold.mean(-1) + 8 * np.roll(brain, SHAPE[0] // 2, 0)  # a ghost of 8 %
    natives = {"native_reference": reference, "native_corrected": 2 * brain, "native_mask": brain}
    paths = save(tmp_path, mask=covered, tsnr=tsnr, t1w=brain, t1w_mask=brain, **natives)
    bold[:, :, 9, 5] += 40  # a slice that jumps
    bold[..., 0] *= 1 + 0.1 * np.arange(SHAPE[2])  # not yet steady, more in some slices than in others
    nib.save(nib.Nifti1Image(bold, AFFINE), tmp_path / "bold.nii.gz")
    moved = [np.nan, 0.1, 0.2, 0.9, *[0.1] * 8]
    table = pd.DataFrame({"framewise_displacement": moved, "std_dvars": [np.nan, 1.0, 1.2, 1.7, *[1.1] * 8]})
    table = table.assign(non_steady_state_outlier00=[1, *[0] * 11])
    table.to_csv(tmp_path / "confounds.tsv", sep="\t", index=False, na_rep="n/a")
    images.write_matrix(np.eye(4), tmp_path / "pose.txt")
    monkeypatch.setattr(compute, "coregistration_numbers", lambda *given: {"given": given})
    paths |= {"confounds": tmp_path / "confounds.tsv", "raw": tmp_path / "bold.nii.gz"}
    paths |= {"bold_to_t1w": tmp_path / "pose.txt"}
    numbers = compute.functional_numbers(paths, {"coregistration_mask_dice": 0.87}, template, SETTINGS)
    *given, matrix, used = numbers.pop("given")
    assert 1 <= numbers.pop("slice_jumps") < 10  # with the first volume 12
    expected = {"n_volumes": 12, "coregistration_mask_dice": 0.87, "template_brain_covered": 9 / 12}
    expected |= {"mean_fd": (0.1 + 0.2 + 0.9 + 0.8) / 11, "max_fd": 0.9, "share_moved": 1 / 11}
    expected |= {"mean_std_dvars": (1 + 1.2 + 1.7 + 8.8) / 11, "share_spikes": 1 / 11, "ghost_ratio": 0.08}
    assert numbers == pytest.approx(expected | {"median_tsnr": np.median(tsnr[covered > 0])}, rel=1e-3, abs=0.02)
    assert used is SETTINGS and (matrix == np.eye(4)).all()
    for image, name in zip(given, ("native_corrected", "native_mask", "t1w", "t1w_mask"), strict=True):
        np.testing.assert_array_equal(image.numpy(), images.read(paths[name]).numpy())


def blobs(seed: int, size: int = 40, sigma: float = 2.0) -> np.ndarray:
    data = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(size,) * 3), sigma)
    return data / data.std()


def test_mutual_information_of_equal_of_independent_and_of_few_voxels():
    a, b = (np.random.default_rng(seed).normal(size=20_000) for seed in (0, 1))
    assert normalised_mutual_information(a, a) == pytest.approx(1)
    assert normalised_mutual_information(a, -(a**3)) > 0.4  # the same with another contrast
    assert normalised_mutual_information(a, b) < 0.01
    assert normalised_mutual_information(a, np.ones(20_000)) == 0
    assert normalised_mutual_information(a[:2000], a[:2000]) == pytest.approx(1)
    assert normalised_mutual_information(a[:2000], b[:2000]) < 0.05
    for few in (0, 999):
        assert normalised_mutual_information(a[:few], a[:few]) == 0


@pytest.mark.parametrize(("away", "informative"), [(0, True), (-90, False), (-300, False)])
def test_a_mirror_image_has_its_own_mask_and_is_no_rival_if_it_missed_the_brain(monkeypatch, away, informative):
    affine, brain = np.diag([4.0, 4, 4, 1]), np.zeros((40, 40, 40))
    brain[5:20, 5:-5, 5:-5] = 1  # on one side
    t1w, bold, mask, whole = (
        images.to_ants(data, affine) for data in (blobs(0) + 5, 5 - blobs(0), brain, np.ones(brain.shape))
    )
    mirror_matrix, apart = np.eye(4), np.eye(4)
    mirror_matrix[0, 3], apart[0, 3] = away, 76  # mm; the latter leaves one layer of voxels in common

    def registered(mirror, mirror_mask, *_):
        np.testing.assert_array_equal(mirror_mask.numpy(), brain[::-1])
        return mirror_matrix

    monkeypatch.setattr(compute, "_register_mirrored", registered)
    numbers = coregistration_numbers(bold, mask, t1w, whole, np.eye(4), SETTINGS)
    assert numbers["coregistration_nmi"] > 0.3 and numbers["coregistration_shift_margin"] > 2
    assert ("coregistration_flip_margin" in numbers) is informative
    assert set(coregistration_numbers(bold, mask, t1w, whole, apart, SETTINGS).values()) == {0.0}


def test_the_margin_falls_when_images_are_ten_millimetres_apart():
    truth = blobs(0)
    other = -truth + 0.5 * blobs(1)
    mask = np.zeros(truth.shape, bool)
    mask[8:-8, 8:-8, 8:-8] = True
    spacing = np.full(3, 3.0)
    assert shift_margin(truth, other, mask, spacing) > 3
    for axis in range(3):
        assert shift_margin(truth, np.roll(other, 3, axis), mask, spacing) < 0.7
    assert shift_margin(truth, other[::-1], mask, spacing) < 1.5


def test_a_ghost_is_seen_and_its_absence_as_well():
    brain = np.zeros((64, 64, 20), bool)
    brain[20:44, 22:42, 5:15] = True
    clean = 5 + 100.0 * brain + np.random.default_rng(0).normal(0, 1, brain.shape)
    assert abs(ghost_ratio(clean, brain)) < 0.01
    for axis in (0, 1):
        ghosted = clean + 8 * np.roll(brain, 32, axis)
        assert ghost_ratio(ghosted, brain) == pytest.approx(0.08, abs=0.015)
    assert ghost_ratio(clean, np.ones_like(brain)) is None  # no background
    assert ghost_ratio(-clean, brain) is None  # no signal


def test_a_slice_that_jumps_is_counted_and_a_head_that_does_is_not():
    rng = np.random.default_rng(0)
    brain = np.ones((10, 10, 8), bool)
    volumes = 100 + rng.normal(0, 1, (40, 10, 10, 8))
    assert slice_jumps(iter(volumes), brain) == 0
    volumes[20] += 30  # all slices jump: not an artefact
    assert slice_jumps(iter(volumes), brain) == 0
    volumes[11, :, :, 3] += 30
    assert slice_jumps(iter(volumes), brain) >= 1
    assert slice_jumps(iter(volumes[:2]), brain) == 0


@pytest.mark.parametrize(("spacing", "searched_at"), [(1.0, 2.0), (3.0, 3.0)])
def test_the_mirror_image_is_sought_where_the_mirrored_head_would_be(monkeypatch, spacing, searched_at):
    """The start maps a mirrored BOLD voxel to the place of the original, mirrored at the middle of the T1w's brain."""
    affine = np.diag([4.0, 4, 4, 1])
    affine[:3, 3] = [-30, -20, -10]
    brain = np.zeros((18, 16, 14))
    brain[3:10, 4:12, 4:10] = 1
    bold, mask = (images.to_ants(data, affine) for data in (5 + blobs(0)[:18, :16, :14], brain))
    sharp = np.diag([spacing, spacing, spacing, 1])
    head = np.zeros((20, 18, 16))
    head[4:11, 5:12, 5:12] = 1  # its middle is at x = 7 voxels
    t1w, t1w_mask = (images.to_ants(data, sharp) for data in (50 + 10 * blobs(1)[:20, :18, :16], head))
    pose = images.rigid_matrix(np.array([3.0, -2, 5, 0.1, 0.05, -0.08]), np.zeros(3))
    asked, answer = [], images.rigid_matrix(np.array([1.0, 2, 3, 0, 0.1, 0]), np.zeros(3))

    def rigid(fixed, moving, search_mask, start, centre):
        asked.append((fixed.numpy(), moving, search_mask.numpy(), start, centre))
        return answer

    monkeypatch.setattr(registration, "rigid", rigid)
    monkeypatch.setattr(registration, "seed", lambda given: asked.append(given))
    found = compute._register_mirrored(_mirrored(bold), _mirrored(mask), t1w, t1w_mask, pose, SETTINGS)
    np.testing.assert_allclose(found @ answer, np.eye(4), atol=1e-9)
    seeded, (fixed, moving, search_mask, start, centre) = asked
    assert seeded is SETTINGS
    for voxel in ([0, 0, 0], [17, 3, 5], [4, 15, 13]):
        i, j, k = voxel
        x, y, z = images.apply(np.linalg.inv(pose), images.apply(affine, np.array([i, j, k], float)))
        mirrored = images.apply(affine, np.array([17 - i, j, k], float))
        np.testing.assert_allclose(images.apply(start, mirrored), [2 * 7 * spacing - x, y, z], atol=1e-4)
    np.testing.assert_allclose(centre, images.mask_centre(brain[::-1], affine))
    np.testing.assert_allclose(fixed, (bold.numpy() * brain)[::-1])
    assert np.allclose(moving.spacing, searched_at)
    assert moving.numpy()[0, 0, 0] == 0 and moving.numpy().max() > 50  # the T1w is zero outside its brain
    np.testing.assert_array_equal(search_mask > 0, ndimage.binary_dilation(brain[::-1] > 0, ball(2)))


def ball(radius: int) -> np.ndarray:
    """Return the voxels within `radius` of the middle, as ITK's structuring element has them."""
    places = np.indices((2 * radius + 1,) * 3) - radius
    return (places**2).sum(0) <= (radius + 0.5) ** 2


def test_an_exchange_of_left_and_right_is_seen_wherever_the_head_was(head):
    t1w, brain = images.read(head.t1w), images.read(head.template / "brain_mask.nii.gz")
    pose = images.rigid_matrix(np.array([30.0, -20, 40, 0.1, 0.05, -0.3]), np.zeros(3))
    bold, mask = (130 - t1w.numpy()) * brain.numpy(), brain.numpy()
    for turn, low, high in ((1, 5, np.inf), (-1, 0, 0.2)):
        pair = (images.to_ants(data[::turn], pose @ images.affine_of(t1w)) for data in (bold, mask))
        numbers = coregistration_numbers(*pair, t1w, brain, pose, SETTINGS)
        assert low < numbers["coregistration_flip_margin"] < high, numbers


# ---- measures of normalisation fall as a brain is moved off the template -------------------------
@pytest.fixture(scope="module")
def brain(head, tmp_path_factory):
    """Use the template itself as a subject."""
    folder = tmp_path_factory.mktemp("evidence")
    t1w, mask = images.read(head.template / "T1w.nii.gz"), images.read(head.template / "brain_mask.nii.gz")
    fluid = tissues.segment(t1w, mask, 4.0)["csf"]
    images.write(fluid, folder / "csf.nii.gz")
    return {"t1w": head.template / "T1w.nii.gz", "csf": folder / "csf.nii.gz"}


def test_evidence_falls_with_the_distance(head, brain, tmp_path):
    evidence = []
    for distance in (0.0, 4.0, 10.0):
        matrix = images.rigid_matrix(np.array([distance, 0, 0, 0, 0, 0]), np.zeros(3))
        images.write_matrix(matrix, tmp_path / "moved.mat")
        moved = {**brain, "forward": tmp_path / "moved.mat"}
        evidence.append(compute.normalisation_evidence(moved, head.template))
    assert evidence[0]["template_correlation"] > 0.99 and evidence[0]["ventricle_dice"] > 0.95
    for before, after in pairwise(evidence):
        assert all(after[name] < before[name] - 0.02 for name in before)


@pytest.fixture
def bare(head, tmp_path):
    """A copy of the template, without ventricles."""
    return shutil.copytree(head.template, tmp_path / "template", ignore=shutil.ignore_patterns("vent*"))


@pytest.fixture
def still(brain, tmp_path):
    images.write_matrix(np.eye(4), tmp_path / "still.mat")
    return {**brain, "forward": tmp_path / "still.mat"}


def test_ventricles_that_were_staged_are_the_ones_compared_with(still, bare):
    computed = compute.normalisation_evidence(still, bare)
    compute.stage_ventricles(bare)
    staged = nib.load(bare / compute.VENTRICLES)
    assert staged.get_data_dtype() == np.uint8 and int(staged.header["sform_code"]) == images.MNI
    assert compute.normalisation_evidence(still, bare) == computed
    images.save(np.roll(staged.get_fdata(), 3, axis=1), staged.affine, bare / compute.VENTRICLES, "uint8")
    assert compute.normalisation_evidence(still, bare)["ventricle_dice"] < computed["ventricle_dice"] - 0.1


def test_fluid_far_from_the_ventricles_does_not_count(still, bare, tmp_path):
    """With 4-mm voxels, `NEAR` (6 mm) is one voxel along an axis."""
    whole, affine = images.load(bare / "brain_mask.nii.gz")
    known = np.zeros(whole.shape, bool)
    x, y, z = (n // 2 for n in whole.shape)
    known[x - 3 : x + 3, y - 3 : y + 3, z - 3 : z + 3] = True
    images.save(known, affine, bare / compute.VENTRICLES, "uint8")
    found = []
    for gap, length in ((0, 0), (0, 4), (3, 4)):
        fluid = known.copy()
        fluid[x + 3 + gap : x + 3 + gap + length, y - 3 : y + 3, z - 3 : z + 3] = True
        images.save(fluid, affine, tmp_path / "csf.nii.gz")
        found.append(compute.normalisation_evidence({**still, "csf": tmp_path / "csf.nii.gz"}, bare)["ventricle_dice"])
    none, near, far = found
    assert far == none != near
