"""Staging of atlases: files from elsewhere are fetched before the run, on a machine with network access.

Files of an atlas are written beside its `atlas.yaml`. Besides staging, only the download of a dataset uses the network.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

from bolt.atlases.description import atlas_folder, describe_atlas, find_image, find_labels, recorded_sha256
from bolt.atlases.image import load_atlas
from bolt.config import Config
from bolt.download.fetch import fetch
from bolt.io.errors import DataError
from bolt.io.files import atomic, sha256, write_text
from bolt.io.places import folder_for_downloads

log = logging.getLogger("bolt")


def stage_atlases(config: Config) -> None:
    """Fetch the missing files of each configured atlas."""
    for place in config.atlas_places.values():
        stage_atlas(place, config.paths.atlas_dir, config.paths.templateflow_home)


def stage_atlas(name: str, atlas_dir: Path | None = None, templateflow_home: Path | None = None) -> None:
    """Fetch an atlas's image and its publisher's table of labels, unless they are found.

    Parameters
    ----------
    name, atlas_dir, templateflow_home
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
    if about.kind == "image":
        try:
            find_image(about, folder, atlas_dir, templateflow_home)
        except DataError:
            if not about.url or not about.file:
                raise
            file = about.file.removesuffix(".gz") if about.url.endswith(".zip") else about.file
            stage_image(about.url, downloads / file, about.sha256)
            log.info("atlas %s: image fetched from %s", about.name, about.url)
    load_atlas(name, atlas_dir=atlas_dir, templateflow_home=templateflow_home)
    log.info("atlas %s: present", about.name)


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
