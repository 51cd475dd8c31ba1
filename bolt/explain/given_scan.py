"""One scan given on the command line: its ROI series, and what is known of its ROIs, events and model."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.atlases.image import load_atlas
from bolt.atlases.labels import LABEL_COLUMNS, load_labels
from bolt.config import Paths, nearest
from bolt.explain.courses import read_events
from bolt.io.bids_names import atlas_name, is_image
from bolt.io.errors import BoltError, ConfigError, DataError
from bolt.io.files import read_json, read_table
from bolt.io.series_files import is_constant, kept_volumes, read_series
from bolt.io.volumes import require_tr
from bolt.series.cache import zscore

NO_TEMPLATE = ("native", "assumed")
"""What series say of their space where it is not that of a template."""


@dataclass
class GivenScan:
    """A scan as a model reads it.

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

    def add_image(self, atlas: ModelAtlas, space: str | None) -> None:
        """Load the atlas's image for the map, in the space of the series; note why there is none."""
        if not atlas.place:
            self.notes.append("No map: the atlas is not known. Name it with --atlas.")
            return
        try:
            described = load_atlas(
                atlas.place,
                space=space,
                atlas_dir=atlas.paths.atlas_dir,
                templateflow_home=atlas.paths.templateflow_home,
            )
        except BoltError as error:
            self.notes.append(f"No map: {error}")
            return
        if set(self.rois["value"]) <= set(described.labels["value"]):
            self.image, self.space = described.image, next(iter(described.spaces), "")
        else:
            self.notes.append(f"No map: the image of atlas '{atlas.name}' has other ROIs than the model.")


class ModelAtlas(NamedTuple):
    """The atlas of a model: its name and place, its ROIs if they are known, and the paths for finding its image."""

    name: str
    place: str
    labels: pd.DataFrame | None
    paths: Paths


def target_of(classes: list[str], name: str | None) -> int | None:
    """Return the position of a class; None if no name is given."""
    if name is None:
        return None
    if name not in classes:
        raise ConfigError(
            f"--class {name}: the model has no such class",
            hint=f"Its classes: {', '.join(classes)}{nearest(name, classes)}",
        )
    return classes.index(name)


def read_scan(options: argparse.Namespace, rois: list[int], shortest: int, atlas: ModelAtlas) -> GivenScan:
    """Read the scan of ``bolt explain``.

    Parameters
    ----------
    options : Namespace
        scan, events, tr, standardize.
    rois : list of int
        Those on which the model was trained.
    shortest : int
        Length of the shortest scan that the model can read, in volumes.
    atlas : ModelAtlas
        From `find_atlas`.

    Raises
    ------
    ConfigError, DataError
        As `bolt.io.series_files.read_series`; the ROIs or the length do not fit the model; all series are constant;
        events without a repetition time.
    """
    path: Path = options.scan
    if is_image(path.name):
        hint = f"Make its series first: bolt parcellate {path} --atlas {atlas.name or 'ATLAS'} --out series.npy"
        raise DataError("an image, but what is explained are ROI series", where=path, hint=hint)
    sidecar = path.with_suffix(".json")
    about = read_json(sidecar) if sidecar.is_file() else {}
    if "Atlas" in about and atlas.name not in ("", about["Atlas"]):
        raise DataError(
            f"these series are of atlas '{about['Atlas']}', but the model was trained on '{atlas.name}'",
            where=sidecar,
            hint=f"Make series with '{atlas.name}' (bolt parcellate IMAGE --atlas {atlas.name} --out series.npy)",
        )
    series = _read_columns(path, rois, atlas)
    if len(series) < shortest:
        raise DataError(
            f"{len(series)} volumes, but this model needs at least {shortest}",
            where=path,
            hint="Give a longer scan, or a model with a shorter window",
        )
    tr = options.tr if options.tr is not None else about.get("RepetitionTime")
    if options.tr is not None and not options.tr > 0:
        raise ConfigError(f"--tr {tr:g}: a repetition time is positive", hint="Give seconds, such as --tr 2")
    tr = None if tr is None else require_tr(tr, path)
    if options.events is not None and tr is None:
        raise ConfigError("--events needs the repetition time", hint="Give it in seconds, such as --tr 2")
    scan = GivenScan(series, kept_volumes(path, len(series)), tr, name_rois(rois, atlas.labels), atlas.name)
    if options.events is not None:
        scan.events = read_events(options.events)
    _standardize(scan, options.standardize)
    space = about.get("Space")
    scan.add_image(atlas, None if space in NO_TEMPLATE else space)
    return scan


def find_atlas(options: argparse.Namespace, rois: list[int], known: ModelAtlas) -> ModelAtlas:
    """Return the atlas that was given on the command line (`atlas`, `labels`), or what is known of the model's.

    Raises
    ------
    DataError
        The atlas that was given lacks an ROI of the model, or cannot be read.
    """
    given, atlas = (options.atlas or "").rstrip("/"), known
    if options.labels is not None:
        atlas = ModelAtlas(options.atlas or "", given, _read_labels(options.labels), known.paths)
    elif given:
        atlas = ModelAtlas(atlas_name(given), given, load_labels(given, atlas_dir=known.paths.atlas_dir), known.paths)
    absent = sorted(set(rois) - set(atlas.labels["value"])) if atlas.labels is not None else []
    if absent and atlas is not known:
        raise DataError(
            f"the model was trained on an ROI with the value {absent[0]}, which atlas "
            f"'{atlas.name or options.labels}' lacks",
            where=options.model,
            hint="Give the atlas that the model was trained with, or none: ROIs are then named by their values",
        )
    return atlas._replace(labels=None) if absent else atlas


def _read_labels(path: Path) -> pd.DataFrame:
    """Read a table of ROIs given on the command line."""
    labels = read_table(path, text=("name", "network", "hemisphere"))
    missing = [column for column in LABEL_COLUMNS if column not in labels]
    if missing:
        raise DataError(f"columns missing: {', '.join(missing)}", where=path, hint="Add them")
    return labels


def _read_columns(path: Path, rois: list[int], atlas: ModelAtlas) -> NDArray[np.float32]:
    """Read the columns that the model was trained on: all, or those ROIs of the atlas that its cache kept."""
    labels = atlas.labels
    series = read_series(path, *(() if labels is None else (labels["value"].tolist(), labels["name"].tolist())))
    n_rois, n_columns = len(rois), series.shape[1]
    if n_columns == n_rois:
        return series
    if labels is not None and n_columns == len(labels):
        return series[:, np.flatnonzero(labels["value"].isin(rois))]
    if len(series) == n_rois:
        hint = "Transpose the array: rows must be volumes, columns ROIs"
    else:
        hint = "Make series with the atlas that the model was trained with" + (f", '{atlas.name}'" * bool(atlas.name))
    known = f" (atlas '{atlas.name}')" if atlas.name else ""
    raise DataError(f"{n_columns} ROIs, but this model reads {n_rois}{known}", where=path, hint=hint)


def name_rois(values: list[int], labels: pd.DataFrame | None) -> pd.DataFrame:
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
