"""Objects of an S3 bucket, opened with credentials that AWS's own files or variables hold; nothing here writes them.

boto3 looks for them in its usual places: the profile that the dataset's file names, the variables AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, ``~/.aws/credentials``. What has arrived of an object is kept as a
`bolt.download.http.Part`, as over HTTP.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
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

from bolt.config import Bucket
from bolt.download.http import CHUNK, LONGEST_PAUSE, Dropped, Part
from bolt.io.disk_space import require_room
from bolt.io.errors import BoltError, ConfigError, DataError

log = logging.getLogger("bolt")
for noisy in ("boto3", "botocore", "s3transfer", "urllib3"):
    logging.getLogger(noisy).setLevel(logging.WARNING)  # below that they say where credentials come from

CONNECTIONS = 16
BROKEN = (ConnectionError, HTTPClientError, IncompleteReadError)
NO_KEY = {"NoSuchKey", "404", "NotFound"}
CHANGED = {"PreconditionFailed", "412"}
ACCESS = {
    "hcp-openaccess": "Sign in at https://db.humanconnectome.org, accept the open access terms and create AWS "
    "credentials there (Amazon S3 Access); save them as a section [hcp] of ~/.aws/credentials, and set 'profile: hcp' "
    "below 'hcp: bucket' in the dataset's file. Or set 'hcp: bucket: null', and 'path' to a local copy"
}
"""How access to a bucket is got."""


def connect(bucket: Bucket, tries: int = 5) -> Any:
    """A client of the bucket's service; it may be shared by threads.

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
    with _explained(bucket):
        session = boto3.Session(profile_name=bucket.profile)
        return session.client("s3", endpoint_url=bucket.endpoint, config=settings)


def sizes(client: Any, bucket: Bucket, prefix: str) -> dict[str, int]:
    """Objects below a prefix: key to bytes, sorted.

    Raises
    ------
    ConfigError
        The bucket does not exist, or refuses the credentials.
    DataError
        The service cannot be reached.
    """
    found: dict[str, int] = {}
    with _explained(bucket, prefix):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket.name, Prefix=prefix):
            found |= {entry["Key"]: entry["Size"] for entry in page.get("Contents", [])}
    return dict(sorted(found.items()))


def read(client: Any, bucket: Bucket, key: str, n_bytes: int | None = None) -> bytes:
    """An object, or its first `n_bytes`.

    Raises
    ------
    ConfigError
        The bucket does not exist, or refuses the credentials.
    DataError
        There is no such object, or it cannot be reached.
    """
    some = {} if n_bytes is None else {"Range": f"bytes=0-{n_bytes - 1}"}
    with _explained(bucket, key):
        try:
            return client.get_object(Bucket=bucket.name, Key=key, **some)["Body"].read()
        except ClientError as error:
            if _code(error) == "InvalidRange":  # an empty object has no first byte
                return b""
            raise


def download(
    bucket: Bucket, key: str, part: Part, *, size: int | None = None, tries: int = 5, pause: float = 1.0
) -> None:
    """Fill `part` with an object, going on from what has arrived of the same version.

    Parameters
    ----------
    bucket : Bucket
    key : str
    part : Part
    size : int, optional
        Bytes the object must have.
    tries : int
        How often a broken connection is continued; requests that the service turns down as busy are repeated as often.
    pause : float
        Seconds before the second try; doubled for each further one, give or take a half.

    Raises
    ------
    ConfigError
        The bucket does not exist or refuses the credentials, or the disk has no room.
    DataError
        There is no such object, it has another size, or, with a `Dropped` as its cause, the last try broke off.
    """
    client = connect(bucket, tries)
    for attempt in range(1, tries + 1):
        try:
            return _try_once(client, bucket, key, part, size)
        except Dropped as dropped:
            if attempt == tries:
                raise DataError(
                    f"download failed in {tries} tries ({dropped})",
                    where=address(bucket, key),
                    hint="Try again later; what has arrived is kept",
                ) from dropped
            wait = min(pause * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), LONGEST_PAUSE)
            log.info("%s: %s; again in %.1f s", address(bucket, key), dropped, wait)
            time.sleep(wait)


def address(bucket: Bucket, key: str) -> str:
    return f"s3://{bucket.name}/{key}"


def _try_once(client: Any, bucket: Bucket, key: str, part: Part, size: int | None) -> None:
    where = address(bucket, key)
    start, version = part.held(where)
    rest = {"Range": f"bytes={start}-", "IfMatch": version} if start else {}
    with _explained(bucket, key):
        try:
            answer = client.get_object(Bucket=bucket.name, Key=key, **rest)
        except ClientError as error:
            if _code(error) in CHANGED or _code(error) == "InvalidRange":
                if start == size:
                    return  # all of it had arrived
                part.forget()
                raise Dropped("the object has changed since the download began") from None
            raise
        except BROKEN as error:
            raise Dropped(type(error).__name__) from None  # its text may repeat a header, credentials and all
    start = start if "ContentRange" in answer else 0
    total = start + answer["ContentLength"]
    if size is not None and total != size:
        part.forget()
        raise DataError(f"the bucket has {total} bytes, but {size} are due", where=where, hint="List the bucket again")
    require_room(part.destination.parent, total - start, part.destination.name)
    if not start:
        part.begin(where, answer["ETag"])
    try:
        with part.path.open("ab") as target:
            for chunk in answer["Body"].iter_chunks(CHUNK):
                target.write(chunk)
    except BROKEN as error:
        raise Dropped(type(error).__name__) from None
    arrived = part.path.stat().st_size
    if arrived != total:
        raise Dropped(f"the connection broke off after {arrived} of {total} bytes")


@contextmanager
def _explained(bucket: Bucket, key: str = "") -> Iterator[None]:
    """Errors of boto3 as ours; none of them repeats a credential."""
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as error:
        raise _refused(bucket, "no usable credentials were found", error) from None
    except ClientError as error:
        raise _answer(bucket, key, error) from None
    except BROKEN as error:
        raise DataError(
            f"the bucket's service cannot be reached ({type(error).__name__})",
            where=address(bucket, key),
            hint="Check the network and 'bucket: endpoint', and run again",
        ) from None
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(
            f"the connection cannot be set up ({type(error).__name__})",
            where=f"s3://{bucket.name}",
            hint="Correct 'bucket: name' and 'bucket: endpoint', or AWS's own settings in ~/.aws/config",
        ) from None


def _answer(bucket: Bucket, key: str, error: ClientError) -> BoltError:
    code, status = _code(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code == "NoSuchBucket":
        return ConfigError("there is no such bucket", where=f"s3://{bucket.name}", hint="Correct 'bucket: name'")
    if code in NO_KEY:
        return DataError("there is no such object", where=address(bucket, key), hint="Check 'bucket: prefix'")
    if status in (400, 401, 403):
        return _refused(bucket, "the credentials are refused", code)
    return DataError(
        f"the bucket's service answers {code} ({status})", where=address(bucket, key), hint="Try again later"
    )


def _refused(bucket: Bucket, what: str, why: object) -> ConfigError:
    profile = f" of profile '{bucket.profile}'" if bucket.profile else ""
    return ConfigError(
        f"{what.replace('credentials', f'credentials{profile}')} ({why})",
        where=f"s3://{bucket.name}",
        hint=ACCESS.get(bucket.name, "Ask the bucket's owner for access, and name the profile as 'bucket: profile'"),
    )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
