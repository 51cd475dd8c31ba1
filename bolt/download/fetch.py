"""Fetching of one file from a server or a folder: verified, and complete or absent."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import shutil
import urllib.parse
import urllib.request
import zlib
from collections.abc import Collection
from pathlib import Path

from bolt.config import Bucket
from bolt.download.http import CHUNK, download
from bolt.io.disk_space import full_disk_error, require_space
from bolt.io.errors import DataError
from bolt.io.files import sha256 as sha256_of

log = logging.getLogger("bolt")
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
    timeout: float = 60.0,
    bucket: Bucket | None = None,
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
    timeout : float
        Seconds without data after which a connection counts as broken.
    bucket : Bucket, optional
        S3 bucket that holds the object.

    Returns
    -------
    Path
        `destination`.

    Raises
    ------
    DataError
        The file is missing, refused, not what was requested, or did not arrive in `tries` tries.
    ConfigError
        The disk is full.
    """
    address, destination = str(address), Path(destination)
    if destination.is_file() and _is_right(destination, size, sha256):
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(f"{destination.name}.part")
    try:
        if bucket is not None:
            from bolt.download import s3

            s3.download(bucket, address, part, size=size, tries=tries)
        elif is_remote(address):
            download(address, part, destination.name, size=size, tries=tries, pause=pause, timeout=timeout)
        else:
            _copy(address, part, destination.name)
        verify(part, name=destination.name, where=address, size=size, sha256=sha256)
        os.replace(part, destination)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full_disk_error(destination.parent, destination.name) from None
        raise
    finally:
        part.unlink(missing_ok=True)
    return destination


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
        raise DataError(
            f"a web page or a server's message instead of {name} ({_opening(start)})",
            where=where,
            hint="Open the address in a browser: a login, a proxy or a wrong base address may be the cause",
        )
    if name.endswith(".gz"):
        _check_gzip(path, start, where)
    if accepted and (digest := sha256_of(path)) not in accepted:
        raise DataError(
            f"sha256 is {digest}, not {' or '.join(accepted)}",
            where=where,
            hint=f"Download the file yourself, and save it as {name} if it is the right one",
        )


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


def _copy(address: str, path: Path, name: str) -> None:
    source = local_path(address)
    if not source.is_file():
        raise DataError("file not found", where=source, hint="Complete the folder, or use another base address")
    require_space(path.parent, source.stat().st_size, name)
    shutil.copyfile(source, path)


def _is_right(path: Path, size: int | None, sha256: str | Collection[str]) -> bool:
    try:
        verify(path, size=size, sha256=sha256)
    except DataError as error:
        log.info("fetching again: %s", error)
        return False
    return True


def _check_gzip(path: Path, start: bytes, where: str) -> None:
    if not start.startswith(GZIP_MAGIC):
        raise DataError("not compressed with gzip, despite its name", where=where, hint=FETCH_AGAIN)
    try:
        with gzip.open(path) as packed:
            while packed.read(CHUNK):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"the file is cut off or damaged ({error})", where=where, hint=FETCH_AGAIN) from None


def _opening(start: bytes) -> str:
    return " ".join(start.decode("utf-8", "replace").split())[:80]
