"""HCP S1200 as a source: a tree with its layout, from a folder and from a local S3 service."""

import gzip
import shutil
from pathlib import Path

import pandas as pd
import pytest

from bolt.cohort.exclusions import compare_cohort
from bolt.config import Bucket, Config, Dataset, Hcp, load_dataset
from bolt.datasets import hcp, index
from bolt.datasets.hcp import HEADER_BYTES, VOLUMES, HcpScan, read_header
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.workflow.checks import check_download_space, check_names
from tests.fake_hcp import TINY, hide_aws, serve_s3, write_hcp, write_scan

PEOPLE = ["100206", "100307", "100408", "101006", "101107", "101309"]


@pytest.fixture
def config(tmp_path):
    return Config(dataset="hcp_rest", atlases=["dosenbach160"], models=["bolt"],
                  paths={"results": tmp_path / "results", "work": tmp_path / "work"})  # fmt: skip


def dataset(root: Path, name: str = "hcp_rest", **keys) -> Dataset:
    """Return a shipped dataset that uses a local copy."""
    shipped = load_dataset(name).model_dump()
    local = {"path": root / "HCP_1200", "subjects_table": root / "unrestricted.csv", "hcp": {"bucket": None}}
    return Dataset(**(shipped | local | keys))


@pytest.fixture
def rest(tmp_path):
    write_hcp(tmp_path, PEOPLE, ["REST"], {"101006": 1199})
    return tmp_path


@pytest.fixture
def tasks(tmp_path):
    write_hcp(tmp_path, PEOPLE[:3], list(VOLUMES)[1:], shape=TINY)
    return tmp_path


def table(config, dataset):
    return index(config, dataset).set_index("scan_id", drop=False)


def test_rest_scans_have_sex_as_label_and_must_be_complete(config, rest):
    shutil.rmtree(rest / "HCP_1200/101309")
    scans = table(config, dataset(rest))
    first = scans.loc["sub-100206_ses-1_task-REST_dir-LR"]
    assert (first.subject, first.session, first.run, first.task) == ("sub-100206", "1", "LR", "REST")
    assert (first.label, first.sex, first.age, first.mean_fd) == ("female", "female", 23.5, 0.091)
    assert (first.tr, first.n_volumes, first.kind, first.space) == (0.72, 1200, "preprocessed", "MNI152NLin6Asym")
    assert first.bold.endswith("100206/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR.nii.gz")
    assert first["mask"].endswith("rfMRI_REST1_LR/brainmask_fs.2.nii.gz") and Path(first["mask"]).is_file()
    assert scans.label.tolist() == ["female", "male"] * 3 and scans.age.tolist()[2] == 36
    assert scans.exclude_reason.dropna().to_dict() == {
        "sub-101006_ses-1_task-REST_dir-LR": "incomplete: 1199 of 1200 volumes",
        "sub-101309_ses-1_task-REST_dir-LR": "the subject has no rfMRI_REST1_LR",
    }


def test_cohort_is_compared_with_the_papers(config, rest):
    compared = compare_cohort(index(config, dataset(rest)), dataset(rest).published)
    assert compared.measure.tolist() == ["scans", "subjects, sex female", "subjects, sex male"]
    assert (compared.found.tolist(), compared.paper.tolist()) == ([5, 3, 2], [1093, 594, 499])


def test_families_and_ages_come_from_the_restricted_table(config, rest, caplog):
    with_families = {"hcp": {"bucket": None, "restricted_table": rest / "restricted.csv"}, "group": "Family_ID"}
    scans = table(config, dataset(rest, age="Age_in_Yrs", **with_families))
    assert scans.group.tolist()[:3] == ["G100206", "F1", "F1"] and scans.age.tolist()[:2] == [23, 24]
    assert "families are unknown" not in caplog.text
    without = table(config, dataset(rest))
    assert (without.group == without.subject).all()
    assert "families are unknown" in caplog.text
    with pytest.raises(DataError, match="column 'Family_ID' is missing"):
        index(config, dataset(rest, group="Family_ID"))


def test_tasks_are_labels_and_scans_of_a_subject_share_a_group(config, tasks):
    short = tasks / "HCP_1200/100307/MNINonLinear/Results/tfMRI_WM_LR"
    shutil.rmtree(short)
    write_scan(tasks / "HCP_1200", "100307", "WM", 404, TINY)
    scans = table(config, dataset(tasks, "hcp_task"))
    assert len(scans) == 21 and (scans.label == scans.task).all()
    assert scans.groupby("subject").label.nunique().tolist() == [7, 7, 7]
    assert (scans.group == scans.subject).all() and scans.sex.nunique() == 2
    assert scans.exclude_reason.dropna().to_dict() == {"sub-100307_task-WM_dir-LR": "incomplete: 404 of 405 volumes"}
    whole = scans[scans.exclude_reason.isna()]
    assert (whole.n_volumes == whole.task.map(VOLUMES)).all()


