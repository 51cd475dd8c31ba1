"""One scan by hand, to be explained: a checkpoint, the scan's series and what is known of its ROIs and events."""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.image import LABEL_COLUMNS, load_atlas, load_labels
from bolt.config import Config, Paths, load_config, nearest
from bolt.explain.events import read_events
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.io.series_files import kept_volumes, read_series
from bolt.models.registry import shortest_of
from bolt.series.cache import is_constant, zscore

log = logging.getLogger("bolt")


@dataclass
class Scan:
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
        Its name; empty where it is not known.
    image : label image or None
    space : str
        Of the image.
    events : DataFrame or None
    tested : tuple of int or None
        How many test scans the model told right, and of how many.
    notes : list of str
        What is odd, for people.
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


def read_info(folder: Path) -> dict[str, Any]:
    """What ``checkpoint.json`` says of a model that can be explained.

    Raises
    ------
    DataError
        There is none, or the model is not BolT, reads covariates, or predicts a number.
    """
    path = folder / "checkpoint.json"
    if not path.is_file():
        inside = sorted(one.parent.name for one in folder.glob("*/checkpoint.json"))
        hint = f"Give one of the folders in it: {', '.join(inside)}" if inside else ""
        raise DataError(
            "no checkpoint in this folder",
            where=folder,
            hint=hint
            or "Give the folder of a fold: results/<dataset>/runs/<atlas>/<variant>/<model>/seed-<s>/fold-<k>",
        )
    info: dict[str, Any] = read_json(path)
    problem = ""
    if info["model"]["model"] != "bolt":
        problem = f"importance weights are defined for BolT, not for '{info['model']['model']}'"
    elif info.get("covariates"):
        problem = "this model reads covariates beside the series, which Algorithm 1 does not follow"
    elif info["classes"] is None:
        problem = "this model predicts a number; one scan is explained for a class"
    if problem:
        raise DataError(
            problem, where=path, hint="Give the checkpoint of a BolT that learned classes from series alone"
        )
    return info


def target_of(info: dict[str, Any], name: str | None) -> int | None:
    """The position of a class; None: the predicted one is explained."""
    if name is None:
        return None
    classes = info["classes"]
    if name not in classes:
        raise ConfigError(
            f"--class {name}: the model has no such class",
            hint=f"Its classes: {', '.join(classes)}{nearest(name, classes)}",
        )
    return int(classes.index(name))


