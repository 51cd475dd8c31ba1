"""Staging of atlases: files from elsewhere are fetched before the run, on a machine with network access.

Files of an atlas are written beside its `atlas.yaml`. Besides staging, only the download of a dataset uses the network.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path

from bolt.atlases import description
from bolt.atlases.image import load_atlas
from bolt.config import Config
from bolt.io.download import fetch, verify
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
    about, folder = description.describe_atlas(name), description.atlas_folder(name)
    downloads = folder_for_downloads(folder)
    if about.labels:
        try:
            description.find_labels(about, folder, atlas_dir)
        except DataError:
            if not about.labels_url:
                raise
            fetch(about.labels_url, downloads / about.labels)
            log.info("atlas %s: labels fetched from %s", about.name, about.labels_url)
    source = description.carried_from(about, space, templateflow_home)
    if about.kind != "spheres":
        try:
            description.find_image(about, folder, atlas_dir, templateflow_home, source or space)
        except DataError:
            image = about.image_in(source or space)
            if not image.url or not image.file:
                raise
            path = downloads / (image.file.removesuffix(".gz") if image.url.endswith(".zip") else image.file)
            stage_image(image.url, path, image.sha256)
            from_templateflow = path.name == Path(image.templateflow or "").name
            md5s = image.templateflow_md5 if from_templateflow and not image.sha256 else []
            if md5s and description.md5(path) not in md5s:
                path.unlink()
                path.with_name(path.name + ".sha256").unlink(missing_ok=True)
                what = f"md5 of {path.name} is not {' or '.join(md5s)}"
                raise DataError(what, where=image.url, hint="Ask the publisher") from None
            log.info("atlas %s: image fetched from %s", about.name, image.url)
    if source and space:
        try:
            description.find_transform(source, space, templateflow_home)
        except DataError:
            transform = description.transform_name(source, space)
            path = description.templateflow_folder(templateflow_home) / transform
            path.unlink(missing_ok=True)  # the placeholder
            fetched = fetch(f"{description.TEMPLATEFLOW}/{transform}", path)  # 0.2 GB
            description.verify_transform(fetched, source, space)
    load_atlas(name, space=space, atlas_dir=atlas_dir, templateflow_home=templateflow_home, cache=cache)
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
    checksums = accepted or description.recorded_sha256(path)
    if not url.endswith(".zip"):
        fetch(url, path, sha256=checksums)
    else:
        archive = fetch(url, path.with_name(Path(url).name))
        with atomic(path) as temporary:
            with zipfile.ZipFile(archive) as packed:
                members = [member for member in packed.namelist() if Path(member).name == path.name]
                if not members:
                    what = f"the archive does not contain {path.name}"
                    raise DataError(what, where=archive, hint="Download the image yourself")
                temporary.write_bytes(packed.read(members[0]))
            verify(temporary, name=path.name, where=url, sha256=checksums)
        archive.unlink()
    if not checksums:
        write_text(f"{sha256(path)}  {path.name}\n", path.with_name(path.name + ".sha256"))
