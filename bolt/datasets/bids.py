"""Raw BIDS: T1w and 4D BOLD images with a participants table, indexed by pybids."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bids import BIDSLayout, BIDSLayoutIndexer
from pathspec import GitIgnoreSpec

from bolt.config import Config, Dataset
from bolt.datasets.participants import SELECTION, join_subjects, read_subjects, read_timing, without_image
from bolt.io.bids import metadata_of, sidecar_tr
from bolt.io.errors import ConfigError, DataError, shorten_list
from bolt.io.files import read_json
from bolt.io.volumes import check_image

log = logging.getLogger("bolt")
logging.getLogger("bidsschematools").setLevel(logging.WARNING)  # would tell which schema pybids reads
IMAGES = [".nii", ".nii.gz"]
ENTITIES = {"acquisition", "ceagent", "reconstruction", "direction", "run", "session", "task", "echo", "part", "space"}
"""pybids' names of the entities that tell images of one kind apart."""
NOT_OF_SUBJECTS = re.compile(r"^/(?!sub-)([^/.]+$|[^/]+/)|/\.")
"""Folders at the top of a dataset, with all that is in them, and hidden files."""
SIMILAR = 1.5
"""T1w images are averaged if the voxels of none are longer than those of the finest by more than this factor."""
_T1w = tuple[str | None, list[str]]
"""Session and paths."""


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """List the BOLD images, and the subjects without any, as in `bolt.datasets.COLUMNS`."""
    layout = open_layout(dataset.path)
    known = layout.get_entities(metadata=False)
    for kind, entity in ((kind, entity) for kind, entities in dataset.bids_filter.items() for entity in entities):
        if entity not in known:  # pybids would find nothing and say no word
            what = f"'bids_filter: {kind}' names an unknown entity '{entity}'"
            hint = f"Entities of the images: {', '.join(sorted(known.keys() & ENTITIES))}"
            raise ConfigError(what, where=dataset.name, hint=hint)
    t1w = _anatomical_images(layout, dataset.bids_filter.get("t1w", {}), config.preprocess.average_t1w)
    images = find_images(layout, dataset, **{"suffix": "bold"} | dataset.bids_filter.get("bold", {}))
    processed = [image.path for image in images if _is_processed(image)]
    rows = [_row(image, dataset, config, t1w) for image in images if not _is_processed(image)]
    if processed:
        if not rows:
            raise DataError(
                f"images that are preprocessed already ({Path(processed[0]).name}), but 'source: bids' is for raw data",
                where=dataset.path,
                hint="Set 'source: fmriprep' if fMRIPrep made them, and state it in dataset_description.json: "
                '"GeneratedBy": [{"Name": "fMRIPrep"}]',
            )
        log.warning(
            "%d images with space- or desc- in their names are preprocessed already and not used (such as %s)",
            *(len(processed), Path(processed[0]).name),
        )
    subjects = read_subjects(dataset, [row["subject"] for row in rows])
    if not rows:
        what = "no BOLD images found"
        hint = "Expected sub-*/[ses-*/]func/*_bold.nii.gz; check 'path' and the filters of the dataset's file"
        raise DataError(what, where=dataset.path, hint=hint)
    rows += without_image(subjects, rows, dataset, kind="raw", exclude_reason="the subject has no BOLD image")
    return join_subjects(pd.DataFrame(rows), subjects, dataset, dataset.participants)


