"""fMRIPrep output as a source of scans."""

import json

import numpy as np
import pytest

from bolt.config import Config, Dataset
from bolt.datasets import index
from bolt.errors import DataError
from tests.fake_bids import save_bold


@pytest.fixture
def derivatives(tmp_path):
    rows = ["participant_id\tgroup"]
    for i, label in enumerate(["a", "b", "a", "b"]):
        func = tmp_path / f"sub-{i}" / "func"
        func.mkdir(parents=True)
        start = func / f"sub-{i}_task-rest"
        save_bold(
            start.with_name(f"{start.name}_space-MNI152NLin6Asym_desc-preproc_bold.nii.gz"),
            np.ones((4, 4, 4, 25), np.int16),
        )
        save_bold(
            start.with_name(f"{start.name}_space-MNI152NLin6Asym_desc-brain_mask.nii.gz"), np.ones((4, 4, 4), np.uint8)
        )
        start.with_name(f"{start.name}_desc-confounds_timeseries.tsv").write_text("trans_x\n0\n")
        rows.append(f"sub-{i}\t{label}")
    (tmp_path / "participants.tsv").write_text("\n".join(rows) + "\n")
    about = {
        "Name": "fmriprep",
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "fMRIPrep"}],
    }
    (tmp_path / "dataset_description.json").write_text(json.dumps(about))
    return tmp_path


def dataset(path):
    return Dataset(name="prep", source="fmriprep", path=path, label="group", classes=["a", "b"])


def test_images_masks_and_confounds_are_found(derivatives):
    scans = index(Config(dataset="prep"), dataset(derivatives))
    assert scans.scan_id.tolist() == [f"sub-{i}_task-rest" for i in range(4)]
    assert set(scans.kind) == {"preprocessed"} and set(scans.space) == {"MNI152NLin6Asym"}
    assert scans["mask"].notna().all() and scans.confounds.notna().all()
    assert set(scans.n_volumes) == {25}


def test_another_space_is_refused_with_the_spaces_found(derivatives):
    config = Config(dataset="prep", preprocess={"space": "MNI152NLin2009cAsym"})
    with pytest.raises(DataError, match=r"MNI152NLin2009cAsym \(found spaces: MNI152NLin6Asym\)"):
        index(config, dataset(derivatives))
