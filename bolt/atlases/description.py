"""Descriptions of atlases, and the search for their files: in a user's folder, the TemplateFlow home, or staged.

An atlas is a folder with `atlas.yaml` (the keys of `AtlasFile`) and `labels.tsv`. Its image may differ between spaces.
A family is a folder with one `atlas.yaml` for several atlases: `members` gives each its fields, which fill the braces
in the other keys.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bolt.atlases.bids import describe_bids_atlas, folder_of, is_bids_atlas
from bolt.atlases.keys import AtlasFile
from bolt.config import ROOT, nearest, parse
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_yaml, sha256
from bolt.io.places import folder_for_downloads

ATLASES = ROOT / "atlases"
ATLAS_DIR = "BOLT_ATLAS_DIR"
FETCH = "fetch it (bolt run, predict and parcellate: --fetch; snakemake: the target 'resources')"
"""What to do about a file that can be downloaded."""


def known_atlases() -> list[str]:
    """Return the names of the atlases that come with BolT, including members of families, sorted."""
    folders = {path.parent.name for path in ATLASES.glob("*/atlas.yaml")}
    members = _members()
    return sorted((folders - {folder.name for folder in members.values()}) | set(members))


def atlas_folder(name: str) -> Path:
    """Return the folder of an atlas, given its name, or the path of the folder or of a BIDS atlas's image."""
    for folder in (ATLASES / name, Path(name)):
        if os.path.isfile(folder / "atlas.yaml"):  # false, too, for a name that no file can have
            return folder
    if name in _members():
        return _members()[name]
    if is_bids_atlas(name):
        return folder_of(name)
    raise ConfigError(
        f"unknown atlas '{name}'",
        hint=f"Known: {', '.join(known_atlases())}{nearest(name, known_atlases())}; "
        "or give the path of a folder with atlas.yaml and labels.tsv, or of an image",
    )


def describe_atlas(name: str) -> AtlasFile:
    """Read the `atlas.yaml` of an atlas, given its name or the path of its folder, or describe a BIDS atlas."""
    path = atlas_folder(name) / "atlas.yaml"
    if not path.is_file():
        return describe_bids_atlas(name)
    keys = read_yaml(path)
    if keys.get("name") != path.parent.name:
        raise ConfigError(
            f"atlas '{keys.get('name')}' is in folder '{path.parent.name}'",
            where=path,
            hint="Use the same name for both",
        )
    if "members" in keys:
        keys = _member(keys, name, path)
    return parse(AtlasFile, keys, path)


def find_image(
    about: AtlasFile, folder: Path, atlas_dir: Path | None, templateflow_home: Path | None, space: str | None = None
) -> Path:
    """Find an atlas's image (as `AtlasFile.image_in`) in the user's folder, the TemplateFlow home, or staged.

    Raises
    ------
    DataError
        It is in none of them; the hint lists all ways to supply it.
    """
    image = about.image_in(space)
    if image.file is None:
        raise ConfigError("key 'file' is missing", where=folder / "atlas.yaml", hint="Set it to the label image")
    users = _users_folder(atlas_dir)
    home = templateflow_folder(templateflow_home)
    names = [image.file, image.file.removesuffix(".gz")]
    places = [users / n for n in names] if users else []
    places += [home / image.templateflow] if image.templateflow else []
    places += [folder_for_downloads(folder) / n for n in names]
    for place in places:
        if place.is_file() and place.stat().st_size:  # TemplateFlow keeps empty files as placeholders
            return place
    ways = [_put(image.file, users), _stage(image.url, about)]
    if image.templateflow:
        ways.insert(1, f"add {image.templateflow} to the TemplateFlow home ({home})")
    raise DataError(
        f"no {'maps' if about.kind == 'maps' else 'label image'} for atlas '{about.name}'",
        hint="Either " + "; or ".join(ways),
    )


def templateflow_folder(home: Path | None = None) -> Path:
    """Return the TemplateFlow home: as given, or by TEMPLATEFLOW_HOME, or the default."""
    return home or Path(os.environ.get("TEMPLATEFLOW_HOME") or Path.home() / ".cache" / "templateflow")


