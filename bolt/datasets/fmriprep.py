"""fMRIPrep derivatives: BOLD in template space, brain masks and tables of confounds."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.atlases.description import describe_atlas, known_atlases, serves
from bolt.config import Config, Dataset
from bolt.datasets.bids import entities_of, find_events, find_images, open_layout, read_sidecar_tr
from bolt.datasets.participants import join_subjects, read_subjects, read_timing, without_image
from bolt.datasets.spaces import description_of
from bolt.io.bids import space_of
from bolt.io.errors import DataError
from bolt.io.volumes import check_bold

log = logging.getLogger("bolt")
ECHO = re.compile("_echo-[0-9]+")
SINGLE_ECHOES = "only images of single echoes: have fMRIPrep combine them (three echoes at least)"
OWN = ("none", "native")
"""`res-` of images at the resolution of the BOLD."""
ATLAS_MM = 2.0
"""Voxel size of most atlases."""


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """List the preprocessed BOLD images in the configured space, as in `bolt.datasets.COLUMNS`."""
    layout = open_layout(dataset.path, derivative=True)
    space = config.preprocess.space
    desc = description_of(config)
    found = find_images(layout, dataset, suffix="bold", desc=desc)
    images = [image for image in found if space_of(image.path) == space]
    if not images:  # the error names atlases for the spaces found, and what to ask fMRIPrep for
        spaces = sorted({one for image in found if (one := space_of(image.path))})
        home, atlases = config.paths.templateflow_home, {name: describe_atlas(name) for name in known_atlases()}
        fitting = {one: [name for name in atlases if serves(atlases[name], one, home)] for one in spaces}
        choices = [f"{one} with {', '.join(names)}" for one, names in fitting.items() if names]
        use = f"Set 'preprocess: space' and 'atlases' to {'; or to '.join(choices)}. Or run" if choices else "Run"
        what = f"no desc-{desc}_bold images in space {space} (found spaces: {', '.join(spaces) or 'none'})"
        cohorts = [one for one in spaces if one.startswith(f"{space}_cohort-")]
        hint = f"{use} fMRIPrep with --output-spaces {space.replace('_cohort-', ':cohort-')}"
        if cohorts:
            hint = f"Each cohort is a space of its own, and a dataset has one: 'preprocess: space: {cohorts[0]}'"
        raise DataError(what, where=dataset.path, hint=hint)
    resolution = _choose_resolution(images, dataset)
    chosen = [image for image in images if _resolution(image.path) == resolution]
    echoes = [image for image in chosen if ECHO.search(Path(image.path).name)]
    rows = [_row(image, dataset, space) for image in chosen if image not in echoes]
    if echoes:
        log.warning("%d images of single echoes are not used (such as %s)", len(echoes), Path(echoes[0].path).name)
    combined = {image.path for image in chosen if image not in echoes}
    alone = {ECHO.sub("", echo.path): echo for echo in echoes}  # one stands for each scan without a combined image
    lone = [alone[path] for path in alone if path not in combined]
    rows += [_row(echo, dataset, space) | {"exclude_reason": SINGLE_ECHOES} for echo in lone]
    others = {_scan_id(i.path): i for i in images if _resolution(i.path) != resolution}
    absent = {"exclude_reason": f"no image at resolution '{resolution}' (res-), which the other scans have"}
    listed = {row["scan_id"] for row in rows}
    rows += [_row(bold, dataset, space) | absent for scan, bold in others.items() if scan not in listed]
    if unmasked := [row["scan_id"] for row in rows if row["mask"] is None]:
        log.warning("%d of %d scans have no brain mask, such as %s", len(unmasked), len(rows), unmasked[0])
    without = [row["scan_id"] for row in rows if row["events"] is None]
    if dataset.bids is not None and without and any(row["task"] != "rest" for row in rows):
        log.warning("%d of %d scans have no table of events in %s", len(without), len(rows), dataset.bids)
    subjects = read_subjects(dataset, [row["subject"] for row in rows])
    missing = f"the subject has no desc-{desc}_bold image in space {space}"
    rows += without_image(subjects, rows, dataset, kind="preprocessed", exclude_reason=missing)
    return join_subjects(pd.DataFrame(rows), subjects, dataset, dataset.participants)


def _choose_resolution(images: list[Any], dataset: Dataset) -> str:
    """Return the `res-` of the images to read, as several resolutions would repeat each scan.

    It is the configured one. Otherwise the rule: the resolution that most scans have; of these the BOLD's own (no
    `res-`, or `res-native`), else the one whose voxels are nearest to `ATLAS_MM`.
    """
    by_name: dict[str, list[str]] = {}
    for image in images:
        by_name.setdefault(_resolution(image.path), []).append(image.path)
    names = ", ".join(sorted(by_name))
    if dataset.resolution is not None and dataset.resolution not in by_name:
        what = f"no images at resolution '{dataset.resolution}'; res- is {names}"
        raise DataError(what, where=dataset.path, hint="Correct 'resolution' in the dataset's file")

    def coarseness(name: str) -> tuple[float, str]:
        if name in OWN:
            return -1.0, name
        try:
            return abs(max(check_bold(by_name[name][0]).voxel_sizes) - ATLAS_MM), name
        except DataError:
            return math.inf, name

    chosen = min(by_name, key=lambda name: (-len(by_name[name]), *coarseness(name)))
    if dataset.resolution is None and len(by_name) > 1:
        log.warning("images at resolutions %s (res-): '%s' is read. For another, set 'resolution'", names, chosen)
    return dataset.resolution or chosen


def _resolution(path: str) -> str:
    """Return the value of `res-` in an image's name, or "none"."""
    entity = re.search(r"_res-([A-Za-z0-9]+)", Path(path).name)
    return entity[1] if entity else "none"


def _scan_id(path: str) -> str:
    """Return the entities of the acquisition: all before those of the derivative, but for the echo."""
    return ECHO.sub("", Path(path).name.split("_space-")[0])


def _row(bold: Any, dataset: Dataset, space: str) -> dict[str, Any]:
    stem = bold.path.rsplit("_desc-", 1)[0]
    start = str(Path(bold.path).with_name(_scan_id(bold.path)))
    row = entities_of(bold.get_entities()) | {
        "scan_id": _scan_id(bold.path),
        "kind": "preprocessed",
        "space": space,
        "bold": bold.path,
        "mask": _first_existing(f"{stem}_desc-brain_mask.nii.gz", f"{stem}_desc-brain_mask.nii"),
        "confounds": _first_existing(
            f"{start}_desc-confounds_timeseries.tsv", f"{start}_desc-confounds_regressors.tsv"
        ),
        "events": find_events(dataset.bids, _scan_id(bold.path)) if dataset.bids else None,
        "exclude_reason": None,
    }
    try:
        row |= read_timing(bold.path, read_sidecar_tr(bold.path, dataset), dataset)
    except DataError as error:
        row["exclude_reason"] = str(error)
    return row


def _first_existing(*paths: str) -> str | None:
    return next((path for path in paths if Path(path).is_file()), None)
