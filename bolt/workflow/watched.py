"""What runs a stage again besides the inputs and the code of its rule: settings, and files that are no inputs.

``stages.toml`` names the functions of a study here that a stage reads.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

from bolt.atlases.description import atlas_folder, describe_atlas, find_image, find_labels
from bolt.config import Dataset, Registration, load_denoise, load_registration, load_space
from bolt.config.study import Study
from bolt.io.bids import files_of_subjects
from bolt.io.errors import BoltError, DataError
from bolt.io.files import read_text, sha256
from bolt.io.places import PACKAGE
from bolt.io.series_files import sidecar_of
from bolt.models.suitability import minimum_volumes

INDEXED = {
    "bids": r".*\..*",
    "fmriprep": r"(.*_)?bold\.|.*_desc-brain_mask\.|.*_desc-confounds_",
    "bids_series": r"sub-.*(_timeseries\.|\.ptseries\.nii|_motion\.tsv|_bold(map)?\.json)",
}
"""Names of the files that the index looks for, at the top of a dataset's folder and in those of its subjects."""
AT_TOP = r"^sub-|(^|_)bold\.json$|_events\.tsv$|^\.bidsignore$"
"""Of the files at the top, those that the index reads: no change of a README makes it anew."""
HCP_SCANS = "*/MNINonLinear/Results/?fMRI_*_??/"
HCP_FILES = ("?fMRI_*_??.nii.gz", "brainmask_fs.2.nii.gz", "Movement_*.txt", "EVs/*.txt")
NOT_INDEXED = ("description", "crop", "simulate", "expected", "paper", "published", "red")
"""Keys of a dataset that its index does not read."""
PROSE = dict.fromkeys(("description", "source", "licence", "citation", "doi", "url", "labels_url"), True)
"""Keys of an atlas that change no number."""
NOT_ANATOMICAL = {"description", "motion_sampling", "motion_iterations"}
"""Keys of a registration that preprocessing of the T1w does not read."""


def read_settings(study: Study, settings: Any) -> Any:
    """Return what a stage reads of a study.

    Parameters
    ----------
    study : Study
    settings : str, dict, list or None
        As in ``stages.toml``: an attribute of the study; a function of this module (``atlas_files()``); some keys of an
        attribute (``{of = …, include = […]}``, or exclude); or a list of these.
    """
    if isinstance(settings, list):
        return [read_settings(study, one) for one in settings]
    if isinstance(settings, dict):
        chosen: dict[str, Any] = {how: set(keys) for how, keys in settings.items() if how != "of"}
        return attrgetter(settings["of"])(study).model_dump(**chosen)
    if settings is None:
        return None
    return globals()[settings[:-2]](study) if settings.endswith("()") else attrgetter(settings)(study)


def indexed(study: Study) -> list[Any]:
    """Return what the index reads."""
    config, dataset = study.config, study.dataset
    ignored: Any = {**dict.fromkeys(NOT_INDEXED, True), "abide": {"base"}, "hcp": {"bucket"}}
    return [
        dataset.model_dump(exclude=ignored),
        config.preprocess.model_dump(include={"space", "sbref", "average_t1w"}),
        load_denoise(config.denoise).strategy == "ica_aroma",
        config.folds.outer,
        minimum_volumes(config),
        atlas_files(study) if dataset.ready_series else [],  # series are chosen and ordered by the names of ROIs
    ]


def registrations(study: Study) -> list[Registration]:
    """Return the configured registrations, in the order in which they are tried."""
    return [load_registration(name) for name in study.config.preprocess.registrations]


def of_anatomical(study: Study) -> list[Any]:
    """Return what preprocessing of the T1w reads."""
    tried = [registration.model_dump(exclude=NOT_ANATOMICAL) for registration in registrations(study)]
    return [study.config.preprocess.space, tried]


def of_functional(study: Study) -> list[Any]:
    """Return what preprocessing of the BOLD image reads."""
    preprocess = study.config.preprocess.model_dump(exclude={"keep_bold", "registration", "threads"})
    return [preprocess, registrations(study)[0].model_dump(exclude={"description"})]


def of_parcellate(study: Study) -> list[Any]:
    """Return what the parcellation of a scan reads."""
    config = study.config
    return [
        atlas_files(study),
        atlas_images(study),
        [config.parcellate.coverage, config.parcellate.signal],
        load_denoise(config.denoise),
        [config.preprocess.slice_timing] if study.layout.native else [],
    ]


def of_cache(study: Study) -> list[Any]:
    """Return what the cache of an atlas reads."""
    config, join = study.config, study.dataset.join_scans
    joins = [] if join == "none" else [join]
    return [config.parcellate.uncovered, minimum_volumes(config), *joins]


def searched(study: Study) -> list[Any]:
    """Return what the choice of hyper-parameters reads."""
    settings = study.config.search
    shared = ["shared"] if settings.shared else []
    return [settings.model_dump(exclude={"models", "scheme", "use"}), *shared, load_space(settings.space)]


def of_search_fold(study: Study) -> list[Any]:
    """Return what a search of hyper-parameters reads."""
    return [[study.dataset.classes, study.dataset.crop, study.config.device], *searched(study)]


def titles(study: Study) -> list[str]:
    """Return what pages call the models."""
    return [model.title for model in study.models.values()]


def reported(study: Study) -> list[Any]:
    """Return what the pages of the report show."""
    atlases = [describe_atlas(place) for place in study.config.atlas_places.values()]
    # what a search found, which has no job that the report waits for: it would be searched again
    searched = [sha256(path) for path in sorted((study.layout.results / "search").glob("**/best.json"))]
    config, models = study.config.model_dump(mode="json"), list(study.models.values())
    return [templates(study), config, study.dataset, atlases, models, searched]


def atlas_files(study: Study) -> list[str]:
    """Return the descriptions of all atlases, and the hashes of their tables of labels."""
    return [content for atlas in study.config.atlas_places for content in atlas_file(study, atlas)]


def atlas_file(study: Study, atlas: str) -> list[str]:
    """Return the description of an atlas, and the hash of its table of labels, or else of its image alone."""
    place, paths = study.config.atlas_places[atlas], study.config.paths
    about = describe_atlas(place)
    try:
        path = find_labels(about, atlas_folder(place), paths.atlas_dir)
        path = path if path.is_file() else Path(place)
        table = sha256(path) if path.is_file() else "none"
    except DataError:  # the table of a family of atlases, before `resources` has downloaded it
        table = "not staged"
    return [about.model_dump_json(exclude={**PROSE, "images": {"__all__": {"url"}}}), table]


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


def templates(study: Study) -> list[str]:
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
            listed += [sidecar_of(path) for path in listed]
    elif dataset.source == "hcp":
        listed = [file for names in HCP_FILES for file in dataset.path.glob(HCP_SCANS + names)]
    elif dataset.source in INDEXED:
        listed = [file for file in files_of_subjects(dataset.path) if re.match(INDEXED[dataset.source], file.name)]
        listed = [file for file in listed if file.parent != dataset.path or re.search(AT_TOP, file.name)]
    else:
        return ""
    if dataset.bids:
        listed += [file for file in files_of_subjects(dataset.bids) if file.name.endswith("_events.tsv")]
    files = sorted((str(path), path.stat()) for path in listed if path.is_file())
    return hashlib.sha256(repr([(path, s.st_size, s.st_mtime_ns) for path, s in files]).encode()).hexdigest()
