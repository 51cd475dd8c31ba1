"""The BIDS validator accepts the names and sidecars of the derivatives."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bolt.config import load_registration
from bolt.io.files import read_json, write_json
from bolt.preprocess.anatomical import init_anatomical_wf
from bolt.preprocess.functional.workflow import init_functional_wf
from bolt.preprocess.sidecars import describe_dataset, sidecar_of, write_bidsignore, write_sidecars
from bolt.report.pages.methods import load_references
from tests.preprocess.conftest import SCAN, SPACE

VALIDATOR = Path(sys.executable).with_name("bids-validator-deno")
SESSION, OTHER = "MNI152NLin6Asym", "sub-02_ses-a_"
"""Space and prefix of a second subject."""


@pytest.fixture
def derivatives(anat, func, tmp_path) -> Path:
    """The small head's derivatives, and the same as those of a session in another space."""
    raw, root = tmp_path / "raw", tmp_path / "derivatives"
    raw.mkdir()
    about = {"Name": "Study", "BIDSVersion": "1.8.0", "License": "CC0", "Authors": ["A. B.", "C. D."]}
    write_json(about, raw / "dataset_description.json")
    describe_dataset(root, raw, "study")
    for folder in (anat, func):
        shutil.copytree(folder.parent, root / "sub-01", dirs_exist_ok=True)
    for name in ("anat/status.json", f"func/{SCAN}_status.json", f"func/{SCAN}_crash.txt", f"figures/{SCAN}.html"):
        (root / "sub-01" / name).write_text("{}")
    session = shutil.copytree(root / "sub-01", root / "sub-02/ses-a")
    for path in session.glob("*/sub-01_*"):
        path.rename(path.with_name(path.name.replace("sub-01_", OTHER).replace(SPACE, SESSION)))
    images = [path for path in session.rglob("sub-*") if path.name.endswith((".nii.gz", ".h5", "xfm.txt"))]
    sources = [raw / f"sub-02/ses-a/func/{OTHER}bold.nii.gz", session / f"anat/{OTHER}desc-preproc_T1w.nii.gz"]
    write_sidecars(images, sources, Methods=["Text."], RepetitionTime=2.0, TaskName="rest")
    return root


def issues(root: Path) -> set[tuple[str, str]]:
    """Return severity and code of the issues that the validator finds."""
    if not VALIDATOR.exists():
        pytest.skip("bids-validator-deno is not installed")
    done = subprocess.run([VALIDATOR, root, "--format", "json"], capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        pytest.skip(f"bids-validator-deno does not run here: {done.stderr[-200:]}")
    return {(issue["severity"], issue["code"]) for issue in json.loads(done.stdout)["issues"]["issues"]}


def test_validator_accepts_the_derivatives_and_would_see_what_is_missing(derivatives):
    """An image without a sidecar, and a name that is not BIDS."""
    assert not issues(derivatives)
    anat = derivatives / "sub-01" / "anat"
    (anat / "sub-01_desc-preproc_T1w.json").unlink()
    shutil.copy(anat / "sub-01_desc-preproc_T1w.nii.gz", anat / "sub-01_brain.nii.gz")
    assert {("error", "SIDECAR_KEY_REQUIRED"), ("error", "NOT_INCLUDED")} <= issues(derivatives)


def test_what_a_failed_subject_leaves_is_passed_over(derivatives):
    empty = derivatives / "sub-03" / "anat" / "sub-03_desc-preproc_T1w.nii.gz"
    empty.parent.mkdir(parents=True)
    empty.touch()
    assert issues(derivatives)
    write_bidsignore(derivatives)
    assert not issues(derivatives)


def test_files_that_come_and_go_do_not_disturb(derivatives):
    """Other jobs write and rename files in the folder while they are listed."""
    anat = derivatives / "sub-01" / "anat"
    (anat / ".12-host.sub-01_desc-preproc_T1w.nii.gz").touch()
    (anat / "sub-01_desc-gone_T1w.nii.gz").symlink_to(anat / "gone.nii.gz")  # listed, but gone when opened
    write_bidsignore(derivatives)
    ignored = (derivatives / ".bidsignore").read_text()
    assert "host" not in ignored and "gone" not in ignored


def test_every_image_has_a_sidecar_that_names_its_sources(derivatives):
    images = sorted(derivatives.glob("sub-*/**/*.nii.gz"))
    abouts = {image.name: read_json(sidecar_of(image)) for image in images}
    assert len(images) > 10 and all(about["Description"] and about["Sources"] for about in abouts.values())
    bold = abouts[f"{OTHER}task-rest_space-{SESSION}_desc-preproc_bold.nii.gz"]
    assert bold["RepetitionTime"] == 2.0 and bold["TaskName"] == "rest" and "Methods" not in bold
    raw, own = (f"sub-02/ses-a/{name}.nii.gz" for name in (f"func/{OTHER}bold", f"anat/{OTHER}desc-preproc_T1w"))
    assert bold["Sources"] == [f"bids:raw:{raw}", f"bids::{own}"]
    mask = abouts["sub-01_desc-brain_mask.nii.gz"]
    assert mask["Type"] == "Brain" and mask["SpatialReference"] == "orig" and "RepetitionTime" not in mask


def test_description_names_program_and_raw_data(derivatives, tmp_path):
    about = read_json(derivatives / "dataset_description.json")
    assert about["DatasetType"] == "derivative" and about["License"] == "CC0"
    assert about["GeneratedBy"][0]["Name"] == "BolT" and about["GeneratedBy"][0]["Version"]
    assert about["DatasetLinks"]["raw"] == (tmp_path / "raw").as_uri() == about["SourceDatasets"][0]["URL"]


def test_workflows_carry_words_whose_references_exist():
    settings = load_registration("testing")
    for workflow in (
        init_anatomical_wf(settings),
        init_anatomical_wf(settings, average=True),
        init_functional_wf(settings, 2, 2, slice_timing=True),
        init_functional_wf(settings, 2, 2, output="native", steady_state=3, sbref=Path("sbref.nii.gz")),
    ):
        cited = set(re.findall(r"@(\w+)", workflow.__desc__))
        assert len(workflow.__desc__) > 80 and cited and cited <= set(load_references())
        assert not re.search(r"[{}]|  |\.\.", workflow.__desc__)
