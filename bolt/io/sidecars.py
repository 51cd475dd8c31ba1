"""What BIDS says of an image in JSON files: its own, and those it inherits from folders above."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from bolt.io.errors import DataError
from bolt.io.files import read_json

TOP = "dataset_description.json"
"""Marks the top of a dataset; no file above it is inherited."""


def metadata_of(image: str | Path) -> dict[str, Any]:
    """Metadata of an image by BIDS' inheritance: nearer and more specific files win.

    A file that cannot be read is left out, as the index does (which refuses an image whose own file it is).

    Parameters
    ----------
    image : path
        BIDS name, such as ``sub-01_task-rest_bold.nii.gz``.
    """
    path = Path(image)
    stem = path.name.removesuffix(".gz").removesuffix(".nii")
    *entities, suffix = stem.split("_")
    folders: list[Path] = []
    for folder in path.absolute().parents[:4]:  # func, (session,) subject, dataset
        folders.insert(0, folder)
        if (folder / TOP).is_file():
            break
    found: dict[str, Any] = {}
    for folder in folders:
        fitting = []
        for file in folder.glob(f"*{suffix}.json"):
            *named, kind = file.stem.split("_")
            if kind == suffix and set(named) <= set(entities):
                fitting.append((len(named), file))
        for _, file in sorted(fitting):
            with suppress(DataError):
                found |= read_json(file)
    return found
