"""Templates are taken from a filled TemplateFlow home without network access."""

from __future__ import annotations

import json
import socket

import nibabel as nib
import numpy as np
import pytest

from bolt.io.errors import ConfigError, DataError
from bolt.preprocess import templates
from tests.shared import shared_data

SPACE = "MNI152NLin6Asym"


def stage_part(folder, part, value, resolution=2):
    image = nib.Nifti1Image(np.full((4, 4, 4), value, np.uint8), np.diag([resolution, resolution, resolution, 1.0]))
    nib.save(image, folder / f"{folder.name}_res-0{resolution}_{part}.nii.gz")


@pytest.fixture
def home(tmp_path):
    for space in (SPACE, "MNI152NLin2009cAsym"):
        folder = tmp_path / "templateflow" / f"tpl-{space}"
        folder.mkdir(parents=True)
        (folder / "template_description.json").write_text(json.dumps({"Name": "x", "Identifier": space}))
    for part, value in (("T1w", 5), ("desc-brain_T1w", 6), ("desc-brain_mask", 1)):
        stage_part(tmp_path / "templateflow" / f"tpl-{SPACE}", part, value)
    return tmp_path / "templateflow"


def test_a_missing_file_says_how_to_fill_the_home(home, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=SPACE):
        templates.stage_template("MNI305x", 2.0, tmp_path / "out", home)

    def no_route(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("templateflow.client.TemplateFlowClient.get", no_route)
    mask = next(home.rglob("*brain_mask.nii.gz"))
    mask.write_bytes(b"")  # not fetched yet
    with pytest.raises(DataError, match=r"no route to host.*TEMPLATEFLOW_HOME"):
        templates.stage_template(SPACE, 2.0, tmp_path / "out", home)
    monkeypatch.undo()
    mask.unlink()
    with pytest.raises(DataError, match="TEMPLATEFLOW_HOME") as error:
        templates.stage_template(SPACE, 2.0, tmp_path / "out", home)
    assert str(home) in error.value.where


def test_a_template_with_cohorts_is_a_template_for_each(home, tmp_path):
    for cohort in (1, 2):
        folder = home / "tpl-MNIInfant" / f"cohort-{cohort}"
        folder.mkdir(parents=True)
        for part in ("T1w", "desc-brain_mask"):
            stage_part(folder, part, cohort)
            made = folder / f"cohort-{cohort}_res-02_{part}.nii.gz"
            made.rename(folder / f"tpl-MNIInfant_{made.name}")
    with pytest.raises(ConfigError, match="Known: MNIInfant_cohort-1, MNIInfant_cohort-2"):
        templates.stage_template("MNIInfant", 2.0, tmp_path / "out", home)
    templates.stage_template("MNIInfant_cohort-2", 2.0, tmp_path / "out", home)
    assert nib.load(tmp_path / "out/T1w.nii.gz").get_fdata().max() == 2


def test_the_phantoms_template_needs_no_download(tmp_path):
    templates.stage_template(templates.PHANTOM_SPACE, 6.0, tmp_path / "out")
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["T1w.nii.gz", "brain_mask.nii.gz", "gm.nii.gz"]
    images = [nib.load(tmp_path / "out" / name) for name in names]
    assert len({image.shape for image in images}) == 1
    head, brain = images[0].get_fdata(), images[1].get_fdata() > 0
    assert (head[~brain] > 0.2 * head[brain].mean()).any()  # a skull around the brain


@pytest.mark.parametrize("space", ["MNI152NLin6Asym", "MNI152NLin2009cAsym"])
def test_a_filled_home_needs_no_network(space, tmp_path, monkeypatch):
    """Real files are staged while every connection is refused."""
    home = shared_data("templateflow")
    if not (home / f"tpl-{space}").is_dir():
        pytest.skip(f"the TemplateFlow home does not hold {space}")

    def refused(*args):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refused)
    templates.stage_template(space, 2.0, tmp_path, home)
    brain, head = (nib.load(tmp_path / name) for name in ("brain_mask.nii.gz", "T1w.nii.gz"))
    np.testing.assert_array_equal(brain.affine, head.affine)
    litres = (np.asarray(brain.dataobj) > 0).sum() * np.prod(brain.header.get_zooms()) / 1e6
    assert 1.5 < litres < 2.2


def test_the_other_mni_template_is_taken_with_its_grey_matter(home, tmp_path):
    """MNI152NLin2009cAsym has grey-matter probabilities at both resolutions in TemplateFlow."""
    for resolution in (1, 2):
        for part in ("T1w", "desc-brain_mask", "label-GM_probseg"):
            stage_part(home / "tpl-MNI152NLin2009cAsym", part, resolution, resolution)
        for part in ("desc-brain_T1w", "label-WM_probseg"):  # not the skull-stripped head, nor another tissue
            stage_part(home / "tpl-MNI152NLin2009cAsym", part, 9, resolution)
    templates.stage_template("MNI152NLin2009cAsym", 2.0, tmp_path / "out", home)
    made = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert made == ["T1w.nii.gz", "brain_mask.nii.gz", "gm.nii.gz"]
    assert all(nib.load(tmp_path / "out" / name).get_fdata().max() == 2 for name in made)
