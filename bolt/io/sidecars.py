"""BIDS metadata of an image, from its own JSON file and those it inherits from folders above."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from bolt.io.errors import DataError
from bolt.io.files import read_json

TOP = "dataset_description.json"
"""Marks the top folder of a dataset; nothing above it is inherited."""


def metadata_of(image: str | Path) -> dict[str, Any]:
    """Return an image's metadata by the BIDS inheritance principle: nearer and more specific files win.

    Parameters
    ----------
    image : path
        BIDS name, such as ``sub-01_task-rest_bold.nii.gz``.

    Raises
    ------
    DataError
        One of the files cannot be read: what it states is not known, which is not the same as that it states nothing.
    """
    path = Path(image)
    stem = path.name.removesuffix(".gz").removesuffix(".nii")
    *entities, suffix = stem.split("_")
    folders: list[Path] = []
    for folder in path.absolute().parents[:4]:  # func, (session,) subject, dataset
        folders.insert(0, folder)
        if (folder / TOP).is_file():
            break
    metadata: dict[str, Any] = {}
    for folder in folders:
        applicable = []
        modified = folder.stat().st_mtime_ns if folder.is_dir() else 0
        for name in _json_files(folder, modified):
            *file_entities, file_suffix = name.removesuffix(".json").split("_")
            if file_suffix == suffix and set(file_entities) <= set(entities):
                applicable.append((len(file_entities), folder / name))
        for _, file in sorted(applicable):
            metadata |= _read_object(file)
    return metadata


def _read_object(file: Path) -> dict[str, Any]:
    if file.is_symlink() and not file.exists():
        what = "a link to a file that is not there"
        raise DataError(what, where=file, hint="Fetch it (with DataLad: `datalad get`), or restore it")
    found = read_json(file)
    if not isinstance(found, dict):
        what = f"not valid JSON of BIDS (a {type(found).__name__} instead of keys with values)"
        raise DataError(what, where=file, hint="Correct or restore the file")
    return found


@lru_cache(maxsize=16)
def _json_files(folder: Path, modified: int) -> list[str]:
    """Return the JSON files in a folder, listed again once it is modified; all scans share the top folder."""
    return [name for name in os.listdir(folder) if name.endswith(".json")] if modified else []
