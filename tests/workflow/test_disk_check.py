"""Preprocessing is not begun on a disk that cannot hold it."""

import nibabel as nib
import numpy as np
import pytest

from bolt.config import ROOT
from bolt.io import resource_errors as disk
from bolt.io.errors import ConfigError
from bolt.io.files import read_yaml, write_status
from bolt.workflow import checks
from bolt.workflow.checks import check_space
from bolt.workflow.estimate import STORED, WAITING, WORK, preprocessing_peak, volumes_to_do
from bolt.workflow.run import Run
from tests.report.results import make_scans

KEPT = read_yaml(ROOT / "config/costs.yaml")["megabytes_per_scan"]["raw"] * 1e6
IMAGE = 182 * 218 * 182 / 2**3 * 4 * STORED
"""Bytes a volume at 2 mm."""


@pytest.fixture
def run(tmp_path) -> Run:
    """Six raw scans of 100 volumes, of which the last is done."""
    paths = {"results": str(tmp_path / "results"), "work": str(tmp_path / "work")}
    one = Run({"dataset": "phantom", "paths": paths, "preprocess": {"space": "MNI152NLin6Asym", "resolution": 2}})
    scans = make_scans(one.layout, 6, length=100)
    finish(one, scans["scan_id"].iloc[-1])
    return one


def finish(run: Run, scan: str) -> None:
    write_status(run.layout.functional_status(scan), "ok", "functional")
    write_status(run.layout.series_status(scan), "ok", "parcellate")


def test_the_peak_is_that_of_the_jobs_at_once(run):
    peak = {jobs: preprocessing_peak(run, jobs) for jobs in (1, 2, 50)}
    assert peak[1] == pytest.approx(5 * KEPT + WAITING * 100 * IMAGE + WORK)
    assert peak[2] == pytest.approx(5 * KEPT + 2 * WAITING * 100 * IMAGE + 2 * WORK)
    assert peak[50] == pytest.approx(5 * KEPT + 5 * 100 * IMAGE + 5 * WORK)


@pytest.mark.parametrize(("key", "value", "images"), [("keep_bold", True, 5), ("output", "native", 0)])
def test_images_that_are_kept_or_never_made_count(run, key, value, images):
    run.layout.bold(run.scans["scan_id"].iloc[-1]).write_text("image")
    run.config.preprocess.__dict__[key] = value
    assert preprocessing_peak(run, 1) == pytest.approx(5 * KEPT + images * 100 * IMAGE + WORK)


def test_a_scan_is_done_when_there_is_what_is_asked_for(run):
    """Its series in the output space that is asked for, or its image where images are kept."""
    keys = run.config.model_dump(mode="json")
    native = Run(keys | {"preprocess": {"output": "native"}})
    assert len(volumes_to_do(run)) == 5 and len(volumes_to_do(native)) == 6
    for scan in run.scans.scan_id:
        finish(run, scan)
    assert preprocessing_peak(run, 4) == 0
    late = Run(keys | {"preprocess": {"keep_bold": True}})
    assert preprocessing_peak(late, 4) == 0, "images that are deleted already do not return"
    keeping = Run(keys | {"denoise": "36p", "preprocess": {"keep_bold": True}})
    bold = keeping.layout.bold(run.scans["scan_id"].iloc[-1])
    for content, left in ((None, 6), ("", 6), ("image", 5)):  # empty: left by a failure
        if content is not None:
            bold.write_text(content)
        assert len(volumes_to_do(keeping)) == left  # whatever is regressed out of it


def test_headers_are_asked_before_the_index_exists(run, tmp_path):
    run.layout.scans.unlink()
    run.dataset = run.dataset.model_copy(update={"source": "bids", "path": tmp_path / "bids"})
    for subject, n in (("sub-01", 30), ("sub-02", 40)):
        path = tmp_path / "bids" / subject / "func" / f"{subject}_task-rest_bold.nii.gz"
        path.parent.mkdir(parents=True)
        nib.save(nib.Nifti1Image(np.zeros((2, 2, 2, n), np.int16), np.eye(4)), path)
    (tmp_path / "bids/sub-01/func/sub-01_task-x_bold.nii.gz").write_text("no image")
    assert sorted(volumes_to_do(run)) == [30, 40]


def test_a_full_disk_is_refused_and_a_dry_run_warned(run, monkeypatch, capsys):
    def check(*arguments):
        check_space(run, 2, ["snakemake", *arguments])
        return capsys.readouterr().err

    for module in (disk, checks):
        monkeypatch.setattr(module, "free_bytes", lambda folder: 1e8)
    assert "Warning" in (said := check("-n")) and "2 jobs at once" in said
    with pytest.raises(ConfigError, match=r"not enough disk space: preprocessing .* needs .* GB.* 'paths: results'"):
        check("--cores", "2")
    check("--target-jobs", "functional:scan=a")  # a job of that run
    for word in ("--unlock", "resources", "--touch", "--cleanup-metadata", "--delete-all-output"):  # no preprocessing
        check("--cores", "2", word)
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 1e13)
    assert check("--cores", "2") == ""
    assert "Disk: preprocessing with 2 jobs at once needs up to" in check("-n")