def open_layout(path: Path, *, derivative: bool = False) -> BIDSLayout:
    """Index the names in a BIDS folder with pybids; a missing folder or description is a `DataError`.

    Of the folders at the top only those of subjects belong to a dataset, not ``sourcedata``, ``code`` and the like, nor
    what ``.bidsignore`` of raw data names (that of derivatives lists files that the BIDS validator refuses).
    """
    if not path.is_dir():
        raise DataError("dataset folder not found", where=path, hint="Set 'path' in the dataset's file")
    if not (path / "dataset_description.json").is_file():
        what = "no dataset_description.json, so this is not the top folder of a BIDS dataset"
        hint = 'Set \'path\' to the top folder, or add {"Name": "…", "BIDSVersion": "1.10.0"} as that file'
        raise DataError(what, where=path, hint=hint)
    about = read_json(path / "dataset_description.json")
    made_by = about.get("GeneratedBy", []) if isinstance(about, dict) else None
    tools = [*made_by, about.get("PipelineDescription", {})] if isinstance(made_by, list) else [None]
    if not all(isinstance(tool, dict) for tool in tools):
        what = "not what BIDS calls a description of a dataset"
        hint = 'Expected {"Name": "…", …}, of derivatives with "GeneratedBy": [{"Name": "fMRIPrep"}]'
        raise DataError(what, where=path / "dataset_description.json", hint=hint)
    listed = path / ".bidsignore"
    ignored = listed.read_text(errors="replace").splitlines() if listed.is_file() and not derivative else []
    indexer = BIDSLayoutIndexer(validate=False, index_metadata=False, ignore=[_Outside(ignored)])
    return BIDSLayout(path, validate=False, indexer=indexer, is_derivative=derivative)


class _Outside:
    """What does not belong to a dataset, as pybids asks for it: a pattern that is searched in ``/sub-01/…``."""

    def __init__(self, ignored: list[str]) -> None:
        self.ignored = GitIgnoreSpec.from_lines(ignored)

    def search(self, path: str) -> bool:
        return NOT_OF_SUBJECTS.search(path) is not None or self.ignored.match_file(path[1:])


def find_images(layout: BIDSLayout, dataset: Dataset, **entities: Any) -> list[Any]:
    """Return the images selected by the dataset's tasks, sessions and runs, sorted by path."""
    selected = {"task": dataset.tasks, "session": dataset.sessions, "run": dataset.runs}
    entities |= {name: values for name, values in selected.items() if values}
    if "run" in entities:
        entities["run"] = [int(r) if r.isdigit() else r for r in entities["run"]]
    return sorted(layout.get(extension=IMAGES, **entities), key=lambda file: file.path)


def entities_of(entities: Mapping[str, Any]) -> dict[str, Any]:
    """Return subject, session, run and task of a scan, from the entities of its file name."""
    return {
        "subject": f"sub-{entities['subject']}",
        "session": entities.get("session"),
        "run": str(entities["run"]) if "run" in entities else None,
        "task": entities.get("task"),
    }


def _is_processed(image: Any) -> bool:
    """Return whether an image's name is that of a derivative."""
    return re.search("_(space|desc)-", Path(image.path).name) is not None


def _is_magnitude(entities: Mapping[str, Any]) -> bool:
    """Return whether an image is not said to be a phase, real or imaginary part."""
    return entities.get("part", "mag") == "mag" and entities.get("reconstruction") != "phase"


def _row(bold: Any, dataset: Dataset, config: Config, t1w: Mapping[str, list[_T1w]]) -> dict[str, Any]:
    entities = bold.get_entities()
    row = entities_of(entities) | {
        "scan_id": bold.filename.split("_bold.nii")[0],
        "kind": "raw",
        "bold": bold.path,
    }
    unwanted, wrong = [], []
    if not _is_magnitude(entities):
        unwanted.append("not a magnitude image")
    if "echo" in entities:
        wrong.append("multi-echo data: combine the echoes first (as fMRIPrep does)")
    try:
        types = metadata_of(bold.path).get("ImageType")  # as converters state it
        if isinstance(types, list) and {"P", "PHASE"} & set(map(str, types)) and "M" not in types:
            unwanted.append("not a magnitude image")
        row |= read_timing(bold.path, read_sidecar_tr(bold.path, dataset), dataset)
    except DataError as error:
        wrong.append(str(error))
    images = t1w.get(row["subject"], [])  # from the same session if there is one, else the first
    paths = min(((session != row["session"], paths) for session, paths in images), default=(True, []))[1]
    row["t1w"], row["more_t1w"] = paths[0] if paths else None, "|".join(paths[1:]) or None
    if paths:
        try:
            check_image(paths[0])
        except DataError as error:
            wrong.append(str(error))
    else:
        wrong.append("the subject has no T1w image")
    row["events"] = find_events(dataset.path, row["scan_id"])
    if config.preprocess.sbref == "auto":
        beside = (bold.path.split("_bold.nii")[0] + f"_sbref{end}" for end in (".nii.gz", ".nii"))
        row["sbref"] = next(filter(os.path.isfile, beside), None)
    row["exclude_reason"] = next(iter(unwanted + wrong), None)
    return row | ({"exclude_stage": SELECTION} if unwanted else {})


