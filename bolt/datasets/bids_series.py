"""Ready ROI series in a folder of BIDS derivatives, as XCP-D writes them.

Files are found by their names: `sub-01_task-rest_space-…_seg-…_stat-mean_timeseries.tsv`, in other releases with
`atlas-…` or without `stat-mean`, in any format of `bolt.io.series_files`. The repetition time comes from the JSON file
beside a series or the denoised image, head motion from XCP-D's table.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd

from bolt.atlases.description import known_sha256
from bolt.atlases.labels import load_labels
from bolt.config import Config, Dataset
from bolt.datasets import participants
from bolt.io.bids import files_of_subjects
from bolt.io.cifti import PTSERIES, read_ptseries_tr
from bolt.io.errors import ConfigError, DataError, shorten_list
from bolt.io.files import read_columns, read_json
from bolt.io.series_files import (
    SUFFIXES,
    check_atlas,
    check_rois,
    order_by_name,
    plain_name,
    read_named_series,
    series_suffix,
    sidecar_of,
)
from bolt.io.volumes import differ, require_tr

ATLAS = ("seg", "atlas")
"""Entities that name the atlas: XCP-D has used both."""
DERIVED = {"space", "cohort", "res", "den", "scale", "stat", "desc", "measure", "feature", *ATLAS}
"""Entities of a series; the others are those of its scan."""
PREFERRED = (".tsv", ".csv", ".npy")
"""Formats in order of preference, where a series is there in several; others follow."""
MOTION = ("motion", "desc-filtered_motion")
"""Endings of XCP-D's table of head motion, in newer and older versions."""


@dataclass(frozen=True)
class SeriesFile:
    """A file of ROI series, or beside them, and what its name says."""

    path: Path

    @property
    def entities(self) -> dict[str, str]:
        """Return the entities in the order of the name."""
        parts = self.path.name.split(".")[0].split("_")
        return dict(part.split("-", 1) for part in parts if "-" in part)

    @property
    def scan_id(self) -> str:
        """Return the name of the scan: the entities that do not describe the derivative."""
        return "_".join(f"{key}-{value}" for key, value in self.entities.items() if key not in DERIVED)

    @property
    def atlas(self) -> str | None:
        """Return the atlas named by the file."""
        return next((self.entities[key] for key in ATLAS if key in self.entities), None)

    @property
    def atlas_names(self) -> set[str]:
        """Return what the atlas may be called: as `atlas`, or by several entities, as in `bolt.io.bids.atlas_name`."""
        labels = [self.entities[key] for key in ("atlas", "seg", "scale", "desc") if key in self.entities]
        return {plain_name(name) for name in (self.atlas, *accumulate(labels)) if name} if self.atlas else set()

    @property
    def preference(self) -> tuple[int, str]:
        """Return what sorts the files of one series: preferred formats first."""
        suffix = series_suffix(self.path)
        return PREFERRED.index(suffix) if suffix in PREFERRED else len(PREFERRED), str(self.path)


def scans(dataset: Dataset, config: Config) -> pd.DataFrame:
    """List the series of the configured atlas, as in `bolt.datasets.COLUMNS`."""
    (atlas, place), *others = config.atlas_places.items()
    if others:
        what = f"{1 + len(others)} atlases, but a scan's series are of one"
        hint = "Name one in 'atlases'; make a dataset's file for each of the others"
        raise ConfigError(what, where="configuration", hint=hint)
    files = find_series(dataset, atlas)
    rois = load_labels(place, atlas_dir=config.paths.atlas_dir)
    checksums = known_sha256(place)
    rows = pd.DataFrame([_row(file, dataset, atlas, rois, checksums) for file in files])
    # XCP-D joins runs and phase-encoding directions that it also lists each; what is shorter is a run without a number
    n_volumes, parts = rows.set_index("scan_id")["n_volumes"].astype(float), defaultdict(set)
    for name in n_volumes.index:
        for key in ("run", "dir", "run|dir"):
            parts[re.sub(f"_({key})-[^_]+", "", name)].add(name)
    for row, name in enumerate(n_volumes.index):
        lengths = n_volumes[sorted(parts[name] - {name})]
        if len(lengths) > 1 and n_volumes[name] >= lengths.min() + lengths.max():
            reason = "several runs in one file, which are also listed each on its own"
            participants.exclude(rows, row, reason, participants.SELECTION)
    participants.exclude_unselected(rows, dataset)
    subjects = participants.read_subjects(dataset, rows["subject"])
    facts = {"kind": "series", "exclude_reason": f"the subject has no series of atlas '{files[0].atlas or atlas}'"}
    missing = participants.without_image(subjects, rows.to_dict("records"), dataset, **facts)
    rows = pd.concat([rows, pd.DataFrame(missing)], ignore_index=True)
    return participants.join_subjects(rows, subjects, dataset, dataset.participants)