def test_onsets_become_a_table_of_events(config, tasks):
    scans = table(config, dataset(tasks, "hcp_task"))
    path = Path(scans.events["sub-100206_task-EMOTION_dir-LR"])
    assert path == config.paths.results / "hcp_rest/events/sub-100206_task-EMOTION_dir-LR_events.tsv"
    events = read_table(path)
    assert events.to_dict("list") == {
        "onset": [10.97, 32.05, 74.2],
        "duration": [18.0, 18.0, 18.0],
        "trial_type": ["neut", "fear", "fear"],
    }
    assert set(read_json(path.with_suffix(".json"))) == {"onset", "duration", "trial_type"}
    gambling = read_table(Path(scans.events["sub-100206_task-GAMBLING_dir-LR"]))
    assert gambling.trial_type.tolist() == ["loss", "win"]  # an amplitude of zero: no event
    onsets = tasks / "HCP_1200/100206/MNINonLinear/Results/tfMRI_EMOTION_LR/EVs/fear.txt"
    onsets.write_text("<html>\n")
    broken = table(config, dataset(tasks, "hcp_task"))
    assert "fear.txt: line 1 is not three numbers" in broken.exclude_reason["sub-100206_task-EMOTION_dir-LR"]


def test_directions_and_subjects_are_selected(config, rest):
    both = table(config, dataset(rest, runs=["LR", "RL"]))
    assert len(both) == 12 and both.exclude_reason.str.contains("no rfMRI_REST1_RL").sum() == 6
    selected = table(config, dataset(rest, exclude={"Age": ["36.0"]}, include={"Release": ["S900"]}))
    assert selected.exclude_reason.str.contains("excluded by 'exclude': Age is 36$").sum() == 2
    incomplete = table(config, dataset(rest, exclude={"Subject": ["101006"]})).loc["sub-101006_ses-1_task-REST_dir-LR"]
    assert incomplete.exclude_stage == "selection" and incomplete.exclude_reason.startswith("excluded by 'exclude'")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tasks": ["EMOTON"]}, "'tasks' names 'EMOTON'.*did you mean 'EMOTION'"),
        ({"tasks": None}, "'tasks' names ''"),
        ({"runs": ["AP"]}, "'runs' names 'AP'"),
        ({"sessions": ["3"]}, "'sessions' names '3'"),
        ({"path": Path("nowhere")}, "no such folder: nowhere"),
        ({"subjects_table": Path("no.csv")}, r"no such table: no\.csv"),
        ({"subjects_table": None}, "HCP needs 'subjects_table'"),
    ],
)
def test_invalid_settings_are_refused_before_work(config, rest, keys, words):
    check_names(config, dataset(rest))
    with pytest.raises(ConfigError, match=words):
        check_names(config, dataset(rest, **keys))
    elsewhere = config.preprocess.model_copy(update={"space": "MNI152NLin2009aSym"})
    with pytest.raises(ConfigError, match="HCP's volumes are in MNI152NLin6Asym"):
        check_names(config.model_copy(update={"preprocess": elsewhere}), dataset(rest))


# ---- from S3 ----------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path, monkeypatch):
    hide_aws(monkeypatch, tmp_path)
    write_hcp(tmp_path, PEOPLE[:4], ["REST", "EMOTION"], {"100307": 100}, TINY)
    page = tmp_path / "HCP_1200/100408/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR.nii.gz"
    page.write_text("<html>")
    shutil.rmtree(tmp_path / "HCP_1200/101006/MNINonLinear/Results/rfMRI_REST1_LR")
    (tmp_path / "bucket").mkdir()
    (tmp_path / "HCP_1200").rename(tmp_path / "bucket/HCP_1200")
    with serve_s3(tmp_path / "bucket") as running:
        running.credentials(tmp_path / "credentials")
        yield running


def remote(service, root, name="hcp_rest", **keys) -> Dataset:
    hcp_keys = Hcp(bucket=Bucket(profile="hcp", endpoint=service.endpoint))
    return dataset(root, name, path=Path(), hcp=hcp_keys, **keys)


