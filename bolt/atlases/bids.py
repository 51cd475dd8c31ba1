"""BIDS atlases: `atlas-<label>…_dseg.nii.gz` (or `_probseg`) with `_dseg.tsv`, described as if by `atlas.yaml`."""

from __future__ import annotations

import os
from pathlib import Path

from bolt.atlases.keys import AtlasFile, AtlasImage
from bolt.config import parse
from bolt.io.bids_names import atlas_images, atlas_name, entities_of, is_image, stem_of, table_of
from bolt.io.errors import ConfigError
from bolt.io.files import read_json

PREFERRED = ("02", "2")
"""`res-` of the images that are taken if there are several of one space."""


def is_bids_atlas(place: str) -> bool:
    """Return whether a place is an image, or a folder with images of BIDS atlases and no ``atlas.yaml``."""
    if is_image(place):
        return True
    return os.path.isdir(place) and not os.path.isfile(f"{place}/atlas.yaml") and bool(atlas_images(place))


def folder_of(place: str) -> Path:
    """Return the folder of a BIDS atlas."""
    return Path(place).parent if is_image(place) else Path(place)


def describe_bids_atlas(place: str) -> AtlasFile:
    """Describe a BIDS atlas by its files.

    Raises
    ------
    ConfigError
        No space is declared, a folder has several atlases, or there is no table.
    """
    if is_image(place) and not Path(place).is_file():
        raise ConfigError("the atlas's image is missing", where=place, hint="Correct the path")
    images = [Path(place)] if is_image(place) else atlas_images(place)
    names = sorted({atlas_name(str(image)) for image in images})
    if len(names) > 1:
        raise ConfigError(f"several atlases: {', '.join(names)}", where=place, hint="Give the path of one image")
    table = table_of(images[0])
    if table is None and not is_image(place):
        raise ConfigError(
            "the folder has no table for its images",
            where=place,
            hint=f"Add {stem_of(images[0])}.tsv, or give an image",
        )
    by_space: dict[str, Path] = {}
    for image in sorted(images, key=lambda path: entities_of(path).get("res") not in PREFERRED):
        entities = entities_of(image)
        space = entities.get("space", entities.get("tpl"))
        if space is None:
            raise ConfigError(
                "the name of the atlas's image declares no space",
                where=image,
                hint="Add it: tpl-<space>_… or …_space-<space>_…",
            )
        by_space.setdefault(space, image)
    keys = {
        "name": names[0],
        "kind": "maps" if stem_of(images[0]).endswith("_probseg") else "image",
        "images": {space: AtlasImage(file=image.name).model_dump() for space, image in by_space.items()},
        "labels": table.name if table else None,
        **_described(table),
    }
    return parse(AtlasFile, keys, place)


def _described(table: Path | None) -> dict[str, str]:
    """Return what ``atlas-<label>_description.json`` states, if it is beside the table."""
    files = sorted(table.parent.glob(f"*atlas-{entities_of(table)['atlas']}_description.json")) if table else []
    about = read_json(files[0]) if files else {}
    about = about if isinstance(about, dict) else {}
    references = about.get("ReferencesAndLinks", about.get("HowToAcknowledge", ""))
    texts = {
        "description": about.get("Name", ""),
        "licence": about.get("License", ""),
        "citation": "; ".join(map(str, references)) if isinstance(references, list) else references,
    }
    return {key: str(text) for key, text in texts.items()}
