"""The command that audits any table of folds, and the hashes by which it knows a recording under two names."""

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
    """Hash of each scan's z-scored series, indexed by scan; missing where nothing in it varies."""
    hashes = {}
    for i, scan in enumerate(cache.index["scan_id"]):
        series = np.ascontiguousarray(cache.series(i))
        if series.any():
            hashes[str(scan)] = hashlib.sha256(str(series.shape).encode() + series.tobytes()).hexdigest()
    return pd.Series(hashes, dtype=object)


def content_hash(path: Path) -> str:
    """Hash of what a file holds: of an image its voxels, so that a copy compressed or converted anew has the same."""
    if not path.name.endswith((".nii", ".nii.gz")):
        return sha256(path)
    digest = hashlib.sha256()
    try:
        for volume in iter_volumes(path):
            digest.update(f"{volume.shape}".encode() + volume.tobytes(order="F"))
    except DataError as error:
        log.warning("compared by its bytes alone: %s", error)
        return sha256(path)
    return digest.hexdigest()


def file_hashes(scans: pd.DataFrame) -> pd.Series:
    """Hash of what each scan's file (column ``bold``) holds, indexed by scan; missing where there is none."""
    files = {str(scan): Path(str(path)) for scan, path in zip(scans["scan_id"], scans["bold"], strict=True)}
    return pd.Series({scan: content_hash(path) for scan, path in files.items() if path.is_file()}, dtype=object)


def check_folds(options: argparse.Namespace) -> None:
    """The command ``bolt check-folds``: audit any table of folds, own or foreign.

    Parameters
    ----------
    options : Namespace
        table, scans, cache (a list), files.

    Raises
    ------
    LeakError
        With a line that names every kind of leak.
    DataError
        A column or a scan is missing.
    """
    folds = _read(options.table)
    _need(folds, ("scan_id", "role"), options.table)
    folds = folds if "fold" in folds else folds.assign(fold="0")
    scans = folds if options.scans is None else _read(options.scans)
    about = options.table if options.scans is None else options.scans
    _need(scans, ("scan_id", "subject"), about)
    strangers = sorted(set(folds["scan_id"]) - set(scans["scan_id"]))
    if strangers:
        raise DataError(
            f"{len(strangers)} scans are not listed, such as '{strangers[0]}'", where=about, hint="Add them"
        )
    for column in ("subject", "group"):
        if column in scans and scans.groupby("scan_id")[column].nunique().max() > 1:
            raise DataError(f"a scan has two entries in '{column}'", where=about, hint="Give each scan one")
    unknown = scans["subject"].isna() & scans["scan_id"].isin(folds["scan_id"])
    if unknown.any():
        raise DataError(
            f"{unknown.sum()} rows name no subject, such as that of scan '{scans['scan_id'][unknown].iloc[0]}'",
            where=about,
            hint="Say who was scanned: without it nothing can be compared",
        )
    contents = {f"series in {folder}": series_hashes(SeriesCache(folder)) for folder in options.cache}
    if options.files:
        _need(scans, ("bold",), about)
        contents["file"] = file_hashes(scans)
    for source, hashes in contents.items():
        lost = len(set(folds["scan_id"]) - set(hashes.index))
        if lost:
            log.warning("%s: nothing to compare for %d scans", source, lost)
    kinds = [kind for kind in ("scan_id", "subject", "group") if kind in scans]
    if "group" not in kinds:
        log.warning("%s has no column 'group': families are not compared", about)
    leaks = find_leaks(folds, scans, kinds, contents)
    if leaks:
        raise LeakError("; ".join(map(str, leaks)), where=options.table, hint=HINT)
    n_folds, n_scans = folds["fold"].nunique(), folds["scan_id"].nunique()
    log.info("no leak in %d folds of %d scans; compared: %s", n_folds, n_scans, ", ".join([*kinds, *contents]))


def _read(path: Path) -> pd.DataFrame:
    """A table with every cell as text, tab- or comma-separated by its name."""
    separator = "," if path.suffix == ".csv" else "\t"
    try:
        table = pd.read_csv(path, sep=separator, dtype=str, na_values=[MISSING, ""], keep_default_na=False)
        return table.apply(lambda column: column.str.strip())
    except FileNotFoundError:
        raise DataError("file not found", where=path) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable table ({error})", where=path, hint="Give a .tsv or .csv file") from None


def _need(table: pd.DataFrame, columns: Sequence[str], where: Path) -> None:
    for column in columns:
        if column not in table:
            hint = f"Columns there: {', '.join(map(str, table.columns))}"
            if column == "subject":
                hint += ". Give the table of scans with --scans"
            raise DataError(f"no column '{column}'", where=where, hint=hint)