def find_labels(about: AtlasFile, folder: Path, atlas_dir: Path | None) -> Path:
    """Find the table of labels: the atlas's own, or its publisher's in the user's folder or staged.

    Raises
    ------
    DataError
        The publisher's table is in neither folder.
    """
    if about.labels is None:
        return folder / "labels.tsv"
    users = _users_folder(atlas_dir)
    for place in ([users] if users else []) + [folder_for_downloads(folder)]:
        if (place / about.labels).is_file():
            return place / about.labels
    raise DataError(
        f"no table of labels for atlas '{about.name}'",
        hint=f"Either {_put(about.labels, users)}; or {_stage(about.labels_url, about)}",
    )


def verify_image(about: AtlasFile, path: Path, space: str | None = None) -> str:
    """Compare an image with the checksums in `atlas.yaml`, or with that recorded when it was first fetched.

    Returns
    -------
    str
        Its sha256.

    Raises
    ------
    DataError
        The image has another checksum.
    """
    digest, image = sha256(path), about.image_in(space)
    accepted = image.sha256 or recorded_sha256(path)
    md5s = image.templateflow_md5 if path.name == Path(image.templateflow or "").name else []
    if digest in accepted or md5(path) in md5s:
        return digest
    if not accepted and not md5s:
        if about.labels and image.url:
            warnings.warn(
                f"{path}: no checksum of this image is known; make sure that {about.labels} is from the same release.",
                stacklevel=3,
            )
        return digest
    raise DataError(
        f"not the image of atlas '{about.name}' (sha256 {digest}, "
        f"not {' or '.join([*accepted, *(f'md5 {known}' for known in md5s)])})",
        where=path,
        hint="Fetch the publisher's file again, or describe yours as a separate atlas",
    )


def recorded_sha256(path: Path) -> list[str]:
    """Return the checksum recorded beside an image when it was first fetched (as by `sha256sum`), if there is one."""
    record = path.with_name(path.name + ".sha256")
    return record.read_text().split()[:1] if record.is_file() else []


def _put(file: str, users: Path | None) -> str:
    return f"put {file} into the folder set by 'paths: atlas_dir' or {ATLAS_DIR} (now: {users or 'none'})"


def _stage(url: str | None, about: AtlasFile) -> str:
    if url is None:
        return f"see {about.source}"
    return f"{FETCH}, from {url}"


def _users_folder(atlas_dir: Path | None) -> Path | None:
    return atlas_dir or (Path(os.environ[ATLAS_DIR]) if os.environ.get(ATLAS_DIR) else None)


def md5(path: Path) -> str:
    """Return the MD5 checksum of a file, which TemplateFlow states of its own."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@cache
def _members() -> dict[str, Path]:
    """Return the folder of each member of a family."""
    families = {path.parent: read_yaml(path).get("members", {}) for path in sorted(ATLASES.glob("*/atlas.yaml"))}
    return {member: folder for folder, members in families.items() for member in members}


def _member(keys: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Return the keys of one member: those of its family with braces filled in, and its own."""
    members = keys["members"]
    if name not in members:
        raise ConfigError(f"'{name}' is a family of atlases", where=path, hint=f"Choose one of {', '.join(members)}")
    fields = members[name]
    own = {key: value for key, value in fields.items() if key in AtlasFile.model_fields}
    return _merged(_filled({k: v for k, v in keys.items() if k != "members"}, fields), own) | {"name": name}


def _filled(value: Any, fields: Mapping[str, Any]) -> Any:
    """Fill the braces in all strings."""
    if isinstance(value, dict):
        return {key: _filled(item, fields) for key, item in value.items()}
    return value.format_map(fields) if isinstance(value, str) else value


def _merged(family: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a family's keys with a member's own; null for an image removes it."""
    merged = family | {key: value for key, value in own.items() if key != "images"}
    if "images" in own:
        images = {space: image for space, image in family["images"].items() if own["images"].get(space, {}) is not None}
        merged["images"] = {space: image | own["images"].get(space, {}) for space, image in images.items()}
    return merged