def scan_count(dataset: Dataset, config: Config) -> int:
    """Return the number of scans, by the names of their files."""
    return len(find_series(dataset, next(iter(config.atlas_places))))


def find_series(dataset: Dataset, atlas: str) -> list[SeriesFile]:
    """Find one file of series for each scan.

    Parameters
    ----------
    dataset : Dataset
        Its `entities` select files.
    atlas : str
        Name of the configured atlas: decides if the files are of several atlases.

    Returns
    -------
    list of SeriesFile
        Sorted by scan.

    Raises
    ------
    DataError
        There is no file, or several for a scan that differ in an entity.
    """
    files = []
    for path in files_of_subjects(dataset.path):
        name = path.name  # fMRIPrep's confounds have a similar one
        if series_suffix(path) not in SUFFIXES or "_desc-confounds" in name or not path.is_file():
            continue
        if name.endswith(PTSERIES) or name.split(".")[0].endswith("_timeseries"):
            files += [SeriesFile(path)] if "sub" in SeriesFile(path).entities else []
    if not files:
        what = "no ROI series found"
        hint = "Expected sub-*/[ses-*/]func/sub-*_timeseries.tsv (or another format); check 'path'"
        raise DataError(what, where=dataset.path, hint=hint)
    for key, value in dataset.entities.items():
        present = sorted({file.entities[key] for file in files if key in file.entities})
        files = [file for file in files if file.entities.get(key) == value]
        if not files:
            what = f"no series with {key}-{value} (found: {shorten_list(present, 20) or 'none'})"
            raise DataError(what, where=dataset.path, hint="Correct 'entities' in the dataset's file")
    names = sorted({file.atlas for file in files if file.atlas is not None})
    if len(names) > 1:
        same = [name for name in names if plain_name(name) == plain_name(atlas)]
        if len(same) != 1:
            key = next(key for key in ATLAS if key in files[0].entities)
            raise DataError(
                f"series of {len(names)} atlases ({shorten_list(names, 20)}), none called '{atlas}'",
                where=dataset.path,
                hint=f"Choose one in the dataset's file: 'entities: {{{key}: {names[0]}}}', and set 'atlases' to the "
                "same",
            )
        files = [file for file in files if file.atlas == same[0]]
    by_scan: dict[str, list[SeriesFile]] = {}
    for file in files:
        by_scan.setdefault(file.scan_id, []).append(file)
    return [_one_of(candidates, dataset) for _, candidates in sorted(by_scan.items())]


def _one_of(candidates: Sequence[SeriesFile], dataset: Dataset) -> SeriesFile:
    """Return the one file of a scan: the same series in a preferred format, never one of several series."""
    best = min(candidates, key=lambda file: file.preference)
    same_format = [file for file in candidates if file.preference[0] == best.preference[0]]
    for key in sorted(DERIVED):
        # XCP-D names the grid in only some formats of a series
        compared = same_format if key in ("den", "res") else candidates
        values = sorted({file.entities.get(key, "none") for file in compared})
        if len(values) > 1:
            what = f"several series of scan '{best.scan_id}': {key}- is {', '.join(values)}"
            hint = f"Choose one in the dataset's file, such as 'entities: {{{key}: \"{values[-1]}\"}}'"
            raise DataError(what, where=dataset.path, hint=hint)
    return best


