"""New scans to predict: files of ROI series, a table that names them, or results of the workflow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bolt.api.scans import SeriesInMemory, scan_table
from bolt.config import nearest
from bolt.datasets import COLUMNS
from bolt.io.errors import ConfigError, DataError
from bolt.io.files import read_json, read_text
from bolt.io.series_files import SUFFIXES, read_series
from bolt.io.volumes import require_tr
from bolt.series.cache import SeriesCache, zscore

ABOUT_SCANS = ("scan_id", "subject", "group", "session", "run", "task", "site", "age", "sex", "mean_fd", "tr")
"""Columns of a table of series that are read, if there are any."""
NUMBERS = ("age", "mean_fd", "tr")
LONGEST = 200
"""Bytes of a scan's name, which becomes that of a folder."""


@dataclass
class NewScans:
    """Scans to predict.

    Attributes
    ----------
    cache : SeriesCache or None
        Their z-scored series in the model's columns; None if there is none.
    n_uncovered : (scans,) int array
        ROIs without a signal.
    labels : Series or None
        True labels, where known.
    excluded : list of tuple
        scan_id and reason of scans that cannot be predicted.
    """

    cache: SeriesCache | None
    n_uncovered: NDArray[np.integer]
    labels: pd.Series | None = None
    excluded: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Wanted:
    """What series must be for a model.

    Attributes
    ----------
    rois : DataFrame
        value and name of its ROIs.
    atlas : str
        Its name; empty if unknown.
    sha256 : str or None
        Of the atlas's image.
    space : str or None
    denoising : str or None
    shortest : int
        Volumes.
    """

    rois: pd.DataFrame
    atlas: str
    sha256: str | None
    space: str | None
    denoising: str | None
    shortest: int


def read_new_scans(source: Sequence[Path], wanted: Wanted, tr: float | None, label: str | None) -> NewScans:
    """Read files of series, or a table of them.

    Parameters
    ----------
    source : sequence of Path
        Files of series; or one table (``.tsv``, ``.csv``) with the columns ``subject`` and ``file``, and, where known,
        those of `ABOUT_SCANS`. Files are relative to the table.
    wanted : Wanted
    tr : float, optional
        Seconds, for scans whose repetition time is in no file.
    label : str, optional
        Column of the table with the true labels.

    Raises
    ------
    DataError, ConfigError
        The table cannot be read, or has no such column. What is wrong with single scans is in the result.
    """
    table = _table_of(source)
    if label is not None and label not in table:
        known = [column for column in table if column != "file"]
        raise ConfigError(
            f"--label {label}: no such column", hint=f"Columns: {', '.join(known) or 'none'}{nearest(label, known)}"
        )
    series, rows, excluded, uncovered = [], [], [], []
    for row in table.index:
        name = str(table.at[row, "scan_id"])
        try:
            _require_numbers(table.loc[row])
            values, missing, about = _read(Path(table.at[row, "file"]), wanted)
        except DataError as error:
            excluded.append((name, str(error)))
            continue
        series.append(values)
        uncovered.append(missing)
        rows.append(table.loc[row].to_dict() | ({"tr": about["tr"]} if about["tr"] is not None else {}))
    if not series:
        return NewScans(None, np.zeros(0, int), None, excluded)
    scans = _scans(pd.DataFrame(rows), tr)
    labels = pd.DataFrame(rows)[label] if label is not None else None
    cache = SeriesInMemory(series, scans)
    cache.rois = wanted.rois
    return NewScans(cache, np.array(uncovered), labels, excluded)


def _table_of(source: Sequence[Path]) -> pd.DataFrame:
    """Return a row per file: the lines of a table, or the files that are given."""
    if len(source) == 1 and source[0].suffix in (".tsv", ".csv") and source[0].is_file():
        first = source[0].read_bytes()[:100_000].splitlines()[:1]
        header = first[0].decode("utf-8-sig", "replace").replace('"', "") if first else ""
        separator, name = ("\t", "tabs") if source[0].suffix == ".tsv" else (",", "commas")
        if {"subject", "file"} <= set(header.split(separator)):
            return _named(read_text(source[0]), source[0].parent)
        if {"subject", "file"} & set(re.split("[\t,;]", header.casefold())):
            raise DataError(
                "not a table with the columns 'subject' and 'file'",
                where=source[0],
                hint=f"Name them so; columns of a {source[0].suffix} are separated by {name}",
            )
    for path in source:
        if not path.is_file():
            raise DataError(
                "file not found" if not path.exists() else "not a file", where=path, hint="Correct the path"
            )
        if path.suffix not in SUFFIXES:
            raise DataError(f"'{path.suffix}' is no format of series", where=path, hint=f"Give {', '.join(SUFFIXES)}")
    names = [path.name.removesuffix(path.suffix) for path in source]
    files = [str(path) for path in source]
    return _named(pd.DataFrame({"subject": map(subject_of, names), "scan_id": names, "file": files}), Path())


def subject_of(name: str) -> str:
    """Return the subject in the name of a file: ``sub-01`` of ``sub-01_task-rest``, or else the name itself."""
    return name.split("_")[0] if name.startswith("sub-") else name


