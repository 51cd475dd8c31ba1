"""Tables of people as their tools write them: missing values, numbers, encodings, and other spellings of one name."""

import json
import logging

import pandas as pd
import pytest

from bolt.config import Config, Dataset
from bolt.datasets import index
from bolt.io.bids import metadata_of
from bolt.io.errors import DataError
from bolt.io.files import read_text
from bolt.io.people import known_values
from bolt.workflow.watched import files_of
from tests.fake_bids import bold_path, write_bids

CONFIG = Config(dataset="fake", atlases=["dosenbach160"])


def listed(folder, **keys):
    about = {"name": "fake", "source": "bids", "path": folder, "label": "diagnosis", "classes": ["control", "patient"]}
    return index(CONFIG, Dataset(**about | keys)).set_index("scan_id")


def change(bids, column, values):
    path = bids / "participants.tsv"
    table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    table.loc[: len(values) - 1, column] = values
    table.to_csv(path, sep="\t", index=False)


CODES = ["NA", "NaN", "N/A", "nan", "-9999", "-9999.0", "-99", "unknown", "?", "#VALUE!", "-", "<NA>", " NA "]


def test_codes_of_missing_values_are_no_classes_sites_or_ages(tmp_path, caplog):
    bids = write_bids(tmp_path, len(CODES) + 1)
    for column in ("diagnosis", "site", "age", "sex"):
        change(bids, column, CODES)
    with caplog.at_level(logging.WARNING):
        scans = listed(bids, site="site", age="age", sex="sex")
    assert set(scans.exclude_reason[:-1]) == {"no value in label column 'diagnosis'"}
    facts = scans[["site", "age", "sex"]]
    assert facts[:-1].isna().all(axis=None) and facts.iloc[-1].notna().all()
    assert all(f"1 × '{code}'" in caplog.text for code in CODES[1:-1]) and "2 × 'NA'" in caplog.text


@pytest.mark.parametrize(("value", "n"), [("n/a", len(CODES)), ("unknown", 1)])
def test_subjects_without_a_value_are_selected_however_it_is_written(tmp_path, value, n):
    bids = write_bids(tmp_path, len(CODES) + 1)
    change(bids, "site", CODES)
    assert listed(bids, exclude={"site": [value]}).exclude_reason.notna().sum() == n
    assert listed(bids, include={"site": [value]}).exclude_reason.isna().sum() == n


def test_other_texts_stay_as_they_are():
    values = pd.Series(["01", "1e3", "v1.0", "nonesuch", "-1.5", None])
    assert known_values(values).tolist()[:-1] == values.tolist()[:-1]


def test_none_is_a_diagnosis_but_no_family_site_or_sex(tmp_path):
    """As Python writes a missing value: people without relatives are not one family."""
    bids = write_bids(tmp_path, 4)
    change(bids, "diagnosis", ["none", "patient"] * 2)
    for column in ("family_id", "site", "sex"):
        change(bids, column, ["None", "None", "none", "x"])
    scans = listed(bids, group="family_id", site="site", sex="sex", classes=["none", "patient"])
    assert scans.label.tolist() == ["none", "patient"] * 2 and scans.exclude_reason.isna().all()
    assert scans.group.tolist() == ["sub-01", "sub-02", "sub-03", "x"]
    assert scans[["site", "sex"]].notna().sum(axis=1).tolist() == [0, 0, 0, 2]
    kept = listed(bids, classes=["none", "patient"], include={"site": ["None"]}).exclude_reason.isna()
    assert kept.tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("name", "separator", "encoding"),
    [("t.tsv", "\t", "utf-16"), ("t.tsv", "\t", "utf-8-sig"), ("t.csv", ",", "utf-8"), ("t.csv", ";", "utf-8")],
)
def test_tables_of_any_spreadsheet_are_read(tmp_path, name, separator, encoding):
    rows = [["subject ", "place"], ["1", " Köln"]]
    (tmp_path / name).write_text("".join(separator.join(row) + "\n" for row in rows), encoding=encoding)
    assert read_text(tmp_path / name).to_dict("list") == {"subject": ["1"], "place": ["Köln"]}


def test_a_missing_value_cannot_be_a_class(tmp_path):
    with pytest.raises(ValueError, match="'NA' counts as a missing value"):
        listed(write_bids(tmp_path, 2), classes=["NA", "patient"])


