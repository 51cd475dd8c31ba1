"""The anatomical and the functional workflow on a small head with known truth."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from bolt.io.errors import DataError
from bolt.io.files import read_json, read_table
from bolt.jobs.progress import at_step, step
from bolt.preprocess import anatomical, images
from bolt.preprocess.anatomical import anatomical_names, preprocess_anatomical
from bolt.preprocess.functional import workflow as functional
from bolt.preprocess.functional.confounds import read_motion
from bolt.preprocess.functional.workflow import functional_names
from bolt.preprocess.registration import dice
from tests.preprocess.conftest import MOVED, SCAN, SETTINGS, SPACE, VOLUMES, run_functional


@pytest.fixture
def made(anat, func) -> dict[str, Path]:
    """What was made of the head, by the workflows' ports."""
    t1w = {f"t1w_{port}": anat / name for port, name in anatomical_names("sub-01_", SPACE).items()}
    return t1w | {port: func / name for port, name in functional_names(SCAN, SPACE).items()}


def test_outputs_are_named_as_agreed(head, anat, func, made):
    assert all(path.stat().st_size > 0 for path in made.values())
    assert {path.name for folder in (anat, func) for path in (folder.parent / "figures").iterdir()} == {
        "sub-01_desc-tissues_T1w.webp",
        f"sub-01_space-{SPACE}_desc-normalisation_T1w.svg",
        f"{SCAN}_desc-carpetplot_bold.webp",
        f"{SCAN}_desc-coregistration_boldref.svg",
        f"{SCAN}_space-{SPACE}_desc-normalisation_boldref.webp",
        f"{SCAN}_space-{SPACE}_desc-tsnr_boldmap.webp",
    }
    assert read_json(anat / "sub-01_desc-quality.json")["template_mask_dice"] > 0.9
    bold, template = (nib.load(path) for path in (made["bold"], head.template / "T1w.nii.gz"))
    assert bold.shape == (*template.shape, VOLUMES) and bold.header.get_zooms()[3] == pytest.approx(2.0)
    np.testing.assert_allclose(bold.affine, template.affine, atol=1e-4)


def test_normalisation_undoes_most_of_the_deformation(head, made):
    """The median error of grey-matter points is much smaller than the deformation."""
    grey = images.read(head.template / "gm.nii.gz")
    where, affine = np.argwhere(grey.numpy() > 0.5), images.affine_of(grey)
    moved = images.places_of_grid(grey.shape, affine, [made["t1w_forward"]])[tuple(where.T)]
    # the head's value at q is the template's at q - shift(q), so q corresponds to p if q - shift(q) = p
    voxels = images.apply(np.linalg.inv(affine), moved)
    shift = np.stack([_at(head.warp_mm[..., k], voxels) for k in range(3)], axis=-1)
    error = np.linalg.norm(moved - shift - images.apply(affine, where), axis=1)
    before = np.median(np.linalg.norm(head.warp_mm[tuple(where.T)], axis=1))
    assert before > 4 and np.median(error) < 0.4 * before


def test_brain_mask_leaves_the_skull_out(head, made):
    mask = images.read(made["t1w_mask"]).numpy() > 0
    # the template's mask, deformed as the head was
    brain = images.read(head.template / "brain_mask.nii.gz").numpy()
    voxels = np.argwhere(np.ones(brain.shape)) - head.warp_mm.reshape(-1, 3) / 4.0
    assert dice(mask, _at(brain, voxels).reshape(brain.shape) > 0.5) > 0.93


POINTS = 60.0 * np.vstack([np.eye(3), -np.eye(3)])


def distance(one, other):
    return np.linalg.norm(images.apply(one, POINTS) - images.apply(other, POINTS), axis=1).mean()


def test_head_motion_and_the_pose_are_recovered(head, made):
    motion = read_motion(made["motion"])
    # relative to the first volume, because the position of the reference is not known beforehand
    relative = motion @ np.linalg.inv(motion[0])
    error = [distance(*pair) for pair in zip(relative, head.motion, strict=True)]
    assert np.median(error) < 0.1 and max(error) < 0.2
    assert distance(motion[0] @ images.read_matrix(made["bold_to_t1w"]), head.pose) < 1.0
    assert distance(np.eye(4), head.pose) > 8