def read_scan(options: argparse.Namespace, info: dict[str, Any]) -> Scan:
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
        As `bolt.io.series_files.read_series`; ROIs or length that do not fit the checkpoint; a constant series; events
        without a repetition time.
    """
    path: Path = options.series
    beside = path.with_suffix(".json")
    about = read_json(beside) if beside.is_file() else {}
    name, labels, paths = _atlas_of(options, info)
    said = about.get("Atlas")
    if said is not None and name and said != name:
        raise DataError(
            f"these series are of atlas '{said}', the model learned from '{name}'",
            where=beside,
            hint=f"Make series with '{name}' (bolt parcellate IMAGE --atlas {name})",
        )
    series = _fitting(read_series(path, None if labels is None else labels["value"].tolist()), info, labels, name, path)
    shortest = max(2, shortest_of("bolt", info["model"]["hyper"]))
    if len(series) < shortest:
        raise DataError(
            f"{len(series)} volumes, fewer than the {shortest} that this model reads at least",
            where=path,
            hint="Give a longer scan, or a model with a shorter window",
        )
    tr = options.tr if options.tr is not None else about.get("RepetitionTime")
    if tr is not None and not tr > 0:
        raise ConfigError(f"--tr {tr:g} is no repetition time", hint="Give seconds, such as --tr 2")
    if options.events is not None and tr is None:
        raise ConfigError("--events needs the repetition time", hint="Give it in seconds, such as --tr 2")
    rois = _named(info["rois"], labels)
    scan = Scan(series, kept_volumes(path, len(series)), tr, rois, name)
    if options.events is not None:
        scan.events = read_events(options.events)
    _standardize(scan, path, options.standardize)
    _find_image(scan, options, paths)
    _compare_with_training(scan, options)
    return scan


def _atlas_of(options: argparse.Namespace, info: dict[str, Any]) -> tuple[str, pd.DataFrame | None, Paths]:
    """Name and labels of the atlas that is given, else of the one whose run the checkpoint lies in."""
    config, given = _configuration(options), options.atlas
    paths = config.paths if config else Paths()
    if options.labels is not None:
        labels = read_table(options.labels, text=("name", "network", "hemisphere"))
        missing = [column for column in LABEL_COLUMNS if column not in labels]
        if missing:
            raise DataError(f"columns missing: {', '.join(missing)}", where=options.labels, hint="Add them")
        name = given or ""
    elif given is not None:
        atlas = given.rstrip("/")
        if atlas.endswith((".nii", ".nii.gz")):
            found = load_atlas(atlas)
            name, labels = found.name, found.labels
        else:
            name, labels = Path(atlas).name, load_labels(atlas, atlas_dir=paths.atlas_dir)
    else:
        place = options.checkpoint.resolve()
        name = place.parents[3].name if len(place.parents) > 4 and place.parents[4].name == "runs" else ""
        try:
            labels = load_labels(_place(name, config), atlas_dir=paths.atlas_dir) if name else None
        except BoltError:
            labels = None
    absent = sorted(set(info["rois"]) - set(labels["value"])) if labels is not None else []
    if absent and (given or options.labels):
        raise DataError(
            f"the model learned from an ROI with the value {absent[0]}, which atlas '{name or options.labels}' lacks",
            where=options.checkpoint / "checkpoint.json",
            hint="Give the atlas that the model was trained with, or none: then ROIs go by their values",
        )
    return name, None if absent else labels, paths


def _configuration(options: argparse.Namespace) -> Config | None:
    """The configuration that is given, else that of the results in which the checkpoint lies."""
    if options.config is not None:
        return load_config(options.config)
    place = options.checkpoint.resolve()
    own = place.parents[5] / "config.yaml" if len(place.parents) > 5 and place.parents[4].name == "runs" else None
    try:
        return load_config(own) if own is not None and own.is_file() else None
    except BoltError:  # of another version: paths and atlases by their defaults
        return None


def _place(name: str, config: Config | None) -> str:
    return config.atlas_places.get(name, name) if config else name


def _fitting(
    series: NDArray[np.float32], info: dict[str, Any], labels: pd.DataFrame | None, name: str, path: Path
) -> NDArray[np.float32]:
    """The columns that the model reads: all, or those ROIs of the atlas that its cache kept."""
    due = info["n_rois"]
    if series.shape[1] == due:
        return series
    if labels is not None and series.shape[1] == len(labels):
        return series[:, np.flatnonzero(labels["value"].isin(info["rois"]))]
    said = f"this model reads {due}" + (f" (atlas '{name}')" if name else "")
    if len(series) == due:
        hint = "Transpose the array, it seems: a row a volume, a column an ROI"
    else:
        hint = "Make series with the atlas that the model was trained with" + (f", '{name}'" if name else "")
    raise DataError(f"{series.shape[1]} ROIs, but {said}", where=path, hint=hint)


def _named(values: list[int], labels: pd.DataFrame | None) -> pd.DataFrame:
    if labels is None:
        names = [f"ROI {value}" for value in values]
        return pd.DataFrame({"value": values, "name": names, "network": None, "hemisphere": None})
    return labels.set_index("value", drop=False).loc[values, list(LABEL_COLUMNS)].reset_index(drop=True)


def _standardize(scan: Scan, path: Path, wanted: bool) -> None:
    """Z-score as the cache does, and say what is odd about the ROIs."""
    uncovered = np.isnan(scan.series).any(axis=0)
    values = np.where(uncovered, 0, scan.series)
    constant = is_constant(values)
    if constant.all():
        raise DataError(
            "no ROI changes over time", where=path, hint="Give the BOLD series of a scan, not a mean or an empty file"
        )
    for what, which in (("not covered", uncovered), ("constant", constant & ~uncovered)):
        if which.any():
            names = ", ".join(scan.rois["name"][which][:5])
            scan.notes.append(f"{which.sum()} of {len(scan.rois)} ROIs are {what}, and taken as zeros: {names}.")
    scan.series = zscore(scan.series) if wanted else values.astype(np.float32)
    alive = scan.series[:, ~constant]
    if np.abs(alive.mean(axis=0)).max() > 0.2 or np.abs(alive.std(axis=0) - 1).max() > 0.2:
        scan.notes.append("The series are not z-scored, though models learn from series that are.")


def _find_image(scan: Scan, options: argparse.Namespace, paths: Paths) -> None:
    config = _configuration(options)
    atlas = options.atlas.rstrip("/") if options.atlas else _place(scan.atlas, config)
    if not atlas:
        scan.notes.append("No map: the atlas is not known. Name it with --atlas.")
        return
    try:
        found = load_atlas(atlas, atlas_dir=paths.atlas_dir, templateflow_home=paths.templateflow_home)
    except BoltError as error:
        scan.notes.append(f"No map: {error}")
        return
    if set(scan.rois["value"]) <= set(found.labels["value"]):
        scan.image, scan.space = found.image, next(iter(found.spaces), "")
    else:
        scan.notes.append(f"No map: the image of atlas '{scan.atlas}' has other ROIs than the model.")


def _compare_with_training(scan: Scan, options: argparse.Namespace) -> None:
    """How well the model does on its test scans; and whether this scan, by its name, is one that it learned from."""
    path = options.checkpoint / "predictions.tsv"
    if not path.is_file() or not path.stat().st_size:
        return
    table = read_table(path, text=("scan_id", "role", "label", "predicted"))
    test = table[table["role"] == "test"]
    if len(test):
        scan.tested = (int((test["label"] == test["predicted"]).sum()), len(test))
    own = [options.series.stem == one or options.series.stem.startswith(f"{one}_") for one in table["scan_id"]]
    for role in table.loc[own, "role"][:1]:
        if role != "test":
            said = {"train": "learned from", "validation": "was watched on while it learned"}[role]
            scan.notes.append(f"This model {said} this very scan: believe its probability less than for a new one.")