def test_people_are_matched_by_number_whatever_the_padding(tmp_path, caplog):
    bids = write_bids(tmp_path, 4)
    change(bids, "participant_id", ["1", "2.0", "sub-3", "004"])
    with caplog.at_level(logging.WARNING):
        scans = listed(bids)
    assert len(scans) == 4 and scans.exclude_reason.isna().all()
    assert "4 people are spelt differently from their folders" in caplog.text


def test_ambiguous_numbers_are_not_matched(tmp_path):
    bids = write_bids(tmp_path, 4)
    change(bids, "participant_id", ["1", "001"])
    reasons = listed(bids).exclude_reason.dropna()
    assert "no row in" in reasons["sub-01_task-rest"] and "sub-1" in reasons and "sub-001" in reasons


def test_linked_folders_of_subjects_are_entered(tmp_path):
    pool, bids = write_bids(tmp_path / "pool", 4), tmp_path / "data"
    bids.mkdir()
    for path in pool.iterdir():
        (bids / path.name).symlink_to(path)
    assert listed(bids).exclude_reason.isna().sum() == 4


def test_an_index_is_made_anew_for_what_it_reads(tmp_path):
    bids = write_bids(tmp_path, 2)
    about = Dataset(name="x", source="bids", path=bids, label=None)
    before = files_of(about)
    (bids / "README.md").write_text("changed")
    assert files_of(about) == before
    for name in (".bidsignore", "task-rest_bold.json", "bold.json", "sub-01/func/sub-01_task-rest_events.tsv"):
        (bids / name).write_text("{}")
        assert before != (before := files_of(about)), name


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("fmriprep", "sub-01/func/sub-01_task-rest_desc-confounds_timeseries.tsv"),
        ("fmriprep", "sub-01/func/sub-01_task-rest_space-T1w_desc-brain_mask.nii.gz"),
        ("fmriprep", "bold.json"),
        ("fmriprep", "task-rest_bold.json"),
        ("bids_series", "sub-01/func/sub-01_task-rest_motion.tsv"),
        ("bids_series", "sub-01/func/sub-01_task-rest_seg-Gordon_den-91k_stat-mean_boldmap.ptseries.nii"),
        ("bids_series", "sub-01/func/sub-01_task-rest_seg-Gordon_den-91k_stat-mean_boldmap.json"),
        ("hcp", "100307/MNINonLinear/Results/tfMRI_WM_LR/EVs/0bk_body.txt"),
    ],
)
def test_what_is_added_to_derivatives_later_is_indexed(tmp_path, source, name):
    about = Dataset(name="x", source=source, path=tmp_path, label=None, hcp={"bucket": None})
    before = files_of(about)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).touch()
    assert files_of(about) != before


@pytest.mark.parametrize("place", ["", "func/"])  # one that the image inherits, or its own
@pytest.mark.parametrize(
    ("words", "content"),
    [
        ("datalad get", None),  # a link to content that is not here
        *(("not valid JSON", content) for content in (b'{"Rep', b"[2.0]", b"[" * 100_000)),
        ("not UTF-8", '{"Name": "Köln"}'.encode("latin-1")),
    ],
)
def test_an_unreadable_sidecar_is_not_an_absent_one(tmp_path, place, words, content):
    image, path = tmp_path / "sub-1/func/sub-1_bold.nii.gz", tmp_path / f"sub-1/{place}sub-1_bold.json"
    image.parent.mkdir(parents=True)
    path.symlink_to("../../.git/annex/objects/x.json") if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}.*{words}"):
        metadata_of(image)


@pytest.mark.parametrize(("entity", "about"), [("rec-phase", {}), ("acq-x", {"ImageType": ["ORIGINAL", "P", "PHASE"]})])
def test_phase_images_are_not_used(tmp_path, entity, about):
    bids = write_bids(tmp_path, 2)
    path = bids / f"sub-01/func/sub-01_task-rest_{entity}_bold.nii.gz"
    path.write_bytes(bold_path(bids, "sub-01").read_bytes())
    path.with_name(path.name.replace("nii.gz", "json")).write_text(json.dumps({"RepetitionTime": 2.0} | about))
    assert listed(bids).exclude_reason.dropna().to_dict() == {path.name[:-12]: "not a magnitude image"}
