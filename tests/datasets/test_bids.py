"""Index of a raw BIDS dataset: what is refused as a whole, and what excludes single scans."""

import json
import re
import shutil

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from bolt.config import Config, Dataset
from bolt.datasets import COLUMNS, index, t1w_images
from bolt.io.errors import ConfigError, DataError
from tests.fake_bids import bold_path, write_bids
from tests.fake_fmriprep import write_fmriprep

CONFIG = Config(dataset="fake", atlases=["dosenbach160"])


def dataset(path, **keys):
    defaults = {"name": "fake", "source": "bids", "path": path, "label": "diagnosis", "classes": ["control", "patient"]}
    return Dataset(**(defaults | keys))


@pytest.fixture
def bids(tmp_path):
    return write_bids(tmp_path / "bids")


def reasons(bids, **keys):
    scans = index(CONFIG, dataset(bids, **keys), minimum_volumes=20).set_index("scan_id")
    return scans.exclude_reason.dropna()


def test_one_row_per_scan_with_all_columns(bids):
    scans = index(CONFIG, dataset(bids, site="site", age="age", sex="sex"), minimum_volumes=20)
    assert list(scans.columns) == list(COLUMNS)
    assert scans.scan_id.tolist() == [f"sub-{i:02d}_task-rest" for i in range(1, 9)]  # sorted
    first = scans.iloc[0]
    assert (first.label, first.site, first.age, first.tr, first.n_volumes) == ("control", "A", 20, 2.0, 30)
    assert first.group == first.subject == "sub-01" and first.kind == "raw"
    assert scans.exclude_reason.isna().all()


def test_without_a_label_no_table_of_people_is_needed(bids, tmp_path):
    (bids / "participants.tsv").unlink()
    scans = index(CONFIG, dataset(bids, label=None, classes=None))
    assert len(scans) == 8 and scans.exclude_reason.isna().all() and scans.group.tolist() == scans.subject.tolist()
    with pytest.raises(DataError, match="participants.tsv: file not found.*or 'label: null'"):
        index(CONFIG, dataset(bids))
    prep = write_fmriprep(tmp_path / "study", 2, n_volumes=3)
    about = {"name": "p", "source": "fmriprep", "path": prep, "label": None}
    assert index(CONFIG, Dataset(**about)).exclude_reason.isna().all()
    with pytest.raises(DataError, match="file not found"):
        index(CONFIG, Dataset(**about | {"label": "diagnosis"}))


