"""Objects of an S3 bucket: listed, read and downloaded.

Every `bucket` is a `bolt.config.Bucket`. boto3 finds credentials in its usual places: the profile that the dataset's
file names, the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and ``~/.aws/credentials``; nothing here stores
them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from boto3.exceptions import RetriesExceededError
from botocore.config import Config as Settings
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from bolt.io.errors import ConfigError, DataError
from bolt.io.resource_errors import require_space

for name in ("boto3", "botocore", "s3transfer", "urllib3"):
    logging.getLogger(name).setLevel(logging.WARNING)  # at lower levels they report where credentials come from

CONNECTIONS = 16
BROKEN = (ConnectionError, HTTPClientError, IncompleteReadError, RetriesExceededError)
NO_KEY = {"NoSuchKey", "404", "NotFound"}
ACCESS = {
    "hcp-openaccess": "Sign in at https://db.humanconnectome.org, accept the open access terms and create AWS "
    "credentials there (Amazon S3 Access); save them as a section [hcp] of ~/.aws/credentials, and set 'profile: hcp' "
    "in 'hcp: bucket' of the dataset's file. Or set 'hcp: bucket: null', and 'path' to a local copy"
}
"""How to get access to a bucket."""


def connect(bucket: Any, tries: int = 5) -> Any:
    """Return a client of the bucket's service, which threads may share.

    Raises
    ------
    ConfigError
        The profile does not exist.
    """
    settings = Settings(
        retries={"mode": "standard", "total_max_attempts": tries},
        max_pool_connections=CONNECTIONS,
        connect_timeout=20,
        read_timeout=60,
    )
    with _translated_errors(bucket):
        session = boto3.Session(profile_name=bucket.profile)
        return session.client("s3", endpoint_url=bucket.endpoint, config=settings)


def list_sizes(client: Any, bucket: Any, prefix: str) -> dict[str, int]:
    """Return the bytes of each object below a prefix, sorted by key.

    Raises
    ------
    ConfigError
        The bucket does not exist, refuses the credentials, or cannot be reached.
    """
    n_bytes: dict[str, int] = {}
    with _translated_errors(bucket, prefix):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket.name, Prefix=prefix):
            n_bytes |= {entry["Key"]: entry["Size"] for entry in page.get("Contents", [])}
    return dict(sorted(n_bytes.items()))


def read(client: Any, bucket: Any, key: str, n_bytes: int | None = None) -> bytes:
    """Read an object, or its first `n_bytes`.

    Raises
    ------
    ConfigError
        The bucket does not exist, refuses the credentials, or cannot be reached.
    DataError
        The object does not exist.
    """
    extent = {} if n_bytes is None else {"Range": f"bytes=0-{n_bytes - 1}"}
    with _translated_errors(bucket, key):
        try:
            return client.get_object(Bucket=bucket.name, Key=key, **extent)["Body"].read()
        except ClientError as error:
            if _code(error) == "InvalidRange":  # an empty object has no first byte
                return b""
            raise


def download(bucket: Any, key: str, path: Path, *, size: int | None = None, tries: int = 5) -> None:
    """Download an object to `path`.

    Parameters
    ----------
    bucket : bolt.config.Bucket
    key : str
    path : Path
    size : int, optional
        Bytes the object must have.
    tries : int
        Attempts at each request if the service is busy.

    Raises
    ------
    ConfigError
        The bucket does not exist, refuses the credentials or cannot be reached, or the disk has no space.
    DataError
        The object does not exist, or has another size.
    """
    client = connect(bucket, tries)
    with _translated_errors(bucket, key):
        total = client.head_object(Bucket=bucket.name, Key=key)["ContentLength"]
        if size is not None and total != size:
            what = f"the bucket has {total} bytes, but {size} are expected"
            raise DataError(what, where=address(bucket, key), hint="List the bucket again")
        require_space(path.parent, total, path.name)
        client.download_file(bucket.name, key, str(path))


def address(bucket: Any, key: str) -> str:
    """Return the ``s3://`` address of an object."""
    return f"s3://{bucket.name}/{key}"


@contextmanager
def _translated_errors(bucket: Any, key: str = "") -> Iterator[None]:
    """Turn errors of boto3 into BolT's, which repeat no credentials."""
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
        raise _refused(bucket, "no usable credentials were found", error) from None
    except ClientError as error:
        code, status = _code(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code == "NoSuchBucket":
            what = "no such bucket"
            raise ConfigError(what, where=f"s3://{bucket.name}", hint="Correct 'bucket: name'") from None
        if code in NO_KEY:
            raise DataError("no such object", where=address(bucket, key), hint="Check 'bucket: prefix'") from None
        if status in (400, 401, 403):
            raise _refused(bucket, "the credentials are refused", code) from None
        what = f"the bucket's service answers {code} ({status})"
        raise ConfigError(what, where=address(bucket, key), hint="Try again later") from None
    except BROKEN as error:
        what = f"the bucket's service cannot be reached ({type(error).__name__})"
        hint = "Check the network and 'bucket: endpoint', and run again"
        raise ConfigError(what, where=address(bucket, key), hint=hint) from None
    except (BotoCoreError, ValueError) as error:
        what = f"the connection cannot be set up ({type(error).__name__})"
        hint = "Correct 'bucket: name' and 'bucket: endpoint', or AWS's own settings in ~/.aws/config"
        raise ConfigError(what, where=f"s3://{bucket.name}", hint=hint) from None


def _refused(bucket: Any, what: str, why: object) -> ConfigError:
    profile = f" of profile '{bucket.profile}'" if bucket.profile else ""
    what = f"{what.replace('credentials', f'credentials{profile}')} ({why})"
    hint = ACCESS.get(bucket.name, "Ask the bucket's owner for access, and set 'bucket: profile'")
    return ConfigError(what, where=f"s3://{bucket.name}", hint=hint)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
