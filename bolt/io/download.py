"""Fetching of one file from a server or a folder: verified, and complete or absent."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import random
import shutil
import time
import urllib.parse
import urllib.request
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import requests

from bolt import __version__
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import sha256 as sha256_of
from bolt.io.resource_errors import full_disk_error, require_space

log = logging.getLogger("bolt")
CHUNK = 1 << 20
BUSY = {408, 425, 429, 500, 502, 503, 504}
"""Status codes that are worth another try; all others are final."""
LONGEST_PAUSE = 60.0
TIMEOUT = 60.0
"""Seconds without data after which a connection counts as broken."""
HEADERS = {"User-Agent": f"bolt-fmri/{__version__}", "Accept-Encoding": "identity"}
REFUSED = {403: "the server refuses it, or does not have it", 404: "the server does not have it"}
PAGE_STARTS = (b"<!doctype", b"<html", b"<?xml", b"<error")
TEXT_PAGES = (".html", ".htm", ".xml")
GZIP_MAGIC = b"\x1f\x8b"
FETCH_AGAIN = "Fetch it again, or ask its publisher"


def fetch(
    address: str | Path,
    destination: str | Path,
    *,
    size: int | None = None,
    sha256: str | Collection[str] = (),
    tries: int = 6,
    pause: float = 2.0,
    bucket: Any = None,
) -> Path:
    """Fetch one file, unless `verify` accepts the one that is there already.

    Parameters
    ----------
    address : str or path
        ``http(s)://…``, ``file:…`` or a plain path; with `bucket`, the key of an object in it.
    destination : path
        Appears only once it is complete and verified.
    size : int, optional
        Expected bytes; default: what the server states.
    sha256 : str or collection of str
        Accepted checksums; empty: any.
    tries : int
        Attempts if the server is busy or the connection breaks.
    pause : float
        Seconds before the second try; doubled for each further one, ± 50 % at random: about a minute in all with the
        defaults.
    bucket : bolt.config.Bucket, optional
        S3 bucket that holds the object.

    Returns
    -------
    Path
        `destination`.

    Raises
    ------
    DataError
        The file is missing, refused, or not what was requested.
    ConfigError
        It did not arrive in `tries` tries, no connection is possible, or the disk is full: the file is not to blame.
    """
    address, destination = str(address), Path(destination)
    if destination.is_file():
        try:
            verify(destination, size=size, sha256=sha256)
            return destination
        except DataError as error:
            log.info("fetching again: %s", error)
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(f"{destination.name}.part")
    try:
        if bucket is not None:
            from bolt.io import s3  # boto3 is an extra

            s3.download(bucket, address, part, size=size, tries=tries)
        elif is_remote(address):
            _download(address, part, destination.name, size=size, tries=tries, pause=pause)
        else:
            source = local_path(address)
            if not source.is_file():
                raise DataError("file not found", where=source, hint="Complete the folder, or use another base address")
            require_space(part.parent, source.stat().st_size, destination.name)
            shutil.copyfile(source, part)
        verify(part, name=destination.name, where=address, size=size, sha256=sha256)
        os.replace(part, destination)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full_disk_error(destination.parent, destination.name) from None
        raise
    finally:
        part.unlink(missing_ok=True)
    return destination


def _download(address: str, path: Path, name: str, *, size: int | None, tries: int, pause: float) -> None:
    """Download `address` to `path`, as a file that will be called `name`."""
    problem, place = "", path.with_name(name)
    for number in range(tries):
        if number:
            wait = min(pause * 2 ** (number - 1) * random.uniform(0.5, 1.5), LONGEST_PAUSE)
            log.info("%s: %s; next try in %.1f s", address, problem, wait)
            time.sleep(wait)
        try:
            with requests.get(address, headers=HEADERS, stream=True, timeout=TIMEOUT) as response:
                if response.ok:
                    total = int(response.headers.get("Content-Length", size or 0))
                    if size is not None and total != size:
                        what = f"the server has {total} bytes, but {size} are expected"
                        raise DataError(what, where=response.url, hint="Ask the file's publisher")
                    require_space(path.parent, total, name)
                    with path.open("wb") as target:
                        target.writelines(response.iter_content(CHUNK))
                    return
                problem = f"the server answers {response.status_code} {response.reason}"
                if response.status_code not in BUSY:
                    what = REFUSED.get(response.status_code, "the server refuses it")
                    hint = f"Check the base address, or download the file elsewhere and save it as {place}"
                    raise DataError(f"{what} ({response.status_code} {response.reason})", where=address, hint=hint)
        except requests.exceptions.SSLError as error:
            hint = "Set REQUESTS_CA_BUNDLE to your institution's certificates, or use another base address"
            raise ConfigError(f"no secure connection ({_reason(error)})", where=address, hint=hint) from None
        except requests.exceptions.ChunkedEncodingError:
            problem = f"the connection broke off after {path.stat().st_size} bytes"
        except (requests.ConnectionError, requests.Timeout) as error:
            problem = _reason(error)
        except (requests.exceptions.InvalidURL, ValueError):  # its text may repeat a proxy's address, with the password
            what = "invalid address of the file or of the proxy"
            raise ConfigError(what, where=address, hint="Correct it, or http(s)_proxy") from None
    what = f"download failed in {tries} tries ({problem})"
    raise ConfigError(what, where=address, hint=f"Try again later, or download it yourself and save it as {place}")


def _reason(error: requests.RequestException) -> str:
    """Return the innermost cause of an error, without the objects and addresses through which it came."""
    cause = error.args[0] if error.args else error
    cause = getattr(cause, "reason", None) or cause
    return str(cause).split(": ", 1)[-1].strip("'\"()") or type(error).__name__


def verify(
    path: str | Path,
    *,
    name: str | None = None,
    where: str | None = None,
    size: int | None = None,
    sha256: str | Collection[str] = (),
) -> None:
    """Refuse a file that is empty, cut off, damaged, or a web page.

    Parameters
    ----------
    path : path
    name : str, optional
        Final name of the file, for its format; default: that of `path`.
    where : str, optional
        Place to name in errors; default: `path`.
    size : int, optional
        Expected bytes.
    sha256 : str or collection of str
        Accepted checksums; empty: any.

    Raises
    ------
    DataError
    """
    path = Path(path)
    name, where = name or path.name, where or str(path)
    accepted = (sha256,) if isinstance(sha256, str) else tuple(sha256)
    n_bytes = path.stat().st_size
    if size is not None and n_bytes != size:
        raise DataError(f"{n_bytes} bytes, but {size} are expected", where=where, hint=FETCH_AGAIN)
    if n_bytes == 0:
        raise DataError("the file is empty", where=where, hint=FETCH_AGAIN)
    with path.open("rb") as file:
        start = file.read(512)
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(PAGE_STARTS) and not name.endswith(TEXT_PAGES):
        opening = " ".join(start.decode("utf-8", "replace").split())[:80]
        hint = "Open the address in a browser: a login, a proxy or a wrong base address may be the cause"
        raise DataError(f"a web page or a server's message instead of {name} ({opening})", where=where, hint=hint)
    if name.endswith(".gz"):
        if not start.startswith(GZIP_MAGIC):
            raise DataError("not compressed with gzip, despite its name", where=where, hint=FETCH_AGAIN)
        try:
            with gzip.open(path) as packed:
                while packed.read(CHUNK):
                    pass
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"the file is cut off or damaged ({error})", where=where, hint=FETCH_AGAIN) from None
    if accepted and (digest := sha256_of(path)) not in accepted:
        hint = f"Download the file yourself, and save it as {name} if it is the right one"
        raise DataError(f"sha256 is {digest}, not {' or '.join(accepted)}", where=where, hint=hint)


def is_remote(address: str | Path) -> bool:
    """Return whether an address is fetched over the network."""
    return str(address).startswith(("http://", "https://"))


def join(base: str | Path, *names: str) -> str:
    """Return the address of a file below a base address or folder."""
    if is_remote(base) or str(base).startswith("file:"):
        return "/".join([str(base).rstrip("/"), *(urllib.parse.quote(name) for name in names)])
    return str(Path(base).joinpath(*names))


def local_path(address: str | Path) -> Path:
    """Return the file or folder at a plain path or ``file:`` address."""
    plain = str(address)
    return Path(
        urllib.request.url2pathname(urllib.parse.urlsplit(plain).path) if plain.startswith("file:") else plain
    ).expanduser()