def test_headers_and_small_files_are_fetched_before_images(config, service, tmp_path):
    two_tasks = remote(service, tmp_path, tasks=["REST", "EMOTION"])
    check_names(config, two_tasks)
    hcp.download_table(two_tasks, config)
    listing = read_table(hcp.table_path(two_tasks, config))
    assert len(listing) == 7  # one of eight is not in the bucket
    downloads = hcp.download_folder(two_tasks, config)
    assert not list(downloads.rglob("?fMRI_*.nii.gz"))
    assert len(list(downloads.rglob("EVs/fear.txt"))) == 4 and len(list(downloads.rglob("brainmask*"))) == 7
    scans = table(config, two_tasks)
    problems = scans.exclude_reason.dropna()
    assert problems["sub-100307_ses-1_task-REST_dir-LR"] == "incomplete: 100 of 1200 volumes"
    assert problems["sub-100307_task-EMOTION_dir-LR"] == "incomplete: 100 of 176 volumes"
    assert "web page" in problems["sub-100408_ses-1_task-REST_dir-LR"]
    assert problems["sub-101006_ses-1_task-REST_dir-LR"] == "the subject has no rfMRI_REST1_LR"
    assert len(problems) == 4
    assert scans.n_volumes["sub-100206_ses-1_task-REST_dir-LR"] == 1200 and (scans.tr.dropna() == 0.72).all()
    assert Path(scans.events["sub-100206_task-EMOTION_dir-LR"]).is_file()


def test_images_are_fetched_into_hcps_layout(config, service, tmp_path):
    asked = remote(service, tmp_path)
    estimate = hcp.download_bytes(asked, config)
    assert estimate == 4 * 1200 * 0.8e6 and hcp.scan_count(asked, config) == 4
    hcp.download_table(asked, config)
    listed = read_table(hcp.table_path(asked, config)).bytes.sum()
    assert hcp.download_bytes(asked, config) == listed
    name = "sub-100206_ses-1_task-REST_dir-LR"
    hcp.download_scan(name, asked, config)
    path = hcp.scan_path(name, asked, config)
    source = tmp_path / "bucket/HCP_1200/100206/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR.nii.gz"
    assert path.read_bytes() == source.read_bytes()
    assert str(path).endswith("100206/MNINonLinear/Results/rfMRI_REST1_LR/rfMRI_REST1_LR.nii.gz")
    assert hcp.download_bytes(asked, config) == listed - source.stat().st_size
    copy = dataset(tmp_path, path=hcp.download_folder(asked, config))  # it can be used as a local copy
    local = hcp.scans(copy, config).set_index("scan_id")
    assert local.bold[name] == str(path) and pd.isna(local.exclude_reason[name])
    check_download_space(config, asked)


def test_repeating_the_listing_only_reads_headers(config, service, tmp_path, monkeypatch):
    asked = remote(service, tmp_path)
    hcp.download_table(asked, config)
    first = hcp.table_path(asked, config).read_bytes()
    from bolt.io import s3

    read, keys = s3.read, []
    monkeypatch.setattr(s3, "read", lambda client, bucket, key, *n: keys.append(key) or read(client, bucket, key, *n))
    hcp.download_table(asked, config)
    assert hcp.table_path(asked, config).read_bytes() == first
    assert len(keys) == 3 and all(key.endswith("rfMRI_REST1_LR.nii.gz") for key in keys)  # headers alone


def test_header_from_the_first_kilobytes(rest):
    scan, about = HcpScan("100206", "REST", "1", "LR"), load_dataset("hcp_rest")
    whole, known = (rest / "HCP_1200" / scan.bold).read_bytes(), {"n_volumes": 1200, "tr": 0.72}
    other = about.model_copy(update={"tr": 2.0})
    without_tr = bytearray(gzip.decompress(whole))
    without_tr[76 + 16 : 76 + 20] = bytes(4)  # pixdim[4]
    for start, dataset in (
        (whole, about),
        (whole, other.model_copy(update={"tr_conflict": "header"})),
        (gzip.compress(without_tr), about),
    ):
        assert read_header(start[:HEADER_BYTES], scan, dataset) == known
    for start, dataset, problem in (
        (whole[:50], about, "not a readable NIfTI image"),
        (b"", about, "the file is empty"),
        (gzip.compress(b"no image" * 100), about, "not a readable NIfTI"),
        (whole, other, "TR is 0.72 s in the header and 2 s in the sidecar"),
    ):
        assert read_header(start[:HEADER_BYTES], scan, dataset)["problem"].startswith(problem)


def test_only_selected_scans_are_listed_and_need_disk_space(config, service, tmp_path):
    men = remote(service, tmp_path, include={"Gender": ["male"]})
    assert hcp.scan_count(men, config) == 2 and hcp.download_bytes(men, config) == 2 * 1200 * 0.8e6
    hcp.download_table(men, config)
    name = "sub-100307_ses-1_task-REST_dir-LR"
    assert read_table(hcp.table_path(men, config)).scan_id.tolist() == [name]  # the other is not in the bucket
    fewer = remote(service, tmp_path, include={"Gender": ["male"]}, exclude={"scan_id": [name]})
    assert hcp.download_bytes(fewer, config) == 0
