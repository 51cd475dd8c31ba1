"""Fetching over HTTP and from folders: verified, and complete or absent."""

import gzip
import hashlib
import random
from collections import namedtuple

import pytest

from bolt.io import download
from bolt.io import resource_errors as disk
from bolt.io.download import fetch, join, verify
from bolt.io.errors import ConfigError, DataError
from bolt.io.resource_errors import require_space
from tests.file_server import serve

DATA = random.Random(0).randbytes(3_000_000)


@pytest.fixture
def server(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served/scan.bin").write_bytes(DATA)
    with serve(tmp_path / "served") as server:
        yield server


def get(server, tmp_path, name="scan.bin", **options):
    return fetch(f"{server.address}/{name}", tmp_path / "got" / name, pause=0.01, **options)


def left_behind(tmp_path):
    return sorted(path.name for path in (tmp_path / "got").iterdir())


def test_a_download_leaves_only_the_complete_file_which_is_not_fetched_again(server, tmp_path):
    assert get(server, tmp_path, sha256=hashlib.sha256(DATA).hexdigest()).read_bytes() == DATA
    assert left_behind(tmp_path) == ["scan.bin"]
    get(server, tmp_path, size=len(DATA))
    assert len(server.asked) == 1
    (tmp_path / "got/scan.bin").write_bytes(b"")
    assert get(server, tmp_path).read_bytes() == DATA and len(server.asked) == 2


def test_a_download_that_breaks_off_is_repeated_and_leaves_nothing_where_it_fails(server, tmp_path):
    server.drops["/scan.bin"] = [1_000_000, 500_000]
    assert get(server, tmp_path).read_bytes() == DATA
    server.drops["/scan.bin"] = [1_000_000]
    for address, tries in ((f"{server.address}/scan.bin", 1), ("http://127.0.0.1:9/scan.bin", 2)):  # none is there
        with pytest.raises(ConfigError, match=rf"failed in {tries} tries .*download it yourself .*again/scan.bin"):
            fetch(address, tmp_path / "again/scan.bin", tries=tries, pause=0.01)
        assert list((tmp_path / "again").iterdir()) == []


def test_a_busy_server_is_tried_again_with_growing_pauses_and_not_for_ever(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    server.answers["/scan.bin"] = [429, 500, 503]
    assert fetch(f"{server.address}/scan.bin", tmp_path / "got/scan.bin").read_bytes() == DATA
    assert len(server.asked) == 4
    pauses.clear()
    server.answers["/scan.bin"] = [503] * 9
    with pytest.raises(ConfigError, match="download failed in 6 tries.*503.*Try again later, or download it yourself"):
        fetch(f"{server.address}/scan.bin", tmp_path / "again/scan.bin")
    assert len(server.asked) == 10 and len(pauses) == 5
    assert all(2**i <= pause <= 3 * 2**i for i, pause in enumerate(pauses))


@pytest.mark.parametrize(("code", "words"), [(404, "does not have it"), (403, "refuses it, .*"), (401, "refuses it")])
def test_final_status_codes_are_not_retried(server, tmp_path, code, words):
    server.answers["/scan.bin"] = [code]
    with pytest.raises(DataError, match=rf"scan\.bin: .*{words} \({code} .*Check the base address"):
        get(server, tmp_path)
    assert len(server.asked) == 1 and left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("scan.nii.gz", b"<!DOCTYPE html><html><body>Log in</body></html>"),
        ("scan.1D", b"\n <html>Log in"),
        ("table.csv", b"<?xml version='1.0'?><Error>AccessDenied"),
    ],
)
def test_a_web_page_instead_of_a_scan_is_refused(tmp_path, name, page):
    for place in (tmp_path / name, tmp_path / "about.html"):
        place.write_bytes(page)
    with pytest.raises(DataError, match=rf"a web page .*instead of {name} .*(Log in|AccessDenied).*browser"):
        verify(tmp_path / name)
    verify(tmp_path / "about.html")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-100], "the file is cut off or damaged"),
        (lambda data: data[:500] + b"\0" * 50 + data[550:], "the file is cut off or damaged"),
        (lambda data: b"\x5c\x01\0\0", "not compressed with gzip, despite its name"),
    ],
)
def test_a_damaged_gzip_is_refused(tmp_path, change, words):
    (tmp_path / "scan.nii.gz").write_bytes(change(gzip.compress(DATA[:100_000])))
    with pytest.raises(DataError, match=rf"scan\.nii\.gz: {words}"):
        verify(tmp_path / "scan.nii.gz")


def test_wrong_size_and_checksum_are_refused(server, tmp_path):
    with pytest.raises(DataError, match="the server has 3000000 bytes, but 5 are expected"):
        get(server, tmp_path, size=5)
    with pytest.raises(DataError, match="sha256 is .* not abc"):
        get(server, tmp_path, sha256="abc")
    (server.folder / "empty.1D").touch()
    with pytest.raises(DataError, match="the file is empty"):
        get(server, tmp_path, "empty.1D")
    assert left_behind(tmp_path) == []


def test_files_are_fetched_from_a_folder(server, tmp_path):
    for address in (server.folder / "scan.bin", (server.folder / "scan.bin").as_uri()):
        assert fetch(address, tmp_path / "got/scan.bin").read_bytes() == DATA
        (tmp_path / "got/scan.bin").unlink()
    (server.folder / "page.nii").write_text("<html>")
    for name, words in (("gone.bin", "gone.bin: file not found. Complete the folder"), ("page.nii", "a web page")):
        with pytest.raises(DataError, match=words):
            fetch(server.folder / name, tmp_path / "got" / name)
    assert not server.asked and left_behind(tmp_path) == []


def test_disk_space_is_checked_before_the_download(server, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda folder: usage(10, 9, 1_000_000))
    with pytest.raises(ConfigError, match=r"got: not enough disk space: scan\.bin needs 3\.0 MB, 1\.0 MB are free"):
        get(server, tmp_path)
    assert left_behind(tmp_path) == []
    with pytest.raises(ConfigError, match="not enough disk space"):
        fetch(server.folder / "scan.bin", tmp_path / "got/scan.bin")
    require_space(tmp_path / "not/yet", 1_000_000, "this")


def test_addresses_below_a_base():
    assert join("https://host/a/", "b", "c d.1D") == "https://host/a/b/c%20d.1D"
    assert join("/a", "b", "c d.1D") == "/a/b/c d.1D"
