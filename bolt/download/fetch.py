"""Fetching one file from a server or a folder: resumed, checked, and there whole or not at all."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import shutil
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterable
from pathlib import Path

from bolt.config import Bucket
from bolt.download.http import CHUNK, Dropped, Part, download
from bolt.io.disk_space import no_room_left, require_room
from bolt.io.errors import DataError
from bolt.io.files import sha256 as sha256_of

log = logging.getLogger("bolt")
PAGE = (b"<!doctype", b"<html", b"<?xml", b"<error")
TEXT_PAGES = (".html", ".htm", ".xml")
GZIP_MAGIC = b"\x1f\x8b"
AGAIN = "Fetch it again, or ask its publisher"


def fetch(
    address: str | Path,
    destination: str | Path,
    *,
    size: int | None = None,
    sha256: str | Iterable[str] = (),
    tries: int = 6,
    pause: float = 2.0,
    timeout: float = 60.0,
    bucket: Bucket | None = None,
) -> Path:
    """Fetch one file; nothing is done where one that `verify` accepts is there already.

    Parameters
    ----------
    address : str or path
        ``http(s)://…``, ``file:…`` or a plain path; with `bucket`, the key of an object in it.
    destination : path
        Appears only once it is whole and verified.
    size : int, optional
        Bytes it must have; default: what the server says.
    sha256 : str or iterable of str
        Sums of which it must have one; empty: any.
    tries : int
        How often a busy or vanishing server is asked.
    pause : float
        Seconds before the second try; doubled for each further one, give or take a half: with the defaults about a
        minute in all.
    timeout : float
        Seconds without a byte after which a connection counts as dropped.
    bucket : Bucket, optional
        S3 bucket that holds the object.

    Returns
    -------
    Path
        `destination`.

    Raises
    ------
    DataError
        The file is not there, not allowed, not what was asked for, or did not arrive in `tries` tries.
    ConfigError
        The disk is full: no file is to blame.
    """
    address, destination = str(address), Path(destination)
    sums = (sha256,) if isinstance(sha256, str) else tuple(sha256)
    if destination.is_file() and _is_right(destination, size, sums):
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = Part(destination)
    try:
        if bucket is not None:
            from bolt.download import s3

            s3.download(bucket, str(address), part, size=size, tries=tries, pause=pause)
        elif is_remote(address):
            download(address, part, size=size, tries=tries, pause=pause, timeout=timeout)
        else:
            _copy(address, part)
        verify(part.path, name=destination.name, where=address, size=size, sha256=sums)
    except DataError as error:
        if not isinstance(error.__cause__, Dropped):  # else what has arrived is kept for another run
            part.forget()
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_room_left(destination) from None
        raise
    os.replace(part.path, destination)
    part.forget()
    return destination


def verify(
    path: str | Path,
    *,
    name: str | None = None,
    where: str | None = None,
    size: int | None = None,
    sha256: str | Iterable[str] = (),
) -> None:
    """Refuse a file that is not what its name says: empty, cut off, damaged, or a web page.

    Parameters
    ----------
    path : path
    name : str, optional
        Name the file will have, which says its format; default: that of `path`.
    where : str, optional
        What an error names; default: `path`.
    size : int, optional
        Bytes it must have.
    sha256 : str or iterable of str
        Sums of which it must have one; empty: any.

    Raises
    ------
    DataError
    """
    path = Path(path)
    name, where = name or path.name, where or str(path)
    sums = (sha256,) if isinstance(sha256, str) else tuple(sha256)
    found = path.stat().st_size
    if size is not None and found != size:
        raise DataError(f"{found} bytes, but {size} are due", where=where, hint=AGAIN)
    if found == 0:
        raise DataError("the file is empty", where=where, hint=AGAIN)
    with path.open("rb") as file:
        start = file.read(512)
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(PAGE) and not name.endswith(TEXT_PAGES):
        raise DataError(
            f"a web page or a server's message in place of {name} ({_opening(start)})",
            where=where,
            hint="Open the address in a browser: a login, a proxy or a wrong base address may be in between",
        )
    if name.endswith(".gz"):
        _check_gzip(path, start, where)
    if sums and (total := sha256_of(path)) not in sums:
        raise DataError(
            f"sha256 is {total}, not {' or '.join(sums)}",
            where=where,
            hint=f"Fetch the file by hand, and save it as {name} if it is right",
        )


def is_remote(address: str | Path) -> bool:
    """Whether an address is fetched over the network."""
    return str(address).startswith(("http://", "https://"))


def join(base: str | Path, *names: str) -> str:
    """Address of a file below a base address or folder."""
    if is_remote(base) or str(base).startswith("file:"):
        return "/".join([str(base).rstrip("/"), *(urllib.parse.quote(name) for name in names)])
    return str(Path(base).joinpath(*names))


def local_path(address: str | Path) -> Path:
    """The file or folder that a plain path or a ``file:`` address names."""
    plain = str(address)
    return Path(
        urllib.request.url2pathname(urllib.parse.urlsplit(plain).path) if plain.startswith("file:") else plain
    ).expanduser()


def _copy(address: str, part: Part) -> None:
    source = local_path(address)
    if not source.is_file():
        raise DataError("the file is not there", where=source, hint="Complete the folder, or name another base address")
    require_room(part.destination.parent, source.stat().st_size, part.destination.name)
    shutil.copyfile(source, part.path)


def _is_right(path: Path, size: int | None, sums: tuple[str, ...]) -> bool:
    try:
        verify(path, size=size, sha256=sums)
    except DataError as error:
        log.info("fetched again: %s", error)
        return False
    return True


def _check_gzip(path: Path, start: bytes, where: str) -> None:
    if not start.startswith(GZIP_MAGIC):
        raise DataError("not gzip, although it is called so", where=where, hint=AGAIN)
    try:
        with gzip.open(path) as packed:
            while packed.read(CHUNK):
                pass
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"the file is cut off or damaged ({error})", where=where, hint=AGAIN) from None


def _opening(start: bytes) -> str:
    return " ".join(start.decode("utf-8", "replace").split())[:80]
