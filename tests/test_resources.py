"""Staging: only the right file appears under its name."""

import hashlib
import zipfile

import pytest

from bolt.atlases import ATLASES
from bolt.config import Config
from bolt.errors import DataError
from bolt.resources import fetch, stage_atlases


def test_right_file_is_kept_and_wrong_one_leaves_nothing(tmp_path):
    source = tmp_path / "source.bin"
    source.write_bytes(b"atlas")
    fetch(source.as_uri(), tmp_path / "in" / "a.bin", [hashlib.sha256(b"atlas").hexdigest()])
    assert (tmp_path / "in" / "a.bin").read_bytes() == b"atlas"
    with pytest.raises(DataError, match=r"sha256 is .*not abc"):
        fetch(source.as_uri(), tmp_path / "in" / "b.bin", ["abc"])
    assert [p.name for p in (tmp_path / "in").iterdir()] == ["a.bin"]


def test_file_in_an_archive_is_taken_out(tmp_path):
    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as archive:
        archive.writestr("folder/a.nii", b"atlas")
    url = (tmp_path / "pack.zip").as_uri()
    fetch(url, tmp_path / "a.nii", [hashlib.sha256(b"atlas").hexdigest()])
    assert (tmp_path / "a.nii").read_bytes() == b"atlas"
    with pytest.raises(DataError, match="does not hold other"):
        fetch(url, tmp_path / "other.nii", [])


def test_failed_download_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="download failed.*Fetch it by hand and save it as"):
        fetch((tmp_path / "gone.bin").as_uri(), tmp_path / "a.bin", [], pause=0)


def test_an_atlas_that_is_there_is_not_fetched():
    stage_atlases(Config(dataset="phantom", atlases=["dosenbach160"]))
    assert not list((ATLASES / "dosenbach160").glob("*.nii*"))
