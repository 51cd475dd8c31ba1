"""Quality numbers of small images, by hand; registrations are replaced by known positions."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.config import load_registration
from bolt.preprocess import images
from bolt.preprocess.quality import compute

SHAPE, SIZE = (24, 22, 20), 2.0
AFFINE = np.diag([SIZE, SIZE, SIZE, 1.0])
RANDOM = np.random.default_rng(0)


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
    inside = images.load(template / "brain_mask.nii.gz")[0] > 0
    warped = np.where(inside, -(head**3), RANDOM.random(SHAPE))  # another contrast, and nonsense outside the brain
    paths = save(tmp_path, warped=warped, mask=box(6, 18))
    images.write_matrix(np.eye(4), tmp_path / "still.txt")
    monkeypatch.setattr(
        compute, "normalisation_evidence", lambda given, place: {"evidence": given["mask"], "of": place}
    )
    numbers = compute.anatomical_numbers({**paths, "forward": tmp_path / "still.txt"}, template)
    assert numbers["template_mask_dice"] == pytest.approx(10 / 12)  # 10 of 12 layers are shared
    assert numbers["brain_ml"] == pytest.approx(12 * 12 * 10 * 8 / 1000)
    assert numbers["template_nmi"] > 0.4 and numbers["template_shift_margin"] > 3
    assert numbers["evidence"] == paths["mask"] and numbers["of"] == template


def test_functional(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brain, covered = box(4, 16), box(7, 18)
    tsnr = np.where(covered > 0, RANDOM.uniform(40, 60, SHAPE), 900)
    tsnr[7:9] = 200  # the median is not the mean
    bold = (100 * brain[..., None] + RANDOM.normal(0, 1, (*SHAPE, 12))).astype(np.float32)
    reference = bold.mean(-1) + 8 * np.roll(brain, SHAPE[0] // 2, 0)  # a ghost of 8 %
    natives = {"native_reference": reference, "native_corrected": 2 * brain, "native_mask": brain}
    paths = save(tmp_path, mask=covered, tsnr=tsnr, t1w=brain, t1w_mask=brain, **natives)
    bold[:, :, 9, 5] += 40  # a slice that jumps
    nib.save(nib.Nifti1Image(bold, AFFINE), tmp_path / "bold.nii.gz")
    moved = [np.nan, 0.1, 0.2, 0.9, *[0.1] * 8]
    table = pd.DataFrame({"framewise_displacement": moved, "std_dvars": [np.nan, 1.0, 1.2, 1.7, *[1.1] * 8]})
    table.to_csv(tmp_path / "confounds.tsv", sep="\t", index=False, na_rep="n/a")
    images.write_matrix(np.diag([1.0, 1.0, 1.0, 1.0]), tmp_path / "pose.txt")
    given = []
    monkeypatch.setattr(compute, "coregistration_numbers", lambda *inputs: given.append(inputs) or {"flip": 1.25})
    paths |= {"confounds": tmp_path / "confounds.tsv", "raw": tmp_path / "bold.nii.gz"}
    paths |= {"bold_to_t1w": tmp_path / "pose.txt"}
    settings = load_registration("testing")
    numbers = compute.functional_numbers(paths, {"coregistration_mask_dice": 0.87}, template, settings)
    assert numbers["n_volumes"] == 12 and numbers["coregistration_mask_dice"] == 0.87 and numbers["flip"] == 1.25
    assert numbers["mean_fd"] == pytest.approx((0.1 + 0.2 + 0.9 + 0.8) / 11)
    assert numbers["max_fd"] == 0.9 and numbers["share_moved"] == pytest.approx(1 / 11)
    assert numbers["mean_std_dvars"] == pytest.approx((1 + 1.2 + 1.7 + 8.8) / 11)
    assert numbers["share_spikes"] == pytest.approx(1 / 11)
    assert numbers["slice_jumps"] >= 1 and numbers["ghost_ratio"] == pytest.approx(0.08, abs=0.02)
    assert numbers["median_tsnr"] == pytest.approx(np.median(tsnr[covered > 0]), rel=1e-3)
    assert numbers["template_brain_covered"] == pytest.approx(9 / 12)
    bold_image, bold_mask, t1w, t1w_mask, matrix, used = given[0]
    assert used is settings
    names = {"native_corrected": bold_image, "native_mask": bold_mask, "t1w": t1w, "t1w_mask": t1w_mask}
    for name, image in names.items():
        np.testing.assert_array_equal(image.numpy(), images.read(paths[name]).numpy())
    np.testing.assert_array_equal(matrix, np.eye(4))