def _row(file: SeriesFile, dataset: Dataset, atlas: str, rois: pd.DataFrame, checksums: set[str]) -> dict[str, Any]:
    entities = file.entities
    row: dict[str, Any] = {
        "scan_id": file.scan_id,
        "subject": f"sub-{entities['sub']}",
        "session": entities.get("ses"),
        "run": participants.unpadded(entities.get("run")),
        "task": entities.get("task"),
        "kind": "series",
        "bold": str(file.path),
        "tr": dataset.tr,
        "n_volumes": None,
        "exclude_reason": None,
    }
    try:
        row["mean_fd"] = _mean_displacement(file)
        row["tr"] = series_tr(file.path, None, dataset)
        series, columns = read_named_series(file.path, rois["value"].tolist())
        if columns is not None:
            order_by_name(series, columns, rois["name"].tolist(), file.path, strict=True)
        check_rois(series, atlas, len(rois), file.path)
        if columns is None:  # only names tell whose ROIs these are; the dataset's file may state the atlas's
            names = [atlas, *(dataset.entities[key] for key in ATLAS if key in dataset.entities)]
            stated = check_atlas(file.path, names, checksums)
            if not stated and file.atlas_names and file.atlas_names.isdisjoint(map(plain_name, names)):
                key = next(key for key in ATLAS if key in entities)
                what = f"series of atlas '{file.atlas}', but 'atlases' names {atlas}"
                hint = "Set 'atlases' to theirs; if it is the same under another name, state it in the dataset's file: "
                raise DataError(what, where=file.path, hint=f"{hint}'entities: {{{key}: {file.atlas}}}'")
        row["n_volumes"] = len(series)
    except DataError as error:
        row["exclude_reason"] = str(error)
    return row


def series_tr(path: Path, listed: float | None, dataset: Dataset | None = None) -> float | None:
    """Return the seconds between volumes of ready series, or None if they are not known.

    Parameters
    ----------
    path : Path
        The JSON file beside it, or beside the denoised image of its scan, comes first; then what is listed, and
        the header of a CIFTI file.
    listed : float, optional
        What a table of scans states.
    dataset : Dataset, optional
        Its `tr` is that of files which state none, its `tr_conflict` says what to do where two differ.

    Raises
    ------
    DataError
        Two differ by more than 1 %, and `tr_conflict` is ``exclude``, as without a dataset; or one is impossible.
    """
    stated, header = _sidecar_tr(path), None
    rule, hint = (dataset.tr_conflict, participants.CONFLICT) if dataset else ("exclude", "Correct the wrong one")
    if rule == "exclude" and stated is not None and listed is not None and differ(listed, stated):
        what = f"a repetition time of {listed:g} s is listed, but the JSON file states {stated:g} s"
        raise DataError(what, where=path, hint=hint)
    stated = next((tr for tr in (stated, listed, dataset.tr if dataset else None) if tr is not None), None)
    if path.name.endswith(PTSERIES):
        header = require_tr(read_ptseries_tr(path), path)
    if stated is None or header is None or not differ(header, stated):
        return header if stated is None else stated
    if rule == "exclude":
        what = f"the header has a repetition time of {header:g} s, but {stated:g} s is stated"
        raise DataError(what, where=path, hint=hint)
    return header if rule == "header" else stated


def _sidecar_tr(path: Path) -> float | None:
    """Return what the JSON file of series states, or else that of the denoised image of their scan."""
    scan, found = SeriesFile(path).scan_id, [sidecar_of(path)]
    if scan.startswith("sub-"):
        others = sorted(path.parent.glob(f"{scan}_*desc-denoised*_bold.json"))
        found += [other for other in others if SeriesFile(other).scan_id == scan]
    for file in filter(Path.is_file, found):
        about = read_json(file)
        if not isinstance(about, Mapping):
            continue
        if about.get("RepetitionTime") is not None:
            return require_tr(about["RepetitionTime"], file)
        frequency = about.get("SamplingFrequency")
        if isinstance(frequency, int | float) and frequency > 0:
            return require_tr(1 / frequency, file)
    return None


def _mean_displacement(file: SeriesFile) -> float | None:
    """Return the mean framewise displacement (mm) over all volumes, censored ones included, from XCP-D's table."""
    for ending in MOTION:
        path = file.path.with_name(f"{file.scan_id}_{ending}.tsv")
        if path.is_file():
            (cells,) = read_columns(path, ["framewise_displacement"])
            mean = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce").mean()  # R writes NA
            return None if pd.isna(mean) else float(mean)
    return None
