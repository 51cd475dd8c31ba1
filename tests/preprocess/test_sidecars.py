"""The BIDS validator accepts the names and sidecars of the derivatives."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.config import load_registration
from bolt.config.layout import prefix_of
from bolt.io.files import write_json, write_status
from bolt.preprocess.anatomical import anatomical_names, init_anatomical_wf
from bolt.preprocess.functional.confounds import write_motion
from bolt.preprocess.functional.workflow import functional_names, init_functional_wf
from bolt.preprocess.sidecars import describe_dataset, sidecar_of, write_bidsignore, write_sidecars
from bolt.report.pages.methods import load_references

SPACES = ("MNI152NLin6Asym", "MNI152NLin2009aSym")
VALIDATOR = Path(sys.executable).with_name("bids-validator-deno")


def make_image(path: Path, shape: tuple[int, ...] = (4, 4, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image(np.ones(shape, np.float32), np.diag([3.0, 3, 3, 1]))
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((3, 3, 3, 2.0)[: len(shape)])
    nib.save(image, path)


def make_outputs(root: Path, raw: Path, folder: str, space: str) -> None:
    """Write the derivatives of one subject, using the functions that name and describe them."""
    anat, func = root / folder / "anat", root / folder / "func"
    scan = f"{prefix_of(folder)}task-rest"
    t1w, bold = raw / folder / "anat" / f"{prefix_of(folder)}T1w.nii.gz", raw / folder / "func" / f"{scan}_bold.nii.gz"
    halves = (
        (anat, anatomical_names(prefix_of(folder), space), [t1w]),
        (func, functional_names(scan, space), [bold, anat / f"{prefix_of(folder)}desc-preproc_T1w.nii.gz"]),
    )
    for place, names, sources in halves:
        for name in names.values():
            if name.endswith(".nii.gz"):
                make_image(place / name, (4, 4, 4, 5) if name.endswith("_bold.nii.gz") else (4, 4, 4))
            elif name.endswith(".tsv"):
                pd.DataFrame({"trans_x": [0.0]}).to_csv(place / name, sep="\t", index=False)
                write_json({"trans_x": {"Description": "mm"}}, (place / name).with_suffix(".json"))
            else:
                (place / name).write_text("transform")
        facts = {"Methods": ["Text."], "RepetitionTime": 2.0, "TaskName": "rest"}
        write_sidecars([place / name for name in names.values()], sources, **facts)
    write_json({"brain_ml": 1300.0}, anat / f"{prefix_of(folder)}desc-quality.json")
    write_json({"mean_fd": 0.1}, func / f"{scan}_desc-quality.json")
    write_status(anat / "status.json", "ok", "anatomical")
    write_status(func / f"{scan}_status.json", "ok", "functional")
    (func / f"{scan}_crash.txt").write_text("report")
    (root / folder / "figures").mkdir()
    (root / folder / "figures" / f"{scan}_desc-motion_timeseries.png").write_bytes(b"picture")
    (root / f"{folder.split('/')[0]}.html").write_text("<html></html>")


@pytest.fixture
def derivatives(tmp_path) -> Path:
    raw, root = tmp_path / "raw", tmp_path / "derivatives"
    raw.mkdir()
    about = {"Name": "Study", "BIDSVersion": "1.8.0", "License": "CC0", "Authors": ["A. B.", "C. D."]}
    write_json(about, raw / "dataset_description.json")
    describe_dataset(root, raw, "study")
    for folder, space in (("sub-01", SPACES[0]), ("sub-02/ses-a", SPACES[1])):
        make_outputs(root, raw, folder, space)
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
    abouts = {image.name: json.loads(sidecar_of(image).read_text()) for image in images}
    assert len(images) > 10 and all(about["Description"] and about["Sources"] for about in abouts.values())
    bold = next(about for name, about in abouts.items() if name.endswith("desc-preproc_bold.nii.gz"))
    assert bold["RepetitionTime"] == 2.0 and bold["TaskName"] == "rest" and "Methods" not in bold
    raw, own = "bids:raw:sub-01/func/sub-01_task-rest_bold.nii.gz", "bids::sub-01/anat/sub-01_desc-preproc_T1w.nii.gz"
    assert bold["Sources"] == [raw, own]
    mask = abouts["sub-01_desc-brain_mask.nii.gz"]
    assert mask["Type"] == "Brain" and mask["SpatialReference"] == "orig" and "RepetitionTime" not in mask


def test_description_names_program_and_raw_data(derivatives, tmp_path):
    about = json.loads((derivatives / "dataset_description.json").read_text())
    assert about["DatasetType"] == "derivative"
    assert about["GeneratedBy"][0]["Name"] == "BolT" and about["GeneratedBy"][0]["Version"]
    assert about["DatasetLinks"]["raw"] == (tmp_path / "raw").as_uri() == about["SourceDatasets"][0]["URL"]
    assert about["License"] == "CC0"


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


def test_motion_table_is_left_alone(tmp_path):
    table = tmp_path / "sub-01" / "func" / "sub-01_desc-motion_xfm.tsv"
    write_motion(np.eye(4)[None], np.zeros(3), table)
    before = table.with_suffix(".json").read_text()
    write_sidecars([table], [])
    assert table.with_suffix(".json").read_text() == before
