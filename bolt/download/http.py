"""One file over HTTP: tried again where the server is busy, continued where the connection broke off.

What has arrived of ``scan.nii.gz`` lies beside it as ``scan.nii.gz.part``, with the server's mark of that version in
``scan.nii.gz.part.json``, so that a later attempt asks for the rest alone, and only of the same version.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import logging
import random
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bolt import __version__
from bolt.io.disk_space import require_room
from bolt.io.errors import DataError
from bolt.io.files import write_json

log = logging.getLogger("bolt")
CHUNK = 1 << 20
BUSY = {408, 425, 429, 500, 502, 503, 504}
"""Answers that another try may better; all others are final."""
LONGEST_PAUSE = 60.0


class Dropped(Exception):
    """The server was busy or the connection broke: another try may go better."""

    def __init__(self, reason: object, wait: float = 0.0) -> None:
        super().__init__(str(reason))
        self.wait = wait


@dataclass(frozen=True)
class Part:
    """What has arrived of a file."""

    destination: Path

    @property
    def path(self) -> Path:
        return self.destination.with_name(self.destination.name + ".part")

    @property
    def mark(self) -> Path:
        return self.destination.with_name(self.destination.name + ".part.json")

    def held(self, address: str) -> tuple[int, str]:
        """Bytes that have arrived and the server's mark of their version; (0, "") where they cannot be continued."""
        try:
            mark = json.loads(self.mark.read_text())
            same = mark["address"] == address and mark["version"]
            return (self.path.stat().st_size, mark["version"]) if same else (0, "")
        except (OSError, ValueError, KeyError, TypeError):
            return 0, ""

    def begin(self, address: str, version: str) -> None:
        """Start anew: what has arrived so far is of another version."""
        self.path.unlink(missing_ok=True)
        write_json({"address": address, "version": version}, self.mark)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)


def download(address: str, part: Part, *, size: int | None, tries: int, pause: float, timeout: float) -> None:
    """Fill `part` from an ``http(s)`` address; see `bolt.download.fetch.fetch` for the arguments.

    Raises
    ------
    DataError
        The server refuses; or, with a `Dropped` as its cause, the last try broke off and `part` is kept.
    ConfigError
        The disk has no room for the file.
    """
    for attempt in range(1, tries + 1):
        try:
            _try_once(address, part, size, timeout)
            return
        except Dropped as dropped:
            if attempt == tries:
                raise DataError(
                    f"download failed in {tries} tries ({dropped})",
                    where=address,
                    hint=f"Try again later, or fetch it by hand and save it as {part.destination}",
                ) from dropped
            wait = min(max(pause * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), dropped.wait), LONGEST_PAUSE)
            log.info("%s: %s; again in %.1f s", address, dropped, wait)
            time.sleep(wait)


def _try_once(address: str, part: Part, size: int | None, timeout: float) -> None:
    start, version = part.held(address)
    headers = {"User-Agent": f"bolt-fmri/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            total = _receive(answer, start, address, part, size)
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{start}":
            return  # all of it had arrived
        raise _refused(error, address, part) from None
    except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError) as error:
        if isinstance(error, http.client.InvalidURL):  # its text repeats a part of a proxy's address, password and all
            raise DataError(
                "not a readable address, or not one of the proxy", where=address, hint="Correct it, or http(s)_proxy"
            ) from None
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise DataError(
                f"the server's certificate is not trusted ({reason.verify_message})",
                where=address,
                hint="Set SSL_CERT_FILE to your institution's certificates, or name another base address",
            ) from None
        raise Dropped(str(reason) or type(reason).__name__) from None
    arrived = part.path.stat().st_size
    if total is not None and arrived != total:
        raise Dropped(f"the connection broke off after {arrived} of {total} bytes")


def _receive(answer: http.client.HTTPResponse, start: int, address: str, part: Part, size: int | None) -> int | None:
    """Write what the server sends, after the `start` bytes that are there if it continues them; returns the size of
    the whole file where the server says it."""
    continued = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    start = start if continued else 0
    length = answer.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    if total is not None and size is not None and total != size:
        raise DataError(
            f"the server has {total} bytes, but {size} are due", where=address, hint="Ask the file's publisher"
        )
    if total is not None:
        require_room(part.destination.parent, total - start, part.destination.name)
    if start == 0:
        part.begin(address, _version(answer))
    with part.path.open("ab") as target:
        _copy(answer, target)
    return total


def _copy(source: http.client.HTTPResponse, target: BinaryIO) -> None:
    while chunk := source.read(CHUNK):
        target.write(chunk)


def _version(answer: http.client.HTTPResponse) -> str:
    """A strong ETag, or the date; without either a download cannot be continued."""
    tag = answer.headers.get("ETag", "")
    return tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")


def _refused(error: urllib.error.HTTPError, address: str, part: Part) -> DataError | Dropped:
    if error.code == 416:  # the file has become shorter than what has arrived
        part.forget()
        return Dropped("the server's file has changed")
    if error.code in BUSY:
        return Dropped(f"the server says {error.code} {error.reason}", _retry_after(error.headers.get("Retry-After")))
    what = {403: "the server refuses it, or does not have it", 404: "the server does not have it"}
    return DataError(
        f"{what.get(error.code, 'the server refuses it')} ({error.code} {error.reason})",
        where=address,
        hint=f"Check the base address, or fetch the file elsewhere and save it as {part.destination}",
    )


def _retry_after(value: str | None) -> float:
    """Seconds that the server asks to wait: a number or a date."""
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
