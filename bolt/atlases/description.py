"""Descriptions of atlases, and the search for their files: in a user's folder, the TemplateFlow home, or staged.

An atlas is a folder with `atlas.yaml` (the keys of `AtlasFile`) and `labels.tsv`. Its image may differ between spaces.
A family is a folder with one `atlas.yaml` for several atlases: `members` gives each its fields, which fill the braces
in the other keys. A BIDS atlas, `atlas-<label>…_dseg.nii.gz` (or `_probseg`) with `_dseg.tsv`, is described as if by
`atlas.yaml`.

Between template spaces, TemplateFlow's ``tpl-<target>/tpl-<target>_from-<source>_mode-image_xfm.h5`` resamples images
in the source space onto the target's grid, so it maps points of the target to points of the source.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from bolt.config import ROOT, Keys, nearest, parse
from bolt.io.bids import atlas_images, atlas_name, entities_of, is_image, space_of, stem_of, table_of
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_yaml, sha256
from bolt.io.places import folder_for_downloads

ATLASES = ROOT / "atlases"
ATLAS_DIR = "BOLT_ATLAS_DIR"
FETCH = "fetch it (bolt run, predict and parcellate: --fetch; snakemake: the target 'resources')"
"""What to do about a file that can be downloaded."""
PREFERRED = ("02", "2")
"""`res-` of the images of a BIDS atlas that are taken if there are several of one space."""
TEMPLATEFLOW = "https://templateflow.s3.amazonaws.com"
MD5 = {
    ("MNI152NLin6Asym", "MNI152NLin2009cAsym"): "1f9b29f2d5cb898cc97243fe92ee9304",
    ("MNI152NLin2009cAsym", "MNI152NLin6Asym"): "b7130989291ddb85642e19940aaec4c1",
}
"""Checksums that TemplateFlow states of its transforms, by source and target."""


class AtlasImage(Keys):
    """An image of an atlas."""

    file: str | None = Field(None, description="the publisher's name of the image file")
    url: str | None = Field(None, description="where the publisher offers the image")
    sha256: list[str] = Field([], description="accepted checksums of the image; empty: not verified (your own atlas)")
    templateflow: str | None = Field(None, description="path of the same image in a TemplateFlow home")
    templateflow_md5: list[str] = Field([], description="checksums of TemplateFlow's copy, if its bytes differ")


class AtlasFile(AtlasImage):
    """Keys of `atlas.yaml`; those of `AtlasImage` describe the image of an atlas that has only one."""

    name: str
    kind: Literal["image", "maps", "spheres"] = Field(
        "image", description="image: labels; maps: a 4D image with weights for each ROI; spheres: drawn around x, y, z"
    )
    spaces: list[str] = Field([], description="spaces in which the image is valid (TemplateFlow's names)")
    images: dict[str, AtlasImage] = Field({}, description="the image for each space, if there are several")
    description: str = ""
    labels: str | None = Field(None, description="the publisher's table of labels; null: labels.tsv in the folder")
    labels_url: str | None = Field(None, description="where the publisher offers that table")
    radius_mm: float | None = Field(None, gt=0, description="radius of the spheres")
    source: str = ""
    licence: str = ""
    citation: str = ""
    doi: str = ""

    @model_validator(mode="before")
    @classmethod
    def _spaces_of_images(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and isinstance(keys.get("images"), dict) and "spaces" not in keys:
            return keys | {"spaces": list(keys["images"])}
        return keys

    @model_validator(mode="after")
    def _one_form(self) -> AtlasFile:
        if not self.spaces:
            raise ValueError("key 'spaces' is missing (or 'images', with an image for each space)")
        if self.images and self.spaces != list(self.images):
            raise ValueError("remove 'spaces': the keys of 'images' name them")
        if self.images and any(self.model_dump(include=set(AtlasImage.model_fields)).values()):
            raise ValueError("describe all files under 'images', none beside it")
        return self

    @property
    def by_space(self) -> dict[str, AtlasImage]:
        """Return the image for each space; empty for spheres, which are drawn."""
        if self.images or self.kind == "spheres":
            return self.images
        only = AtlasImage(**self.model_dump(include=set(AtlasImage.model_fields)))
        return dict.fromkeys(self.spaces, only)

    def image_in(self, space: str | None = None) -> AtlasImage:
        """Return the image for a space; by default, or if there is none for that space, the first image."""
        images = self.by_space
        return images[space] if space in images else next(iter(images.values()))


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
    if is_image(name):
        return Path(name).parent
    if os.path.isdir(name) and atlas_images(name):
        return Path(name)
    raise ConfigError(
        f"unknown atlas '{name}'",
        hint=f"Known: {', '.join(known_atlases())}{nearest(name, known_atlases())}; "
        "or give the path of a folder with atlas.yaml and labels.tsv, or of an image",
    )


def describe_atlas(name: str) -> AtlasFile:
    """Read the `atlas.yaml` of an atlas, given its name or the path of its folder, or describe a BIDS atlas."""
    path = atlas_folder(name) / "atlas.yaml"
    if not path.is_file():
        return _describe_bids_atlas(name)
    keys = read_yaml(path)
    if keys.get("name") != path.parent.name:
        what = f"atlas '{keys.get('name')}' is in folder '{path.parent.name}'"
        raise ConfigError(what, where=path, hint="Use the same name for both")
    if "members" in keys:
        keys = _member(keys, name, path)
    return parse(AtlasFile, keys, path)


def _describe_bids_atlas(place: str) -> AtlasFile:
    """Describe a BIDS atlas by its files, and by ``atlas-<label>_description.json`` if it is beside the table."""
    if is_image(place) and not Path(place).is_file():
        raise ConfigError("the atlas's image is missing", where=place, hint="Correct the path")
    images = [Path(place)] if is_image(place) else atlas_images(place)
    names = sorted({atlas_name(str(image)) for image in images})
    if len(names) > 1:
        raise ConfigError(f"several atlases: {', '.join(names)}", where=place, hint="Give the path of one image")
    table = table_of(images[0])
    if table is None and not is_image(place):
        hint = f"Add {stem_of(images[0])}.tsv, or give an image"
        raise ConfigError("the folder has no table for its images", where=place, hint=hint)
    by_space: dict[str, Path] = {}
    for image in sorted(images, key=lambda path: entities_of(path).get("res") not in PREFERRED):
        if (space := space_of(image)) is None:
            what, hint = "the name of the atlas's image declares no space", "Add it: tpl-<space>_… or …_space-<space>_…"
            raise ConfigError(what, where=image, hint=hint)
        by_space.setdefault(space, image)
    files = sorted(table.parent.glob(f"*atlas-{entities_of(table)['atlas']}_description.json")) if table else []
    about = read_json(files[0]) if files else {}
    about = about if isinstance(about, dict) else {}
    references = about.get("ReferencesAndLinks", about.get("HowToAcknowledge", ""))
    keys = {
        "name": names[0],
        "kind": "maps" if stem_of(images[0]).endswith("_probseg") else "image",
        "images": {space: AtlasImage(file=image.name).model_dump() for space, image in by_space.items()},
        "labels": table.name if table else None,
        "description": str(about.get("Name", "")),
        "licence": str(about.get("License", "")),
        "citation": "; ".join(map(str, references)) if isinstance(references, list) else str(references),
    }
    return parse(AtlasFile, keys, place)


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
    what = f"no {'maps' if about.kind == 'maps' else 'label image'} for atlas '{about.name}'"
    raise DataError(what, hint="Either " + "; or ".join(ways))


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
    what = f"no table of labels for atlas '{about.name}'"
    raise DataError(what, hint=f"Either {_put(about.labels, users)}; or {_stage(about.labels_url, about)}")


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


def known_sha256(name: str) -> set[str]:
    """Return the checksums of all images of an atlas; none if that of one is not known."""
    if is_image(name):  # of several images with one table, as for several spaces, this is only one
        return {sha256(name)} if table_of(name) is None else set()
    about = describe_atlas(name)
    images = list(about.images.values()) or [about]
    if not all(image.sha256 and not image.templateflow_md5 for image in images):
        return set()
    return {checksum for image in images for checksum in image.sha256}


def recorded_sha256(path: Path) -> list[str]:
    """Return the checksum recorded beside an image when it was first fetched (as by `sha256sum`), if there is one."""
    record = path.with_name(path.name + ".sha256")
    return record.read_text().split()[:1] if record.is_file() else []


def _put(file: str, users: Path | None) -> str:
    return f"put {file} into the folder set by 'paths: atlas_dir' or {ATLAS_DIR} (now: {users or 'none'})"


def _stage(url: str | None, about: AtlasFile) -> str:
    return f"see {about.source}" if url is None else f"{FETCH}, from {url}"


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
    family = _filled({key: value for key, value in keys.items() if key != "members"}, fields)
    own = {key: value for key, value in fields.items() if key in AtlasFile.model_fields}
    if "images" in own:  # null removes the family's
        own["images"] = {
            space: image | changed
            for space, image in family["images"].items()
            if (changed := own["images"].get(space, {})) is not None
        }
    return family | own | {"name": name}


def _filled(value: Any, fields: Mapping[str, Any]) -> Any:
    """Fill the braces in all strings."""
    if isinstance(value, dict):
        return {key: _filled(item, fields) for key, item in value.items()}
    return value.format_map(fields) if isinstance(value, str) else value


def transform_name(source: str, target: str) -> str:
    """Return the path of a transform in a TemplateFlow home."""
    return f"tpl-{target}/tpl-{target}_from-{source}_mode-image_xfm.h5"


def source_for(spaces: Collection[str], target: str, home: Path | None) -> str | None:
    """Return the first of an atlas's spaces from which its image can be carried over to the target; None if none can.

    Either TemplateFlow is known to have the transform, or it is in the TemplateFlow home.
    """
    root = templateflow_folder(home)
    return next((s for s in spaces if (s, target) in MD5 or (root / transform_name(s, target)).is_file()), None)


def reachable(about: AtlasFile) -> list[str]:
    """Return the other spaces to which an atlas can be carried over by the transforms that TemplateFlow has."""
    return [target for _, target in MD5 if carried_from(about, target, None) is not None]


def carried_from(about: AtlasFile, space: str | None, home: Path | None) -> str | None:
    """Return the space from which an atlas is carried over to that of images; None if it is not (or cannot be)."""
    if space is None or space in about.spaces or about.kind != "image":
        return None
    return source_for(about.spaces, space, home)


def serves(about: AtlasFile, space: str, home: Path | None) -> bool:
    """Return whether an atlas serves for images in a space: as it is, or carried over."""
    return space in about.spaces or carried_from(about, space, home) is not None


def refuse_space(atlas: str, spaces: Collection[str], space: str, home: Path | None) -> DataError:
    """Return the error for images in a space for which an atlas does not serve; the hint names those that do."""
    fitting = [name for name in known_atlases() if serves(describe_atlas(name), space, home)]
    choose = f"Choose an atlas for {space} ({', '.join(fitting)})" if fitting else f"No known atlas is in {space}"
    return DataError(
        f"atlas '{atlas}' is in {' or '.join(spaces)}, but the image is in {space}",
        hint=f"{choose}; or preprocess to {' or '.join(spaces)} "
        f"(fMRIPrep: --output-spaces {next(iter(spaces)).replace('_cohort-', ':cohort-')}, then 'preprocess: space')",
    )


def find_transform(source: str, target: str, home: Path | None) -> Path:
    """Find a transform in the TemplateFlow home.

    Raises
    ------
    DataError
        It is missing.
    """
    path = templateflow_folder(home) / transform_name(source, target)
    if not path.is_file() or not path.stat().st_size:  # TemplateFlow keeps empty files as placeholders
        what = f"the transform from {source} to {target} is missing"
        raise DataError(what, where=path, hint=f"{FETCH[0].upper()}{FETCH[1:]}, from {TEMPLATEFLOW}")
    return path


def verify_transform(path: Path, source: str, target: str) -> None:
    """Refuse another file than TemplateFlow's, where its checksum is known."""
    expected = MD5.get((source, target))
    if expected is not None and (digest := md5(path)) != expected:
        what = f"not TemplateFlow's transform (md5 {digest}, not {expected})"
        raise DataError(what, where=path, hint=f"Delete the file and {FETCH}")
