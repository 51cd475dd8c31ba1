"""Results that were altered after a job wrote them, found by their sha256."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from bolt.io.errors import ConfigError
from bolt.io.files import read_json, sha256

MADE_AGAIN = "run the same command again: it will be made again as it was"


def require_unaltered(folder: Path, digests: Mapping[str, str], recorded: Path | None = None) -> None:
    """Refuse files whose content is not what was recorded; missing ones are left to the caller.

    Parameters
    ----------
    folder : Path
    digests : mapping
        Name within the folder to sha256.
    recorded : Path, optional
        File that was written after them: only those that are newer are compared, which takes no time.

    Raises
    ------
    ConfigError
        Not a `DataError`, by which a scan or a fold would be excluded and the results would change.
    """
    after = recorded.stat().st_mtime_ns if recorded else -1
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file() or (written := path.stat().st_mtime_ns) <= after:
            continue
        if _sha256(path, written) != digest:
            what = "it is damaged, or was changed after it was made"
            raise ConfigError(what, where=path, hint=f"Delete it and {MADE_AGAIN}")


def require_outputs(place: Path, *, newer: bool = False) -> None:
    """Refuse results that are not what the ``provenance.json`` at `place` has recorded; without one, nothing is known.

    Parameters
    ----------
    place : Path
    newer : bool
        Compare only results that are newer than `place`.

    Raises
    ------
    ConfigError
    """
    if place.is_file():
        require_unaltered(place.parent, read_json(place).get("outputs", {}), place if newer else None)


def require_present(path: Path) -> None:
    """Refuse a result that is missing although its job has finished.

    Raises
    ------
    ConfigError
    """
    if not path.is_file():
        what = "file not found, although it was made"
        raise ConfigError(what, where=path, hint=MADE_AGAIN[0].upper() + MADE_AGAIN[1:])


@lru_cache(maxsize=10_000)
def _sha256(path: Path, written: int) -> str:
    return sha256(path)
