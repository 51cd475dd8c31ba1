"""One bad scan never takes down a night's run: it is left out with a reason, the others go on."""

import json

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import yaml

from bolt.config import ROOT
from bolt.datasets.phantom import simulate
from tests.phantoms import TINY
from tests.snake import half_written, snakemake, write_yaml

pytestmark = pytest.mark.slow

COARSE = ("working_resolution", "mask_resolution", "normalisation_resolution")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three tiny subjects: one BOLD file is cut off, one T1w is NaN, the third's are whole."""
    folder = tmp_path_factory.mktemp("bad")
    simulate(folder / "bids", TINY.model_copy(update={"n_subjects": 3, "n_volumes": [24, 22]}))
    cut = folder / "bids/sub-01/func/sub-01_task-rest_bold.nii.gz"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    t1w = folder / "bids/sub-02/anat/sub-02_T1w.nii.gz"
    image = nib.load(t1w)
    data = image.get_fdata(dtype=np.float32)
    data[10:12] = np.nan
    nib.save(nib.Nifti1Image(data, image.affine), t1w)
    shipped = yaml.safe_load((ROOT / "config/datasets/phantom.yaml").read_text())
    about = {key: shipped[key] for key in ("label", "classes", "site", "age", "sex")}
    dataset = write_yaml(folder / "small.yaml", about | {"source": "bids", "path": "bids"})
    testing = yaml.safe_load((ROOT / "config/registration/testing.yaml").read_text())
    coarse = write_yaml(folder / "coarse.yaml", testing | dict.fromkeys(COARSE, 8.0) | {"tissue_resolution": 4.0})
    preprocess = {"space": "MNI152NLin2009aSym", "resolution": 6.0, "registration": str(coarse)}
    config = {"dataset": str(dataset), "atlases": ["dosenbach160"], "preprocess": preprocess, "folds": {"outer": 2}}
    done = snakemake(folder, "series", config=write_yaml(folder / "config.yaml", config))
    return folder, done


def test_the_others_go_on_and_their_series_are_whole(run):
    folder, done = run
    assert done.returncode == 0, done.stdout
    index = pd.read_csv(next((folder / "results").rglob("index.tsv")), sep="\t")
    assert index.subject.tolist() == ["sub-03"] and not half_written(folder)
    made = {path.name[:6]: np.load(path) for path in (folder / "results/small/series").rglob("*_timeseries.npy")}
    assert len(made["sub-01"]) == len(made["sub-02"]) == 0
    assert len(made["sub-03"]) >= 22 and np.isfinite(made["sub-03"]).mean() > 0.9


def test_the_reasons_are_listed_where_people_look(run):
    folder, _ = run
    listed = pd.read_csv(folder / "results/small/exclusions.tsv", sep="\t").set_index("scan_id")
    assert listed.stage.to_dict() == {"sub-01_task-rest": "functional", "sub-02_task-rest": "anatomical"}
    assert "sub-01_task-rest_bold.nii.gz" in listed.reason["sub-01_task-rest"]
    assert "NaN" in listed.reason["sub-02_task-rest"]
    status = json.loads((folder / "results/small/derivatives/sub-01/func/sub-01_task-rest_status.json").read_text())
    assert status["state"] == "failed" and status["hint"]
    report = (folder / status["report"]).read_text()
    assert "functional --config" in report and "cut off" in report and "sub-01_task-rest.log" in report
