"""Staging what a run needs from elsewhere. No other stage but a dataset's download uses the network.

What belongs to an atlas goes beside its `atlas.yaml`, templates into the TemplateFlow home. Meant for a machine with
network (a cluster's login node) before the run.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

from bolt.atlases.description import atlas_folder, describe_atlas, find_image, find_labels, recorded
from bolt.atlases.image import load_atlas
from bolt.config import Config
from bolt.download.fetch import fetch
from bolt.io.errors import DataError
from bolt.io.files import atomic, sha256, write_text
from bolt.io.places import folder_for_downloads

log = logging.getLogger("bolt")


def stage_atlases(config: Config) -> None:
    """Fetch what is found nowhere yet of each configured atlas (`stage_atlas`)."""
    for place in config.atlas_places.values():
        stage_atlas(place, config.paths.atlas_dir, config.paths.templateflow_home)


def stage_atlas(name: str, atlas_dir: Path | None = None, templateflow_home: Path | None = None) -> None:
    """Fetch an atlas's image, and its publisher's table of labels, unless they are found.

    Parameters
    ----------
    name, atlas_dir, templateflow_home
        As in `bolt.atlases.image.load_atlas`. Files are written beside the ``atlas.yaml`` that describes them, for an
        atlas of an installed package into the user's cache. If the sha256 of an image is not known, that of the first
        download is recorded beside it.

    Raises
    ------
    DataError
        No address is known, the download fails, or what is there or comes is not what is described.
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
            log.info("atlas %s: fetched from %s", about.name, about.url)
    load_atlas(name, atlas_dir=atlas_dir, templateflow_home=templateflow_home)
    log.info("atlas %s: present", about.name)


def stage_image(url: str, path: Path, accepted: list[str]) -> None:
    """Download an image, out of its zip archive if it is in one.

    Parameters
    ----------
    url : str
    path : Path
        Appears only when its sha256 is one of `accepted`.
    accepted : list of str
        sha256 sums; empty: the one recorded beside `path`, or any, which is then recorded.
    """
    sums = accepted or recorded(path)
    if not url.endswith(".zip"):
        fetch(url, path, sha256=sums)
    else:
        archive = fetch(url, path.with_name(Path(url).name))
        with atomic(path) as temporary:
            temporary.write_bytes(_member(archive, path.name))
            if sums and (found := sha256(temporary)) not in sums:
                raise DataError(f"sha256 of {path.name} is {found}, not {' or '.join(sums)}", where=url)
        archive.unlink()
    if not sums:
        write_text(f"{sha256(path)}  {path.name}\n", path.with_name(path.name + ".sha256"))


def _member(archive: Path, name: str) -> bytes:
    with zipfile.ZipFile(archive) as packed:
        members = [member for member in packed.namelist() if Path(member).name == name]
        if not members:
            raise DataError(f"the archive does not hold {name}", where=archive, hint="Fetch the image by hand")
        return packed.read(members[0])
