"""Tables of people as their tools write them: missing values, numbers, encodings, and other spellings of one name."""

import json
import logging
from itertools import product

import pandas as pd
import pytest

from bolt.config import Config, Dataset
from bolt.datasets import index
from bolt.io.files import read_text
from bolt.io.people import known_values
from bolt.workflow.watched import files_of
from tests.fake_bids import bold_path, write_bids
from tests.fake_fmriprep import write_fmriprep

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


def test_other_texts_stay_as_they_are():
    values = pd.Series(["01", "1e3", "v1.0", "none", "-1.5", None])
    assert known_values(values).tolist()[:-1] == values.tolist()[:-1]


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
    for name in (".bidsignore", "task-rest_bold.json", "sub-01/func/sub-01_task-rest_events.tsv"):
        (bids / name).write_text("{}")
        assert before != (before := files_of(about)), name


def test_an_unreadable_sidecar_is_not_an_absent_one(tmp_path):
    """Of an image, or one that it inherits."""
    bids, said = write_bids(tmp_path, 11), {}
    damages = {
        "datalad get": None,  # a link to content that is not here
        "not valid JSON": [b'{"Rep', b"[2.0]", b"[" * 100_000],
        "not UTF-8": ['{"Name": "Köln"}'.encode("latin-1")],
    }
    contents = [(words, content) for words, many in damages.items() for content in many or [None]]
    for number, (place, (words, content)) in enumerate(product(("func/", ""), contents), start=1):
        path = bids / f"sub-{number:02d}/{place}sub-{number:02d}_task-rest_bold.json"
        path.unlink(missing_ok=True)
        if content is None:
            path.symlink_to("../../.git/annex/objects/x.json")
        else:
            path.write_bytes(content)
        said[f"sub-{number:02d}_task-rest"] = (words, str(path))
    reasons = listed(bids).exclude_reason.dropna()
    assert list(reasons.index) == list(said)
    assert all(word in reasons[scan] for scan, words in said.items() for word in words)


def test_phase_images_are_not_used(tmp_path):
    bids = write_bids(tmp_path, 4)
    for entity, about in (("rec-phase", {}), ("acq-x", {"ImageType": ["ORIGINAL", "P", "PHASE"]})):
        path = bids / f"sub-01/func/sub-01_task-rest_{entity}_bold.nii.gz"
        path.write_bytes(bold_path(bids, "sub-01").read_bytes())
        path.with_name(path.name.replace("nii.gz", "json")).write_text(json.dumps({"RepetitionTime": 2.0} | about))
    names = [f"sub-01_task-rest_{entity}" for entity in ("acq-x", "rec-phase")]
    assert listed(bids).exclude_reason.dropna().to_dict() == dict.fromkeys(names, "not a magnitude image")


def test_events_of_a_run_are_found_whatever_its_padding(tmp_path, caplog):
    derivatives = write_fmriprep(tmp_path / "study", 2, n_volumes=3)
    for subject in ("sub-01", "sub-02"):
        func = derivatives / subject / "func"
        for file in list(func.iterdir()):
            file.rename(func / file.name.replace("task-rest", "task-motor_run-1"))
    events = tmp_path / "study/sub-01/func/sub-01_task-motor_run-01_events.tsv"
    events.parent.mkdir(parents=True)
    events.write_text("onset\tduration\n1\t2\n")
    with caplog.at_level(logging.WARNING):
        scans = listed(derivatives, source="fmriprep", bids=tmp_path / "study")
    assert scans.events.tolist()[0] == str(events) and pd.isna(scans.events.iloc[1])
    assert "1 of 2 scans have no table of events" in caplog.text
