"""Download of one file over HTTP: retried if the server is busy, and resumed after an interruption.

What has arrived of ``scan.nii.gz`` is kept beside it as ``scan.nii.gz.part``, with the server's version in
``scan.nii.gz.part.json``, so that a later attempt requests only the rest, and only of the same version.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import logging
import random
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bolt import __version__
from bolt.io.disk_space import require_space
from bolt.io.errors import DataError
from bolt.io.files import write_json

log = logging.getLogger("bolt")
CHUNK = 1 << 20
BUSY = {408, 425, 429, 500, 502, 503, 504}
"""Status codes that are worth another try; all others are final."""
LONGEST_PAUSE = 60.0


class Interrupted(Exception):
    """The server was busy or the connection broke, and another try may succeed.

    Parameters
    ----------
    reason : object
    wait : float
        Seconds that the server asks to wait.
    """

    def __init__(self, reason: object, wait: float = 0.0) -> None:
        super().__init__(str(reason))
        self.wait = wait


@dataclass(frozen=True)
class PartialFile:
    """What has arrived of a file."""

    destination: Path

    @property
    def path(self) -> Path:
        """Return the file that holds what has arrived."""
        return self.destination.with_name(self.destination.name + ".part")

    @property
    def record(self) -> Path:
        """Return the file with its address and version."""
        return self.destination.with_name(self.destination.name + ".part.json")

    def held(self, address: str) -> tuple[int, str]:
        """Return the bytes that have arrived and their version, or (0, "") if they cannot be resumed."""
        try:
            record = json.loads(self.record.read_text())
            resumable = record["address"] == address and record["version"]
            return (self.path.stat().st_size, record["version"]) if resumable else (0, "")
        except (OSError, ValueError, KeyError, TypeError):
            return 0, ""

    def begin(self, address: str, version: str) -> None:
        """Start over, with a new version."""
        self.path.unlink(missing_ok=True)
        write_json({"address": address, "version": version}, self.record)

    def forget(self) -> None:
        """Remove what has arrived."""
        self.path.unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)


def retry(attempt: Callable[[], None], address: str, *, tries: int, pause: float, hint: str) -> None:
    """Repeat a download until it is no longer interrupted.

    Parameters
    ----------
    attempt : callable
        Raises `Interrupted` if another try may succeed.
    address : str
        Named in messages.
    tries : int
    pause : float
        Seconds before the second try; doubled for each further one, ± 50 % at random.
    hint : str

    Raises
    ------
    DataError
        The last try was interrupted, too; that `Interrupted` is its cause.
    """
    for number in range(tries):
        try:
            return attempt()
        except Interrupted as interruption:
            if number == tries - 1:
                what = f"download failed in {tries} tries ({interruption})"
                raise DataError(what, where=address, hint=hint) from interruption
            wait = min(max(pause * 2**number * random.uniform(0.5, 1.5), interruption.wait), LONGEST_PAUSE)
            log.info("%s: %s; next try in %.1f s", address, interruption, wait)
            time.sleep(wait)


def download(address: str, part: PartialFile, *, size: int | None, tries: int, pause: float, timeout: float) -> None:
    """Fill `part` from an ``http(s)`` address; see `bolt.download.fetch.fetch` for the parameters.

    Raises
    ------
    DataError
        The server refuses; or, with an `Interrupted` as its cause, the last try was interrupted and `part` is kept.
    ConfigError
        The disk has no space for the file.
    """
    hint = f"Try again later, or download it yourself and save it as {part.destination}"
    retry(lambda: _try_once(address, part, size, timeout), address, tries=tries, pause=pause, hint=hint)


def _try_once(address: str, part: PartialFile, size: int | None, timeout: float) -> None:
    start, version = part.held(address)
    headers = {"User-Agent": f"bolt-fmri/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            total = _receive(response, start, address, part, size)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{start}":
            return  # everything had arrived
        raise _refused(error, address, part) from None
    except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise _connection_error(error, address) from None
    require_total(part, total)


def require_total(part: PartialFile, total: int | None) -> None:
    """Raise `Interrupted` if not all bytes have arrived; `total` is None if the server does not state it."""
    arrived = part.path.stat().st_size
    if total is not None and arrived != total:
        raise Interrupted(f"the connection broke off after {arrived} of {total} bytes")


def _receive(
    response: http.client.HTTPResponse, start: int, address: str, part: PartialFile, size: int | None
) -> int | None:
    """Append the response to `part`, or replace it if the response does not resume at `start`.

    Returns the size of the whole file, if the server states it.
    """
    resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    start = start if resumed else 0
    length = response.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    if total is not None and size is not None and total != size:
        raise DataError(
            f"the server has {total} bytes, but {size} are expected", where=address, hint="Ask the file's publisher"
        )
    if total is not None:
        require_space(part.destination.parent, total - start, part.destination.name)
    if start == 0:
        part.begin(address, _version(response))
    with part.path.open("ab") as target:
        shutil.copyfileobj(response, target, CHUNK)
    return total


def _version(response: http.client.HTTPResponse) -> str:
    """Return a strong ETag or the date of modification; without either, a download cannot be resumed."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _connection_error(error: Exception, address: str) -> DataError | Interrupted:
    if isinstance(error, http.client.InvalidURL):  # its text may repeat a proxy's address, with the password
        return DataError(
            "invalid address of the file or of the proxy", where=address, hint="Correct it, or http(s)_proxy"
        )
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DataError(
            f"the server's certificate is not trusted ({reason.verify_message})",
            where=address,
            hint="Set SSL_CERT_FILE to your institution's certificates, or use another base address",
        )
    return Interrupted(str(reason) or type(reason).__name__)


def _refused(error: urllib.error.HTTPError, address: str, part: PartialFile) -> DataError | Interrupted:
    if error.code == 416:  # the file has become shorter than what has arrived
        part.forget()
        return Interrupted("the server's file has changed")
    if error.code in BUSY:
        wait = _retry_after(error.headers.get("Retry-After"))
        return Interrupted(f"the server answers {error.code} {error.reason}", wait)
    what = {403: "the server refuses it, or does not have it", 404: "the server does not have it"}
    return DataError(
        f"{what.get(error.code, 'the server refuses it')} ({error.code} {error.reason})",
        where=address,
        hint=f"Check the base address, or download the file elsewhere and save it as {part.destination}",
    )


def _retry_after(value: str | None) -> float:
    """Return the seconds that the server asks to wait, given as a number or a date."""
    if not value:
        return 0.0
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
