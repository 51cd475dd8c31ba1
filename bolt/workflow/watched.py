"""Files whose change runs a stage again although they are no inputs of its rule: atlases, page templates, images."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from fnmatch import fnmatch

from bolt.atlases.description import atlas_folder, describe_atlas, find_image, find_labels
from bolt.config import Config, Dataset
from bolt.config.study import Study
from bolt.io.bids import files_of_subjects
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_text, sha256
from bolt.io.places import PACKAGE

IMAGES = {"bids": "*.*", "fmriprep": "*_bold.*", "bids_series": "sub-*_timeseries.*"}
"""Names of images and sidecars, at the top of a dataset's folder and in those of its subjects."""
AT_TOP = r"^sub-|_bold\.json$|^\.bidsignore$"
"""Of the files at the top, those that the index reads: no change of a README makes it anew."""
HCP_IMAGES = "*/MNINonLinear/Results/?fMRI_*_??/?fMRI_*_??.nii.gz"


def atlas_files(config: Config) -> list[str]:
    """Return the descriptions of the atlases, and the hashes of their tables of labels."""
    contents = []
    for place in config.atlas_places.values():
        about = describe_atlas(place)
        try:
            path = find_labels(about, atlas_folder(place), config.paths.atlas_dir)
            table = sha256(path) if path.is_file() else "none: a label image alone"
        except DataError:  # the table of a family of atlases, before `resources` has downloaded it
            table = "not staged"
        contents += [about.model_dump_json(), table]
    return contents


def atlas_images(study: Study) -> list[str]:
    """Return the hashes of label images whose description has none: users' own.

    Caches do not read them, so that adding an image for the maps of ready series trains nothing again.
    """
    config, space = study.config, study.space
    paths, hashes = config.paths, []
    for place in config.atlas_places.values():
        about = describe_atlas(place)
        if about.kind != "spheres" and not about.image_in(space).sha256:
            try:
                image = find_image(about, atlas_folder(place), paths.atlas_dir, paths.templateflow_home, space)
                hashes.append(sha256(image))
            except BoltError:
                hashes.append("not staged")
    return hashes


def templates() -> list[str]:
    """Return the hashes of the templates of pages."""
    return [sha256(path) for path in sorted((PACKAGE / "report/templates").iterdir())]


def files_of(dataset: Dataset) -> str:
    """Return a hash of names, sizes and times of a dataset's images or series: a replaced scan is indexed anew."""
    if dataset.downloaded:
        return ""
    if dataset.source == "series":
        listed = []
        with suppress(BoltError, KeyError):  # the index explains it
            listed = [dataset.path.parent / name for name in read_text(dataset.path)["file"].dropna()]
    elif dataset.source == "hcp":
        listed = [*dataset.path.glob(HCP_IMAGES)]
    elif dataset.source in IMAGES:
        listed = [file for file in files_of_subjects(dataset.path) if fnmatch(file.name, IMAGES[dataset.source])]
        listed = [file for file in listed if file.parent != dataset.path or re.search(AT_TOP, file.name)]
    else:
        return ""
    if dataset.bids:
        listed += [file for file in files_of_subjects(dataset.bids) if file.name.endswith("_events.tsv")]
    files = sorted((str(path), path.stat()) for path in listed if path.is_file())
    return hashlib.sha256(repr([(path, s.st_size, s.st_mtime_ns) for path, s in files]).encode()).hexdigest()
