"""The command ``bolt check-folds``, and the content hashes that reveal a recording under two names."""

from __future__ import annotations

import argparse
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bolt.folds.audit import HINT, find_leaks
from bolt.io.errors import DataError, LeakError
from bolt.io.files import MISSING, sha256
from bolt.io.streams import iter_volumes
from bolt.series.cache import SeriesCache

log = logging.getLogger(__name__)


def series_hashes(cache: SeriesCache) -> pd.Series:
    """Hash each scan's z-scored series, indexed by scan; scans with constant series are missing."""
    hashes = {}
    for i, scan in enumerate(cache.index["scan_id"]):
        series = np.ascontiguousarray(cache.series(i))
        if series.any():
            hashes[str(scan)] = hashlib.sha256(str(series.shape).encode() + series.tobytes()).hexdigest()
    return pd.Series(hashes, dtype=object)


def content_hash(path: Path) -> str:
    """Hash the content of a file: for images the voxels, so that recompressed or reconverted copies are the same."""
    if not path.name.endswith((".nii", ".nii.gz")):
        return sha256(path)
    digest = hashlib.sha256()
    try:
        for volume in iter_volumes(path):
            digest.update(f"{volume.shape}".encode() + volume.tobytes(order="F"))
    except DataError as error:
        log.warning("compared by its bytes only: %s", error)
        return sha256(path)
    return digest.hexdigest()


def file_hashes(scans: pd.DataFrame) -> pd.Series:
    """Hash the content of each scan's file (column ``bold``), indexed by scan; scans without a file are missing."""
    files = {str(scan): Path(str(path)) for scan, path in zip(scans["scan_id"], scans["bold"], strict=True)}
    return pd.Series({scan: content_hash(path) for scan, path in files.items() if path.is_file()}, dtype=object)


def check_folds(options: argparse.Namespace) -> None:
    """Audit any table of folds, whoever made it.

    Parameters
    ----------
    options : Namespace
        table, scans, cache (a list), files.

    Raises
    ------
    LeakError
        Names every kind of leak.
    DataError
        A column or a scan is missing.
    """
    folds = _read(options.table)
    _require(folds, ("scan_id", "role"), options.table)
    folds = folds if "fold" in folds else folds.assign(fold="0")
    scans = folds if options.scans is None else _read(options.scans)
    source_of_scans = options.table if options.scans is None else options.scans
    _require(scans, ("scan_id", "subject"), source_of_scans)
    _check_subjects(folds, scans, source_of_scans)
    contents = {f"series in {folder}": series_hashes(SeriesCache(folder)) for folder in options.cache}
    if options.files:
        _require(scans, ("bold",), source_of_scans)
        contents["file"] = file_hashes(scans)
    for source, hashes in contents.items():
        n_missing = len(set(folds["scan_id"]) - set(hashes.index))
        if n_missing:
            log.warning("%s: %d scans have nothing to compare", source, n_missing)
    kinds = [kind for kind in ("scan_id", "subject", "group") if kind in scans]
    if "group" not in kinds:
        log.warning("%s has no column 'group': families are not compared", source_of_scans)
    leaks = find_leaks(folds, scans, kinds, contents)
    if leaks:
        raise LeakError("; ".join(map(str, leaks)), where=options.table, hint=HINT)
    n_folds, n_scans = folds["fold"].nunique(), folds["scan_id"].nunique()
    log.info("no leak in %d folds of %d scans; compared: %s", n_folds, n_scans, ", ".join([*kinds, *contents]))


def _read(path: Path) -> pd.DataFrame:
    """Read a table as text; a ``.csv`` is comma-separated, any other file tab-separated."""
    separator = "," if path.suffix == ".csv" else "\t"
    try:
        table = pd.read_csv(path, sep=separator, dtype=str, na_values=[MISSING, ""], keep_default_na=False)
        return table.apply(lambda column: column.str.strip())
    except FileNotFoundError:
        raise DataError("file not found", where=path, hint="Correct the path") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable table ({error})", where=path, hint="Provide a .tsv or .csv file") from None


def _check_subjects(folds: pd.DataFrame, scans: pd.DataFrame, where: Path) -> None:
    """Refuse scans that are not listed, or have no subject or several."""
    unlisted = sorted(set(folds["scan_id"]) - set(scans["scan_id"]))
    if unlisted:
        raise DataError(f"{len(unlisted)} scans are not listed, such as '{unlisted[0]}'", where=where, hint="Add them")
    for column in ("subject", "group"):
        if column in scans and scans.groupby("scan_id")[column].nunique().max() > 1:
            raise DataError(f"a scan has two entries in '{column}'", where=where, hint="Give each scan one")
    unknown = scans["subject"].isna() & scans["scan_id"].isin(folds["scan_id"])
    if unknown.any():
        raise DataError(
            f"{unknown.sum()} rows have no subject, such as that of scan '{scans['scan_id'][unknown].iloc[0]}'",
            where=where,
            hint="Fill in the subject: nothing can be compared without it",
        )


def _require(table: pd.DataFrame, columns: Sequence[str], where: Path) -> None:
    for column in columns:
        if column not in table:
            hint = f"Its columns: {', '.join(map(str, table.columns))}"
            if column == "subject":
                hint += ". Provide the table of scans with --scans"
            raise DataError(f"no column '{column}'", where=where, hint=hint)
