"""One scan given on the command line: its ROI series, and what is known of its ROIs, events and model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.image import load_atlas
from bolt.atlases.labels import LABEL_COLUMNS, load_labels
from bolt.config import Config, Paths, load_config, nearest
from bolt.explain.events import read_events
from bolt.io.bids_names import atlas_name
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import holds_something, read_json, read_table
from bolt.io.series_files import is_constant, kept_volumes, read_series
from bolt.io.volumes import require_tr
from bolt.models.registry import shortest_of
from bolt.series.cache import zscore
from bolt.training.outputs import checked_info

NO_TEMPLATE = ("native", "assumed")
"""What series say of their space where it is not that of a template."""


@dataclass
class GivenScan:
    """A scan as a checkpoint reads it.

    Attributes
    ----------
    series : (T, R) float32 array
        z-scored.
    volumes : (T,) int array
        Volumes of the acquisition that the rows are.
    tr : float or None
        Seconds.
    rois : DataFrame
        value, name, network, hemisphere of the R columns.
    atlas : str
        Its name; empty if unknown.
    image : label image or None
    space : str
        Of the image.
    events : DataFrame or None
    tested : tuple of int or None
        Number of test scans that the model classified correctly, and of all its test scans.
    notes : list of str
        Warnings for the reader.
    """

    series: NDArray[np.float32]
    volumes: NDArray[np.integer]
    tr: float | None
    rois: pd.DataFrame
    atlas: str = ""
    image: nib.Nifti1Image | None = None
    space: str = ""
    events: pd.DataFrame | None = None
    tested: tuple[int, int] | None = None
    notes: list[str] = field(default_factory=list)


class _Atlas(NamedTuple):
    """The model's atlas: its name and place, its ROIs if they are known, and the paths for finding its image."""

    name: str
    place: str
    labels: pd.DataFrame | None
    paths: Paths


def read_info(folder: Path) -> dict[str, Any]:
    """Read the ``checkpoint.json`` of a model that can be explained.

    Raises
    ------
    DataError
        There is none; or the model is not BolT, reads covariates, or predicts a number.
    """
    path = folder / "checkpoint.json"
    if not path.is_file():
        inside = ", ".join(sorted(file.parent.name for file in folder.glob("*/checkpoint.json")))
        place = "results/<dataset>/runs/<atlas>/<variant>/<model>/seed-<s>/fold-<k>"
        hint = f"Give one of its subfolders: {inside}" if inside else f"Give the folder of a fold: {place}"
        raise DataError("no checkpoint in this folder", where=folder, hint=hint)
    info: dict[str, Any] = read_json(path)
    problem = ""
    with checked_info(folder):
        if info["model"]["model"] != "bolt":
            problem = f"importance weights are defined for BolT, not for '{info['model']['model']}'"
        elif info.get("covariates"):
            problem = "this model uses covariates as well as series, which Algorithm 1 does not cover"
        elif info["classes"] is None:
            problem = "this model predicts a number, but what is explained is a class"
        elif len(info["classes"]) < 2 or not isinstance(info["n_rois"], int) or not dict(info["model"]["hyper"]):
            raise ValueError("classes, n_rois or hyper are missing")
    if problem:
        raise DataError(problem, where=path, hint="Give the checkpoint of a BolT trained on classes and series alone")
    return info


def target_of(info: dict[str, Any], name: str | None) -> int | None:
    """Return the position of a class; None if no name is given."""
    if name is None:
        return None
    classes = info["classes"]
    if name not in classes:
        raise ConfigError(
            f"--class {name}: the model has no such class",
            hint=f"Its classes: {', '.join(classes)}{nearest(name, classes)}",
        )
    return int(classes.index(name))