def _named(table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Complete a table of series: paths from here, and a unique name of each scan."""
    if table.empty:
        raise DataError("the table has no rows", hint="Name a file per row")
    if table["file"].isna().any() or table["subject"].isna().any():
        raise DataError("a row without subject or file", hint="Fill it in, or remove the row")
    stems = table["file"].map(lambda file: Path(file).name.split(".")[0])
    table = table.assign(file=[str(folder / file) for file in table["file"]])
    table["scan_id"] = table["scan_id"].fillna(stems) if "scan_id" in table else stems
    for name in table["scan_id"]:
        if not name.isprintable() or "/" in name or name in (".", "..") or len(name.encode()) > LONGEST:
            raise DataError(
                f"'{name[:50]}' cannot name a scan", hint="Give names without '/', as 'scan_id' or file names"
            )
    twice = table["scan_id"][table["scan_id"].duplicated()]
    if len(twice):
        raise DataError(f"two scans are called '{twice.iloc[0]}'", hint="Add a column 'scan_id' with unique names")
    return table


def _require_numbers(row: pd.Series) -> None:
    """Refuse a scan of which age, motion or repetition time cannot be read (DataError)."""
    for column in NUMBERS:
        if column in row and pd.notna(row[column]):
            if np.isnan(pd.to_numeric(row[column], errors="coerce")):
                raise DataError(f"{column} '{row[column]}' is not a number", hint="Give a number, or n/a")
            if column == "tr":
                require_tr(float(row[column]), "tr")


def _read(path: Path, wanted: Wanted) -> tuple[NDArray[np.float32], int, dict[str, Any]]:
    """Return the z-scored series in the model's columns, how many of them have no signal, and what its sidecar says."""
    sidecar = path.with_suffix(".json")
    about: dict[str, Any] = read_json(sidecar) if sidecar.is_file() else {}
    if not isinstance(about, dict):
        raise DataError("not a description of series", where=sidecar, hint="Remove the file")
    for key, name, expected in (
        ("Atlas", "atlas", wanted.atlas or None),
        ("AtlasSHA256", "an atlas image with checksum", wanted.sha256),
        ("Space", "space", wanted.space),
    ):
        if expected is not None and about.get(key) not in (None, expected):
            raise DataError(
                f"made with {name} {about[key]}, but the model was trained on {expected}",
                where=sidecar,
                hint="Make series as the model's README says",
            )
    denoising = (about.get("Denoising") or {}).get("name")
    if wanted.denoising is not None and denoising not in (None, wanted.denoising):
        raise DataError(
            f"denoised by '{denoising}', but the model was trained on '{wanted.denoising}'",
            where=sidecar,
            hint=f"Make series with --denoise {wanted.denoising}",
        )
    series = read_series(path, wanted.rois["value"].tolist())
    if series.shape[1] != len(wanted.rois):
        transposed = "; rows must be volumes, columns ROIs" if len(series) == len(wanted.rois) else ""
        raise DataError(
            f"{series.shape[1]} ROIs, but the model reads {len(wanted.rois)}{transposed}",
            where=path,
            hint=f"Make series with the model's atlas{wanted.atlas and f' ({wanted.atlas})'}",
        )
    if len(series) < wanted.shortest:
        raise DataError(f"{len(series)} volumes, but the model needs {wanted.shortest}", where=path)
    tr = about.get("RepetitionTime")
    standardized = zscore(series)
    return standardized, int((~standardized.any(axis=0)).sum()), {"tr": None if tr is None else require_tr(tr, path)}


def _scans(rows: pd.DataFrame, tr: float | None) -> pd.DataFrame:
    """Return the table of scans that have series."""
    scans = scan_table(len(rows))
    for column in ABOUT_SCANS:
        if column in rows:
            scans[column] = rows[column].to_numpy()
    for column in NUMBERS:
        scans[column] = pd.to_numeric(scans[column], errors="coerce")
    scans["group"] = rows["group"].fillna(rows["subject"]).to_numpy() if "group" in rows else rows["subject"].to_numpy()
    return scans if tr is None else scans.assign(tr=scans["tr"].fillna(tr))


def read_results(results: Path, atlas: str, variant: str, wanted: Wanted) -> NewScans:
    """Read the series that the workflow has made of new scans.

    Parameters
    ----------
    results : Path
        ``results/<dataset>``.
    atlas, variant : str
        Which cache.
    wanted : Wanted

    Raises
    ------
    DataError
        The cache has other ROIs than the model.
    """
    cache = SeriesCache(results / "cache" / atlas / variant)
    theirs, ours = cache.rois["value"].tolist(), wanted.rois["value"].tolist()
    missing = sorted(set(ours) - set(theirs))
    if missing:
        raise DataError(f"ROI {missing[0]} of the model is missing ({len(missing)} such ROIs)", where=cache.folder)
    columns = [theirs.index(value) for value in ours]
    series = [np.ascontiguousarray(cache.series(i)[:, columns]) for i in range(len(cache))]
    uncovered = np.array([int((~scan.any(axis=0)).sum()) for scan in series])
    found = SeriesInMemory(series, cache.index[[column for column in cache.index if column in COLUMNS]])
    found.rois = wanted.rois
    labels = cache.index["label"] if cache.index["label"].notna().any() else None
    return NewScans(found, uncovered, labels)