def test_a_folder_that_is_absent_or_not_bids_or_without_scans(tmp_path):
    with pytest.raises(DataError, match="dataset folder not found"):
        index(CONFIG, dataset(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"no dataset_description\.json"):
        index(CONFIG, dataset(tmp_path))
    shutil.rmtree(write_bids(tmp_path, n_subjects=1) / "sub-01/func")
    with pytest.raises(DataError, match="no BOLD images found"):
        index(CONFIG, dataset(tmp_path))


def test_only_scans_with_something_wrong_are_excluded(bids):
    shutil.rmtree(bids / "sub-03" / "anat")
    shutil.rmtree(bids / "sub-04" / "func")
    excluded = {"sub-03_task-rest": "the subject has no T1w image", "sub-04": "the subject has no BOLD image"}
    assert reasons(bids).to_dict() == excluded


def rewrite(bids, change):
    path = bids / "participants.tsv"
    change(pd.read_csv(path, sep="\t")).to_csv(path, sep="\t", index=False, na_rep="n/a")


def add_scan(bids, subject, entities, session=None):
    """Add a copy of a subject's scan with other entities, perhaps in a folder of a session."""
    source = bold_path(bids, subject)
    func = bids / subject / session / "func" if session else source.parent
    func.mkdir(parents=True, exist_ok=True)
    for name in ("bold.nii.gz", "bold.json"):
        shutil.copy(source.with_name(f"{subject}_task-rest_{name}"), func / f"{subject}_{entities}_{name}")


def test_tasks_runs_and_sessions_are_selected_and_share_a_group(bids):
    add_scan(bids, "sub-01", "task-nback_run-02")
    for subject in ("sub-01", "sub-02"):
        add_scan(bids, subject, "ses-b_task-rest", "ses-b")
    scans = index(CONFIG, dataset(bids)).set_index("scan_id")
    assert len(scans) == 11 and scans.exclude_reason.isna().all()
    second = scans.loc["sub-01_ses-b_task-rest"]
    assert (second.session, second.group, second.t1w) == ("b", "sub-01", scans.t1w["sub-01_task-rest"])
    selected = index(CONFIG, dataset(bids, sessions=["b"], tasks=["rest"]))
    assert selected.scan_id.tolist() == ["sub-01_ses-b_task-rest", "sub-02_ses-b_task-rest"]
    assert index(CONFIG, dataset(bids, runs=["2"])).scan_id.tolist() == ["sub-01_task-nback_run-02"]


def test_reconstructions_of_one_acquisition_are_warned_of(bids, caplog):
    for entities in ("task-rest_rec-moco_run-1", "task-rest_rec-raw_run-1", "task-rest_rec-raw_run-2"):
        add_scan(bids, "sub-02", entities)
    assert index(CONFIG, dataset(bids)).exclude_reason.isna().all()
    assert re.search(
        "2 scans are .*such as sub-02_task-rest_rec-moco_run-1, sub-02_task-rest_rec-raw_run-1", caplog.text
    )
    caplog.clear()
    index(CONFIG, dataset(bids, bids_filter={"bold": {"reconstruction": "moco"}}))
    assert "(rec-)" not in caplog.text


def add_t1w(bids, subject, entities, edges):
    """Add a T1w image with voxels of these edges (mm)."""
    path = bids / subject / "anat" / f"{subject}_{entities}_T1w.nii.gz"
    nib.save(nib.Nifti1Image(np.ones((4, 4, 4), np.int16), np.diag([*edges, 1.0])), path)
    return str(path)


def with_steps(**keys):
    return CONFIG.model_copy(update={"preprocess": CONFIG.preprocess.model_copy(update=keys)})


def test_of_several_t1w_images_the_finest_is_used_or_those_of_one_resolution_are_averaged(bids, caplog):
    (bids / "sub-01/anat/sub-01_T1w.nii.gz").unlink()
    add_t1w(bids, "sub-01", "acq-localizer", (1, 1, 6))
    fine = add_t1w(bids, "sub-01", "acq-mprage", (1, 1, 1.2))
    add_t1w(bids, "sub-01", "acq-a_part-phase", (1, 1, 1))  # as fine as it may be
    other = add_t1w(bids, "sub-01", "acq-other", (1.2, 1.2, 1.2))
    scans = index(CONFIG, dataset(bids)).set_index("subject")
    assert scans.t1w["sub-01"] == fine and scans.more_t1w.isna().all()
    assert re.search("1 of 8 sessions have several T1w.*acq-mprage.*acq-other.*acq-localizer.*bids_filter", caplog.text)
    scans = index(with_steps(average_t1w=True), dataset(bids)).set_index("subject")
    assert t1w_images(scans.loc["sub-01"]) == [fine, other] and "coarse ones are left out" in caplog.text
    assert t1w_images(scans.loc["sub-02"]) == [str(bids / "sub-02/anat/sub-02_T1w.nii.gz")]
    caplog.clear()
    scans = index(CONFIG, dataset(bids, bids_filter={"t1w": {"acquisition": "other"}})).set_index("subject")
    assert scans.t1w["sub-01"] == other and "several T1w" not in caplog.text
    assert scans.exclude_reason["sub-02"] == "the subject has no T1w image"
    with pytest.raises(ConfigError, match="unknown entity 'acqisition'.*acquisition"):
        index(CONFIG, dataset(bids, bids_filter={"t1w": {"acqisition": "mprage"}}))


def test_a_single_band_reference_is_found_by_its_name_and_scans_filtered_by_any_entity(bids):
    bold = bold_path(bids, "sub-01")
    sbref = bold.with_name(bold.name.replace("_bold", "_sbref"))
    sbref.write_bytes(bold.read_bytes())
    scans = index(CONFIG, dataset(bids)).set_index("subject")
    assert scans.sbref["sub-01"] == str(sbref) and scans.sbref.isna().sum() == len(scans) - 1
    kept = index(with_steps(sbref="off"), dataset(bids, bids_filter={"bold": {"subject": ["01", "02"]}}))
    assert kept[kept.bold.notna()].subject.tolist() == ["sub-01", "sub-02"] and kept.sbref.isna().all()


def test_any_column_can_be_label_group_and_site(bids):
    families = ["f1", "f1", "f2", "f2", None, "f3", "f3", "f4"]
    rewrite(bids, lambda table: table.assign(arm=[0, 1] * 4, kin=families, scanner=range(8)))
    scans = index(CONFIG, dataset(bids, label="arm", classes=[0, 1], group="kin", site="scanner"))
    assert scans.label.tolist() == ["0", "1"] * 4
    assert scans.group.tolist() == ["f1", "f1", "f2", "f2", "sub-05", "f3", "f3", "f4"]
    assert scans.site.tolist() == [str(i) for i in range(8)]
    with pytest.raises(DataError, match="column 'centre' is missing.*Set 'site'"):
        index(CONFIG, dataset(bids, site="centre"))


def test_subjects_are_selected_by_columns(bids):
    rewrite(bids, lambda table: table.assign(site=list("AABBCCDD"), qc=["pass"] * 7 + [None]))
    excluded = reasons(bids, include={"site": ["A", "D"]}, exclude={"qc": ["n/a"]})
    assert excluded.index.tolist() == [f"sub-{i:02d}_task-rest" for i in (3, 4, 5, 6, 8)]
    assert excluded["sub-03_task-rest"] == "excluded by 'include': site is B"
    assert excluded["sub-08_task-rest"] == "excluded by 'exclude': qc is n/a"
    with pytest.raises(DataError, match="none of 8 scans can be used"):
        index(CONFIG, dataset(bids, exclude={"site": list("ABCD")}))


def test_a_subject_without_a_row_is_not_excluded_on_purpose(bids):
    """Otherwise `bad_scans: refuse` would ignore it."""
    rewrite(bids, lambda table: table.assign(site=list("AABBCCDD")).drop(index=2))
    scans = index(CONFIG, dataset(bids, include={"site": ["A", "B", "D"]})).set_index("subject")
    assert "no row in" in scans.exclude_reason["sub-03"] and scans.exclude_stage["sub-03"] == "index"
    assert scans.exclude_stage["sub-05"] == "selection"
    kept = index(CONFIG, dataset(bids, exclude={"scan_id": ["sub-03_task-rest"]})).set_index("subject")
    assert kept.exclude_stage["sub-03"] == "selection"


def test_of_two_repetition_times_the_chosen_one_is_used(bids):
    path = bold_path(bids, "sub-02")
    path.with_name("sub-02_task-rest_bold.json").write_text(json.dumps({"RepetitionTime": 1.5, "TaskName": "rest"}))
    for used, tr in (("sidecar", 1.5), ("header", 2.0)):
        scans = index(CONFIG, dataset(bids, tr_conflict=used), 20).set_index("subject")
        assert scans.tr["sub-02"] == tr and scans.exclude_reason.isna().all()


def test_single_scans_can_be_excluded_even_bad_ones(bids):
    bold_path(bids, "sub-02").write_bytes(b"")
    scans = index(CONFIG, dataset(bids, exclude={"scan_id": ["sub-02_task-rest", "sub-03_task-rest"]}), 20)
    excluded = scans.dropna(subset=["exclude_reason"]).set_index("subject")
    assert excluded.exclude_reason["sub-02"] == "excluded by 'exclude': scan_id is sub-02_task-rest"
    assert excluded.exclude_stage.to_dict() == {"sub-02": "selection", "sub-03": "selection"}
    with pytest.raises(DataError, match="'exclude' names scan 'sub-99_task-rest', which does not exist"):
        index(CONFIG, dataset(bids, exclude={"scan_id": ["sub-99_task-rest"]}), 20)
