"""Staging what a run needs from elsewhere: the only code that uses the network.

Atlas images go beside their `atlas.yaml`, templates into the TemplateFlow home. Meant for a machine with network
(a cluster's login node) before the run.
"""

from __future__ import annotations

import logging
import shutil
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from bolt.atlases import atlas_folder, describe_atlas, load_atlas
from bolt.config import Config
from bolt.errors import DataError
from bolt.files import atomic, sha256

log = logging.getLogger("bolt")
TRIES = 3


def stage_atlases(config: Config) -> None:
    """Fetch the image of each configured atlas that is found nowhere yet.

    Parameters
    ----------
    config : Config
        Images are written beside the ``atlas.yaml`` that describes them.

    Raises
    ------
    DataError
        No address is known, the download fails, or its sha256 is not the described one.
    """
    for name, place in config.atlas_places.items():
        try:
            load_atlas(place, atlas_dir=config.paths.atlas_dir, templateflow_home=config.paths.templateflow_home)
            log.info("atlas %s: present", name)
        except DataError as missing:
            about = describe_atlas(place)
            if not about.url or not about.file:
                raise missing
            file = about.file.removesuffix(".gz") if about.url.endswith(".zip") else about.file
            fetch(about.url, atlas_folder(place) / file, about.sha256)
            log.info("atlas %s: fetched from %s", name, about.url)


def fetch(url: str, path: Path, accepted: list[str], pause: float = 2.0) -> None:
    """Download a file, out of its zip archive if it is in one.

    It appears under its name only when its sha256 is one of `accepted`.

    Parameters
    ----------
    url : str
    path : Path
    accepted : list of str
        sha256 sums; empty: any.
    pause : float
        Seconds before the second try; doubled for each further one.
    """
    with atomic(path) as temporary:
        for attempt in range(TRIES):
            try:
                with urllib.request.urlopen(url, timeout=60) as source, temporary.open("wb") as target:
                    shutil.copyfileobj(source, target)
                break
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                if attempt == TRIES - 1:
                    raise DataError(
                        f"download failed ({error})", where=url, mend=f"Fetch it by hand and save it as {path}"
                    ) from None
                time.sleep(pause * 2**attempt)
        if url.endswith(".zip"):
            _unpack(temporary, path.name)
        found = sha256(temporary)
        if accepted and found not in accepted:
            raise DataError(
                f"sha256 is {found}, not {' or '.join(accepted)}",
                where=url,
                mend=f"Fetch the file by hand, and save it as {path} if it is right",
            )


def _unpack(archive: Path, name: str) -> None:
    """Replace a zip archive by its member `name`."""
    with zipfile.ZipFile(archive) as packed:
        members = [member for member in packed.namelist() if Path(member).name == name]
        if not members:
            raise DataError(f"the archive does not hold {name}", where=archive.name, mend="Fetch the image by hand")
        data = packed.read(members[0])
    archive.write_bytes(data)