def read_scan(options: argparse.Namespace, info: dict[str, Any]) -> GivenScan:
    """Read the scan of ``bolt explain --checkpoint``.

    Parameters
    ----------
    options : Namespace
        checkpoint, series, events, tr, atlas, labels, standardize, config (None: none).
    info : dict
        From `read_info`.

    Raises
    ------
    ConfigError, DataError
        As `bolt.io.series_files.read_series`; the ROIs or the length do not fit the checkpoint; all series are
        constant; events without a repetition time.
    """
    path: Path = options.series
    sidecar = path.with_suffix(".json")
    about = read_json(sidecar) if sidecar.is_file() else {}
    atlas = _find_atlas(options, info)
    if "Atlas" in about and atlas.name not in ("", about["Atlas"]):
        raise DataError(
            f"these series are of atlas '{about['Atlas']}', but the model was trained on '{atlas.name}'",
            where=sidecar,
            hint=f"Make series with '{atlas.name}' (bolt parcellate IMAGE --atlas {atlas.name})",
        )
    series = _read_columns(path, info, atlas)
    shortest = max(2, shortest_of("bolt", info["model"]["hyper"]))
    if len(series) < shortest:
        raise DataError(
            f"{len(series)} volumes, but this model needs at least {shortest}",
            where=path,
            hint="Give a longer scan, or a model with a shorter window",
        )
    tr = options.tr if options.tr is not None else about.get("RepetitionTime")
    if options.tr is not None and not options.tr > 0:
        raise ConfigError(f"--tr {tr:g}: a repetition time is positive", hint="Give seconds, such as --tr 2")
    tr = None if tr is None else require_tr(tr, options.series)
    if options.events is not None and tr is None:
        raise ConfigError("--events needs the repetition time", hint="Give it in seconds, such as --tr 2")
    scan = GivenScan(series, kept_volumes(path, len(series)), tr, _name_rois(info["rois"], atlas.labels), atlas.name)
    if options.events is not None:
        scan.events = read_events(options.events)
    _standardize(scan, options.standardize)
    _add_image(scan, atlas, about.get("Space"))
    _compare_with_training(scan, options.checkpoint, path.stem)
    return scan


def _find_atlas(options: argparse.Namespace, info: dict[str, Any]) -> _Atlas:
    """Find the atlas that was given, or that of the results which hold the checkpoint."""
    folders = _folders_of_run(options.checkpoint)
    config = load_config(options.config) if options.config is not None else _config_of(folders)
    paths = config.paths if config else Paths()
    given, labels = (options.atlas or "").rstrip("/"), None
    if options.labels is not None:
        name, place, labels = options.atlas or "", given, _read_labels(options.labels)
    elif given:
        name, place, labels = atlas_name(given), given, load_labels(given, atlas_dir=paths.atlas_dir)
    else:
        name = folders[3].name if folders else ""
        place = config.atlas_places.get(name, name) if config else name
        try:
            labels = load_labels(place, atlas_dir=paths.atlas_dir) if name else None
        except BoltError:
            labels = None
    absent = sorted(set(info["rois"]) - set(labels["value"])) if labels is not None else []
    if absent and (given or options.labels):
        raise DataError(
            f"the model was trained on an ROI with the value {absent[0]}, which atlas '{name or options.labels}' lacks",
            where=options.checkpoint / "checkpoint.json",
            hint="Give the atlas that the model was trained with, or none: ROIs are then named by their values",
        )
    return _Atlas(name, place, None if absent else labels, paths)


def _folders_of_run(checkpoint: Path) -> Sequence[Path]:
    """Return the folders above a fold of a run, from its seed up to the results; empty if it is elsewhere."""
    parents = checkpoint.resolve().parents
    return parents if len(parents) > 5 and parents[4].name == "runs" else ()


def _config_of(folders: Sequence[Path]) -> Config | None:
    """Read the configuration kept with the results; None if there is none, or it is of another version."""
    try:
        return load_config(folders[5] / "config.yaml") if folders and (folders[5] / "config.yaml").is_file() else None
    except BoltError:
        return None


def _read_labels(path: Path) -> pd.DataFrame:
    """Read a table of ROIs given on the command line."""
    labels = read_table(path, text=("name", "network", "hemisphere"))
    missing = [column for column in LABEL_COLUMNS if column not in labels]
    if missing:
        raise DataError(f"columns missing: {', '.join(missing)}", where=path, hint="Add them")
    return labels


