"""Download of one file over HTTP, repeated if the server is busy or the connection breaks."""

from __future__ import annotations

import logging
import random
import time
from pathlib import Path

import requests

from bolt import __version__
from bolt.io.disk_space import require_space
from bolt.io.errors import DataError

log = logging.getLogger("bolt")
CHUNK = 1 << 20
BUSY = {408, 425, 429, 500, 502, 503, 504}
"""Status codes that are worth another try; all others are final."""
LONGEST_PAUSE = 60.0
HEADERS = {"User-Agent": f"bolt-fmri/{__version__}", "Accept-Encoding": "identity"}
REFUSED = {403: "the server refuses it, or does not have it", 404: "the server does not have it"}


def download(
    address: str, path: Path, name: str, *, size: int | None, tries: int, pause: float, timeout: float
) -> None:
    """Download `address` to `path`, as a file that will be called `name`; see `bolt.download.fetch.fetch`.

    Raises
    ------
    DataError
        The server refuses it, has a file of another size, or was busy or out of reach at every try.
    ConfigError
        The disk has no space for the file.
    """
    problem, place = "", path.with_name(name)
    for number in range(tries):
        if number:
            wait = min(pause * 2 ** (number - 1) * random.uniform(0.5, 1.5), LONGEST_PAUSE)
            log.info("%s: %s; next try in %.1f s", address, problem, wait)
            time.sleep(wait)
        try:
            with requests.get(address, headers=HEADERS, stream=True, timeout=timeout) as response:
                if response.ok:
                    return _receive(response, path, name, size)
                problem = f"the server answers {response.status_code} {response.reason}"
                if response.status_code not in BUSY:
                    what = REFUSED.get(response.status_code, "the server refuses it")
                    raise DataError(
                        f"{what} ({response.status_code} {response.reason})",
                        where=address,
                        hint=f"Check the base address, or download the file elsewhere and save it as {place}",
                    )
        except requests.exceptions.SSLError as error:
            raise DataError(
                f"no secure connection ({_reason(error)})",
                where=address,
                hint="Set REQUESTS_CA_BUNDLE to your institution's certificates, or use another base address",
            ) from None
        except requests.exceptions.ChunkedEncodingError:
            problem = f"the connection broke off after {path.stat().st_size} bytes"
        except (requests.ConnectionError, requests.Timeout) as error:
            problem = _reason(error)
        except (requests.exceptions.InvalidURL, ValueError):  # its text may repeat a proxy's address, with the password
            raise DataError(
                "invalid address of the file or of the proxy", where=address, hint="Correct it, or http(s)_proxy"
            ) from None
    raise DataError(
        f"download failed in {tries} tries ({problem})",
        where=address,
        hint=f"Try again later, or download it yourself and save it as {place}",
    )


def _receive(response: requests.Response, path: Path, name: str, size: int | None) -> None:
    total = int(response.headers.get("Content-Length", size or 0))
    if size is not None and total != size:
        raise DataError(
            f"the server has {total} bytes, but {size} are expected",
            where=response.url,
            hint="Ask the file's publisher",
        )
    require_space(path.parent, total, name)
    with path.open("wb") as target:
        for chunk in response.iter_content(CHUNK):
            target.write(chunk)


def _reason(error: requests.RequestException) -> str:
    """Return the innermost cause of an error, without the objects and addresses through which it came."""
    cause = error.args[0] if error.args else error
    cause = getattr(cause, "reason", None) or cause
    return str(cause).split(": ", 1)[-1].strip("'\"()") or type(error).__name__