def find_events(root: Path, scan_id: str) -> str | None:
    """Return a scan's table of events in a raw BIDS folder: its own, or the nearest that it inherits.

    A file further up applies to all scans whose names have its entities (the inheritance principle of BIDS). Entities
    that are numbers are compared as numbers: fMRIPrep 20 to 22 write ``run-1`` for ``run-01``.
    """
    entities = scan_id.split("_")
    below = [*(entity for entity in entities if entity.startswith(("sub-", "ses-"))), "func"]
    for depth in range(len(below), -1, -1):
        folder = root.joinpath(*below[:depth])
        changed = folder.stat().st_mtime_ns if folder.is_dir() else 0
        tables = _tables_of_events(folder, changed)
        fitting = [(len(names), str(path)) for path, names in tables if names <= _numbered(scan_id)]
        if fitting:
            return max(fitting)[1]
    return None


@lru_cache(maxsize=4)
def _tables_of_events(folder: Path, changed: int) -> list[tuple[Path, set[str]]]:
    """Return the tables of events in a folder with their entities; the top is listed once, not for every scan."""
    return [(path, _numbered(path.name.removesuffix("_events.tsv"))) for path in folder.glob("*_events.tsv")]


def _numbered(name: str) -> set[str]:
    """Return the entities of a name, numbers without leading zeros."""
    return {re.sub("-0+(?=[0-9]+$)", "-", entity) for entity in name.split("_")}


def read_sidecar_tr(bold: str, dataset: Dataset) -> float | None:
    """Return the repetition time that the JSON files of an image or the dataset's file state, in seconds."""
    stated = sidecar_tr(bold)
    return dataset.tr if stated is None else stated


def _anatomical_images(layout: BIDSLayout, filters: Mapping[str, Any], average: bool) -> dict[str, list[_T1w]]:
    """Return session and T1w images of each subject and session; one query, because each takes long.

    Of several, the finest is used (a localizer has thick slices), of equal ones the first by name. With `average`,
    those whose voxels are about as fine follow it.
    """

    def longest_edge(path: str) -> float:  # mm to a tenth
        try:
            return round(float(max(check_image(path).header.get_zooms()[:3])), 1)
        except DataError:
            return np.inf

    found: dict[tuple[str, str | None], list[str]] = {}
    for image in layout.get(**{"suffix": "T1w", "extension": IMAGES} | dict(filters)):
        entities = image.get_entities()
        if _is_processed(image) or not _is_magnitude(entities):
            continue
        found.setdefault((f"sub-{entities.get('subject')}", entities.get("session")), []).append(image.path)
    images: dict[str, list[_T1w]] = {}
    several: dict[str, list[str]] = {}
    for (subject, session), paths in found.items():
        edges = sorted((longest_edge(path), path) for path in paths) if len(paths) > 1 else [(0.0, paths[0])]
        used = [path for edge, path in edges if edge <= SIMILAR * edges[0][0]] if average else [edges[0][1]]
        images.setdefault(subject, []).append((session, used))
        several |= {used[0]: [Path(path).name for _, path in edges]} if len(used) < len(paths) else {}
    if several:
        finest, names = next(iter(several.items()))
        log.warning(
            "%d of %d sessions have several T1w images, such as %s; %s. 'bids_filter: t1w' in the dataset's file "
            "chooses others; 'preprocess: average_t1w' averages those of one resolution",
            *(len(several), len(found), shorten_list(names)),
            "coarse ones are left out" if average else f"{Path(finest).name} is used, the finest or else the first",
        )
    return images
