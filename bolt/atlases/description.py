"""How an atlas is described, and where its files lie: the user's folder, the TemplateFlow home, or staged.

An atlas is a folder with `atlas.yaml` (the keys of `AtlasFile`) and `labels.tsv`. A family is a folder with one
`atlas.yaml` for many: `members` gives each its fields, which fill the braces in the other keys.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bolt.config import ROOT, Keys, nearest, parse
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_yaml, sha256
from bolt.io.places import folder_for_downloads

ATLASES = ROOT / "atlases"
ATLAS_DIR = "BOLT_ATLAS_DIR"


class AtlasFile(Keys):
    """Keys of `atlas.yaml`."""

    name: str
    kind: Literal["image", "spheres"] = "image"
    spaces: list[str] = Field(min_length=1, description="reference spaces it may be used in (TemplateFlow's names)")
    description: str = ""
    file: str | None = Field(None, description="the publisher's file name (image)")
    url: str | None = Field(None, description="where the publisher offers it")
    sha256: list[str] = Field([], description="accepted checksums of the file; none: not compared (own atlas)")
    templateflow: str | None = Field(None, description="path of the same image in a TemplateFlow home")
    templateflow_md5: list[str] = Field([], description="TemplateFlow's checksums of its copy, where its bytes differ")
    labels: str | None = Field(None, description="the publisher's table of labels; null: labels.tsv of the folder")
    labels_url: str | None = Field(None, description="where the publisher offers that table")
    radius_mm: float | None = Field(None, gt=0, description="radius of the spheres")
    source: str = ""
    licence: str = ""
    citation: str = ""
    doi: str = ""


def known_atlases() -> list[str]:
    """Names of the atlases that come with BolT, members of families included, sorted."""
    folders = {path.parent.name for path in ATLASES.glob("*/atlas.yaml")}
    members = _members()
    return sorted((folders - {folder.name for folder in members.values()}) | set(members))


def atlas_folder(name: str) -> Path:
    """The folder of an atlas by name, or the folder that `name` is the path of."""
    for folder in (ATLASES / name, Path(name)):
        if (folder / "atlas.yaml").is_file():
            return folder
    if name in _members():
        return _members()[name]
    raise ConfigError(
        f"unknown atlas '{name}'",
        hint=f"Known: {', '.join(known_atlases())}{nearest(name, known_atlases())}; "
        "or give the path of a folder with atlas.yaml and labels.tsv",
    )


def describe_atlas(name: str) -> AtlasFile:
    """Read the `atlas.yaml` of an atlas by name, or of the folder that `name` is the path of."""
    path = atlas_folder(name) / "atlas.yaml"
    keys = read_yaml(path)
    if keys.get("name") != path.parent.name:
        raise ConfigError(
            f"atlas '{keys.get('name')}' lies in folder '{path.parent.name}'", where=path, hint="Make them equal"
        )
    if "members" in keys:
        keys = _member(keys, name, path)
    return parse(AtlasFile, keys, path)


def find_image(about: AtlasFile, folder: Path, atlas_dir: Path | None, templateflow_home: Path | None) -> Path:
    """Look where the user says, in the TemplateFlow home, then beside `atlas.yaml` (own and staged images).

    Raises
    ------
    DataError
        It is in none of them; the message says all ways to supply it.
    """
    if about.file is None:
        raise ConfigError("key 'file' is missing", where=folder / "atlas.yaml", hint="Name the label image")
    named = _named_folder(atlas_dir)
    home = templateflow_home or Path(os.environ.get("TEMPLATEFLOW_HOME") or Path.home() / ".cache" / "templateflow")
    names = [about.file, about.file.removesuffix(".gz")]
    places = [named / n for n in names] if named else []
    places += [home / about.templateflow] if about.templateflow else []
    places += [folder_for_downloads(folder) / n for n in names]
    for place in places:
        if place.is_file() and place.stat().st_size:  # TemplateFlow lists what it has not fetched as empty files
            return place
    ways = [f"put {about.file} into the folder that 'paths: atlas_dir' or {ATLAS_DIR} names ({named or 'now: none'})"]
    if about.templateflow:
        ways.append(f"fill the TemplateFlow home ({home}) with {about.templateflow}")
    ways.append(_staging(about.url, about))
    raise DataError(f"no label image for atlas '{about.name}'", hint="Either " + "; or ".join(ways))


def find_labels(about: AtlasFile, folder: Path, atlas_dir: Path | None) -> Path:
    """The table of an atlas's labels: the folder's own, or the publisher's where the user has put it or staged."""
    if about.labels is None:
        return folder / "labels.tsv"
    named = _named_folder(atlas_dir)
    for place in ([named] if named else []) + [folder_for_downloads(folder)]:
        if (place / about.labels).is_file():
            return place / about.labels
    way = f"put {about.labels} into the folder that 'paths: atlas_dir' or {ATLAS_DIR} names ({named or 'now: none'})"
    raise DataError(
        f"no table of labels for atlas '{about.name}'", hint=f"Either {way}; or {_staging(about.labels_url, about)}"
    )


def verify_image(about: AtlasFile, path: Path) -> str:
    """Compare a label image with its described checksums, or with the one recorded when it was first fetched.

    Returns
    -------
    str
        Its sha256.
    """
    digest = sha256(path)
    accepted = about.sha256 or recorded(path)
    theirs = about.templateflow_md5 if path.name == Path(about.templateflow or "").name else []
    if digest in accepted or _md5(path) in theirs:
        return digest
    if not accepted and not theirs:
        if about.labels:
            warnings.warn(
                f"{path}: no checksum of this image is known; make sure that it and {about.labels} are of one release.",
                stacklevel=3,
            )
        return digest
    raise DataError(
        f"this is not the file atlas '{about.name}' was described from (sha256 {digest}, "
        f"not {' or '.join([*accepted, *(f'md5 {one}' for one in theirs)])})",
        where=path,
        hint="Fetch the publisher's file again, or describe yours as an atlas of its own",
    )


def recorded(path: Path) -> list[str]:
    """The sha256 written beside an image when it was first fetched (as `sha256sum` writes it), if there is one."""
    record = path.with_name(path.name + ".sha256")
    return record.read_text().split()[:1] if record.is_file() else []


def _staging(url: str | None, about: AtlasFile) -> str:
    if url is None:
        return f"see {about.source}"
    return f"run `snakemake resources` (by hand: add --fetch), which stages it from {url}"


def _named_folder(atlas_dir: Path | None) -> Path | None:
    return atlas_dir or (Path(os.environ[ATLAS_DIR]) if os.environ.get(ATLAS_DIR) else None)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@cache
def _members() -> dict[str, Path]:
    """Name of each member of a family to the family's folder."""
    families = {path.parent: read_yaml(path).get("members", {}) for path in sorted(ATLASES.glob("*/atlas.yaml"))}
    return {member: folder for folder, members in families.items() for member in members}


def _member(keys: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """The keys of one member: braces filled with its fields, and those of its fields that are keys themselves."""
    members = keys["members"]
    if name not in members:
        raise ConfigError(
            f"'{name}' is a family of atlases", where=path, hint=f"Choose one of them: {', '.join(members)}"
        )
    fields = members[name]
    filled = {k: v.format_map(fields) if isinstance(v, str) else v for k, v in keys.items() if k != "members"}
    return filled | {k: v for k, v in fields.items() if k in AtlasFile.model_fields} | {"name": name}
