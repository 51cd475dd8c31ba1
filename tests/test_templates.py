"""Templates come from a filled TemplateFlow home without a network."""

from __future__ import annotations

import json

import nibabel as nib
import numpy as np
import pytest

from bolt import templates
from bolt.errors import ConfigError, DataError

SPACE = "MNI152NLin6Asym"


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "templateflow" / f"tpl-{SPACE}"
    folder.mkdir(parents=True)
    for part, value in (("T1w", 5), ("desc-brain_T1w", 6), ("desc-brain_mask", 1)):
        image = nib.Nifti1Image(np.full((4, 4, 4), value, np.uint8), np.diag([2.0, 2, 2, 1]))
        nib.save(image, folder / f"tpl-{SPACE}_res-02_{part}.nii.gz")
    (folder / "template_description.json").write_text(json.dumps({"Name": "x", "Identifier": SPACE}))
    return folder.parent


def test_whole_head_and_mask_are_taken(home, tmp_path):
    templates.stage_template(SPACE, 2.0, tmp_path / "out", home)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["T1w.nii.gz", "brain_mask.nii.gz"]
    assert nib.load(tmp_path / "out" / "T1w.nii.gz").get_fdata().max() == 5  # not the one without a skull


def test_an_unknown_space_lists_the_known(home, tmp_path):
    with pytest.raises(ConfigError, match=SPACE):
        templates.stage_template("MNI305x", 2.0, tmp_path / "out", home)


def test_a_missing_file_says_how_to_fill_the_home(home, tmp_path):
    next(home.rglob("*brain_mask.nii.gz")).unlink()
    with pytest.raises(DataError, match="TEMPLATEFLOW_HOME") as error:
        templates.stage_template(SPACE, 2.0, tmp_path / "out", home)
    assert str(home) in error.value.where


def test_an_unfetched_file_without_a_network_says_how_to_fill_the_home(home, tmp_path, monkeypatch):
    next(home.rglob("*brain_mask.nii.gz")).write_bytes(b"")

    def no_route(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("templateflow.client.TemplateFlowClient.get", no_route)
    with pytest.raises(DataError, match=r"no route to host.*TEMPLATEFLOW_HOME"):
        templates.stage_template(SPACE, 2.0, tmp_path / "out", home)


def test_the_phantoms_template_needs_no_download(tmp_path):
    templates.stage_template(templates.PHANTOM_SPACE, 6.0, tmp_path / "out")
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["T1w.nii.gz", "brain_mask.nii.gz", "gm.nii.gz"]
    images = [nib.load(tmp_path / "out" / name) for name in names]
    assert len({image.shape for image in images}) == 1
    head, brain = images[0].get_fdata(), images[1].get_fdata() > 0
    assert (head[~brain] > 0.2 * head[brain].mean()).any()  # a skull around the brain
