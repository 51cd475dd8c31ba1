"""BIDS: the names of files, those of atlases, and the metadata of images in their JSON files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from bolt.io.errors import DataError
from bolt.io.files import read_json

IMAGES = (".nii", ".nii.gz")
SUFFIXES = ("dseg", "probseg")
"""Endings of names of atlases: labels, and maps of weights."""
TOP = "dataset_description.json"
"""Marks the top folder of a dataset; nothing above it is inherited."""


def stem_of(path: str | Path) -> str:
    """Return a file's name without ``.nii``, ``.nii.gz``, ``.tsv`` or ``.json``, and ``.dtseries`` before these."""
    return re.sub(r"(\.dtseries)?(\.nii(\.gz)?|\.tsv|\.json)$", "", Path(path).name)


def entities_of(path: str | Path) -> dict[str, str]:
    """Return the entities of a name: ``tpl-X_atlas-Y_dseg.nii.gz`` has ``{"tpl": "X", "atlas": "Y"}``."""
    return dict(re.findall(r"(?:^|_)([a-zA-Z0-9]+)-([a-zA-Z0-9+]+)(?=_|$)", stem_of(path)))


SPACE = "[A-Za-z0-9]+(?:_cohort-[A-Za-z0-9]+)?"
"""A space in a name, with the cohort of its template."""


def space_of(path: str | Path) -> str | None:
    """Return the space in a name (``space-``, or ``tpl-`` at its start), or None if it has none.

    The cohort of a template belongs to it, as names have it: ``MNIInfant_cohort-1`` is another space than ``…-2``.
    """
    name = Path(path).name
    found = re.search(f"(?:^|_)space-({SPACE})", name) or re.match(f"tpl-({SPACE})", name)
    return found[1] if found else None


def files_of_subjects(path: Path) -> Iterator[Path]:
    """Yield the files at the top of a dataset and in its folders of subjects; links to folders are followed."""
    for place, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if Path(place) != path or name.startswith("sub-"))
        yield from (Path(place, name) for name in sorted(names))


def is_image(place: str) -> bool:
    """Return whether a place is the path of an image, by its name."""
    return place.endswith(IMAGES)


def table_of(image: str | Path) -> Path | None:
    """Return the table beside an atlas's image: of those whose entities the image has, too, the most specific.

    ``atlas-X_dseg.tsv`` is that of ``atlas-X_space-Y_res-2_dseg.nii.gz``.
    """
    image = Path(image)
    suffix, own = stem_of(image).split("_")[-1], entities_of(image).items()
    if suffix not in SUFFIXES or "atlas" not in dict(own):
        return None
    tables = [(entities_of(table).items(), table) for table in image.parent.glob(f"*_{suffix}.tsv")]
    fitting = [
        (len(entities), str(table)) for entities, table in tables if "atlas" in dict(entities) and entities <= own
    ]
    return Path(max(fitting)[1]) if fitting else None


def atlas_images(folder: str | Path) -> list[Path]:
    """Return the images of a BIDS atlas's folder, sorted."""
    return sorted(p for suffix in SUFFIXES for end in IMAGES for p in Path(folder).glob(f"*atlas-*_{suffix}{end}"))


def atlas_name(place: str | Path) -> str:
    """Return the name of an atlas by its place: a name, a folder, or an image.

    An image with a BIDS table beside it, and a folder ``atlas-X``, have the label of their entity (with those of
    ``seg-``, ``scale-`` and ``desc-``).
    """
    place = str(place)
    if is_image(place):
        if table_of(place) is None:
            return re.sub("[^A-Za-z0-9]", "", stem_of(place))
        entities = entities_of(place)
        return "".join(entities[key] for key in ("atlas", "seg", "scale", "desc") if key in entities)
    path = Path(place)
    described = os.path.isfile(path / "atlas.yaml")  # false, too, for a name that no file can have
    if not described and os.path.isdir(path) and (images := atlas_images(path)):
        return atlas_name(str(images[0]))
    return path.name


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
    *entities, suffix = stem_of(path).split("_")
    folders: list[Path] = []
    for folder in path.absolute().parents[:4]:  # func, (session,) subject, dataset
        folders.insert(0, folder)
        if (folder / TOP).is_file():
            break
    metadata: dict[str, Any] = {}
    for folder in folders:
        applicable = []
        for name in _json_files(folder, folder.stat().st_mtime_ns if folder.is_dir() else 0):
            *file_entities, file_suffix = stem_of(name).split("_")
            if file_suffix == suffix and set(file_entities) <= set(entities):
                applicable.append((len(file_entities), folder / name))
        for _, file in sorted(applicable):
            if file.is_symlink() and not file.exists():
                what = "a link to a file that is not there"
                raise DataError(what, where=file, hint="Fetch it (with DataLad: `datalad get`), or restore it")
            found = read_json(file)
            if not isinstance(found, dict):
                what = f"not valid JSON of BIDS (a {type(found).__name__} instead of keys with values)"
                raise DataError(what, where=file, hint="Correct or restore the file")
            metadata |= found
    return metadata


def sidecar_tr(image: str | Path) -> Any:
    """Return the RepetitionTime that the JSON files of an image state, unchecked; None if they state none.

    Raises
    ------
    DataError
        One of the files cannot be read; or the volumes are not equally far apart in time.
    """
    about = metadata_of(image)
    if "RepetitionTime" not in about and "VolumeTiming" in about:
        what = "volumes are not acquired at equal intervals (VolumeTiming instead of RepetitionTime)"
        raise DataError(what, where=image, hint="BolT needs a constant repetition time")
    return about.get("RepetitionTime")


@lru_cache(maxsize=16)
def _json_files(folder: Path, modified: int) -> list[str]:
    """Return the JSON files in a folder, listed again once it is modified; all scans share the top folder."""
    listed = modified and os.access(folder, os.R_OK)  # above a user's folders may be some that cannot be listed
    return [name for name in os.listdir(folder) if name.endswith(".json")] if listed else []