def test_grey_matter_signal_survives(head, made):
    bold, mask = (nib.load(made[port]).get_fdata() for port in ("bold", "mask"))
    grey = nib.load(head.template / "gm.nii.gz").get_fdata() > 0.7
    assert np.corrcoef(bold[grey & (mask > 0)].mean(axis=0), head.signal)[0, 1] > 0.95
    assert (bold[mask > 0].min(axis=1) > 0).mean() > 0.98  # acquired in every volume


def test_confounds_are_complete(made):
    table = read_table(made["confounds"])
    assert len(table) == VOLUMES and table.iloc[1:].notna().all().all()
    assert np.isnan(table["framewise_displacement"][0]) and np.isnan(table["dvars"][0])
    assert table["framewise_displacement"].idxmax() == MOVED  # the sudden movement


@pytest.mark.parametrize("half", ["anatomical", "functional"])
def test_what_follows_the_workflow_is_named_in_a_crash_report(monkeypatch, tmp_path, half):
    """And steps get links as links, with the sidecar beside: DataLad's point into its annex."""
    module, seen, got = {"anatomical": anatomical, "functional": functional}[half], [], {}
    files = defaultdict(lambda: "made.tsv")
    for name in ("check_t1w", "check_image", "check_together", "read_slice_times", "link_or_copy", "write_json"):
        monkeypatch.setattr(module, name, lambda *_: None, raising=False)
    monkeypatch.setattr(module, "run", lambda *_, **inputs: got.update(inputs) or files)
    monkeypatch.setattr(module, "check_voxels", lambda *_: SimpleNamespace(shape=(1, 1, 1)), raising=False)
    monkeypatch.setattr(module, "write_sidecars", lambda *_, **__: seen.append(step()))
    monkeypatch.setattr(module.compute, f"{half}_numbers", lambda *_: seen.append(step()) or {})
    monkeypatch.setattr(module.pictures, f"draw_{half}", lambda *_: seen.append(step()))
    (tmp_path / "work").mkdir()
    link = tmp_path / "image.nii.gz"
    link.symlink_to("annex/key")
    at_step("resample")
    if half == "anatomical":
        names = {"prefix": "sub-01_", "more_t1w": [link]}
        preprocess_anatomical(link, tmp_path, SPACE, SETTINGS, tmp_path, tmp_path / "work", **names)
        assert [got["raw"], *got["more"]] == [str(link)] * 2
    else:
        run_functional(SimpleNamespace(bold=link, template=tmp_path), tmp_path, tmp_path)
        assert got["bold"] == str(link)
    assert seen == [f"{half}.sidecars", f"{half}.quality", f"{half}.pictures"]


def test_a_scan_that_is_cut_off_is_refused_before_work(head, anat, tmp_path):
    cut = tmp_path / "cut.nii.gz"
    cut.write_bytes(head.bold.read_bytes()[:-5000])
    with pytest.raises(DataError, match="cut off"):
        run_functional(head, anat, tmp_path, cut)
    assert not (tmp_path / "sub-01").exists()


def test_noise_without_a_head_says_so(head, tmp_path):
    """Bad data found inside a node raises a DataError that names the file."""
    spot = np.zeros((30, 30, 30), dtype=np.float32)
    spot[10:14, 10:14, 10:14] = np.random.default_rng(0).uniform(1, 2, (4, 4, 4))
    path = tmp_path / "sub-02_T1w.nii.gz"
    images.save(spot, np.diag([2.0, 2, 2, 1]), path)
    with pytest.raises(DataError) as error:
        preprocess_anatomical(path, head.template, SPACE, SETTINGS, tmp_path / "anat", tmp_path, prefix="sub-02_")
    assert error.value.where == str(path)


def _at(data: np.ndarray, voxels: np.ndarray) -> np.ndarray:
    return map_coordinates(data.astype(float), voxels.T, order=1)
