"""Staging of atlases: files from elsewhere are fetched before the run, on a machine with network access.

Files of an atlas are written beside its `atlas.yaml`. Besides staging, only the download of a dataset uses the network.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

from bolt.atlases.description import (
    atlas_folder,
    describe_atlas,
    find_image,
    find_labels,
    md5,
    recorded_sha256,
    templateflow_folder,
)
from bolt.atlases.image import load_atlas
from bolt.atlases.keys import AtlasImage
from bolt.atlases.spaces import TEMPLATEFLOW, carried_from, find_transform, transform_name, verify_transform
from bolt.config import Config
from bolt.download.fetch import fetch
from bolt.io.errors import DataError
from bolt.io.files import atomic, sha256, write_text
from bolt.io.places import folder_for_downloads

log = logging.getLogger("bolt")


def stage_atlases(config: Config, space: str | None = None) -> None:
    """Fetch the missing files of each configured atlas, for images in a space (None: ready series, its first image)."""
    paths = config.paths
    for place in config.atlas_places.values():
        stage_atlas(place, paths.atlas_dir, paths.templateflow_home, space, paths.carried_atlases)


def stage_atlas(
    name: str,
    atlas_dir: Path | None = None,
    templateflow_home: Path | None = None,
    space: str | None = None,
    cache: Path | None = None,
) -> None:
    """Fetch an atlas's image and its publisher's table of labels, unless they are found.

    An atlas without an image for the space is carried over to it: the transform is fetched into the TemplateFlow home.

    Parameters
    ----------
    name, atlas_dir, templateflow_home, space, cache
        As in `bolt.atlases.image.load_atlas`. Files are written beside the ``atlas.yaml`` that describes them, for an
        atlas of an installed package into the user's cache. If the sha256 of an image is not known, that of the first
        download is recorded beside it.

    Raises
    ------
    DataError
        No address is known, the download fails, or a file does not match its description.
    """
    about, folder = describe_atlas(name), atlas_folder(name)
    downloads = folder_for_downloads(folder)
    if about.labels:
        try:
            find_labels(about, folder, atlas_dir)
        except DataError:
            if not about.labels_url:
                raise
            fetch(about.labels_url, downloads / about.labels)
            log.info("atlas %s: labels fetched from %s", about.name, about.labels_url)
    source = carried_from(about, space, templateflow_home)
    if about.kind != "spheres":
        try:
            find_image(about, folder, atlas_dir, templateflow_home, source or space)
        except DataError:
            image = about.image_in(source or space)
            if not image.url or not image.file:
                raise
            _fetch_image(image, downloads)
            log.info("atlas %s: image fetched from %s", about.name, image.url)
    if source and space:
        stage_transform(source, space, templateflow_home)
    load_atlas(name, space=space, atlas_dir=atlas_dir, templateflow_home=templateflow_home, cache=cache)
    log.info("atlas %s: present", about.name)


def _fetch_image(image: AtlasImage, downloads: Path) -> None:
    """Fetch an image from its publisher; one that fails TemplateFlow's checksum is removed again."""
    url, file = str(image.url), str(image.file)
    path = downloads / (file.removesuffix(".gz") if url.endswith(".zip") else file)
    stage_image(url, path, image.sha256)
    from_templateflow = path.name == Path(image.templateflow or "").name
    if from_templateflow and not image.sha256 and image.templateflow_md5 and md5(path) not in image.templateflow_md5:
        path.unlink()
        path.with_name(path.name + ".sha256").unlink(missing_ok=True)
        raise DataError(
            f"md5 of {path.name} is not {' or '.join(image.templateflow_md5)}", where=url, hint="Ask the publisher"
        )


def stage_transform(source: str, target: str, home: Path | None) -> None:
    """Fetch a transform into the TemplateFlow home, unless it is there; 0.2 GB."""
    try:
        find_transform(source, target, home)
    except DataError:
        name = transform_name(source, target)
        path = templateflow_folder(home) / name
        path.unlink(missing_ok=True)  # the placeholder
        verify_transform(fetch(f"{TEMPLATEFLOW}/{name}", path), source, target)


def stage_image(url: str, path: Path, accepted: list[str]) -> None:
    """Download an image, out of its zip archive if it is in one.

    Parameters
    ----------
    url : str
    path : Path
        Appears only once its checksum is verified.
    accepted : list of str
        sha256 checksums; empty: the one recorded beside `path`, or any, which is then recorded.
    """
    checksums = accepted or recorded_sha256(path)
    if not url.endswith(".zip"):
        fetch(url, path, sha256=checksums)
    else:
        archive = fetch(url, path.with_name(Path(url).name))
        with atomic(path) as temporary:
            temporary.write_bytes(_member(archive, path.name))
            if checksums and (digest := sha256(temporary)) not in checksums:
                raise DataError(f"sha256 of {path.name} is {digest}, not {' or '.join(checksums)}", where=url)
        archive.unlink()
    if not checksums:
        write_text(f"{sha256(path)}  {path.name}\n", path.with_name(path.name + ".sha256"))


def _member(archive: Path, name: str) -> bytes:
    with zipfile.ZipFile(archive) as packed:
        members = [member for member in packed.namelist() if Path(member).name == name]
        if not members:
            raise DataError(f"the archive does not contain {name}", where=archive, hint="Download the image yourself")
        return packed.read(members[0])