def _read_columns(path: Path, info: dict[str, Any], atlas: _Atlas) -> NDArray[np.float32]:
    """Read the columns that the model was trained on: all, or those ROIs of the atlas that its cache kept."""
    rois = atlas.labels
    series = read_series(path, *(() if rois is None else (rois["value"].tolist(), rois["name"].tolist())))
    n_rois, n_columns = info["n_rois"], series.shape[1]
    if n_columns == n_rois:
        return series
    if atlas.labels is not None and n_columns == len(atlas.labels):
        return series[:, np.flatnonzero(atlas.labels["value"].isin(info["rois"]))]
    if len(series) == n_rois:
        hint = "Transpose the array: rows must be volumes, columns ROIs"
    else:
        hint = "Make series with the atlas that the model was trained with" + (f", '{atlas.name}'" * bool(atlas.name))
    known = f" (atlas '{atlas.name}')" if atlas.name else ""
    raise DataError(f"{n_columns} ROIs, but this model reads {n_rois}{known}", where=path, hint=hint)


def _name_rois(values: list[int], labels: pd.DataFrame | None) -> pd.DataFrame:
    """Return value, name, network and hemisphere of the model's ROIs."""
    if labels is None:
        names = [f"ROI {value}" for value in values]
        return pd.DataFrame({"value": values, "name": names, "network": None, "hemisphere": None})
    return labels.set_index("value", drop=False).loc[values, list(LABEL_COLUMNS)].reset_index(drop=True)


def _standardize(scan: GivenScan, wanted: bool) -> None:
    """Z-score as the cache does, and note what is unusual about the ROIs."""
    uncovered = np.isnan(scan.series).any(axis=0)
    values = np.where(uncovered, 0, scan.series)
    constant = is_constant(values)
    for problem, which in (("not covered", uncovered), ("constant", constant & ~uncovered)):
        if which.any():
            names = ", ".join(scan.rois["name"][which][:5])
            scan.notes.append(f"{which.sum()} of {len(scan.rois)} ROIs are {problem} and are set to zero: {names}.")
    scan.series = zscore(scan.series) if wanted else values.astype(np.float32)
    alive = scan.series[:, ~constant]
    if np.abs(alive.mean(axis=0)).max() > 0.2 or np.abs(alive.std(axis=0) - 1).max() > 0.2:
        scan.notes.append("The series are not z-scored, but the model was trained on series that are.")


def _add_image(scan: GivenScan, atlas: _Atlas, space: str | None) -> None:
    """Load the atlas's image for the map, in the space of the series; note why there is none."""
    if not atlas.place:
        scan.notes.append("No map: the atlas is not known. Name it with --atlas.")
        return
    try:
        described = load_atlas(
            atlas.place,
            space=None if space in NO_TEMPLATE else space,
            atlas_dir=atlas.paths.atlas_dir,
            templateflow_home=atlas.paths.templateflow_home,
        )
    except BoltError as error:
        scan.notes.append(f"No map: {error}")
        return
    if set(scan.rois["value"]) <= set(described.labels["value"]):
        scan.image, scan.space = described.image, next(iter(described.spaces), "")
    else:
        scan.notes.append(f"No map: the image of atlas '{atlas.name}' has other ROIs than the model.")


def _compare_with_training(scan: GivenScan, checkpoint: Path, name: str) -> None:
    """Count the model's correct predictions of test scans; note if it was trained on the scan of this file name."""
    path = checkpoint / "predictions.tsv"
    if not holds_something(path):
        return
    table = read_table(path, text=("scan_id", "role", "label", "predicted"))
    test = table[table["role"] == "test"]
    if len(test):
        scan.tested = (int((test["label"] == test["predicted"]).sum()), len(test))
    same = [name == scan_id or name.startswith(f"{scan_id}_") for scan_id in table["scan_id"]]
    uses = {"train": "was trained on this very scan", "validation": "was validated on this very scan during training"}
    for role in table.loc[same, "role"][:1]:
        if role in uses:
            scan.notes.append(f"This model {uses[role]}: trust its probability less than for a new scan.")
