"""Objects of an S3 bucket, from a local service that checks signatures."""

import gzip
import logging

import numpy as np
import pytest

from bolt.config import Bucket
from bolt.io import s3
from bolt.io.download import fetch
from bolt.io.errors import ConfigError, DataError
from tests.fake_hcp import hide_aws, serve_s3
from tests.file_server import serve

DATA = np.random.default_rng(0).bytes(3_000_000)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    (folder / "HCP_1200/1").mkdir(parents=True)
    (folder / "HCP_1200/1/scan.bin").write_bytes(DATA)
    (folder / "HCP_1200/1/page.nii.gz").write_text("<html>Sign in</html>")
    (folder / "HCP_1200/1/empty").touch()
    (folder / "HCP_1200/1/cut.nii.gz").write_bytes(gzip.compress(DATA)[:-100])
    with serve_s3(folder) as running:
        yield running


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    hide_aws(monkeypatch, tmp_path)


@pytest.fixture
def bucket(service, tmp_path):
    service.credentials(tmp_path / "credentials")
    return Bucket(profile="hcp", endpoint=service.endpoint)


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "PLANTEDKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "PLANTEDSECRET")


def test_lists_and_reads(bucket):
    client = s3.connect(bucket)
    sizes = s3.list_sizes(client, bucket, "HCP_1200/1/")
    assert list(sizes) == [f"HCP_1200/1/{name}" for name in ("cut.nii.gz", "empty", "page.nii.gz", "scan.bin")]
    assert sizes["HCP_1200/1/scan.bin"] == len(DATA)
    assert s3.list_sizes(client, bucket, "HCP_1200/2/") == {}
    assert s3.read(client, bucket, "HCP_1200/1/scan.bin", 100) == DATA[:100]
    assert s3.read(client, bucket, "HCP_1200/1/scan.bin") == DATA
    assert s3.read(client, bucket, "HCP_1200/1/empty", 100) == b""


def test_a_connection_that_breaks_off_is_tried_again(tmp_path, keys):
    (tmp_path / "served/data").mkdir(parents=True)
    (tmp_path / "served/data/scan.bin").write_bytes(DATA)
    with serve(tmp_path / "served") as server:
        server.drops["/data/scan.bin"] = [1_100_000, 1_100_000]
        bucket = Bucket(name="data", endpoint=server.address)
        path = fetch("scan.bin", tmp_path / "got/scan.bin", bucket=bucket, size=len(DATA))
        assert path.read_bytes() == DATA and list(path.parent.iterdir()) == [path]
        server.drops["/data/scan.bin"] = [1_100_000] * 20
        with pytest.raises(ConfigError, match="cannot be reached"):
            fetch("scan.bin", tmp_path / "again/scan.bin", bucket=bucket)
        assert list((tmp_path / "again").iterdir()) == []


@pytest.mark.parametrize(
    ("key", "size", "words"),
    [
        ("page.nii.gz", None, "a web page"),
        ("cut.nii.gz", None, "cut off or damaged"),
        ("none.bin", None, "no such object"),
        ("scan.bin", 5, f"has {len(DATA)} bytes, but 5 are expected"),  # than the listed one
    ],
)
def test_invalid_objects_are_refused(bucket, tmp_path, key, size, words):
    with pytest.raises(DataError, match=words):
        fetch(f"HCP_1200/1/{key}", tmp_path / key, bucket=bucket, size=size, pause=0.01)
    assert not (tmp_path / key).exists()


@pytest.mark.parametrize("wrong", [{"secret": "wrong"}, {"key": "AKIAIOSFODNN7EXAMPLE", "secret": "wrong"}])
def test_refused_credentials_say_which_bucket_and_how_to_get_access(service, bucket, tmp_path, wrong):
    service.credentials(tmp_path / "credentials", **wrong)
    for act in (
        lambda: s3.list_sizes(s3.connect(bucket), bucket, "HCP_1200/"),
        lambda: fetch("HCP_1200/1/scan.bin", tmp_path / "scan.bin", bucket=bucket),
    ):
        with pytest.raises(ConfigError, match="^s3://hcp-openaccess: the credentials of profile 'hcp' are r") as caught:
            act()
        assert (
            "db.humanconnectome.org" in caught.value.hint and "section [hcp] of ~/.aws/credentials" in caught.value.hint
        )
        assert "wrong" not in str(caught.value) and "AKIA" not in str(caught.value)


def test_another_bucket_names_its_owner_and_what_is_not_there_is_said(service, tmp_path, monkeypatch):
    service.credentials(tmp_path / "credentials", secret="wrong")
    other = Bucket(name="lab", profile="hcp", endpoint=service.endpoint)
    with pytest.raises(ConfigError, match=r"s3://lab: .*Ask the bucket's owner"):
        s3.list_sizes(s3.connect(other), other, "")
    service.credentials(tmp_path / "credentials")
    with pytest.raises(ConfigError, match="no such bucket"):
        s3.list_sizes(s3.connect(other), other, "")
    with pytest.raises(ConfigError, match="of profile 'nobody' were found"):
        s3.connect(Bucket(profile="nobody"))
    nowhere = Bucket(profile="hcp", endpoint="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="cannot be reached"):
        s3.list_sizes(s3.connect(nowhere, tries=1), nowhere, "")


def test_logs_do_not_report_where_credentials_come_from(bucket, caplog):
    with caplog.at_level(logging.DEBUG):
        s3.list_sizes(s3.connect(bucket), bucket, "HCP_1200/")
    assert not [record for record in caplog.records if record.name.split(".")[0] not in ("moto", "werkzeug")]


def test_a_credential_that_cannot_be_sent_is_not_repeated(service, tmp_path, keys, monkeypatch, caplog):
    """A token with a stray line ending, which the error of the HTTP library repeats."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "PLANTEDTOKEN\r")
    bucket = Bucket(endpoint=service.endpoint)
    with caplog.at_level(logging.DEBUG, "bolt"), pytest.raises((ConfigError, DataError)) as caught:
        fetch("HCP_1200/1/scan.bin", tmp_path / "scan.bin", bucket=bucket, tries=2, pause=0.01)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("bolt")]
    assert "PLANTED" not in "".join([str(caught.value), *ours])
